"""A part of a JIT module: the units that one call needs, compiled as the module would be, and stubs for the rest.

FlashInfer's CUTLASS MoE module has hundreds of units, and its dispatchers take the address of every kernel launcher: a
part of it links and loads only with stubs for what is left out. Sources, flags and rules are those of the module's own
ninja file; all that is written lies in a folder of its own. A stub that is called says its name and aborts.
Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fi_doctor.inside.stubs import MARK
from fi_doctor.inside.units import Launcher, Units

STUBS = Path(__file__).with_name("stubs.py")
STUB_OBJECT = "stubs.o"

_EDGE = re.compile(r"build (?:[^\s:$]|\$.)+: (\w*compile) (\S+)")
_CLASS = re.compile(r"^[ \t]*template\s+class\s[^;{]*;", re.MULTILINE)
_DEFAULT = re.compile(r"\s*=\s*[\w:]+(?=\s*[,>])")
_ALIAS = re.compile(r"^using (\w+) = (\w+);", re.MULTILINE)


class CannotSplit(Exception):  # noqa: N818 - the module is then built as a whole, or not at all
    """Why no part can be made of this module."""


class Edge(NamedTuple):
    """One object of the module's ninja file."""

    rule: str
    source: Path
    lines: tuple[str, ...]  # variables of its own


class Part(NamedTuple):
    """What was written for ninja."""

    ninja_file: Path
    library: Path
    objects: int
    left_out: int  # objects of the module that are not compiled
    own: tuple[str, ...]  # objects whose source is none of the module's: if only these fail, the module may be fine


