import io
import os
import platform
import py_compile
import signal
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from waiting import wait_for

from fi_doctor.cluster import sent, shipping, worker


@pytest.fixture(scope="module")
def names():
    return {name for name, _ in shipping.files()}


def test_fi_doctor_its_probes_and_what_they_need_are_in_one_folder(names):
    assert {
        "fi_doctor/cluster/worker.py",
        "fi_doctor_probes/norm_rmsnorm.py",
        "msgspec/__init__.py",
        "typer/main.py",
    } <= names
    assert any(name.startswith("fi_doctor-") and name.endswith("/entry_points.txt") for name in names)  # of the probes


def test_what_writes_no_json_is_left_out(names):
    assert not [name for name in names if name.startswith(("__editable__", "pygments", "ray/", "backports/"))]
    assert not [name for name in names if name.startswith("fi_doctor/") and "/faults/" in name]
    assert [name for name in names if name.startswith("fi_doctor/knowledge/data/rules/") and name.endswith(".yaml")]


def test_the_bytecode_of_a_module_is_taken_as_long_as_it_is_that_of_its_source(tmp_path):
    source = tmp_path / "module.py"
    source.write_text("answer = 41\n")
    cached = Path(py_compile.compile(str(source)))
    taken = dict(shipping._with_bytecode(source, PurePosixPath("package/module.py")))
    name = f"package/__pycache__/{cached.name}"
    assert set(taken) == {"package/module.py", name}
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / name).parent.mkdir(parents=True)
    for path, data in taken.items():
        (elsewhere / path).write_bytes(data)
    (elsewhere / "package/module.py").write_text("raise OSError")  # it is of another time, too, and not looked at
    code = "import package.module as found; print(found.answer)"
    done = subprocess.run([sys.executable, "-c", code], cwd=elsewhere, capture_output=True, text=True, timeout=20)
    assert done.stdout == "41\n", done.stderr
    source.write_text("answer = 1042\n")
    assert list(dict(shipping._with_bytecode(source, PurePosixPath("package/module.py")))) == ["package/module.py"]


def test_what_is_needed_is_followed_through_and_nothing_else():
    found = shipping.needed("fi-doctor")
    assert {"fi-doctor", "msgspec", "rich", "typer"} <= found
    assert not found & {"torch", "pytest", "ray"}  # of extras


class Ray:
    """What of Ray a worker asks for."""

    def __init__(self, data):
        self.data, self.fetched = data, 0

    def get(self, reference):
        assert reference == "reference"
        self.fetched += 1
        return self.data


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """An order at an interpreter that has another fi-doctor; what is shipped says where it was unpacked."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("fi_doctor/cluster/worker.py", "def run(**asked): return asked, __file__")
        for package in ("fi_doctor", "fi_doctor/cluster"):
            archive.writestr(f"{package}/__init__.py", "")
    ray = Ray(whole.getvalue())
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "fi_doctor"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield ray, sent.work()
    for name in [name for name in sys.modules if name.partition(".")[0] == "fi_doctor"]:
        del sys.modules[name]  # of what was shipped; what was there comes back


def test_a_node_with_another_fi_doctor_says_so_and_is_sent_this_one(elsewhere, tmp_path):
    ray, work = elsewhere
    assert work("another", platform.machine(), None, None, 0, {}) == sent.LACKING
    asked, file = work("another", platform.machine(), ["reference"], None, 0, {"gpus": 0})
    (unpacked,) = tmp_path.iterdir()
    assert asked == {"gpus": 0}
    assert file == str(unpacked / "fi_doctor/cluster/worker.py")
    assert work("another", platform.machine(), ["reference"], None, 1, {})[0] == {}
    assert ray.fetched == 1  # once a worker


def test_a_folder_goes_with_the_worker_that_unpacked_it(tmp_path):
    folder = tmp_path / "unpacked"
    folder.mkdir()
    reading, writing = os.pipe()
    subprocess.run([sys.executable, "-I", "-S", "-c", sent.REMOVES, folder], stdin=reading, check=True, timeout=20)
    os.close(reading)
    assert folder.exists()
    os.close(writing)
    assert wait_for(lambda: not folder.exists(), seconds=10)


def test_what_ends_the_children_of_a_worker_is_none_of_them():
    code = """
from fi_doctor import processes
from fi_doctor.cluster import worker
worker.run(("--version",), script="", limit_s=60, gpus=0, variables=())
print(processes.HOUSEHOLD.keeper.word != "", list(processes.children()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True []\n", done.stderr


def test_what_is_for_another_processor_is_not_unpacked(elsewhere, tmp_path):
    ray, work = elsewhere
    with pytest.raises(RuntimeError, match=r"is for riscv64, and this node is .*fi-doctor fleet --installed"):
        work("another", "riscv64", ["reference"], None, 0, {})
    assert ray.fetched == 0
    assert not list(tmp_path.iterdir())


def test_where_this_very_one_is_installed_nothing_is_sent():
    begun = []

    class Board:
        class begin:  # noqa: N801 - as Ray has it
            remote = begun.append

    asked = {"words": ("--version",), "script": "", "limit_s": 60, "gpus": 0, "variables": ()}
    code, signum, timed_out, stdout, _, seconds, error = sent.work()(sent.look()(), "riscv64", None, Board, 7, asked)
    assert (code, signum, timed_out, error) == (0, None, False, "")
    assert stdout.startswith(b"fi-doctor ")
    assert seconds > 0
    assert begun == [7]


def test_without_what_it_needs_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(sent, "_NEEDS", ("msgspec", "nowhere_to_be_found"))
    assert sent.look()() == ""


def test_whichever_is_installed_is_asked_for_and_there_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "fi_doctor.cluster.worker", None)
    monkeypatch.delattr("fi_doctor.cluster.worker")
    with pytest.raises(RuntimeError, match=r"is not installed in .*; without --installed it is sent there"):
        sent.work()("", "riscv64", None, None, 0, {})


def test_gpus_that_ray_hides_from_a_task_without_one_are_seen():
    found = {"PYTHONPATH": "/a::/b", "CUDA_VISIBLE_DEVICES": ""}
    assert worker.environment(found, 0) == {"PYTHONPATH": "/a::/b"}
    assert worker.environment(found, 1) == found


def test_a_child_that_is_stopped_is_ended_long_before_its_limit(monkeypatch):
    watch = worker.Watch()
    monkeypatch.setattr(worker, "STOPPED_S", 0.05)
    child = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(worker, "children", lambda: [child.pid])
    try:
        assert not watch.is_over()
        child.send_signal(signal.SIGSTOP)
        assert wait_for(watch.is_over, seconds=5)
        assert watch.said.startswith("it was stopped by a signal")
        child.send_signal(signal.SIGCONT)
        assert wait_for(lambda: not watch.is_over(), seconds=5)
    finally:
        child.kill()
        child.wait()
