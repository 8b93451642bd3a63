import pytest

from fi_doctor.cluster import shipping, worker


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shipping.gather(tmp_path_factory.mktemp("shipped"))


def test_fi_doctor_its_probes_and_what_they_need_are_in_one_folder(folder):
    for name in ("fi_doctor/cluster/worker.py", "fi_doctor_probes/norm_rmsnorm.py", "msgspec/__init__.py", "typer"):
        assert (folder / name).exists()
    assert list(folder.glob("fi_doctor-*.dist-info/entry_points.txt"))  # by which the probes are found


def test_what_writes_no_json_is_left_out(folder):
    assert not list(folder.rglob("__pycache__"))
    assert not list(folder.glob("__editable__*"))
    assert not (folder / "pygments").exists()
    assert not list(folder.glob("fi_doctor/**/faults"))
    assert list(folder.glob("fi_doctor/knowledge/data/rules/*/*.yaml"))
    assert not (folder / "ray").exists()


def test_what_is_needed_is_followed_through_and_nothing_else():
    found = shipping.needed("fi-doctor")
    assert {"fi-doctor", "msgspec", "rich", "typer"} <= found
    assert not found & {"torch", "pytest", "ray"}  # of extras


def test_a_child_sees_the_environment_of_its_node():
    found = {"PYTHONPATH": "/ray/abc:/ray/abc/fi_doctor_shipped:/their/own", "CUDA_VISIBLE_DEVICES": "3"}
    assert worker.environment(found, "/ray/abc/fi_doctor_shipped", 1) == {
        "PYTHONPATH": "/their/own",
        "CUDA_VISIBLE_DEVICES": "3",
    }


def test_a_pythonpath_that_was_ours_alone_is_gone():
    assert worker.environment({"PYTHONPATH": "/ray/abc"}, "/ray/abc/fi_doctor_shipped", 0) == {}


def test_a_pythonpath_that_is_not_ours_stays_as_it_is():
    assert worker.environment({"PYTHONPATH": "/a::/b"}, "/ray/abc/shipped", 0) == {"PYTHONPATH": "/a::/b"}


def test_gpus_that_ray_hides_from_a_task_without_one_are_seen():
    assert worker.environment({"CUDA_VISIBLE_DEVICES": ""}, "/x/y", 0) == {}
    assert worker.environment({"CUDA_VISIBLE_DEVICES": ""}, "/x/y", 1) == {"CUDA_VISIBLE_DEVICES": ""}


def test_a_child_tells_how_it_ended():
    words = ("--version",)
    code, signal, timed_out, stdout, _, seconds, error = worker.run(words, script="", limit_s=60, gpus=0, variables=())
    assert (code, signal, timed_out, error) == (0, None, False, "")
    assert stdout.startswith(b"fi-doctor ")
    assert seconds > 0
