"""The architecture tags ("90a", "120f") that the installed FlashInfer compiles for, by its own rule.

The rule is flashinfer/compilation_context.py, CompilationContext.__init__, and it changed often: 0.5 takes the
environment literally and appends 'a' to every device from SM 9.0 on, 0.6.7 made every SM 12.x "120f", 0.6.8 tells 12.0
from 12.1, 0.7 accepts CUDA 12.8 for 12.0. So the installed file is replayed, not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

from packaging.version import Version

from fi_doctor.facts.files import read_whole, why_not_python
from fi_doctor.facts.replay import PROGRAM_ERRORS, Replay, Unreplayable
from fi_doctor.model import GpuFacts, Missing, ToolkitFacts

VARIABLE = "FLASHINFER_CUDA_ARCH_LIST"

_RULE = "compilation_context.py"
_EMPTY = 'FlashInfer has no architecture to build for (later it says "requires GPUs with sm75 or higher")'


def architectures(
    root: Path, environ: Mapping[str, str], gpus: GpuFacts, toolkit: ToolkitFacts
) -> tuple[tuple[str, ...] | Missing, str]:
    """The tags in the order in which FlashInfer names its cache folder, and where they come from.

    root: the flashinfer package folder. Missing says why there are none and what FlashInfer does about it; an error of
    the rule stops `import flashinfer` when the variable is set and is swallowed when the GPUs are asked.
    """
    if VARIABLE in environ:
        return _replayed(root, environ, (), toolkit.gate_version), VARIABLE
    capabilities = _capabilities(gpus, toolkit)
    if isinstance(capabilities, Missing):
        return capabilities, "GPUs"
    return for_capabilities(root, capabilities, toolkit.gate_version), "GPUs"


def for_capabilities(
    root: Path, capabilities: tuple[int, ...], gate_version: str | Missing
) -> tuple[str, ...] | Missing:
    """The same for GPUs of these compute capabilities, where no variable names any. gate_version: "12.8"."""
    return _replayed(root, {}, capabilities, gate_version)


def of_list(value: str, by_number: Callable[[int], tuple[str, ...] | Missing] | None) -> tuple[str, ...] | Missing:
    """The same for what the variable says, of a release whose files are not here.

    by_number: compute capability -> the tags of an entry that ends with no letter; None for a release that takes every
    entry as it stands. Source: flashinfer/compilation_context.py:34 (0.5.3), :58 (0.6.13).
    """
    targets: set[tuple[int, str]] = set()
    try:
        for entry in value.split(" "):
            major, minor = entry.split(".")
            targets.add((int(major), minor))
            if by_number is None or minor[-1].isalpha():
                continue
            tags = by_number(int(major) * 10 + int(minor))
            if isinstance(tags, Missing):
                return Missing(reason=f"{VARIABLE}={value!r}: {tags.reason}")
            targets.remove((int(major), minor))
            targets |= {(int(major), tag.removeprefix(str(int(major)))) for tag in tags}
    except (ValueError, IndexError) as error:
        return _refused({VARIABLE: value}, error)
    return tuple(f"{major}{minor}" for major, minor in sorted(targets))


def _capabilities(gpus: GpuFacts, toolkit: ToolkitFacts) -> tuple[int, ...] | Missing:
    """Compute capability of each GPU that torch would enumerate, in CUDA's order."""
    if isinstance(gpus.gpus, Missing):
        return _none(gpus.gpus.reason)
    seen = [gpu for gpu in gpus.gpus if not isinstance(gpu.cuda_index, Missing)]
    if not seen:
        first = next((gpu.cuda_index.reason for gpu in gpus.gpus if isinstance(gpu.cuda_index, Missing)), "")
        return _none(f"CUDA sees none of {len(gpus.gpus)} GPUs: {first}" if first else "this machine has no GPU")
    if isinstance(toolkit.torch_cuda, Missing):
        return _none(f"torch sees no GPU: {toolkit.torch_cuda.reason}")
    unknown = next((gpu for gpu in seen if isinstance(gpu.sm, Missing)), None)
    if unknown is not None and isinstance(unknown.sm, Missing):
        return Missing(
            reason=f"the compute capability of {unknown.name} ({unknown.uuid}) is not known: {unknown.sm.reason}"
        )
    order = sorted((gpu.cuda_index, gpu.sm) for gpu in seen if isinstance(gpu.cuda_index, int))
    return tuple(sm for _, sm in order if isinstance(sm, int))


def _none(reason: str) -> Missing:
    return Missing(reason=f"{_EMPTY}: {VARIABLE} is not set and {reason}")


def _replayed(
    root: Path, environ: Mapping[str, str], capabilities: tuple[int, ...], gate_version: str | Missing
) -> tuple[str, ...] | Missing:
    rule = root / _RULE
    try:
        replay = Replay(read_whole(rule).decode(), _world(environ, capabilities, gate_version))
        targets = replay.construct("CompilationContext").TARGET_CUDA_ARCHS
        tags = tuple(f"{major}{minor}" for major, minor in sorted(targets))
    except OSError as error:
        return Missing(reason=f"{rule}: {error.strerror or error}")
    except (SyntaxError, UnicodeDecodeError, RecursionError, MemoryError) as error:
        return Missing(reason=f"{rule} is not Python: {why_not_python(error)}")
    except Unreplayable as error:
        return Missing(reason=f"{rule} has a rule that fi-doctor cannot follow: {error}")
    except PROGRAM_ERRORS as error:
        return _refused(environ, error)
    if tags:
        return tags
    if replay.warnings:
        return Missing(reason=f'{_EMPTY}: it logs "{replay.warnings[-1]}"')
    return _none("there is no GPU")


def _refused(environ: Mapping[str, str], error: Exception) -> Missing:
    """What `import flashinfer` raises, and which trap it is."""
    value = environ.get(VARIABLE, "")
    if not value:
        trap = "it is set but empty; unset it"
    elif ";" in value or "," in value:
        trap = "the list is separated by one space, not by ';' or ','"
    elif value != " ".join(value.split()):
        trap = "the list is split at every single space, so a double, leading or trailing one counts as an empty entry"
    else:
        trap = "entries look like 9.0a"
    if isinstance(error, RuntimeError):
        return Missing(reason=f"import flashinfer raises RuntimeError: {error} ({VARIABLE}={value!r})")
    kind = type(error).__name__
    return Missing(reason=f"import flashinfer raises {kind}: {error}, for {VARIABLE}={value!r}: {trap}")


def _world(environ: Mapping[str, str], capabilities: tuple[int, ...], gate_version: str | Missing) -> dict[str, object]:
    """What the rule looks at: the environment, torch's devices and the CUDA version that FlashInfer compares."""

    def is_cuda_version_at_least(wanted: str) -> bool:
        if isinstance(gate_version, Missing):
            raise RuntimeError(gate_version.reason)  # noqa: TRY004 - what get_cuda_version() raises there
        return Version(gate_version) >= Version(wanted)

    cuda = SimpleNamespace(
        device_count=lambda: len(capabilities),
        get_device_capability=lambda device: divmod(capabilities[device], 10),
        is_available=lambda: bool(capabilities),
    )
    return {
        "os": SimpleNamespace(environ=environ, getenv=environ.get),
        "torch": SimpleNamespace(cuda=cuda),
        "is_cuda_version_at_least": is_cuda_version_at_least,
    }
