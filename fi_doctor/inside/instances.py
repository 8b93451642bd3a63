"""Instances of kernel launchers: those that a part of a module compiles, and what stands in for all others.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fi_doctor.inside.stubs import MARK
from fi_doctor.inside.units import Fallback, Launcher

_DEFAULT = re.compile(r"\s*=\s*[\w:]+(?=\s*[,>])")
_ALIAS = re.compile(r"^using (\w+) = (\w+);", re.MULTILINE)


class CannotSplit(Exception):  # noqa: N818 - the module is then built as a whole, or not at all
    """Why no part can be made of this module."""


class Edge(NamedTuple):
    """One object of the module's ninja file."""

    rule: str
    source: Path
    lines: tuple[str, ...]  # variables of its own


class Instance(NamedTuple):
    """One instance of a launcher that is compiled."""

    launcher: Launcher
    edge: Edge  # of the generated source that holds it
    text: str


def instances(launcher: Launcher, generated: Mapping[Edge, str]) -> list[Instance]:
    """The instances to compile. generated: the sources that hold all of them, with their texts.

    Raises CannotSplit unless there is one of each.
    """
    start = launcher.macro or rf"template {launcher.returns} {launcher.function}<"
    statement = re.compile(rf"^[ \t]*{start}[^;]*;", re.MULTILINE)
    found: dict[str, Instance] = {}
    for edge, text in generated.items():
        for match in statement.finditer(text):
            said = " ".join(match[0].split())
            for wanted in launcher.wanted:
                if re.search(wanted, said):
                    found.setdefault(wanted, Instance(launcher, edge, match[0].strip()))
    if missing := [wanted for wanted in launcher.wanted if wanted not in found]:
        raise CannotSplit(f"no generated source has an instance of {launcher.function} like {missing[0]}")
    return [found[wanted] for wanted in launcher.wanted]


def unit(instance: Instance, text: str, folder: Path, number: int) -> Path:
    """A source with this one instance, made like the generated source (with this text) that holds it."""
    include = re.search(r'^#include "[^"]+"', text, re.MULTILINE)
    if include is None:
        raise CannotSplit(f"{instance.edge.source} includes nothing")
    path = folder / f"launch_{number}.cu"
    body = (
        f"namespace tensorrt_llm {{ namespace kernels {{ namespace cutlass_kernels_oss {{\n{instance.text}\n}} }} }}\n"
    )
    write_if_different(path, f"{include[0]}\n{body}")
    return path


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
    return in_namespace(
        f"""{_DEFAULT.sub("", head)}
{launcher.returns} {launcher.function}({parameters}) {body(launcher.answer)}
{others}"""
    )


def fallback(wanted: Fallback, source: Path) -> str:
    """C++ that takes the place of a class for these types; it follows the dispatcher's own headers."""
    text = (source.parent / wanted.header).read_text(encoding="utf-8")
    found = re.search(
        rf"(template <[^;{{}}]*?>)\s*struct {wanted.name} \{{\s*static void {wanted.function}\(([^;{{}}]*)\) \{{", text
    )
    if found is None or not set(names_of(found[1])) >= wanted.types.keys():
        raise CannotSplit(f"{wanted.header} has no {wanted.name} as it was")
    head, parameters = found.groups()
    free = [one for one in split(inside(head)) if one.split()[-1] not in wanted.types]
    arguments = [wanted.types.get(name, name) for name in names_of(head)]
    return in_namespace(
        f"""template <{", ".join(free)}>
struct {wanted.name}<{", ".join(arguments)}> {{
  static void {wanted.function}({replaced(parameters, wanted.types)}) {body(wanted.answer)}
}};"""
    )


def in_namespace(text: str) -> str:
    """Where the launchers are."""
    return f"""#include <cstdio>
#include <cstdlib>
namespace tensorrt_llm {{ namespace kernels {{ namespace cutlass_kernels_oss {{
{text}
}} }} }}
"""


def body(answer: str) -> str:
    """Of a function that says its name and aborts, unless it has an answer."""
    return f"""{{
  {answer}
  std::fprintf(stderr, "{MARK}%s\\n", __PRETTY_FUNCTION__);
  std::abort();
}}"""


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
    return [one.split()[-1] for one in split(inside(head))]


def inside(head: str) -> str:
    """What stands between the brackets of a template, without defaults."""
    return _DEFAULT.sub("", head)[len("template <") : -1]


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


def write_if_different(path: Path, text: str) -> None:
    """Leave the time of an unchanged file as it is, so that ninja compiles nothing again."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except (OSError, UnicodeDecodeError):
        pass
    path.write_text(text, encoding="utf-8")
