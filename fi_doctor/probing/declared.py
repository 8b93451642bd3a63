"""The PROBE literal of a probe: what may stand in it, and all that is wrong with one. Pure."""

from __future__ import annotations

import functools
import re
from typing import Any, Literal, get_type_hints

import msgspec

from fi_doctor.conditions.ranges import number_range, version_range
from fi_doctor.model import Requires, Subset
from fi_doctor.model.base import Strict

MOST_SECONDS = 7 * 24 * 60 * 60

_ID = re.compile(r"[a-z][a-z0-9_]*\.[a-z0-9_]+")


class Declared(Strict, frozen=True):
    """The PROBE literal as a person writes it."""

    id: str
    feature: str
    module: str = ""
    requires: Requires = Requires()
    variants: dict[str, Requires] = {}  # noqa: RUF012 - msgspec copies it
    gpus: int = 1
    most_gpus: int = 0
    timeout_s: int = 120
    build_timeout_s: int = 600
    compiles: tuple[Literal["nvcc", "nvrtc", "cute-dsl", "cutile", "triton", "ptx"], ...] = ("nvcc",)
    checks: Literal["numbers", "nothing", "gate"] = "numbers"
    subset: Subset | None = None


def convert(literal: dict[str, object]) -> tuple[Declared | None, list[str]]:
    """The declaration, or all its errors: each key is decoded by itself."""
    types = _types()
    errors = []
    values = {}
    for key, value in literal.items():
        if key not in types:
            errors.append(f"PROBE[{key!r}]: unknown key; known are {', '.join(types)}")
            continue
        try:
            values[key] = msgspec.convert(value, types[key])
        except msgspec.ValidationError as exc:
            errors.append(f"PROBE[{key!r}]: {exc}")
    errors += [f"PROBE[{key!r}] is missing" for key in ("id", "feature") if key not in literal]
    if errors:
        return None, errors
    probe = Declared(**values)
    return probe, _check(probe)


@functools.cache
def _types() -> dict[str, Any]:
    """Key -> its type; Python compiles each of them anew whenever it is asked."""
    return get_type_hints(Declared)


def _check(probe: Declared) -> list[str]:
    """What types cannot say."""
    errors = [
        f'PROBE[{key!r}]: expected "family.name", got {text!r}'
        for key, text in (("id", probe.id), ("feature", probe.feature))
        if not _ID.fullmatch(text)
    ]
    errors += [
        f"PROBE[{key!r}]: expected seconds above 0, a week at most, got {seconds}"
        for key, seconds in (("timeout_s", probe.timeout_s), ("build_timeout_s", probe.build_timeout_s))
        if not 0 < seconds <= MOST_SECONDS
    ]
    if probe.gpus < 0:
        errors.append(f"PROBE['gpus']: expected 0 or more, got {probe.gpus}")
    if probe.most_gpus and probe.most_gpus < probe.gpus:
        errors.append(f"PROBE['most_gpus']: expected at least PROBE['gpus'], {probe.gpus}, got {probe.most_gpus}")
    if probe.subset is not None:
        errors += _check_subset(probe.subset, probe)
    errors += _check_ranges("PROBE['requires']", probe.requires)
    if probe.requires.gpus:
        errors.append("PROBE['requires']['gpus']: only a variant has it; what all of them need is PROBE['gpus']")
    for name, requires in probe.variants.items():
        errors += _check_ranges(f"PROBE['variants'][{name!r}]", requires)
        if requires.gpus and not probe.gpus < requires.gpus <= probe.most_gpus:
            where = f"PROBE['variants'][{name!r}]['gpus']"
            errors.append(f"{where}: expected more than PROBE['gpus'], PROBE['most_gpus'] at most, got {requires.gpus}")
        if not name:
            errors.append("PROBE['variants']: a variant needs a name")
    return errors


def _check_subset(subset: Subset, probe: Declared) -> list[str]:
    if not probe.module:
        return ["PROBE['subset']: there is no module that it could be a part of"]
    errors = [
        f"PROBE['subset'][{key!r}]: no variant is called {name!r}"
        for key, names in (("variants", subset.variants), ("units_of", subset.units_of))
        for name in names
        if name not in probe.variants
    ]
    try:
        re.compile(subset.without)
    except re.error as exc:
        errors.append(f"PROBE['subset']['without']: not a regular expression: {exc}")
    return errors


def _check_ranges(where: str, requires: Requires) -> list[str]:
    ranges = {"sm": requires.sm, "flashinfer": requires.flashinfer, "nvcc": requires.nvcc, **requires.packages}
    return [
        f'{where}[{name!r}]: expected a range such as ">=90,<100", got {text!r}'
        for name, text in ranges.items()
        if not _is_range(name, text)
    ]


def _is_range(name: str, text: str) -> bool:
    """Whether the plan can read it; an empty one asks for nothing."""
    try:
        return not text or bool(number_range(text) if name == "sm" else version_range(text))
    except ValueError:
        return False
