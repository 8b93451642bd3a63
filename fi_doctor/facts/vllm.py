"""The installed vllm package: the variables, flags and config keys that its own source has; it is never imported."""

from __future__ import annotations

import ast
import errno
import mmap
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from fi_doctor.facts.files import LARGEST_BYTES, NOT_PYTHON, is_file, read_text, why_no_folder, why_not_python
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.recorded import Recorded
from fi_doctor.model import Missing, Vllm

# Config classes whose fields dotted flags reach: --attention-config.use_trtllm_attention, -cc.pass_config.fuse_...
CLASSES = ("AttentionConfig", "CompilationConfig", "KernelConfig", "ParallelConfig", "PassConfig")

_REGISTRY = "environment_variables"
_BINARY = "vllm-rs"  # the Rust front end of 0.25 and newer, which reads variables too
# All Python files of 0.33.0 are 3200 with 50 MB, and are read in 0.1 s from the page cache.
_MOST_FILES = 20_000
_LIMIT_S = 4.0
_VARIABLE = re.compile(rb"VLLM_[A-Z0-9_]+")
_QUOTED = re.compile(rb"""["'](VLLM_[A-Z0-9_]+)["']""")
_OPTIONS = re.compile(r"""\badd_argument\(\s*((?:["'][-\w]+["']\s*,?\s*)+)""")
_OPTION = re.compile(r"""["'](-[-\w]+)["']""")
_CLASS = re.compile(rf"^class ({'|'.join(CLASSES)})\b", re.MULTILINE)
_TOP_LEVEL = re.compile(r"^[^\s#)\]}]", re.MULTILINE)


def read_vllm(survey: Survey) -> Vllm | Missing:
    """What the vllm that an import would get has to be set by; Missing when nothing can be imported as vllm."""
    origin = survey.modules.get("vllm", Missing(reason="vllm was not looked for"))
    if isinstance(origin, Missing):
        return origin
    root = Path(origin).parent
    if why := why_no_folder(root):
        return Missing(reason=why)
    registry, named = _Registry.read(root / "envs.py"), _Named.read(root)
    unread, flags, keys = _unread(registry, named, root), read_flags(root), read_keys(root)
    fields = {"variables": registry, "unread_variables": unread, "other_variables": named, "flags": flags, "keys": keys}
    return Vllm(
        root=str(root),
        variables={} if isinstance(registry, Missing) else registry.places,
        unread_variables=() if isinstance(unread, Missing) else unread,
        other_variables={} if isinstance(named, Missing) else _others(registry, named),
        flags={} if isinstance(flags, Missing) else flags,
        keys={} if isinstance(keys, Missing) else keys,
        unreadable={name: fact.reason for name, fact in fields.items() if isinstance(fact, Missing)},
        altered=Recorded(root).all_altered(".py"),
    )


def read_flags(root: Path) -> dict[str, str] | Missing:
    """The options of `vllm serve` that engine/arg_utils.py adds, "--moe-backend" -> "engine/arg_utils.py:1238"."""
    text = read_text(root / "engine" / "arg_utils.py")
    if isinstance(text, Missing):
        return text
    found: dict[str, str] = {}
    for call in _OPTIONS.finditer(text):
        for option in _OPTION.finditer(text, call.start(1), call.end(1)):
            line = text.count("\n", 0, option.start()) + 1
            found.setdefault(option[1], f"engine/arg_utils.py:{line}")
    return found or Missing(reason=f"{root / 'engine' / 'arg_utils.py'} adds no options that can be read")


def read_keys(root: Path) -> dict[str, str] | Missing:
    """The fields of the config classes, "PassConfig.fuse_allreduce_rms" -> "config/compilation.py:119"."""
    try:
        # Not glob, which finds nothing where it may not look.
        paths = sorted(path for path in (root / "config").iterdir() if path.suffix == ".py")
    except OSError as error:
        return Missing(reason=f"{root / 'config'}: {error.strerror or error}")
    found: dict[str, str] = {}
    for path in paths:
        text = read_text(path)
        if isinstance(text, Missing):
            return text
        for start in _CLASS.finditer(text):
            fields = _fields(text, start)
            if isinstance(fields, Missing):
                return Missing(reason=f"{path}: {fields.reason}")
            found.update({f"{start[1]}.{name}": f"config/{path.name}:{line}" for name, line in fields.items()})
    return found or Missing(reason=f"no config class is in {root / 'config'}")


