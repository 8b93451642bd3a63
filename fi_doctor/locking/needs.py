"""What a row rests on in any case, so that one of which a lock names less is not believed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fi_doctor.locking.model import Key, Lock, LockedRow, key_of
from fi_doctor.locking.names import FLASHINFER, VLLM
from fi_doctor.model import Missing, Outcome, ProbeSpec

_IMPORT = "import."
_RUN_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")


def is_import(feature: str) -> bool:
    """Whether a row tells that a package can be imported, which every other row needs."""
    return feature.startswith(_IMPORT)


def needs_flashinfer(spec: ProbeSpec) -> bool:
    """Whether a probe imports FlashInfer."""
    return bool(spec.module or spec.requires.flashinfer) or any(
        name.startswith("flashinfer") for name in (spec.feature.rpartition(".")[2], *spec.requires.symbols)
    )


def imports_of(specs: Iterable[ProbeSpec]) -> frozenset[str]:
    """The rows of the imports that these probes begin with."""
    names = ("torch", "flashinfer") if any(map(needs_flashinfer, specs)) else ("torch",)
    return frozenset(f"{_IMPORT}{name}" for name in names)


def loads_group(feature: str) -> str:
    """The group of what an import loads."""
    return f"loads:{feature.removeprefix(_IMPORT)}"


def always(feature: str, probes: Iterable[str]) -> tuple[str, ...]:
    """The inputs of every row."""
    named = (f"probe:{probe}" for probe in probes)
    variables = (f"variable:{name}" for name in _RUN_VARIABLES)
    return "python", f"knowledge:{feature}", "package:torch", f"package:{VLLM}", *named, *variables


def gpus(sm: int | Missing, specs: Iterable[ProbeSpec]) -> tuple[str, ...]:
    """The GPUs of a row with these probes, as many as they need; of several also how they reach each other."""
    known = tuple(specs)
    ranks = max((spec.gpus for spec in known), default=1)
    if isinstance(sm, Missing) or not ranks:
        return ()
    if ranks == 1:
        return (f"gpu:sm{sm}",)
    all_of = {str(max(spec.gpus, spec.most_gpus)) for spec in known if not spec.worlds}
    these = {f"{number}{'' if number == spec.gpus else '+'}" for spec in known for number in spec.worlds}
    return f"gpu:sm{sm}", f"gpu:sm{sm}:{ranks}", *(f"peers:sm{sm}:{one}" for one in sorted(all_of | these)), "tracing"


def unfounded(lock: Lock, specs: Iterable[ProbeSpec]) -> dict[Key, str]:
    """The rows that name less than every row of their kind rests on, each with what is missing first."""
    by_id = {spec.id: spec for spec in specs}
    imports = frozenset(row.feature for row in lock.rows if is_import(row.feature))
    found = {}
    for row in lock.rows:
        outcomes = tuple(one for one in lock.outcomes if key_of(one.feature, one.sm) == row.key)
        lacking = [name for name in _least(row, outcomes, by_id, imports) if name not in (*row.inputs, *row.groups)]
        if lacking:
            found[row.key] = f"the lock does not say that it rests on {lacking[0]}"
    return found


def _least(
    row: LockedRow, outcomes: tuple[Outcome, ...], by_id: Mapping[str, ProbeSpec], imports: frozenset[str]
) -> list[str]:
    specs = tuple(by_id[one.probe] for one in outcomes if one.probe in by_id)
    found = list(always(row.feature, (one.probe for one in outcomes)))
    needed = imports_of(specs)
    if lacking := needed if is_import(row.feature) else needed - imports:
        found += ["startup", *sorted(map(loads_group, lacking))]
    if not isinstance(row.sm, Missing):
        found += ["driver", *gpus(row.sm, specs)]
    if any(map(needs_flashinfer, specs)):
        found += [f"package:{FLASHINFER}", f"python:{row.feature}"]
    held = {*row.inputs, *row.groups}
    compiled = {name for one in outcomes for cell in one.cells for name in cell.modules if cell.module_from}
    found += [f"module:{name}" for name in sorted(compiled) if f"jit-cache:{name}" not in held]
    return found
