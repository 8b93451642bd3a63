"""What is read of installed packages is remembered, and read again when one of their files is not as it was."""

import factory as make
import pytest
from watched_readers import CALLEE, CALLER, FILES, watch, write

from fi_doctor.facts import remembered
from fi_doctor.locking import readings


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(remembered, "FRESH_NS", -(10**18))  # files count as old enough to be remembered at once
    write(tmp_path, FILES)
    return tmp_path


@pytest.fixture
def read(site, monkeypatch):
    """What both readers say, as a process that has just begun, and what they had to read for it."""
    done = watch(monkeypatch)
    survey = make.survey(vllm=str(site / "vllm/__init__.py"), flashinfer=str(site / "flashinfer/__init__.py"))

    def again():
        done.clear()
        fresh = readings.Readings(site / "memory")
        return fresh.calls(survey), fresh.vllm(survey), sorted(done)

    return again


def test_nothing_is_read_twice(read):
    bound, found, done = read()
    assert (bound.fitting, list(found.variables), done) == (2, ["VLLM_A"], ["read_calls", "read_vllm"])
    assert read() == (bound, found, [])


@pytest.mark.parametrize(
    ("name", "text", "again"),
    [
        ("vllm/layer.py", CALLER.replace("2", "2, 3"), ["read_calls", "read_vllm"]),
        ("vllm/new.py", CALLER, ["read_calls", "read_vllm"]),
        ("flashinfer/norm.py", CALLEE.replace("weight", "weight, eps"), ["read_calls"]),
        ("flashinfer/data/csrc/norm.py", CALLEE, []),
    ],
    ids=["caller", "new-caller", "callee", "no-source"],
)
def test_what_changed_is_read_again(read, site, name, text, again):
    before = read()[0]
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_text(text)
    after, _, done = read()
    assert done == again
    assert (after == before) is (not again)


def test_calls_of_which_a_file_could_not_be_read_are_not_remembered(read, site):
    (site / "vllm/layer.py").write_text(f"{CALLER}(\n")
    assert list(read()[0].unread) == ["layer.py"]
    assert read()[2] == ["read_calls"]


def test_another_place_is_not_the_one_that_was_read(read, site):
    read()
    (site / "vllm").rename(site / "other")
    survey = make.survey(vllm=str(site / "other/__init__.py"), flashinfer=str(site / "flashinfer/__init__.py"))
    assert readings.Readings(site / "memory").vllm(survey).root == str(site / "other")
