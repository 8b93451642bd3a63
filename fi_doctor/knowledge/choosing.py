"""What vLLM would choose for a model, from a table of its releases: for machines on which vLLM cannot be asked.

The table (choices/*.yaml) has for each operator vLLM's order of candidates and what each needs, as read in the release
that the row names. Where vLLM can be imported, its own selectors are asked instead (facts/choices.py).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.errors import BrokenDoctorError
from fi_doctor.knowledge.decode import decode_record, read_yaml
from fi_doctor.model import Evidence, Strict
from fi_doctor.model.choices import Choice, Rejected, Served
from fi_doctor.model.traits import Trait, Traits

_SHIPPED = Path(__file__).parent / "choices"
_MAJORS = (8, 9, 10, 12)  # of the compute capabilities for which the releases were read
# Trait -> the values with which the condition holds; all must hold.
_When = dict[str, tuple[Trait, ...]]


class _Need(Strict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a candidate cannot do: when all of `when` holds it is rejected, in vLLM's words or close to them."""

    when: _When = {}
    unless: _When = {}
    why: str
    source: str = ""  # file:line, where it is not beside the row's own


class _Runs(Strict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of features.yaml that a candidate runs through."""

    id: str
    when: _When = {}


class _Candidate(Strict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    flashinfer: bool = False
    features: tuple[_Runs, ...] = ()
    rejected: tuple[_Need, ...] = ()
    tried: _When = {}  # with other values no row of features.yaml tells of it


class _Row(Strict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operator: Served
    layers: str
    when: _When = {}
    forced_by: str = ""  # the option that names a candidate; vLLM then takes it or refuses to start
    names: dict[str, str] = {}  # what that option calls a candidate -> its name, where they differ
    source: str
    candidates: tuple[_Candidate, ...]


class _Table(Strict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file: what holds for a range of releases."""

    vllm: str
    read_in: str
    unknown: dict[Served, tuple[_Need, ...]] = {}  # where the rows of an operator do not tell what is chosen, and why
    rows: tuple[_Row, ...]


def choose(traits: Traits, options: Mapping[str, object], vllm_version: str) -> tuple[Choice, ...]:
    """The choices for the traits of a model, a deployment and a GPU; none for a release older or newer than was read.

    Between two releases that were read, what both choose; an operator for which they differ is not known.
    traits: model/traits.py makes them of config.json, the options and the GPU.
    """
    table = _table_for(vllm_version)
    if table is not None:
        return tuple(_read_in(one, table, vllm_version) for one in _by_table(table, traits, options))
    sides = _sides(vllm_version)
    if sides is None:
        return ()
    before, after = sides
    earlier = {(one.operator, one.layers): one for one in _by_table(before, traits, options)}
    later = {(one.operator, one.layers): one for one in _by_table(after, traits, options)}
    keys = dict.fromkeys((*earlier, *later))
    return tuple(_between(earlier.get(key), later.get(key), sides, vllm_version) for key in keys)


def _read_in(choice: Choice, table: _Table, vllm_version: str) -> Choice:
    """The choice, which says so where another release of the table's range was read."""
    if Version(vllm_version).public == Version(table.read_in).public:
        return choice
    read = f"read in vLLM {table.read_in}"
    return replace(choice, how=choice.how.replace(read, f"{read} and not in {vllm_version}", 1))


def has_table(vllm_version: str) -> bool:
    """Whether a release was read itself, or one that differs by its patch only."""
    return _table_for(vllm_version) is not None


def _by_table(table: _Table, traits: Traits, options: Mapping[str, object]) -> tuple[Choice, ...]:
    seen: set[tuple[str, str]] = set()
    found: list[Choice] = []
    for row in table.rows:
        if (row.operator, row.layers) in seen or not _holds(row.when, traits):
            continue
        seen.add((row.operator, row.layers))
        found.append(_decide(row, traits, options, table))
    return tuple(found)


def _between(one: Choice | None, other: Choice | None, sides: tuple[_Table, _Table], vllm_version: str) -> Choice:
    """What the releases before and after choose alike, or that it is not known."""
    before, after = sides
    known = one or other
    if known is None:
        raise BrokenDoctorError("BUG: an operator for which neither release has a choice", todo="report it")
    if lacking := [choice for choice in (one, other) if choice and not choice.chosen]:
        return replace(lacking[0], how=f"{lacking[0].how}; {vllm_version} was not read")
    if one and other and (one.chosen, one.features) == (other.chosen, other.features):
        how = f"vLLM {before.read_in} and {after.read_in} choose alike, {vllm_version} was not read; {one.how}"
        return replace(one, rejected=tuple(part for part in one.rejected if part in other.rejected), how=how)
    first, second = (choice.chosen if choice else "something" for choice in (one, other))
    how = f"vLLM {before.read_in} {first} and {after.read_in} {second} would choose; {vllm_version} was not read"
    return Choice(operator=known.operator, layers=known.layers, chosen="", is_flashinfer=None, how=how)


def _sides(vllm_version: str) -> tuple[_Table, _Table] | None:
    """The tables of the releases that were read just before and just after this one; None where one is lacking."""
    if (asked := parse_version(vllm_version)) is None:
        return None
    before = [table for table in tables() if Version(table.read_in) < asked]
    after = [table for table in tables() if Version(table.read_in) > asked]
    return (before[-1], after[0]) if before and after else None


def features_of(choice: Choice, traits: Traits, vllm_version: str) -> tuple[str, ...]:
    """The rows of features.yaml that a choice runs through, by its name in the table: for what vLLM itself answered."""
    table = _table_for(vllm_version)
    found = [_features(one, choice, traits) for one in ((table,) if table else _sides(vllm_version) or ())]
    return found[0] if found and all(one == found[0] for one in found) else ()


def _features(table: _Table, choice: Choice, traits: Traits) -> tuple[str, ...]:
    rows = [row for row in table.rows if row.operator == choice.operator and _holds(row.when, traits)]
    named = (candidate for row in rows for candidate in row.candidates if candidate.name == choice.chosen)
    candidate = next(named, None)
    return _runs(candidate, traits) if candidate else ()


def _runs(candidate: _Candidate, traits: Traits) -> tuple[str, ...]:
    if not _holds(candidate.tried, traits):
        return ()
    return tuple(runs.id for runs in candidate.features if _holds(runs.when, traits))


def _decide(row: _Row, traits: Traits, options: Mapping[str, object], table: _Table) -> Choice:
    how = f"table, read in vLLM {table.read_in}: {row.source}"
    if traits["major"] not in _MAJORS:
        return _open(row, "", f"the table was not read for SM{traits['sm']}; {how}")
    if lacking := [need.why for need in table.unknown.get(row.operator, ()) if _rules_out(need, traits)]:
        return _open(row, "", f"{', '.join(lacking)}; {how}")
    asked = str(options.get(row.forced_by) or "") if row.forced_by else ""
    given = row.names.get(asked.lower().replace("-", "_"), asked) if asked not in ("", "auto") else ""
    name = given.upper()
    if name and name not in {candidate.name.upper() for candidate in row.candidates}:
        why = f"{row.forced_by}={asked} was asked for, of which the table does not know whether it serves"
        return _open(row, given, f"{why}; {how}")
    chosen: _Candidate | None = None
    rejected: list[Rejected] = []
    for candidate in row.candidates:
        reasons = [need.why for need in candidate.rejected if _rules_out(need, traits)]
        if name and candidate.name.upper() != name:
            rejected.append(Rejected(name=candidate.name, why=f"{row.forced_by}={asked} was asked for"))
        elif reasons:
            rejected.append(Rejected(name=candidate.name, why="; ".join(reasons)))
        elif chosen is None:
            chosen = candidate
        else:
            rejected.append(Rejected(name=candidate.name, why=f"could serve; vLLM's order has {chosen.name} before it"))
    if chosen is None:
        said = f"nothing serves: vLLM refuses to start with {row.forced_by}={asked}" if name else "nothing serves"
        return Choice(
            operator=row.operator,
            layers=row.layers,
            chosen="none",
            is_flashinfer=False,
            rejected=tuple(rejected),
            how=f"{said}; {how}",
            evidence=Evidence.DECLARED,
        )
    return Choice(
        operator=row.operator,
        layers=row.layers,
        chosen=chosen.name,
        is_flashinfer=chosen.flashinfer,
        features=_runs(chosen, traits),
        rejected=tuple(rejected),
        how=how,
        evidence=Evidence.DECLARED,
    )


def _open(row: _Row, name: str, how: str) -> Choice:
    """What the row does not tell. name: what was forced, "" for nothing."""
    return Choice(operator=row.operator, layers=row.layers, chosen=name, is_flashinfer=None, how=how)


def _rules_out(need: _Need, traits: Traits) -> bool:
    return _holds(need.when, traits) and not (need.unless and _holds(need.unless, traits))


def _holds(when: _When, traits: Traits) -> bool:
    # True == 1 in Python, and a head size of 1 is no sink: the types must agree too.
    values: Mapping[str, object] = traits
    return all(any(type(one) is type(values[key]) and one == values[key] for one in when[key]) for key in when)


def _table_for(version: str) -> _Table | None:
    if (asked := parse_version(version)) is None:
        return None
    return next((table for table in tables() if SpecifierSet(table.vllm).contains(asked, prereleases=True)), None)


@functools.cache
def tables() -> tuple[_Table, ...]:
    """The tables that ship with fi-doctor.

    Errors: BrokenDoctorError that lists what is wrong in all files.
    """
    errors: list[str] = []
    found = []
    for path in sorted(_SHIPPED.glob("*.yaml")):
        table = decode_record(_Table, read_yaml(path, _SHIPPED, errors), path.name, errors)
        if table is not None:
            found.append(table)
            errors += [f"{path.name}: {line}" for line in _unknown_traits(table)]
    if errors:
        raise BrokenDoctorError(
            "the table of choices that ships with fi-doctor cannot be read", why="; ".join(errors), todo="report it"
        )
    return tuple(found)


def _unknown_traits(table: _Table) -> list[str]:
    known = set(Traits.__annotations__)
    candidates = [candidate for row in table.rows for candidate in row.candidates]
    needs = [need for candidate in candidates for need in candidate.rejected]
    needs += [need for several in table.unknown.values() for need in several]
    runs = [one for candidate in candidates for one in candidate.features]
    conditions = (
        *(row.when for row in table.rows),
        *(need.when for need in needs),
        *(need.unless for need in needs),
        *(one.when for one in runs),
        *(candidate.tried for candidate in candidates),
    )
    used = {name for condition in conditions for name in condition}
    return [f"{name}: no such trait; they are {', '.join(sorted(known))}" for name in sorted(used - known)]
