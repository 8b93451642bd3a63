"""The probes that are installed, read from their files with ast; none of them is imported."""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path

from fi_doctor.errors import BrokenDoctorError, DataError
from fi_doctor.model import OWN, ProbeSpec
from fi_doctor.probing.declared import Declared, convert

GROUP = "fi_doctor.probes"
OWN_PACKAGE = "fi_doctor_probes"
MOST_BYTES = 1 << 20  # of one probe

_ROOT = Path(__file__).resolve().parents[2]
# What importlib.metadata lets through: text that is not UTF-8, lines without "=", no name, no access.
_BROKEN_METADATA = (OSError, ValueError, TypeError, AttributeError, KeyError)
_SENTENCE = re.compile(r".*?[.?!](?=\s|$)")


def discover(extra: tuple[Path, ...] = ()) -> tuple[ProbeSpec, ...]:
    """Every probe of the registered folders and of the extra ones, by id.

    Errors: DataError with all that is wrong in other people's probes; BrokenDoctorError when it is one of ours.
    """
    errors: dict[str, list[str]] = {}
    specs: list[ProbeSpec] = []
    for folder, origin in [*_registered(errors), *((path.absolute(), str(path.absolute())) for path in extra)]:
        paths = _files(folder)
        if isinstance(paths, str):
            errors.setdefault(origin, []).append(paths)
            continue
        for path in paths:
            read = _read(path, origin)
            if isinstance(read, ProbeSpec):
                specs.append(read)
            else:
                errors.setdefault(origin, []).extend(read)
    _check_ids(specs, errors)
    if errors:
        _refuse(errors)
    return tuple(sorted(specs, key=lambda spec: spec.id))


def folders() -> tuple[Path, ...]:
    """The registered folders, as far as they can be found."""
    return tuple(folder for folder, _ in _registered({}))


def parse(text: str, path: str, origin: str) -> ProbeSpec | list[str]:
    """One probe from its source, or everything that is wrong with it, each with the path."""
    try:
        return _parsed(ast.parse(text, filename=path), path, origin)
    except (SyntaxError, ValueError) as exc:
        return [f"{path}: not Python: {exc}"]
    except (RecursionError, MemoryError):
        return [f"{path}: cannot be read: nested too deeply"]


def source(spec: ProbeSpec) -> str:
    """The probe's file as it stands."""
    return Path(spec.path).read_text(encoding="utf-8")


def _parsed(tree: ast.Module, path: str, origin: str) -> ProbeSpec | list[str]:
    declared = _declared(tree)
    errors = [declared] if isinstance(declared, str) else []
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    question = _question(tree)
    if "run" not in functions:
        errors.append("it has no function run()")
    if not question:
        errors.append("its docstring must begin with the question that it answers")
    literal = {} if isinstance(declared, str) else declared
    probe, wrong = convert(literal) if literal else (None, [])
    errors += wrong
    if errors or probe is None:
        return [f"{path}: {error}" for error in errors]
    fields = {name: getattr(probe, name) for name in Declared.__struct_fields__ if name != "checks"}
    return ProbeSpec(
        **fields,
        path=path,
        origin=origin,
        question=question,
        has_build="build" in functions,
        checks_numbers=probe.checks == "numbers",
        gate_only=probe.checks == "gate",
        runs_by_hand=_runs_by_hand(tree, takes_names=bool(probe.variants)),
    )


def _registered(errors: dict[str, list[str]]) -> list[tuple[Path, str]]:
    """The folders named by the entry points; a checkout's own probes stand beside the package and come first."""
    beside = _ROOT / "probes"
    checkout = beside.is_dir() and (_ROOT / "pyproject.toml").is_file()
    folders = [(beside, OWN)] if checkout else []
    for origin, entry in _entries():
        if origin == OWN and checkout:
            continue
        folder = _locate(entry.value)
        if isinstance(folder, str):
            errors.setdefault(origin, []).append(f"entry point {entry.name!r} in group {GROUP!r}: {folder}")
        else:
            folders.append((folder, origin))
    if not any(origin == OWN for _, origin in folders):
        own = _locate(OWN_PACKAGE)
        if isinstance(own, Path):
            folders.append((own, OWN))
        else:
            errors.setdefault(OWN, []).append(own)
    return folders


