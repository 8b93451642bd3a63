"""Parts of modules, which stand for the whole where that takes too long: for which variants, and built where.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from fi_doctor.inside import remembered, subset
from fi_doctor.inside.instances import CannotSplit
from fi_doctor.inside.modules import LOOKS, Module, look
from fi_doctor.inside.units import few, units_of


class PartSpec(NamedTuple):
    """What is needed of a JitSpec."""

    name: str
    lock_path: Path
    library: Path

    def get_library_path(self) -> Path:
        """Where the part is, once it is built."""
        return self.library


def take_parts(modules: dict[str, Module], probes: list[dict[str, Any]], folder: str) -> None:
    """Put parts in the place of modules of which much is to be compiled and every user can do with a part.

    Where all users want a part only if time is short, the parts are added to spare, and the module stays as it is.
    modules: changed. probes: as in the job, with "subset". folder: where parts are kept; "" for none at all.
    """
    wishes = {probe["id"]: probe["subset"] for probe in probes if probe.get("subset")}

    def made(whole: Module) -> list[Module]:
        return parts_of(whole, {probe: wishes[probe] for probe in sorted(_users(whole))}, Path(folder) / whole.name)

    wholes = [one for one in modules.values() if _has_parts(one, wishes)] if folder else []
    with ThreadPoolExecutor(max_workers=LOOKS) as pool:
        found = list(pool.map(made, wholes))
    for whole, parts in zip(wholes, found):
        is_spare = _is_spare(whole, wishes)
        rest = [user for user in whole.users if not any(user in part.users for part in parts)]
        if not is_spare:
            whole.users = rest
            whole.settle("whole")
        elif rest or any(part.state == "left" for part in parts):
            continue
        for part in parts:
            part.is_spare = is_spare
            modules[part.name] = part


def _has_parts(whole: Module, wishes: dict[str, dict[str, Any]]) -> bool:
    """Whether parts of it are made, all that is to be compiled of it being too much."""
    if whole.state or not units_of(whole.name) or not _users(whole) <= wishes.keys():
        return False
    return whole.objects > few(whole.name) or _is_spare(whole, wishes)


def _is_spare(whole: Module, wishes: dict[str, dict[str, Any]]) -> bool:
    return all(wishes[probe]["if_short"] for probe in _users(whole))


def _users(whole: Module) -> set[str]:
    return {probe for probe, _ in whole.users}


def parts_of(whole: Module, wishes: dict[str, dict[str, Any]], place: Path) -> list[Module]:
    """The parts that probes need, with one ninja file written for all and what is stale of each counted."""
    units = units_of(whole.name)
    parts: dict[str, Module] = {}
    chosen = {}
    for user, wished, without in _uses(whole, wishes):
        name = f"{whole.name}.{wished}{'.without' if without else ''}"
        if name in parts:
            parts[name].users.append(user)
            continue
        part = Module(PartSpec(name, place / "lock", place / name / f"{whole.name}.so"), [user])
        part.part_of = whole.name
        parts[name] = part
        if wished in units:
            chosen[name] = subset.Wish(units[wished], without)
        else:
            part.settle("left", f"nothing is known of {wished} as a part of {whole.name}")
    written: dict[str, subset.Part | CannotSplit] = {}
    try:
        if chosen:
            written = subset.write(Path(whole.ninja_file), whole.name, chosen, place)
    except (CannotSplit, OSError, UnicodeDecodeError) as exc:
        written = dict.fromkeys(chosen, CannotSplit(str(exc)))
    for name, done in written.items():
        part = parts[name]
        if not isinstance(done, subset.Part):
            part.settle("left", f"no part can be made of {whole.name}: {done}")
            continue
        part.workdir, part.ninja_file, part.target = str(place), str(done.ninja_file), str(done.library)
        part.own = (*done.own, done.library.name)
    look([part for part in parts.values() if not part.state])
    remembered.settle([part for part in parts.values() if not part.state])
    count = max((done.all_objects for done in written.values() if isinstance(done, subset.Part)), default=0)
    is_begun = sum(part.objects for part in parts.values()) < count
    for part in parts.values():
        part.is_begun = is_begun
    return list(parts.values())


def _uses(whole: Module, wishes: dict[str, dict[str, Any]]) -> Iterator[tuple[list[str], str, str]]:
    """Each variant for which a part suffices, the name of the part, and what is to be left out of it."""
    for probe, wish in wishes.items():
        for user in whole.users:
            if user[0] == probe and user[1] in (wish["variants"] or (user[1],)):
                yield user, wish["units_of"].get(user[1], wish["units"]), wish["without"]
