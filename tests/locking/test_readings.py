"""What is read of installed packages is remembered, and read again when one of their files is not as it was."""

import factory as make
import pytest

from fi_doctor.facts import calls, remembered, vllm
from fi_doctor.locking import readings

CALLER = "from flashinfer.norm import rmsnorm\nrmsnorm(1, 2)\n"
CALLEE = "def rmsnorm(input, weight): ...\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(remembered, "FRESH_NS", -(10**18))  # files count as old enough to be remembered at once
    for name, text in {
        "vllm/__init__.py": "",
        "vllm/envs.py": 'environment_variables = {"VLLM_A": lambda: 1}\n',
        "vllm/engine/arg_utils.py": 'parser.add_argument("--moe-backend")\n',
        "vllm/config/kernel.py": "class KernelConfig:\n    moe_backend: str = ''\n",
        "vllm/layer.py": CALLER,
        "flashinfer/__init__.py": "",
        "flashinfer/norm.py": CALLEE,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def read(site, monkeypatch):
    """What both readers say, as a process that has just begun, and what they had to read for it."""
    done = []
    for module, name in ((calls, "read_calls"), (vllm, "read_vllm")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda survey, real=real, name=name: done.append(name) or real(survey))
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
