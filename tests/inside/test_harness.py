"""The harness by itself, as the runner starts it: standard library only, in a process of its own."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[2] / "fi_doctor" / "inside" / "harness.py"


@pytest.fixture
def harness(tmp_path):
    def start(source, *options, variants=("",), depth="run", env=None, path=None):
        probe = path or tmp_path / "probe.py"
        if path is None:
            probe.write_text(source)
        with (tmp_path / "record").open("w+b") as file:
            fd = file.fileno()
            wanted = [f"--variant={name}" for name in variants]
            argv = [
                sys.executable,
                str(HARNESS),
                f"--record-fd={fd}",
                f"--depth={depth}",
                *wanted,
                *options,
                str(probe),
            ]
            done = subprocess.run(
                argv, pass_fds=(fd,), capture_output=True, text=True, env=env, check=False, cwd=tmp_path
            )
            file.seek(0)
            lines = [json.loads(line) for line in file.read().splitlines()]
        return lines, done

    return start


def stages(lines):
    return [line.get("stage") or line.get("ending") or ("end" if "end" in line else "other") for line in lines]


def test_the_record_names_every_stage_and_ends(harness):
    lines, done = harness("PROBE = {}\ndef build(): pass\ndef run(): return {'x': 1}")
    assert stages(lines) == [
        "importing", "imported", "other", "building", "built", "running", "ran", "returned", "other", "end",
    ]  # fmt: skip
    assert lines[7]["measurements"] == {"x": 1}
    assert done.returncode == 0


def test_nothing_is_left_beside_the_probe(harness, tmp_path):
    harness("PROBE = {}\ndef run(): return {}")
    assert {path.name for path in tmp_path.iterdir()} == {"probe.py", "record"}


def test_at_depth_build_nothing_runs(harness):
    lines, _ = harness("PROBE = {}\ndef build(): pass\ndef run(): 1 / 0", depth="build")
    assert stages(lines)[3:6] == ["building", "built", "returned"]


def test_variants_are_passed_by_name(harness):
    lines, _ = harness("PROBE = {'variants': {'a': {}, 'b': {}}}\ndef run(v): return {'got': v}", variants=("b", "a"))
    assert [line["measurements"]["got"] for line in lines if "ending" in line] == ["b", "a"]


def test_a_build_that_returns_false_is_not_said_to_be_built(harness):
    source = "PROBE = {}\ndef build(): return False\ndef run(): return {}"
    lines, _ = harness(source, depth="build")
    assert stages(lines)[3:5] == ["building", "returned"]
    lines, _ = harness(source)
    assert stages(lines)[3:7] == ["building", "running", "ran", "returned"]


def test_its_first_call_is_then_the_build(harness):
    source = "PROBE = {'compiles': ['nvcc', 'cute-dsl']}\ndef build(): return False\ndef run(): return {}"
    lines, _ = harness(source)
    assert stages(lines)[3:8] == ["building", "building", "built", "running", "ran"]


def test_with_descriptor_1_the_record_is_printed_and_what_the_probe_starts_can_print_too(tmp_path):
    probe = tmp_path / "probe.py"
    probe.write_text("import subprocess\nPROBE = {}\ndef run(): return {'status': subprocess.call(['echo', 'hello'])}")
    argv = [sys.executable, str(HARNESS), "--record-fd=1", "--depth=run", "--variant=", str(probe)]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "hello" in printed
    [ending] = [line for line in map(json.loads, set(printed) - {"hello"}) if "ending" in line]
    assert ending["measurements"] == {"status": 0}


def test_a_failed_variant_does_not_stop_the_next_one(harness):
    source = (
        "PROBE = {'variants': {'a': {}, 'b': {}}}\ndef run(v):\n    if v == 'a': raise KeyError('k')\n    return {}"
    )
    lines, _ = harness(source, variants=("a", "b"))
    assert [(line["variant"], line["ending"]) for line in lines if "ending" in line] == [
        ("a", "raised"),
        ("b", "returned"),
    ]


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "SystemExit", "GeneratorExit", "RecursionError"])
def test_whatever_is_raised_is_recorded(harness, name):
    lines, done = harness(f"PROBE = {{}}\ndef run(): raise {name}('m')")
    [line] = [line for line in lines if "ending" in line]
    assert line["ending"] == ("exited" if name == "SystemExit" else "raised")
    assert line["error"] == name
    assert (lines[-1]["end"], done.returncode) == (True, 0)


def test_whatever_is_raised_on_import_is_recorded(harness):
    lines, _ = harness("raise SystemExit(3)")
    assert [line.get("error") for line in lines if "ending" in line] == ["SystemExit"]
    assert lines[-1]["end"]


@pytest.mark.parametrize("level", ["1", "2"])
def test_no_optimisation_strips_the_checks_of_a_probe(harness, level):
    source = "PROBE = {}\ndef run():\n    assert 1 == 2, 'max error 1'\n    return {}"
    lines, _ = harness(source, env={"PYTHONOPTIMIZE": level})
    [line] = [line for line in lines if "ending" in line]
    assert (line["ending"], line["error"], line["message"]) == ("wrong-result", "AssertionError", "max error 1")


def test_what_is_no_text_is_spelled_out(harness):
    source = (
        "PROBE = {'variants': {'a': {}, 'b': {}}}\ndef run(v):\n"
        "    if v == 'a': raise RuntimeError('/data/\\udcff/lib.so')\n    return {'\\udcff': 'x\\ud800 \U0001f600'}"
    )
    lines, _ = harness(source, variants=("a", "b"))
    first, second = [line for line in lines if "ending" in line]
    assert (first["ending"], first["message"]) == ("raised", r"/data/\udcff/lib.so")
    assert second["measurements"] == {r"\udcff": "x\\ud800 \U0001f600"}


@pytest.mark.parametrize(
    ("base", "ending"), [("Exception", "raised"), ("AssertionError", "wrong-result"), ("SystemExit", "exited")]
)
def test_an_exception_that_cannot_say_what_it_is_is_recorded(harness, base, ending):
    source = (
        f"PROBE = {{}}\nclass Mute({base}):\n    def __str__(self): raise SystemExit(3)\ndef run(): raise Mute(Mute())"
    )
    lines, done = harness(source)
    [line] = [line for line in lines if "ending" in line]
    assert line["ending"] == ending
    assert "<class 'fi_probe_probe.Mute'>" in line["message"]
    assert (lines[-1]["end"], done.returncode) == (True, 0)


@pytest.mark.parametrize("returned", ["[1]", "None", "{}"])
def test_a_run_that_returns_no_measurements_is_no_failure_of_the_kernel(harness, returned):
    lines, _ = harness(f"PROBE = {{}}\ndef run(): return {returned}")
    [line] = [line for line in lines if "ending" in line]
    assert (line["ending"], line["measurements"]) == ("returned", {})


@pytest.mark.parametrize("returned", ["(None for _ in ())", "never()"])
def test_a_run_of_which_nothing_was_executed_could_not_look(harness, returned):
    source = f"PROBE = {{}}\nasync def never(): assert False\ndef run(): return {returned}"
    lines, _ = harness(source)
    [line] = [line for line in lines if "ending" in line]
    assert (line["ending"], line["error"]) == ("raised", "unittest.case.SkipTest")


def test_a_measurement_that_is_more_than_one_number_is_said_as_text(harness):
    source = """
        PROBE = {}
        class Tensor:
            def item(self): raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
            def __str__(self): return "tensor([1, 2])"
        def run(): return {"elements": 2, "errors": Tensor()}
    """
    lines, _ = harness(textwrap.dedent(source))
    [line] = [line for line in lines if "ending" in line]
    assert line["measurements"] == {"elements": 2, "errors": "tensor([1, 2])"}


def test_a_long_message_keeps_both_ends(harness):
    lines, _ = harness("PROBE = {}\ndef run(): raise ValueError('begin' + 'x' * 100000 + 'end')")
    [line] = [line for line in lines if "ending" in line]
    assert line["message"].startswith("begin")
    assert line["message"].endswith("end")
    assert len(line["message"]) < 34000
    assert len(line["traceback"]) <= 4096


STAND_INS = {
    "torch/__init__.py": """
        __version__ = "9.9"
        from torch import cuda
    """,
    "torch/cuda.py": """
        broken = False
        def is_initialized(): return True
        def synchronize():
            if broken: raise RuntimeError("CUDA error: an illegal memory access was encountered\\nmore")
        def current_device(): return 0
        class P: name, major, minor, uuid = "Fake H200", 9, 0, "abc"
        def get_device_properties(index): return P
    """,
    "torch/testing/__init__.py": """
        def assert_close(a, b): raise AssertionError("Tensor-likes are not close")
    """,
    "flashinfer/__init__.py": """
        __version__ = "0.0"
    """,
}


@pytest.fixture
def stand_ins(tmp_path):
    """An environment in which torch and flashinfer are stand-ins."""
    for name, text in STAND_INS.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line[8:] for line in text.splitlines()))
    return {"PYTHONPATH": str(tmp_path / "site")}


def test_what_a_probe_needs_is_imported_as_a_stage_of_its_own(harness, stand_ins):
    lines, _ = harness("PROBE = {'module': 'norm'}\ndef run(): return {}", env=stand_ins)
    found = next(line["versions"] for line in lines if "versions" in line)
    assert {name: one["version"] for name, one in found.items()} == {"torch": "9.9", "flashinfer": "0.0"}
    assert found["flashinfer"]["path"].endswith("site/flashinfer/__init__.py")


def test_a_package_that_cannot_be_imported_fails_the_import_stage(harness, tmp_path):
    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs/torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')")
    source = "PROBE = {'requires': {'symbols': ['flashinfer.norm.x']}}\ndef run(): return {}"
    lines, _ = harness(source, env={"PYTHONPATH": str(tmp_path / "stubs")})
    assert stages(lines) == ["importing", "raised", "other", "end"]
    assert lines[1]["message"] == "libcudart.so.13: cannot open shared object file"


def test_the_gpu_is_named_once(harness, stand_ins):
    source = "PROBE = {'module': 'norm', 'variants': {'a': {}, 'b': {}}}\ndef run(v): return {}"
    lines, _ = harness(source, env=stand_ins, variants=("a", "b"))
    assert [line["gpu"] for line in lines if "gpu" in line] == [{"name": "Fake H200", "sm": 90, "uuid": "abc"}]


def test_an_error_that_cuda_reports_late_fails_the_variant_and_stops_the_process(harness, stand_ins):
    source = (
        "PROBE = {'module': 'norm', 'variants': {'a': {}, 'b': {}}}\n"
        "def run(v):\n    import torch.cuda\n    torch.cuda.broken = True\n    return {}"
    )
    lines, _ = harness(source, env=stand_ins, variants=("a", "b"))
    [line] = [line for line in lines if "ending" in line]
    assert (line["variant"], line["ending"]) == ("a", "raised")
    assert lines[-1] == {
        "end": True,
        "stopped": "the CUDA context is dead: CUDA error: an illegal memory access was encountered",
    }


def test_a_comparison_of_torch_that_the_probe_calls_is_the_probes_own_check(harness, stand_ins):
    source = "PROBE = {'module': 'norm'}\ndef run():\n    import torch.testing\n    torch.testing.assert_close(1, 2)"
    lines, _ = harness(source, env=stand_ins)
    [line] = [line for line in lines if "ending" in line]
    assert (line["ending"], line["message"]) == ("wrong-result", "Tensor-likes are not close")


def test_neither_its_own_folder_nor_the_current_one_is_importable(harness, tmp_path, stand_ins):
    (tmp_path / "in_cwd.py").write_text("")
    source = (
        "import importlib.util, sys\nPROBE = {}\n"
        "def run(): return {n: importlib.util.find_spec(n) is not None for n in ('in_cwd', 'survey', 'flashinfer')}"
    )
    lines, _ = harness(source, env=stand_ins)
    [line] = [line for line in lines if "ending" in line]
    assert line["measurements"] == {"in_cwd": False, "survey": False, "flashinfer": True}


def test_a_hang_prints_its_stack_before_the_limit(harness):
    _, done = harness("import time\nPROBE = {}\ndef run(): time.sleep(1.5); return {}", "--run-limit=1")
    assert "probe.py" in done.stderr
    assert "Timeout" in done.stderr


LOCKING = """
import fcntl, os
PROBE = {"variants": {"a": {}, "b": {}}}
def is_free():
    fd = os.open(FOLDER, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
def build(variant):
    assert not is_free()
    if variant == "a": raise KeyError("k")
def run(variant): return {"free": is_free()}
"""


def test_the_lock_is_held_while_building_only_and_leaves_no_file(harness, tmp_path):
    folder = tmp_path / "cache" / "cached_ops"
    source = LOCKING.replace("FOLDER", repr(str(folder)))
    lines, _ = harness(source, f"--build-lock={folder}", variants=("a", "b"))
    assert stages(lines)[3:] == [
        "waiting", "building", "raised", "building", "built", "running", "ran", "returned", "other", "end",
    ]  # fmt: skip
    assert [line["error"] for line in lines if line.get("ending") == "raised"] == ["KeyError"]
    assert [line["measurements"] for line in lines if line.get("ending") == "returned"] == [{"free": True}]
    assert list(folder.iterdir()) == []


def test_what_has_no_build_does_not_wait(harness, tmp_path):
    lines, _ = harness("PROBE = {'compiles': ['triton']}\ndef run(): return {}", f"--build-lock={tmp_path}")
    assert "waiting" not in stages(lines)


def test_a_lock_that_cannot_be_had_is_no_obstacle(harness, tmp_path):
    (tmp_path / "file").write_text("")
    lines, _ = harness(
        "PROBE = {}\ndef build(): pass\ndef run(): return {}", f"--build-lock={tmp_path / 'file' / 'ops'}"
    )
    [line] = [line for line in lines if "ending" in line]
    assert line["ending"] == "returned"


def test_every_variant_is_built_before_the_first_one_runs(harness):
    source = "PROBE = {}\nPROBE['variants'] = {'a': {}, 'b': {}}\ndef build(v): pass\ndef run(v): return {}"
    lines, _ = harness(source, variants=("a", "b"))
    named = [(line["variant"], line["stage"]) for line in lines if "variant" in line and "stage" in line]
    assert named == [
        ("a", "building"), ("a", "built"), ("b", "building"), ("b", "built"),
        ("a", "running"), ("a", "ran"), ("b", "running"), ("b", "ran"),
    ]  # fmt: skip


def test_a_bare_assert_says_which_one_it_is(harness):
    lines, _ = harness("PROBE = {}\ndef run():\n    assert 1 == 2\n")
    [line] = [line for line in lines if line.get("ending")]
    assert (line["ending"], line["message"]) == ("wrong-result", "assert 1 == 2")
