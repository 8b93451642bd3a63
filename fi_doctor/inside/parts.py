"""Parts of modules, which stand for the whole where that takes too long: for which variants, and built where.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fi_doctor.inside import subset
from fi_doctor.inside.modules import Module, look
from fi_doctor.inside.units import MODULES

FEW = 20  # objects: no part has fewer, so what is left of a whole module is compiled instead


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

    modules: changed. probes: as in the job, with "subset". folder: where parts are kept; "" for none at all.
    """
    wishes = {probe["id"]: probe["subset"] for probe in probes if probe.get("subset")}
    for whole in list(modules.values()) if folder else ():
        users = {user for user, _ in whole.users}
        if whole.state or whole.name not in MODULES or whole.objects <= FEW or not users <= wishes.keys():
            continue
        parts = [part_of(whole, probe, wishes[probe], Path(folder)) for probe in sorted(users)]
        whole.users = [user for user in whole.users if not any(user in part.users for part in parts)]
        whole.settle("whole")
        modules.update((part.name, part) for part in parts)


def part_of(whole: Module, probe: str, wish: dict[str, Any], folder: Path) -> Module:
    """The part that a probe needs, with its ninja file written and what is stale of it counted."""
    units, without = MODULES[whole.name].get(wish["units"]), wish["without"]
    place = folder / f"{whole.name}.{wish['units']}{'.without' if without else ''}"
    variants = wish["variants"]
    users = [user for user in whole.users if user[0] == probe and (not variants or user[1] in variants)]
    part = Module(PartSpec(place.name, place / "lock", place / f"{whole.name}.so"), users)
    part.part_of = whole.name
    if units is None:
        part.settle("left", f"nothing is known of {wish['units']} as a part of {whole.name}")
        return part
    try:
        written = subset.write(Path(whole.ninja_file), whole.name, units, place, without=without)
    except (subset.CannotSplit, OSError, UnicodeDecodeError) as exc:
        part.settle("left", f"no part can be made of {whole.name}: {exc}")
        return part
    part.workdir, part.ninja_file = str(place), str(written.ninja_file)
    part.own = (*written.own, subset.STUB_OBJECT, written.library.name)
    look([part])
    return part
