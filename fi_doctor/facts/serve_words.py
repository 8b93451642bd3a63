"""Command lines that start a server, found among the words of an entry point, a command or a shell's script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "sglang.launch_server": "sglang",
}
_IMAGES = {"vllm-openai": "vllm"}  # whose entry point is `vllm serve`, or was the module of the server
_RELEASED = {"vllm/vllm-openai": "vllm", "lmsysorg/sglang": "sglang"}  # the projects' images, whose tags are releases
_TAG = re.compile(r"v?(\d+(?:\.\d+)+(?:\.?(?:post|rc|dev)\d+)?)(?:-[\w.-]+)?")  # v0.33.0, v0.5.3rc0-cu126
_ENDS = {";", "&&", "||", "&", "|"}


class Served(NamedTuple):
    """A server's command line, and what is set for it alone."""

    server: str  # "vllm", "sglang"; "" where none is started as far as can be told
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = MappingProxyType({})


def served_by(words: Sequence[str], image: str = "", *, has_entry: bool = False) -> Served:
    """The server among words; has_entry: they replace the entry point of the image."""
    if len(words) > 1 and words[0].rpartition("/")[2] in _SHELLS and any(word.startswith("-") for word in words[1:]):
        script = next((word for word in words[1:] if not word.startswith("-")), "")
        return _in_script(script)
    found = _at_start(list(words))
    if found.server or has_entry:
        return found
    known = next((server for name, server in _IMAGES.items() if name in image), "")
    return Served(known, tuple(words)) if known else found


def release_of(image: str) -> tuple[str, str] | None:
    """The distribution and version that the tag of a project's own image names; None where it names none."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    owner = next((owner for own, owner in _RELEASED.items() if f"/{name}".endswith(f"/{own}")), None)
    found = _TAG.fullmatch(tag)
    return (owner, found[1]) if owner and found else None


def _in_script(script: str) -> Served:
    """The first server that a shell's script starts; its variables are those of its own line and exports before."""
    exported: dict[str, str] = {}
    for command in _commands(script):
        if command[:1] == ["export"]:
            exported |= {pair[1]: pair[2] for word in command[1:] if (pair := _ASSIGNMENT.fullmatch(word))}
            continue
        found = _at_start(command)
        if found.server:
            return found._replace(variables={**exported, **found.variables})
    return Served("")


def _commands(script: str) -> list[list[str]]:
    """The commands of a script, each its words; nothing of one whose quotes do not match."""
    found: list[list[str]] = []
    for line in re.sub(r"\\\n", " ", script).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:
            continue
        found.append([])
        for word in words:
            if word in _ENDS:
                found.append([])
            else:
                found[-1].append(word)
    return [command for command in found if command]


def _at_start(words: list[str]) -> Served:
    """The server that a simple command starts, behind variables and words such as exec, env and nohup."""
    variables: dict[str, str] = {}
    rest = list(words)
    while rest and (rest[0] in ("exec", "env", "nohup", "time") or _ASSIGNMENT.fullmatch(rest[0])):
        if pair := _ASSIGNMENT.fullmatch(rest[0]):
            variables[pair[1]] = pair[2]
        rest.pop(0)
    program = rest[0].rpartition("/")[2] if rest else ""
    if program == "vllm" and rest[1:2] == ["serve"]:
        return Served("vllm", tuple(rest[2:]), variables)
    if program.startswith("python") and "-m" in rest:
        at = rest.index("-m") + 1
        server = _MODULES.get(rest[at], "") if at < len(rest) else ""
        behind = rest[at + 1 :]
        if server == "vllm" and behind[:1] == ["serve"]:
            behind = behind[1:]
        return Served(server, tuple(behind) if server else (), variables)
    return Served("", (), variables)
