"""What the code never does: start a shell, run or unpickle text, or write under a name that can be guessed."""

from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted(path for folder in ("fi_doctor", "probes", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
SHELLS = ("sh", "bash", "dash", "/bin/sh", "/bin/bash", "zsh")
STARTERS = ("run", "Popen", "call", "check_call", "check_output", "execv", "execvp", "execve", "spawn")
NEVER = {
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn", "eval"),
    *("pickle.load", "pickle.loads", "marshal.load", "marshal.loads", "shelve.open", "yaml.unsafe_load"),
    *("tempfile.mktemp", "shutil.unpack_archive", "archive.extractall"),
}
# These run a probe's own file in the interpreter under examination, in a process of its own.
MAY_EXECUTE = {"inside/harness.py", "inside/template.py"}
# It unpacks what the fi-doctor that started it has packed, and then runs it: nothing comes from elsewhere.
MAY_UNPACK = {"cluster/sent.py"}


def wrong_in(tree: ast.AST, name: str) -> list[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [f"{name}:{call.lineno}: {why}" for call in calls for why in _wrong(call, name)]


def _wrong(call: ast.Call, name: str):
    called = ast.unparse(call.func)
    starts = called.rpartition(".")[2] in STARTERS
    may_unpack = called == "archive.extractall" and name in MAY_UNPACK
    if (called in NEVER and not may_unpack) or (called == "exec" and name not in MAY_EXECUTE):
        yield called
    if starts and any(word.arg == "shell" for word in call.keywords):
        yield "shell="
    if starts and call.args and isinstance(call.args[0], ast.List | ast.Tuple):
        first, *rest = [one.value if isinstance(one, ast.Constant) else None for one in call.args[0].elts] or [None]
        if first in SHELLS and "-c" in rest:
            yield f"{first} -c"
    if called == "yaml.load" and not any(word.arg == "Loader" for word in call.keywords):
        yield "yaml.load without a loader"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_shell_and_nothing_from_outside_is_run(path):
    name = path.relative_to(ROOT).as_posix().removeprefix("fi_doctor/")
    assert wrong_in(ast.parse(path.read_text()), name) == []


@pytest.mark.parametrize(
    "code",
    ["os.system('x')", "subprocess.run('x', shell=True)", "run(['sh', '-c', f'x {y}'])", "exec(y)", "pickle.loads(y)"],
)
def test_each_of_them_would_be_seen(code):
    assert wrong_in(ast.parse(code), "x.py")


@pytest.mark.parametrize("path", sorted((ROOT / "deploy").rglob("*.sh")), ids=lambda path: path.name)
def test_scripts_neither_evaluate_text_nor_guess_names_below_tmp(path):
    words = [line.split("#")[0] for line in path.read_text().splitlines()]
    assert [line for line in words if line.strip().startswith("eval ") or "> /tmp/" in line or ">/tmp/" in line] == []
