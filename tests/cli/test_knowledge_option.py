"""--knowledge and FI_DOCTOR_KNOWLEDGE: what judges is what is named, and the report says which."""

from __future__ import annotations

import json
import re
import shutil
import zipfile

import pytest

from fi_doctor import knowledge
from fi_doctor.cli import bundling, consulting, installed
from fi_doctor.cli.asked import Asked
from fi_doctor.cli.commands import known_names
from fi_doctor.cli.explaining import AskedExplain, explain, is_id
from fi_doctor.cli.settle import settle
from fi_doctor.errors import DataError, UsageError

LOG = b"INFO vLLM API server version 0.34.0\nRuntimeError: a line that nobody knows\n"
FAULT = """id: nobody-knew-it
cause: it-is-known
family: driver
flashinfer_at_fault: false
title: t
why: w
fix: [{kind: note, line: l}]
signs:
  - text: "a line that nobody knows"
    strength: decides
    source: report
fires: [{log: x}]
silent: [{log: y}]
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The shipped knowledge without its faults and with one rule, one fault of its own, as a folder and a bundle."""
    folder = tmp_path_factory.mktemp("other")
    for name in ("kb.yaml", "features.yaml", "operators.yaml", "settings"):
        source = knowledge.SHIPPED / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    head = (folder / "kb.yaml").read_text()
    (folder / "kb.yaml").write_text(re.sub(r'(?m)^version: ".*"$', 'version: "2027.01.28"', head))
    (folder / "faults/driver").mkdir(parents=True)
    (folder / "faults/driver/nobody-knew-it.yaml").write_text(FAULT)
    assert bundling.pack(str(folder), output=str(folder / "../other.zip")) == 0
    return folder


@pytest.fixture
def bundle(other):
    return str(other.parent / "other.zip")


def test_the_option_goes_before_the_variable_and_that_before_what_ships(other, bundle, monkeypatch):
    assert consulting.place() is None
    monkeypatch.setenv("FI_DOCTOR_KNOWLEDGE", "variable")
    assert str(consulting.place()) == "variable"
    assert str(consulting.place(bundle)) == bundle
    with pytest.raises(UsageError):
        consulting.place("")


def test_what_is_known_is_what_the_bundle_holds(bundle, capfd):
    kb, specs = installed.known(bundle)
    assert (kb.version, kb.rules, len(specs) > 10) == ("2027.01.28", (), True)
    assert kb.origin.startswith("other.zip, sha256 ")
    assert "nvcc-not-found" not in known_names(bundle)[1]


def test_a_log_is_explained_by_its_faults_and_the_answer_says_by_which(bundle, tmp_path, capfd):
    (tmp_path / "x.log").write_bytes(LOG)
    assert explain(AskedExplain(names=(str(tmp_path / "x.log"),), formats=("json",), knowledge=bundle)) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["diagnoses"][0]["cause"] == "it-is-known"
    assert found["knowledge"].startswith("2027.01.28 (other.zip, sha256 ")
    assert explain(AskedExplain(names=(str(tmp_path / "x.log"),), formats=("markdown",), knowledge=bundle)) == 0
    assert "By the knowledge 2027.01.28 (other.zip, sha256 " in capfd.readouterr().out
    assert any("vLLM 0.34.0 is newer than 0.33.0" in line for line in found["helps"])


def test_without_it_the_same_log_is_not_known(tmp_path, capfd):
    (tmp_path / "x.log").write_bytes(LOG)
    assert explain(AskedExplain(names=(str(tmp_path / "x.log"),), formats=("json",))) == 3
    assert json.loads(capfd.readouterr().out)["knowledge"] == ""


def test_an_id_is_explained_by_it(bundle, capfd):
    assert explain(AskedExplain(names=("it-is-known",), knowledge=bundle)) == 0
    assert "nobody-knew-it (cause it-is-known, of driver" in capfd.readouterr().out
    with pytest.raises(UsageError):
        explain(AskedExplain(names=("nvcc-not-found",), knowledge=bundle))


def test_show_says_what_is_in_it(bundle, capfd):
    assert bundling.show(bundle) == 0
    said = capfd.readouterr().out
    assert said.startswith(f"knowledge 2027.01.28, {bundle}\nchecked on:\n  sources of flashinfer-python")
    assert "0 rules, 1 faults, 63 rows" in said


def test_show_takes_the_option_too_and_not_both(bundle, capfd):
    assert bundling.show(knowledge=bundle) == 0
    assert capfd.readouterr().out.startswith(f"knowledge 2027.01.28, {bundle}\n")
    with pytest.raises(UsageError):
        bundling.show(bundle, knowledge=bundle)


def test_a_damaged_bundle_judges_nothing(bundle, tmp_path):
    with zipfile.ZipFile(bundle) as whole, zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
        for name in whole.namelist():
            bad.writestr(name, whole.read(name) + (b" " if name == "kb.yaml" else b""))
    with pytest.raises(DataError) as caught:
        installed.known(str(tmp_path / "bad.zip"))
    assert caught.value.why.startswith("kb.yaml: its SHA-256 is ")


def test_the_commands_take_it_and_the_report_says_so(doctor, bundle, tmp_path):
    done = doctor("check", "--example", "h200", "--knowledge", bundle, "--format", "json:r.json", "-q")
    assert (done.returncode, done.stdout) == (0, "")
    told = json.loads((doctor.folder / "r.json").read_text())["doctor"]
    assert (told["knowledge"], told["knowledge_from"][:10]) == ("2027.01.28", "other.zip,")
    for words in (["env", "--example", "h200"], ["features", "--rows"], ["report", "--example", "h200"]):
        assert doctor(*words, env={"FI_DOCTOR_KNOWLEDGE": bundle}).returncode == 0
        assert doctor(*words, "--knowledge", tmp_path / "none").returncode == 2


def test_a_variable_that_is_nearly_called_so_is_refused(monkeypatch):
    monkeypatch.setenv("FI_DOCTOR_KNOWLEGE", "x.zip")
    with pytest.raises(UsageError) as caught:
        settle(Asked(no_config=True))
    assert caught.value.todo == "set FI_DOCTOR_KNOWLEDGE, or unset FI_DOCTOR_KNOWLEGE"


def test_a_variable_that_is_registered_is_an_id_where_a_file_is_called_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("VLLM_USE_DEEP_GEMM", "VLLM_NEVER_WAS"):
        (tmp_path / name).touch()
    assert is_id(AskedExplain(names=("VLLM_USE_DEEP_GEMM",)))
    assert not is_id(AskedExplain(names=("VLLM_NEVER_WAS",)))
