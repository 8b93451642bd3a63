"""The installed vLLM as its files tell it."""

import ast
import os
import sys
from pathlib import Path

import factory as make
import msgspec
import pytest

from fi_doctor.facts import collect, vllm
from fi_doctor.model import Missing, Vllm

UNPACKED = Path(os.environ.get("FI_DOCTOR_VLLM", "/nowhere"))
ENVS = """
import os
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    VLLM_DEAD: bool = False
environment_variables: dict[str, object] = {
    "MAX_JOBS": lambda: os.getenv("MAX_JOBS"),
    # a comment
    "VLLM_LIVE": lambda: bool(int(os.getenv("VLLM_LIVE", "0"))),
    "VLLM_DEAD": lambda: os.getenv("VLLM_DEAD"),
    "VLLM_OWN": lambda: os.getenv("VLLM_OWN"),
    "VLLM_RUST": lambda: os.getenv("VLLM_RUST"),
}
def own():
    return os.environ.get("VLLM_OWN")
def compile_factors():
    return {"VLLM_DEAD"}
"""
ARGS = """
class EngineArgs:
    def add_cli_args(parser):
        group.add_argument("--attention-backend", **kwargs["backend"])
        group.add_argument(
            "--attention-config", "-ac", **kwargs["attention_config"]
        )
        group.add_argument('--one-more',
                           action="store_true")
"""
CONFIG = '''
@config
class AttentionConfig:
    """Text: not_a_field: int"""
    backend: str | None = None
    use_trtllm_attention: bool | None = None
    """None: asks."""
    _private: int = 0

    def method(self) -> None:
        local: int = 0

class Other:
    field: int = 0
'''


@pytest.fixture
def package(tmp_path):
    root = tmp_path / "vllm"
    for name, text in {
        "__init__.py": "raise SystemExit('imported')",
        "envs.py": ENVS,
        "engine/arg_utils.py": ARGS,
        "config/attention.py": CONFIG,
        "worker/run.py": "import vllm.envs as envs\nenvs.VLLM_LIVE\nos.environ['VLLM_UNREGISTERED']\n# VLLM_COMMENT",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def read(root):
    found = vllm.read_vllm(make.survey(vllm=str(root / "__init__.py")))
    assert isinstance(found, Vllm)
    return found


def test_variables_flags_and_keys_are_read_with_their_places(package):
    found = read(package)
    assert found.variables["VLLM_LIVE"] == "envs.py:9"
    assert found.flags == {
        "--attention-backend": "engine/arg_utils.py:4",
        "--attention-config": "engine/arg_utils.py:6",
        "-ac": "engine/arg_utils.py:6",
        "--one-more": "engine/arg_utils.py:8",
    }
    assert found.keys == {
        "AttentionConfig.backend": "config/attention.py:5",
        "AttentionConfig.use_trtllm_attention": "config/attention.py:6",
    }
    assert found.other_variables == {"VLLM_UNREGISTERED": "worker/run.py"}
    assert found.unreadable == {}


def test_a_variable_is_unread_where_only_the_registry_names_it(package):
    assert read(package).unread_variables == ("VLLM_DEAD", "VLLM_RUST")


def test_what_the_rust_front_end_names_is_read(package):
    (package / "vllm-rs").write_bytes(b"\x7fELF\0invalidVLLM_RUSTDEBUG\0")
    assert read(package).unread_variables == ("VLLM_DEAD",)


@pytest.mark.parametrize(
    ("name", "text", "table", "reason"),
    [
        ("envs.py", None, "variables", "No such file"),
        ("envs.py", "environment_variables = {", "variables", "is not Python"),
        ("envs.py", "environment_variables = make()", "variables", "has no table"),
        ("engine/arg_utils.py", None, "flags", "No such file"),
        ("engine/arg_utils.py", "", "flags", "adds no options"),
        ("config/attention.py", None, "keys", "no config class"),
        ("config/attention.py", "class PassConfig:\n    a: int = (", "keys", "class PassConfig is not Python"),
    ],
)
def test_what_cannot_be_read_has_a_reason_and_hides_nothing_else(package, name, text, table, reason):
    (package / name).unlink()
    if text is not None:
        (package / name).write_text(text)
    found = read(package)
    assert reason in found.unreadable[table]
    assert getattr(found, table) == {}
    expected = {"variables", "unread_variables"} if table == "variables" else {table}
    assert set(found.unreadable) == expected


@pytest.mark.parametrize(
    ("name", "table"), [("envs.py", "variables"), ("config/aaa.py", "keys"), ("engine/arg_utils.py", "flags")]
)
def test_a_pipe_in_the_place_of_a_file_blocks_nothing(package, name, table):
    (package / name).unlink(missing_ok=True)
    os.mkfifo(package / name)
    assert "is not a file" in read(package).unreadable[table]


def test_a_registry_that_no_parser_takes_or_that_names_odd_things_is_no_fault(package):
    (package / "envs.py").write_text('environment_variables = {"VLLM_(": lambda: 1}')
    assert "VLLM_(" in read(package).variables
    (package / "envs.py").write_text("environment_variables = {'VLLM_A': " + "not " * 200_000 + "1}")
    assert "is not Python" in read(package).unreadable["variables"]


def test_a_file_that_may_not_be_read_leaves_unread_variables_unknown(package):
    (package / "worker" / "gone.py").symlink_to(package)  # a folder under the name of a file is passed over
    assert read(package).unreadable == {}
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (package / "worker" / "run.py").chmod(0)
    assert set(read(package).unreadable) == {"unread_variables", "other_variables"}


def test_a_tree_that_is_too_large_or_slow_leaves_unread_variables_unknown(package, monkeypatch):
    monkeypatch.setattr(vllm, "_MOST_FILES", 2)
    assert "more than 2 Python files" in read(package).unreadable["unread_variables"]
    monkeypatch.setattr(vllm, "_MOST_FILES", 100)
    monkeypatch.setattr(vllm, "_LIMIT_S", -1.0)
    found = read(package)
    assert "could not be read within" in found.unreadable["other_variables"]
    assert found.unread_variables == ()


def test_without_vllm_the_reason_is_the_survey_s():
    found = collect(sys.executable).vllm
    assert isinstance(found, Missing)
    assert found.reason


def test_a_vllm_on_the_examined_path_is_read_and_not_imported(package):
    facts = collect(sys.executable, environ={**os.environ, "PYTHONPATH": str(package.parent)})
    assert isinstance(facts.vllm, Vllm)
    assert facts.vllm.root == str(package)
    assert msgspec.json.decode(msgspec.json.encode(facts), type=type(facts)) == facts
    assert "vllm" in facts.sources


@pytest.mark.skipif(not UNPACKED.is_dir(), reason="FI_DOCTOR_VLLM names no folder of unpacked vLLM releases")
@pytest.mark.parametrize("release", ["0.11.0", "0.14.1", "0.17.1", "0.20.2", "0.25.1", "0.28.0", "0.33.0"])
def test_the_options_are_those_that_the_syntax_tree_has(release):
    root = UNPACKED / release / "vllm"
    calls = [
        node
        for node in ast.walk(ast.parse((root / "engine/arg_utils.py").read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
    ]
    wanted = {
        argument.value: f"engine/arg_utils.py:{argument.lineno}"
        for call in reversed(calls)
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }
    assert vllm.read_flags(root).keys() == wanted.keys()
