"""What programs call: the command's answers as values, without its output, its variables and its exit."""

from __future__ import annotations

import inspect
import pathlib
import subprocess
import sys
import threading

import pytest

import fi_doctor
from fi_doctor import errors
from fi_doctor.cli import app
from fi_doctor.model import Verdict
from fi_doctor.reports import document

ROOT = pathlib.Path(__file__).parents[1]
MACHINE = ROOT / "tests" / "machines" / "h200-cuda13.0-flashinfer0.7.2.post1"
# Of the command alone: where its output goes, what it says of it, and locks, which a report does not make.
# gentle: a program that lowered its own priority could not raise it again.
OF_THE_COMMAND = {
    "warm_list",
    "gentle",
    "lock",
    "locked",
    "frozen",
    "thorough",
    "format_",
    "output",
    "no_config",
    "explain_gate",
    "quiet",
    "redact",
    "watch",
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def recorded():
    return next(path for path in MACHINE.iterdir() if path.suffix in {".json", ".yaml"})


def test_the_arguments_are_the_options_of_check():
    asked = {name: one.default for name, one in inspect.signature(fi_doctor.diagnose).parameters.items()}
    options = {name: one.default for name, one in inspect.signature(app.check).parameters.items()}
    assert asked.keys() - {"tell"} == options.keys() - OF_THE_COMMAND
    assert {name for name, one in asked.items() if one not in (options.get(name), ())} == set()
    kinds = {one.kind for one in inspect.signature(fi_doctor.diagnose).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


def test_a_report_is_loaded_as_it_was_written_and_judged_anew(home, capfd):
    path = recorded()
    loaded, judged = fi_doctor.load(path), fi_doctor.diagnose(from_=path, feature="moe.*", require=["moe.bf16"])
    assert loaded == document.read_file(path)
    assert {row.feature.partition(".")[0] for row in judged.features} == {"moe"}
    assert judged.gate.code == 0
    assert fi_doctor.diagnose(from_=path, require="moe.trtllm_bf16").gate.code == 1
    assert capfd.readouterr() == ("", "")


def test_a_newer_schema_and_what_is_no_report_are_refused_as_the_command_does(home):
    for text, why in [('{"schema": "fi-doctor.report/2.0"}', "newer"), ("[]", "not a fi-doctor report")]:
        (home / "report.json").write_text(text)
        with pytest.raises(fi_doctor.DoctorError, match=why) as caught:
            fi_doctor.load(home / "report.json")
        assert caught.value.exit_code == 2
    with pytest.raises(errors.DataError, match="cannot read the report"):
        fi_doctor.load(home / "-")


def test_wrong_arguments_are_errors_and_no_end(home, capfd):
    with pytest.raises(errors.UsageError, match=r"--feature: no feature is called 'norm.rmsnrm'"):
        fi_doctor.diagnose(from_=recorded(), feature="norm.rmsnrm")
    with pytest.raises(errors.UsageError, match="--budget: 'soon'"):
        fi_doctor.diagnose(from_=recorded(), budget="soon")
    with pytest.raises(errors.TargetError):
        fi_doctor.diagnose(python=home / "none", depth="static")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("bad", ["a\0b", "\ud800", "~\0/x"], ids=ascii)
def test_texts_that_no_file_can_have_as_a_name_are_refused(bad):
    for name in ("from_", "python", "example", "as_user", "model", "vllm_args", "budget"):
        with pytest.raises(errors.UsageError, match="cannot be taken"):
            fi_doctor.diagnose(**{name: bad})
    for name in ("binary", "manifest", "env_file", "feature"):
        with pytest.raises(errors.UsageError, match="cannot be taken"):
            fi_doctor.diagnose(example="h200", **{name: ["a", bad]})
    with pytest.raises(errors.DataError, match="cannot read the report"):
        fi_doctor.load(bad)


def test_neither_variables_nor_a_policy_nearby_change_what_is_asked(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setenv("FI_DOCTOR_REQUIRE", "moe.trtllm_bf16")
    policy = home / "fi-doctor.toml"
    policy.write_text('[require]\n"moe.trtllm_bf16" = "works"\n')
    assert fi_doctor.diagnose(from_=recorded()).gate.code == 0
    assert fi_doctor.diagnose(from_=recorded(), config=policy).gate.code == 1


def test_what_is_set_aside_is_told_to_who_asks(home):
    manifest = home / "pod.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - image: vllm/vllm-openai\n      args: [serve, m]\n"
        "      envFrom: [{configMapRef: {name: x}}]\n"
    )
    told = []
    fi_doctor.diagnose(from_=recorded(), manifest=manifest, tell=told.append)
    assert len(told) == 1
    assert "is not judged" in told[0]


def test_a_check_in_a_thread_leaves_other_children_of_the_program_alone(home):
    """One in a session of its own, and without a marker, could be taken for an orphan that cleared its environment."""
    python = home / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without packages, of which reading takes long
    python.chmod(0o755)
    asked, found = {"python": python, "depth": "static", "feature": "import.torch"}, []
    thread = threading.Thread(target=lambda: found.append(fi_doctor.diagnose(**asked)))
    thread.start()
    others = [
        subprocess.Popen(["/bin/sh", "-c", "read x; exit 7"], stdin=subprocess.PIPE, start_new_session=True, env={})
        for _ in range(20)
        if not thread.join(0.05)
    ]
    thread.join()
    codes = [(other.communicate(b"\n"), other.returncode)[1] for other in others]
    assert set(codes) == {7}
    assert [row.verdict for row in found[0].features] == [Verdict.UNKNOWN]


def test_the_command_starts_without_it():
    code = "import sys, fi_doctor; assert not [m for m in sys.modules if m.startswith('fi_doctor.')]; fi_doctor.load"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert {"diagnose", "load"} <= set(dir(fi_doctor))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fi_doctor.nothing
