"""Listens while vLLM's own selectors run: what each was asked, what it answered, and what it rejected and why.

Loaded by selecting.py, beside which it lies. A listener calls what it listens to and hands its answer on unchanged.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import logging
import re
from typing import Any

_LONGEST = 300
_TELLING = re.compile(r"^(?:Using|Selected|FlashInfer|Auto-select|Found|DeepGEMM|Disabl|Enabl|Your GPU|MoE|Setting)")


class Watch:
    """What was heard, in order."""

    def __init__(self) -> None:
        self.attention: list[dict[str, Any]] = []
        self.experts: list[dict[str, str]] = []
        self.linear: list[dict[str, str]] = []
        self.log: list[dict[str, str]] = []
        self._pending: dict[str, Any] = {}

    def clear(self) -> None:
        """Forget everything: the next model begins."""
        for heard in (self.attention, self.experts, self.linear, self.log):
            heard.clear()

    def listening(self, base: Any) -> Any:
        """The platform class `base`, with its choice of attention backends listened to."""
        watch = self
        parent: Any = lambda cls, above: super(above, cls)  # noqa: E731 - `made` exists only when it is called

        def valid(cls: Any, *args: Any, **kwargs: Any) -> Any:
            found, reasons = parent(cls, made).get_valid_backends(*args, **kwargs)
            watch._pending = {"valid": _names(found), "rejected": _reasons(reasons)}
            return found, reasons

        def chosen(cls: Any, *args: Any, **kwargs: Any) -> Any:
            watch._pending = {}
            record: dict[str, Any] = {"asked": _asked(args, kwargs)}
            try:
                record["path"] = parent(cls, made).get_attn_backend_cls(*args, **kwargs)
            except Exception as error:
                record["error"] = f"{type(error).__name__}: {error}"
                raise
            finally:
                watch.attention.append(dict(record, **watch._pending, where=where(base.get_attn_backend_cls)))
            return record["path"]

        body: dict[str, Any] = {"get_attn_backend_cls": classmethod(chosen)}
        if hasattr(base, "get_valid_backends"):
            body["get_valid_backends"] = classmethod(valid)
        made: Any = type(base.__name__, (base,), body)
        return made

    def listen_to_experts(self) -> None:
        """Each class of experts that an oracle tries says whether it can, and why not."""
        try:
            module = importlib.import_module("vllm.model_executor.layers.fused_moe.modular_kernel")
        except ImportError:
            return
        for name in ("FusedMoEExperts", "FusedMoEPermuteExpertsUnpermute"):
            for kind in _family(getattr(module, name, None)):
                if "is_supported_config" in vars(kind):
                    self._listen_to_config(kind)

    def _listen_to_config(self, kind: Any) -> None:
        ours = inspect.getattr_static(kind, "is_supported_config").__func__
        place = where(ours)

        def asked(cls: Any, *args: Any, **kwargs: Any) -> Any:
            can, why = ours(cls, *args, **kwargs)
            reason = "" if can else short(why)
            if "current device" in reason:
                reason += f" ({where(cls._supports_current_device)})"
            self.experts.append({"name": cls.__name__, "why": reason, "where": place})
            return can, why

        kind.is_supported_config = staticmethod(asked)

    def listen_to_linear(self) -> None:
        """Each linear kernel that a chooser tries says whether the device and the layer suit it."""
        try:
            module = importlib.import_module("vllm.model_executor.kernels.linear")
        except ImportError:
            return
        kinds = {value for value in vars(module).values() if inspect.isclass(value)}
        parents = {parent for kind in kinds for parent in kind.__mro__ if parent.__module__.startswith("vllm.")}
        for kind in parents:
            for name in ("is_supported", "can_implement"):
                if isinstance(vars(kind).get(name), classmethod):
                    self._listen_to_kernel(kind, name)

    def _listen_to_kernel(self, kind: Any, name: str) -> None:
        ours = vars(kind)[name].__func__
        place = where(ours)

        def asked(cls: Any, *args: Any, **kwargs: Any) -> Any:
            answer = ours(cls, *args, **kwargs)
            can, why = answer if isinstance(answer, tuple) else (answer, "")
            self.linear.append({"name": cls.__name__, "why": "" if can else short(why or "no"), "where": place})
            return answer

        setattr(kind, name, classmethod(asked))

    def listen_to_log(self) -> None:
        """What vLLM logs of its selections, with the place that says it; nothing of it is printed any more."""
        others = logging.Logger.callHandlers

        def heard(logger: logging.Logger, record: logging.LogRecord) -> None:
            if record.name.partition(".")[0] == "vllm":
                self._hear(record)
            else:
                others(logger, record)

        kind: Any = logging.Logger
        kind.callHandlers = heard
        logging.getLogger("vllm").setLevel(logging.DEBUG)

    def _hear(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:
            return
        failed = record.levelno >= logging.ERROR
        if (failed or _TELLING.match(text) or "backend" in text.lower()) and len(self.log) < 200:
            text += f" {record.exc_info[1]!r}" if failed and record.exc_info else ""
            self.log.append({"text": short(text), "where": f"{_inside(record.pathname)}:{record.lineno}"})


def where(function: Any) -> str:
    """vllm/platforms/cuda.py:420 of a function or method."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    return f"{_inside(code.co_filename)}:{code.co_firstlineno}" if code else ""


def short(text: Any) -> str:
    """A reason on one line."""
    line = " ".join(str(text).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def _inside(path: str) -> str:
    _, found, rest = path.rpartition("/vllm/")
    return f"vllm/{rest}" if found else path.rpartition("/")[2]


def _family(kind: Any) -> list[Any]:
    if kind is None:
        return []
    return [kind, *(below for child in kind.__subclasses__() for below in _family(child))]


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    """The arguments of a call in words, a record's fields one by one; what is unset is left out."""
    found: dict[str, str] = {}
    for name, value in [*((str(at), arg) for at, arg in enumerate(args)), *kwargs.items()]:
        if hasattr(value, "_asdict"):
            found.update({key: short(part) for key, part in value._asdict().items() if part not in (None, False)})
        elif value not in (None, False):
            found[name] = short(value.name if isinstance(value, enum.Enum) else value)
    return found


def _names(found: Any) -> list[str]:
    """Backends by name, best first: (enum, priority) in older releases, records with a .backend in newer ones."""
    names = []
    for item in found:
        backend = getattr(item, "backend", None) or next((part for part in item if isinstance(part, enum.Enum)), item)
        names.append(str(getattr(backend, "name", backend)))
    return names


def _reasons(reasons: Any) -> list[dict[str, str]]:
    """{backend: reasons} or {backend: (priority, reasons)} as names and one line each."""
    told = []
    for backend, why in reasons.items():
        lines = why[1] if isinstance(why, tuple) else why
        told.append({"name": str(getattr(backend, "name", backend)), "why": short("; ".join(map(str, lines)))})
    return told