def _entries() -> list[tuple[str, importlib.metadata.EntryPoint]]:
    """Name of the distribution and entry point, of those that can be read: anybody's broken metadata is not our affair.

    Of two distributions of one name the first on sys.path counts, as for importlib.metadata.entry_points, which
    raises what the least of them makes it raise.
    """
    names: dict[str, None] = {}
    for found in importlib.metadata.distributions():
        with contextlib.suppress(*_BROKEN_METADATA):
            if any(entry.group == GROUP for entry in found.entry_points):
                names[found.name] = None
    entries = []
    for name in names:
        with contextlib.suppress(*_BROKEN_METADATA):
            first = importlib.metadata.distribution(name)
            entries += [(name, entry) for entry in first.entry_points if entry.group == GROUP]
    return entries


def _locate(package: str) -> Path | str:
    """The folder of a package, found without importing it: only the top-level name is asked for."""
    top, *rest = package.partition(":")[0].strip().split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError) as exc:
        return f"package {top!r} cannot be located: {exc}"
    if spec is None or not spec.submodule_search_locations:
        return f"no package {top!r} is installed"
    return Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)


def _files(folder: Path) -> list[Path] | str:
    """What may hold a probe, or why the folder cannot be read. Opening a FIFO would wait for somebody to write."""
    try:
        if not folder.is_dir():
            return f"{folder}: no such folder"
        return sorted(path for path in folder.glob("[!_]*.py") if path.is_file())
    except OSError as exc:
        return f"{folder}: cannot be read: {exc}"


def _read(path: Path, origin: str) -> ProbeSpec | list[str]:
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            return [f"{path}: cannot be read: {size} bytes, more than {MOST_BYTES}"]
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        return [f"{path}: cannot be read: {exc}"]
    return parse(text, str(path), origin)


def _declared(tree: ast.Module) -> dict[str, object] | str:
    """The PROBE literal, or why there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == "PROBE" for target in targets):
            return _literal(node)
    return "it has no PROBE = {...}"


def _literal(node: ast.stmt) -> dict[str, object] | str:
    value = getattr(node, "value", None)
    try:
        literal = ast.literal_eval(value) if isinstance(value, ast.expr) else None
    except (ValueError, TypeError):  # TypeError: a list as a key
        return "PROBE must be a literal: it is read without running the file"
    if not isinstance(literal, dict) or not all(isinstance(key, str) for key in literal) or not literal:
        return "PROBE must be a dict whose keys are text"
    return literal


def _runs_by_hand(tree: ast.Module, *, takes_names: bool) -> bool:
    """Whether running the file runs it, and only the variants that are named."""
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    has_main = any(ast.unparse(node.test) == "__name__ == '__main__'" for node in blocks)
    return has_main and (not takes_names or _reads_names(tree))


def _reads_names(tree: ast.Module) -> bool:
    """Whether sys.argv is looked at, which most probes do in their last statement."""
    nodes = (node for statement in reversed(tree.body) for node in ast.walk(statement))
    return any(isinstance(node, ast.Attribute) and node.attr == "argv" for node in nodes)


def _question(tree: ast.Module) -> str:
    text = " ".join((ast.get_docstring(tree) or "").split())
    found = _SENTENCE.match(text)
    return found.group() if found else text


def _check_ids(specs: Iterable[ProbeSpec], errors: dict[str, list[str]]) -> None:
    """Of two probes with one id the later is wrong, but never ours if the other is somebody else's."""
    seen: dict[str, ProbeSpec] = {}
    for spec in sorted(specs, key=lambda spec: spec.origin != OWN):
        first = seen.setdefault(spec.id, spec)
        if first is not spec:
            errors.setdefault(spec.origin, []).append(f"{spec.path}: id {spec.id!r} is already that of {first.path}")


def _refuse(errors: dict[str, list[str]]) -> None:
    lines = "\n".join(line for origin in sorted(errors) for line in errors[origin])
    if OWN in errors:
        raise BrokenDoctorError("fi-doctor's own probes are broken", why=lines, todo="reinstall fi-doctor")
    raise DataError("a probe cannot be used", why=lines, todo=f"mend the file, or remove {' '.join(sorted(errors))}")