def write(ninja_file: Path, name: str, units: Units, folder: Path, without: str = "") -> Part:
    """Write sources and a ninja file for these units of a module below folder.

    without: a regular expression of instances to leave out although they are needed, to see that this is noticed.
    Raises CannotSplit where the module is not what the units were made for, OSError where files cannot be read or
    written.
    """
    header, edges = parse(ninja_file.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    kept = [edge for edge in edges if keeps(edge.source, units)]
    if missing := {*units.needed, *units.instances} - {edge.source.name for edge in kept}:
        raise CannotSplit(f"the module has no {', '.join(sorted(missing))}")
    found = [instance for launcher in units.launchers for instance in instances(launcher, edges)]
    compiled = [instance for instance in found if not (without and re.search(without, " ".join(instance.text.split())))]
    sources = [(edge, trimmed(edge.source, units, compiled, folder)) for edge in kept]
    sources += [(instance.edge, unit(instance, folder, number)) for number, instance in enumerate(compiled)]
    library = folder / f"{name}.so"
    objects = [folder / f"{source.stem}.o" for _, source in sources]
    lines = [line for (edge, source), out in zip(sources, objects) for line in compile_lines(edge, source, out)]
    write_if_different(folder / "build.ninja", "\n".join([*header, *lines, *link_lines(objects, library), ""]))
    own = tuple(out.name for (edge, source), out in zip(sources, objects) if source != edge.source)
    return Part(folder / "build.ninja", library, len(objects) + 1, len(edges) - len(kept), own)


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


def keeps(source: Path, units: Units) -> bool:
    """Whether a source is compiled, whole or in part."""
    is_optional = any(fnmatch.fnmatchcase(source.name, glob) for glob in units.optional)
    return not is_optional or source.name in units.needed


class Instance(NamedTuple):
    """One instance of a launcher that is compiled."""

    launcher: Launcher
    edge: Edge  # of the generated source that holds it
    text: str


def instances(launcher: Launcher, edges: Sequence[Edge]) -> list[Instance]:
    """The instances to compile, from the generated sources. Raises CannotSplit unless there is one of each."""
    start = launcher.macro or rf"template {launcher.returns} {launcher.function}<"
    statement = re.compile(rf"^[ \t]*{start}[^;]*;", re.MULTILINE)
    found: dict[str, Instance] = {}
    for edge in edges:
        if not edge.source.name.endswith(".generated.cu"):
            continue
        for match in statement.finditer(edge.source.read_text(encoding="utf-8")):
            said = " ".join(match[0].split())
            for wanted in launcher.wanted:
                if re.search(wanted, said):
                    found.setdefault(wanted, Instance(launcher, edge, match[0].strip()))
    if missing := [wanted for wanted in launcher.wanted if wanted not in found]:
        raise CannotSplit(f"no generated source has an instance of {launcher.function} like {missing[0]}")
    return [found[wanted] for wanted in launcher.wanted]


def unit(instance: Instance, folder: Path, number: int) -> Path:
    """A source with this one instance, made like the generated source that holds it."""
    text = instance.edge.source.read_text(encoding="utf-8")
    include = re.search(r'^#include "[^"]+"', text, re.MULTILINE)
    if include is None:
        raise CannotSplit(f"{instance.edge.source} includes nothing")
    path = folder / f"launch_{number}.cu"
    body = (
        f"namespace tensorrt_llm {{ namespace kernels {{ namespace cutlass_kernels_oss {{\n{instance.text}\n}} }} }}\n"
    )
    write_if_different(path, f"{include[0]}\n{body}")
    return path


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
        text = re.sub(r"^namespace ", lambda _: f"{stubs}namespace ", text, count=1, flags=re.MULTILINE)
    copy = folder / source.name
    write_if_different(copy, text)
    return copy


def stand_in(launcher: Launcher, source: Path, compiled: Sequence[Instance]) -> str:
    """C++ that defines the launcher for whatever it is not compiled for; it follows the dispatcher's own headers."""
    header = source.parent / launcher.header
    text = header.read_text(encoding="utf-8")
    found = re.search(rf"(template <[^;{{}}]*?>)\s*{launcher.returns}\s+{launcher.function}\(([^;{{}}]*)\);", text)
    if found is None:
        raise CannotSplit(f"{launcher.header} declares no {launcher.function}")
    head, parameters = found.groups()
    definition = header.with_suffix(".inl").read_text(encoding="utf-8")
    aliases = dict(_ALIAS.findall(definition))
    lines = []
    for one in compiled:
        if one.launcher is launcher:
            arguments = [replaced(argument, aliases) for argument in arguments_of(one, names_of(head), definition)]
            types = dict(zip(names_of(head), arguments))
            name = f"{launcher.function}<{', '.join(arguments)}>"
            lines.append(f"extern template {launcher.returns} {name}({replaced(parameters, types)});")
    others = "\n".join(lines)
    return f"""#include <cstdio>
#include <cstdlib>
namespace tensorrt_llm {{ namespace kernels {{ namespace cutlass_kernels_oss {{
{_DEFAULT.sub("", head)}
{launcher.returns} {launcher.function}({parameters}) {{
  {launcher.answer}
  std::fprintf(stderr, "{MARK}%s\\n", __PRETTY_FUNCTION__);
  std::abort();
}}
{others}
}} }} }}
"""


def arguments_of(instance: Instance, names: Sequence[str], definition: str) -> list[str]:
    """Those of the template. names: its parameters; definition: the text that has the macro, where there is one."""
    launcher, text = instance.launcher, instance.text
    if not launcher.macro:
        return split(text[text.index("<") + 1 : text.index("(")].rstrip().removesuffix(">"))
    found = re.search(rf"#define {launcher.macro}\(([^)]*)\)", definition)
    if found is None or not launcher.macro_as.keys() >= set(names):
        raise CannotSplit(f"{launcher.macro} is not defined as it was")
    given = text[text.index("(") + 1 : text.rindex(")")].split(",")
    values = dict(zip(re.findall(r"\w+", found[1]), map(str.strip, given)))
    return [replaced(launcher.macro_as[name], values) for name in names]


def names_of(head: str) -> list[str]:
    """The parameters of a template, by name."""
    inside = _DEFAULT.sub("", head)[len("template <") : -1]
    return [one.split()[-1] for one in split(inside)]


def replaced(text: str, meanings: dict[str, str]) -> str:
    """The text with each of these names replaced by what it means."""
    return re.sub(r"\w+", lambda name: meanings.get(name[0], name[0]), text)


def split(arguments: str) -> list[str]:
    """Template arguments, at the commas that stand between no brackets."""
    parts, depth = [""], 0
    for char in arguments:
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def compile_lines(edge: Edge, source: Path, out: Path) -> list[str]:
    """A copy finds what its original includes by a name without a folder."""
    lines = [f"build {out}: {edge.rule} {source}", *edge.lines]
    if source != edge.source:
        variable = "cuda_cflags" if edge.rule.startswith("cuda") else "cflags"
        own = [line for line in edge.lines if line.strip().startswith(f"{variable} =")]
        value = own[0].partition("=")[2].strip() if own else f"${variable}"
        lines = [lines[0], *(line for line in edge.lines if line not in own)]
        lines.append(f"  {variable} = {value} -I{edge.source.parent}")
    return lines


def link_lines(objects: Sequence[Path], library: Path) -> list[str]:
    """The library, with an object of stubs for whatever else its objects ask for."""
    stubs = library.with_name(STUB_OBJECT)
    names = " ".join(map(str, objects))
    return [
        "rule stub",
        f"  command = {sys.executable} -I {STUBS} $out.c $in && $cxx -x c -fPIC -c $out.c -o $out",
        "rule part_link",
        "  command = $cxx $in $ldflags -o $out",
        f"build {stubs}: stub {names}",
        f"build {library}: part_link {names} {stubs}",
        f"default {library}",
    ]


def write_if_different(path: Path, text: str) -> None:
    """Leave the time of an unchanged file as it is, so that ninja compiles nothing again."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except OSError:
        pass
    path.write_text(text, encoding="utf-8")
