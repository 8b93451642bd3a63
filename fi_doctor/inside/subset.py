"""Parts of a JIT module: the units that one call needs, compiled as the module would be, and stubs for the rest.

FlashInfer's CUTLASS MoE module has hundreds of units, and its dispatchers take the address of every kernel launcher: a
part of it links and loads only with stubs for what is left out; so it is with the masks of attention. Sources, flags
and rules are those of the module's own ninja file; all that is written lies in a folder of its own. What several parts
need is compiled once. A stub that is called says its name and aborts. Runs in the examined interpreter, for
prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fi_doctor.inside.instances import (
    CannotSplit,
    Edge,
    Instance,
    fallback,
    instances,
    stand_in,
    unit,
    write_if_different,
)
from fi_doctor.inside.units import Units

STUBS = Path(__file__).with_name("stubs.py")

_EDGE = re.compile(r"build (?:[^\s:$]|\$.)+: (\w*compile) (\S+)")
_CLASS = re.compile(r"^[ \t]*template\s+class\s[^;{]*;", re.MULTILINE)


class Wish(NamedTuple):
    """One part."""

    units: Units
    without: str = ""  # a regular expression of instances to leave out although they are needed: it must be noticed


class Part(NamedTuple):
    """What was written for ninja."""

    ninja_file: Path  # of all parts
    library: Path
    objects: int
    left_out: int  # objects of the module that are not compiled
    all_objects: int  # of all parts that are written together
    own: tuple[str, ...]  # objects whose source is none of the module's: if only these fail, the module may be fine


class Object(NamedTuple):
    """One object of a part."""

    edge: Edge
    source: Path
    out: Path


def write(ninja_file: Path, name: str, wishes: Mapping[str, Wish], folder: Path) -> dict[str, Part | CannotSplit]:
    """Write sources and one ninja file for these parts (by their names) of a module below folder.

    CannotSplit stands for a part where the module is not what its units were made for. Raises CannotSplit where the
    ninja file is none of FlashInfer's, OSError where files cannot be read or written.
    """
    header, edges = parse(ninja_file.read_text(encoding="utf-8"))
    generated = {edge: edge.source.read_text("utf-8") for edge in edges if edge.source.name.endswith(".generated.cu")}
    written = folder / "build.ninja"
    found: dict[str, Part | CannotSplit] = {}
    compiles: dict[Path, list[str]] = {}
    links: list[str] = []
    for part, wish in wishes.items():
        try:
            objects = objects_of(wish, edges, generated, common=folder / f"{name}.common", own=folder / part)
        except CannotSplit as exc:
            found[part] = exc
            continue
        library = folder / part / f"{name}.so"
        compiles.update((one.out, compile_lines(one)) for one in objects)
        links += link_lines([one.out for one in objects], library)
        kept = sum(keeps(edge.source, wish.units) for edge in edges)
        own = tuple(one.out.name for one in objects if one.source != one.edge.source)
        found[part] = Part(written, library, len(objects), len(edges) - kept, 0, own)
    lines = [*header, *RULES, *(line for some in compiles.values() for line in some), *links, ""]
    write_if_different(written, "\n".join(lines))
    return {
        name: one._replace(all_objects=len(compiles)) if isinstance(one, Part) else one for name, one in found.items()
    }


def parse(text: str) -> tuple[list[str], list[Edge]]:
    """What precedes the first object, and the objects with their sources."""
    header: list[str] = []
    edges: list[Edge] = []
    for line in text.replace("$\n", " ").splitlines():
        found = _EDGE.match(line)
        if found:
            edges.append(Edge(found[1], Path(found[2]), ()))
        elif line.startswith(("build ", "default ")):
            continue
        elif edges and line.startswith("  "):
            edges[-1] = edges[-1]._replace(lines=(*edges[-1].lines, line))
        elif not edges:
            header.append(line)
    if not edges:
        raise CannotSplit("its ninja file names no sources")
    return header, edges


def objects_of(
    wish: Wish, edges: Sequence[Edge], generated: Mapping[Edge, str], *, common: Path, own: Path
) -> list[Object]:
    """The objects of one part, the longest first, with the sources of its own written."""
    units = wish.units
    own.mkdir(parents=True, exist_ok=True)
    kept = [edge for edge in edges if keeps(edge.source, units)]
    if missing := {*units.needed, *units.instances} - {edge.source.name for edge in kept}:
        raise CannotSplit(f"the module has no {', '.join(sorted(missing))}")
    if len(kept) == len(edges):
        raise CannotSplit(f"the module has no {' or '.join(units.optional)}")
    found = [instance for launcher in units.launchers for instance in instances(launcher, generated)]
    compiled = [one for one in found if not (wish.without and re.search(wish.without, " ".join(one.text.split())))]
    sources = [(one.edge, unit(one, generated[one.edge], own, number)) for number, one in enumerate(compiled)]
    sources += sorted(
        ((edge, trimmed(edge.source, units, compiled, own)) for edge in kept),
        key=lambda pair: pair[0].source == pair[1],
    )
    return [
        Object(edge, source, (common if source == edge.source else own) / f"{source.stem}.o")
        for edge, source in sources
    ]


def keeps(source: Path, units: Units) -> bool:
    """Whether a source is compiled, whole or in part."""
    is_optional = any(fnmatch.fnmatchcase(source.name, glob) for glob in units.optional)
    return not is_optional or source.name in units.needed


def trimmed(source: Path, units: Units, compiled: Sequence[Instance], folder: Path) -> Path:
    """The source itself, or a copy without the class templates that are not needed, and with stubs for launchers."""
    wanted = units.instances.get(source.name)
    if wanted is None:
        return source
    text = source.read_text(encoding="utf-8")
    found = _CLASS.findall(text)
    chosen = [one for one in found if re.search(wanted, " ".join(one.split()))]
    if len(chosen) != 1:
        raise CannotSplit(f"{source} instantiates {len(chosen)} class templates like {wanted}")
    for one in found:
        text = text.replace(one, "" if one not in chosen else one)
    if source.name == units.dispatcher:
        stubs = "".join(stand_in(launcher, source, compiled) for launcher in units.launchers)
        stubs += "".join(fallback(one, source) for one in units.fallbacks)
        text = re.sub(r"^namespace ", lambda _: f"{stubs}namespace ", text, count=1, flags=re.MULTILINE)
    copy = folder / source.name
    write_if_different(copy, text)
    return copy


def compile_lines(one: Object) -> list[str]:
    """A copy finds what its original includes by a name without a folder."""
    edge, source = one.edge, one.source
    lines = [f"build {one.out}: {edge.rule} {source}", *edge.lines]
    if source != edge.source:
        variable = "cuda_cflags" if edge.rule.startswith("cuda") else "cflags"
        own = [line for line in edge.lines if line.strip().startswith(f"{variable} =")]
        value = own[0].partition("=")[2].strip() if own else f"${variable}"
        lines = [lines[0], *(line for line in edge.lines if line not in own)]
        lines.append(f"  {variable} = {value} -I{edge.source.parent}")
    return lines


# Stubs are part of the link: a command of its own would wait for all objects, and count as one that could be run.
LINK = f"{sys.executable} -I {STUBS} $out.c $in && $cxx -x c -fPIC -c $out.c -o $out.o && $cxx $in $out.o $ldflags"
RULES = ("rule part_link", f"  command = {LINK} -o $out")


def link_lines(objects: Sequence[Path], library: Path) -> list[str]:
    """The library, with stubs for whatever else its objects ask for."""
    return [f"build {library}: part_link {' '.join(map(str, objects))}", f"default {library}"]