class _Registry:
    """envs.py: its table of variables, and which of them it reads itself outside of their own entry."""

    def __init__(self, text: str, entries: dict[str, tuple[int, int]]) -> None:
        self._lines = text.split("\n")
        self._entries = entries  # name -> first and last line
        self.places = {name: f"envs.py:{first}" for name, (first, _) in entries.items()}

    @classmethod
    def read(cls, path: Path) -> _Registry | Missing:
        text = read_text(path)
        if isinstance(text, Missing):
            return text
        try:
            tree = ast.parse(text)
        except NOT_PYTHON as error:
            return Missing(reason=f"{path} is not Python: {why_not_python(error)}")
        for node in tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(target, ast.Name) and target.id == _REGISTRY and isinstance(value, ast.Dict):
                return cls(text, dict(_entries(value)))
        return Missing(reason=f"{path} has no table {_REGISTRY}")

    def reads_itself(self, name: str) -> bool:
        """Whether envs.py asks for the variable outside of its entry, as for VLLM_USE_RUST_FRONTEND."""
        first, last = self._entries[name]
        rest = "\n".join(self._lines[: first - 1] + self._lines[last:])
        name = re.escape(name)
        asked = rf"""(?:getenv\(|environ\.get\(|environ\[)\s*["']{name}["']|["']{name}["'] (?:not )?in os\.environ"""
        return re.search(asked, rest) is not None


class _Named:
    """The variables that the package's Python files name, envs.py aside."""

    def __init__(self) -> None:
        self.all: set[str] = set()
        self.quoted: dict[str, str] = {}  # "VLLM_BATCH_INVARIANT" -> the first file that has it as a string

    @classmethod
    def read(cls, root: Path) -> _Named | Missing:
        """One pass over all files; Missing when they are too many or too slow to read."""
        found, until = cls(), time.monotonic() + _LIMIT_S
        try:
            for number, path in enumerate(python_files(root)):
                if number >= _MOST_FILES:
                    return Missing(reason=f"{root} has more than {_MOST_FILES} Python files")
                if time.monotonic() > until:
                    return Missing(reason=f"the files of {root} could not be read within {_LIMIT_S:g} s")
                found._take(path, root)
        except OSError as error:
            return Missing(reason=f"{error.filename or root}: {error.strerror or error}")
        return found

    def _take(self, path: str, root: Path) -> None:
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - three thousand Path objects would take as long as reading
                text = file.read(LARGEST_BYTES)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return  # a link to itself: nobody reads it
        if b"VLLM_" not in text or path == str(root / "envs.py"):
            return
        self.all.update(word.decode() for word in _VARIABLE.findall(text))
        for word in _QUOTED.findall(text):
            self.quoted.setdefault(word.decode(), Path(path).relative_to(root).as_posix())


def _unread(registry: _Registry | Missing, named: _Named | Missing, root: Path) -> tuple[str, ...] | Missing:
    """Registered variables that nothing reads; others than vLLM's own, such as MAX_JOBS, are read by other programs."""
    if isinstance(registry, Missing):
        return registry
    if isinstance(named, Missing):
        return named
    left = [
        name
        for name in registry.places
        if name.startswith("VLLM_") and name not in named.all and not registry.reads_itself(name)
    ]
    binary = _named_in_binary(root / _BINARY, left)
    return tuple(sorted(set(left) - binary))


def _others(registry: _Registry | Missing, named: _Named) -> dict[str, str]:
    known = {} if isinstance(registry, Missing) else registry.places
    return {name: place for name, place in sorted(named.quoted.items()) if name not in known}


def _named_in_binary(path: Path, names: list[str]) -> set[str]:
    """Which of the names a program holds; its strings follow one another without a mark between them."""
    found: set[str] = set()
    wanted = [name.encode() for name in names]
    if not is_file(path):
        return found
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(b"VLLM_")
            while at >= 0:
                text = data[at : at + 100]
                found |= {name.decode() for name in wanted if text.startswith(name)}
                at = data.find(b"VLLM_", at + 1)
    except (OSError, ValueError):  # releases before 0.25 have none; an empty file cannot be mapped
        return found
    return found


def python_files(root: Path | str) -> Iterator[str]:
    """Every .py below the package folder, in a fixed order; links to folders are not followed."""
    folders = [str(root)]
    while folders:
        with os.scandir(folders.pop()) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        folders += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        yield from (entry.path for entry in entries if entry.name.endswith(".py") and _may_be_read(entry))


def _may_be_read(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself; who opens it is told
        return True


def _entries(table: ast.Dict) -> Iterator[tuple[str, tuple[int, int]]]:
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, (key.lineno, value.end_lineno or value.lineno)


def _fields(text: str, start: re.Match[str]) -> dict[str, int] | Missing:
    """The annotated names of a class body and their lines; only the class is parsed, the files are large."""
    end = _TOP_LEVEL.search(text, start.end())
    body = text[start.start() : end.start() if end else len(text)]
    above = text.count("\n", 0, start.start())
    try:
        [node] = ast.parse(body).body
    except NOT_PYTHON as error:
        return Missing(reason=f"class {start[1]} is not Python: {why_not_python(error)}")
    statements = node.body if isinstance(node, ast.ClassDef) else []
    return {
        one.target.id: one.lineno + above
        for one in statements
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id[0] != "_"
    }
