"""The probes that are installed, read from their files with ast; none of them is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from fi_doctor.errors import BrokenDoctorError, DataError
from fi_doctor.model import OWN, ProbeSpec, Requires
from fi_doctor.probing.declared import Declared, convert
from fi_doctor.probing.registered import Broken, registered
from fi_doctor.probing.skeleton import without_bodies

MOST_BYTES = 1 << 20  # of one probe

_SENTENCE = re.compile(r".*?[.?!](?=\s|$)")


def discover(extra: tuple[Path, ...] = ()) -> tuple[ProbeSpec, ...]:
    """Every probe of the registered folders and of the extra ones, by id; broken ones have a fault.

    Errors: BrokenDoctorError with all that is wrong where it is ours.
    """
    found, broken = registered()
    specs: list[ProbeSpec] = []
    for folder, origin in [*found, *((path.absolute(), str(path.absolute())) for path in extra)]:
        paths = _files(folder)
        if isinstance(paths, str):
            broken.append(Broken(origin, folder, paths))
            continue
        for path in paths:
            read = _read(path, origin)
            if isinstance(read, ProbeSpec):
                specs.append(read)
            else:
                broken.append(Broken(origin, path, "; ".join(read)))
    specs, again = _check_ids(specs)
    broken += again
    if ours := [one.why for one in broken if one.origin == OWN]:
        why = "\n".join(ours)
        raise BrokenDoctorError("fi-doctor's own probes are broken", why=why, todo="reinstall fi-doctor")
    return tuple(sorted((*specs, *_faulty(broken, specs)), key=lambda spec: spec.id))


def folders() -> tuple[Path, ...]:
    """The registered folders, as far as they can be found."""
    return tuple(folder for folder, _ in registered()[0])


def parse(text: str, path: str, origin: str) -> ProbeSpec | list[str]:
    """One probe from its source, or everything that is wrong with it, each with the path."""
    try:
        # Ours were parsed as a whole by the tests.
        return _parsed(ast.parse(without_bodies(text) if origin == OWN else text, filename=path), path, origin)
    except SyntaxError as exc:
        return [f"{path}:{exc.lineno}: not Python: {exc.msg}"]
    except ValueError as exc:
        return [f"{path}: not Python: {exc}"]
    except (RecursionError, MemoryError):
        return [f"{path}: cannot be read: nested too deeply"]


def source(spec: ProbeSpec) -> str:
    """The probe's file as it stands. Errors: DataError where it cannot be read."""
    try:
        return Path(spec.path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise DataError(f"probe {spec.id} cannot be shown", why=spec.fault or f"{spec.path}: {exc}") from exc


def _parsed(tree: ast.Module, path: str, origin: str) -> ProbeSpec | list[str]:
    given = _assignments(tree)
    node = given[0] if given else None
    declared = _literal(node) if node is not None else "it has no PROBE = {...}"
    if len(given) > 1:
        declared = f"PROBE is given a value again in line {given[1].lineno}"
    at = f"{path}:{node.lineno}" if node is not None else path
    errors = [f"{at}: {declared}"] if isinstance(declared, str) else []
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    question = _question(tree)
    if "run" not in functions:
        errors.append(f"{path}: it has no function run()")
    if not question:
        errors.append(f"{path}: its docstring must begin with the question that it answers")
    literal = {} if isinstance(declared, str) else declared
    probe, wrong = convert(literal) if literal else (None, [])
    errors += [f"{at}: {error}" for error in wrong]
    if errors or probe is None:
        return errors
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


def _assignments(tree: ast.Module) -> list[ast.stmt]:
    """The statements that give PROBE a value."""
    found: list[ast.stmt] = []
    for node in tree.body:
        match node:
            case ast.Assign(targets=targets):
                pass
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                targets = [target]
            case _:
                continue
        if any(isinstance(target, ast.Name) and target.id == "PROBE" for target in targets):
            found.append(node)
    return found


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


def _check_ids(specs: Iterable[ProbeSpec]) -> tuple[list[ProbeSpec], list[Broken]]:
    """Of two probes with one id the later is wrong, but never ours if the other is somebody else's."""
    seen: dict[str, ProbeSpec] = {}
    again = []
    for spec in sorted(specs, key=lambda spec: spec.origin != OWN):
        first = seen.setdefault(spec.id, spec)
        if first is not spec:
            why = f"{spec.path}: id {spec.id!r} is already that of {first.path}"
            again.append(Broken(spec.origin, Path(spec.path), why))
    return list(seen.values()), again


def _faulty(broken: Iterable[Broken], sound: Iterable[ProbeSpec]) -> list[ProbeSpec]:
    """What cannot be used, each as a probe with a row of its own: it takes none of the others with it."""
    taken = {name for spec in sound for name in (spec.id, spec.feature)}
    found = []
    for one in broken:
        stem = _word(one.path.stem)
        # A file is named by its id, family_kernel.py.
        names = (stem.replace("_", ".", 1), f"{_word(one.origin)}.{stem}")
        name = next((name for name in names if "." in name and name not in taken), "")
        while not name or name in taken:
            name = f"{name or names[1]}_"
        taken.add(name)
        found.append(
            ProbeSpec(
                id=name,
                feature=name,
                path=str(one.path),
                origin=one.origin,
                question=f"It cannot be used: {one.why}",
                module="",
                requires=Requires(),
                variants={},
                gpus=1,
                timeout_s=1,
                build_timeout_s=1,
                compiles=(),
                has_build=False,
                checks_numbers=False,
                runs_by_hand=False,
                fault=one.why,
            )
        )
    return found


def _word(text: str) -> str:
    """The text as a part of an id."""
    return re.sub(r"^[^a-z]+|_+$", "", re.sub(r"[^a-z0-9]+", "_", text.lower())) or "probe"
