"""The variables of the place where vLLM is started, against those of its workers on other nodes."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Mapping, Sequence

from fi_doctor.diagnosis.fact_changes import Told
from fi_doctor.errors import UsageError
from fi_doctor.fleet.explaining import group_name
from fi_doctor.fleet.reading import GROUPS, NONE, Reader, Reading
from fi_doctor.fleet.wording import value
from fi_doctor.model import Missing, RayCopies, Report, Vllm
from fi_doctor.model.fleet import Value, VariableDrift

_ENVIRONMENT = GROUPS.index("environment")
# What a shell, an image or Ray sets for itself, on each node its own: nobody expects it to be handed on.
_OF_A_SHELL = (
    *("HOME", "LANG", "LC_ALL", "PATH", "XDG_"),
    *("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "OMP_NUM_THREADS", "PYTHONBREAKPOINT", "RANK", "VLLM_HOST_IP"),
)


def of_driver(reading: Reading, readings: Sequence[Reading], reader: Reader) -> tuple[VariableDrift, ...]:
    """Each variable of the driver's that some worker has otherwise."""
    here = _variables(reading, reader)
    there: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in readings:
        if one.sections[_ENVIRONMENT] == reading.sections[_ENVIRONMENT]:
            continue
        worker = _variables(one, reader)
        for name in here.keys() | worker.keys():
            if here.get(name, "") != worker.get(name, ""):
                there[name][worker.get(name, "")].append(one.name)
    report = reader.sample(reading)
    found = (_drift(name, here.get(name, ""), values, report) for name, values in sorted(there.items()))
    return tuple(one for one in found if not one.name.startswith(_OF_A_SHELL))


def named(name: str, readings: Sequence[Reading]) -> Reading:
    """The node of this name. Errors: UsageError where none is called so."""
    found = next((one for one in readings if one.name == name), None)
    if found is None:
        near = difflib.get_close_matches(name, [one.name for one in readings], 3)
        raise UsageError(
            f"--driver: there is no node {name!r}",
            why=f"nodes are called as their files; the nearest: {', '.join(near) or 'none'}",
            todo="fi-doctor fleet --reports FOLDER --driver NODE",
        )
    return found


def _variables(reading: Reading, reader: Reader) -> dict[str, str]:
    number = reading.sections[_ENVIRONMENT]
    section: dict[str, Told] = {} if number == NONE else reader.sections[number]
    return {name.partition(".")[2]: value(told, longest=1000) for name, told in section.items()}


def _drift(name: str, driver: str, values: dict[str, list[str]], report: Report) -> VariableDrift:
    is_copied = _is_copied(name, report)
    workers = sorted(values.items(), key=lambda item: (-len(item[1]), item[0]))
    where = ", ".join(f"{_set(one)} on {group_name(of)}" for one, of in workers[:2])
    copied = {
        True: "vLLM hands the driver's to its Ray workers",
        False: "vLLM does not hand it to Ray workers",
        None: "not known whether vLLM hands it to Ray workers",
    }
    handed = copied[is_copied] if driver else "the driver has none to hand on"
    return VariableDrift(
        name=name,
        driver=driver,
        workers=tuple(Value(value=one, nodes=tuple(of)) for one, of in workers),
        said=f"{name} is {_set(driver)} on the driver, {where}; {handed}",
        is_copied=is_copied if driver else False,
    )


def _set(text: str) -> str:
    return value(text) if text else "not set"


def _is_copied(name: str, report: Report) -> bool | None:
    """Whether the driver's vLLM hands the variable to Ray workers: one that it registers, or that ray_env.py names."""
    facts = report.facts
    copies = facts.ray_copies
    if isinstance(copies, RayCopies) and name in copies.kept_back:
        return False
    if isinstance(facts.vllm, Vllm) and name in facts.vllm.variables:
        return True
    if isinstance(copies, RayCopies):
        prefixes = (*copies.prefixes, *_listed(facts.environment, "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"))
        names = (*copies.names, *_listed(facts.environment, "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"))
        return name in names or name.startswith(prefixes)
    assert isinstance(copies, Missing)  # noqa: S101 - one of the two
    return None


def _listed(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Names with commas, as vLLM reads them."""
    return tuple(part for one in environment.get(name, "").split(",") if (part := one.strip()))
