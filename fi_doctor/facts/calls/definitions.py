"""What a def or a class of FlashInfer takes, from its text."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from fi_doctor.facts.calls.texts import Text, parsed

HEADER = re.compile(r"[ \t]*(async[ \t]+def|def|class)[ \t]+(\w+)")

# They give back a function that takes what the decorated one takes; backend_requirement takes skip_check besides.
_KEEPING = frozenset(
    [
        "flashinfer_api",
        "flashinfer_experimental_api",
        "supported_compute_capability",
        "register_custom_op",
        "register_fake_op",
        "cache",
        "lru_cache",
        "contextmanager",
        "overload",
        "staticmethod",
        "classmethod",
        "abstractmethod",
        "deprecated",
        "no_grad",
        "inference_mode",
        "disable",
        "override",
        "final",
        "backend_requirement",
    ]
)
_FIELDED = {"dataclass", "NamedTuple"}  # their constructors take the annotated names of the body
_PROPERTIES = {"property", "cached_property"}


class Signature(NamedTuple):
    """Which arguments a call may have and which it has to."""

    positional: tuple[str, ...]
    positional_only: int  # how many of them cannot be given by name
    keyword_only: frozenset[str]
    required: frozenset[str]
    takes_more: bool  # *args
    takes_any: bool  # **kwargs

    def with_self(self) -> Signature:
        """Of a method that is called as `Class.method(instance, ...)`."""
        return self._replace(positional=("self", *self.positional), required=self.required | {"self"})

    def in_order(self) -> tuple[str, ...]:
        """All names, those by position first."""
        return (*self.positional, *sorted(self.keyword_only))


EMPTY = Signature((), 0, frozenset(), frozenset(), takes_more=False, takes_any=False)


class Callee(NamedTuple):
    """Something that FlashInfer's source defines."""

    place: str  # "norm/__init__.py:41"
    kind: str  # "function", "class", "module", "value", or "unknown": something of a value
    signature: Signature | None = None
    unread: str = ""  # why there is no signature
    gives: str = ""  # the return annotation
    decorator: str = ""  # one that may change what it takes
    needs_self: bool = False  # of a method: where it is called without an instance, that has to be passed as well


def read_function(place: str, text: Text, line: int, *, is_method: bool) -> Callee:
    """A def; of a method without self, of a class method without cls."""
    node = text.head(line)
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return Callee(place, "value", unread=f"{place} cannot be read as a function")
    decorators = text.decorators(line)
    if _PROPERTIES & set(decorators):
        return Callee(place, "value", unread=f"{node.name} is a property")
    extra = frozenset({"skip_check"} if "backend_requirement" in decorators else ())
    drops = is_method and "staticmethod" not in decorators
    bound_by_class = "classmethod" in decorators or node.name in ("__new__", "__init_subclass__")
    return Callee(
        place,
        "function",
        signature_of(node.args, drops_first=drops, extra=extra),
        gives=_annotation(node.returns),
        decorator=next((name for name in decorators if name not in _KEEPING), ""),
        needs_self=drops and not bound_by_class,
    )


def signature_of(
    arguments: ast.arguments, *, drops_first: bool = False, extra: frozenset[str] = frozenset()
) -> Signature:
    """What a def takes; drops_first: without self or cls."""
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    required = positional[: len(positional) - len(arguments.defaults)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    dropped = 1 if drops_first and positional else 0
    return Signature(
        positional=tuple(positional[dropped:]),
        positional_only=max(0, len(arguments.posonlyargs) - dropped),
        keyword_only=frozenset(one.arg for one in arguments.kwonlyargs) | extra,
        required=frozenset(required[dropped:]) | {one.arg for one, default in keywords if default is None},
        takes_more=arguments.vararg is not None,
        takes_any=arguments.kwarg is not None,
    )


class ClassText:
    """One class: what its body defines, without a syntax tree of it all."""

    def __init__(self, path: str, text: Text, line: int, head: ast.ClassDef) -> None:
        self.name = head.name
        bases = [ast.unparse(base) for base in head.bases]
        self.bases = [base for base in bases if base not in ("object", "ABC", "abc.ABC")]
        self.is_enum = any(base.endswith(("Enum", "Flag")) for base in bases)
        self.has_metaclass = any(
            one.arg == "metaclass" and "ABCMeta" not in ast.unparse(one.value) for one in head.keywords
        )
        self.is_fielded = bool(_FIELDED & {*text.decorators(line), *bases})
        self._path = path
        self._text = text
        self._line = line
        self._begun, self._after = text.body(line)

    @classmethod
    def read(cls, path: str, text: Text, line: int) -> ClassText | None:
        """The class that begins there; None when it cannot be parsed."""
        head = text.head(line)
        return cls(path, text, line, head) if isinstance(head, ast.ClassDef) else None

    def member(self, name: str) -> Callee | None:
        """The last definition of the name in the body, overloads come before it; or the first `self.name =`."""
        if self.is_enum and name in ("name", "value"):
            return Callee(f"{self._path}:{self._line}", "value", unread=f"{name} is no function")
        pattern = re.compile(rf"(?:async\s+def|def|class)\s+{re.escape(name)}\b|{re.escape(name)}\s*[:=](?!=)")
        found = [number for number in self._begun if pattern.match(self._text.line(number).lstrip())]
        if not found:
            return self._set_by_instance(name)
        place = f"{self._path}:{found[-1]}"
        if not HEADER.match(self._text.line(found[-1])):
            return Callee(place, "value", unread=f"{place} does not say what {name} takes")
        return read_function(place, self._text, found[-1], is_method=True)

    def fields(self) -> Signature:
        """What the constructor of a dataclass or NamedTuple takes: its annotated names, what it inherits unread."""
        text = "\n".join(self._text.masked[self._line : self._after - 1])
        tree = parsed(f"class _:\n{text}") if text.strip() else None
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        named = [
            (one.target.id, one.value)
            for one in body
            if isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and "ClassVar" not in _annotation(one.annotation)
        ]
        inherits = bool(set(self.bases) - _FIELDED)
        names = tuple(name for name, _ in named)
        required = frozenset(name for name, value in named if value is None)
        return Signature(names, 0, frozenset(), required, takes_more=inherits, takes_any=inherits)

    def _set_by_instance(self, name: str) -> Callee | None:
        attribute = re.compile(rf"\s+self\.{re.escape(name)}\b\s*(?::[^=]+)?=(?!=)")
        numbers = range(self._line, self._after)
        set_at = next((number for number in numbers if attribute.match(self._text.line(number))), 0)
        return Callee(f"{self._path}:{set_at}", "value", unread=f"{name} is set by an instance") if set_at else None


def _annotation(node: ast.expr | None) -> str:
    """An annotation's text, that of a quoted one too."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node) if node is not None else ""
