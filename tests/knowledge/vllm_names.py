"""Which of our settings of vLLM each release registers, offers and reads: names and places, none of vLLM's code.

`PYTHONPATH=.:tests python tests/knowledge/vllm_names.py FOLDER` writes vllm_names.json beside this file, from the
unpacked packages FOLDER/<release>/vllm.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import factory as make

from fi_doctor import knowledge
from fi_doctor.facts import vllm
from fi_doctor.model import Missing, Setting, Vllm

RELEASES = ("0.11.0", "0.14.1", "0.17.1", "0.20.2", "0.25.1", "0.28.0", "0.33.0")
TABLE = Path(__file__).with_suffix(".json")
_COMMENT = re.compile(r"^[ \t]*#.*$|[ \t]#[ \t].*$", re.MULTILINE)
# They report what is set, to a person or to vLLM's makers, and do nothing with it.
_REPORTERS = ("envs.py", "collect_env.py", "usage/usage_lib.py")


def names_in(root: Path, settings: tuple[Setting, ...]) -> dict[str, dict[str, str]]:
    """Of each setting that this release knows: where it is said ("said"), and where code reads it ("read")."""
    found = vllm.read_vllm(make.survey(vllm=str(root / "__init__.py")))
    assert not isinstance(found, Missing), found
    assert not found.unreadable, found.unreadable
    texts = {path.relative_to(root).as_posix(): _code(path) for path in sorted(root.rglob("*.py"))}
    names: dict[str, dict[str, str]] = {}  # a flag is read where it is said
    for setting in settings:
        said = said_at(setting, found)
        read = said if setting.kind == "flag" else _reader(setting, said, texts)
        if said or read:
            names[setting.name] = {"said": said, "read": read}
    return names


def said_at(setting: Setting, found: Vllm) -> str:
    table = {"env": found.variables, "flag": found.flags, "key": found.keys}[setting.kind]
    return table.get(setting.name, "")


def _reader(setting: Setting, said: str, texts: dict[str, str]) -> str:
    """The first place that reads the setting, its own definition aside; a mention in a text does not count."""
    name = setting.name.rpartition(".")[2]
    if setting.kind == "env":
        pattern = re.compile(rf"""\benvs?\.{setting.name}\b|["']{setting.name}["']|\bimport {setting.name}\b""")
        passed = _REPORTERS
    else:
        pattern = re.compile(rf"""\.(?:\n\s+)?{name}\b|getattr\(\w+, "{name}\"""")
        passed = ()
    if setting.kind == "key" and not said:
        return ""
    for path, text in texts.items():
        hit = pattern.search(text) if name in text and path not in passed else None
        if hit is not None:
            return f"{path}:{text.count(chr(10), 0, hit.start()) + 1}"
    return ""


def _code(path: Path) -> str:
    return _COMMENT.sub("", path.read_text(encoding="utf-8", errors="replace"))


def _write(folder: Path) -> None:
    settings = tuple(one for one in knowledge.load().settings if one.owner == "vllm")
    table = {release: names_in(folder / release / "vllm", settings) for release in RELEASES}
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    print(f"{TABLE}: {len(settings)} settings in {len(table)} releases")  # noqa: T201 - a script's answer


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
