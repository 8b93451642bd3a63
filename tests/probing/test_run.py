"""Real fake probes, run by the real harness: the right ending each, the others unharmed, nobody left."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import machine_samples
import pytest
from msgspec.structs import replace

from fi_doctor import processes
from fi_doctor.errors import UsageError
from fi_doctor.model import Depth, Ending, Missing, Request, Requires, Silent, Stage
from fi_doctor.model.phrases import UNCOMPARED
from fi_doctor.probing import ahead, catalog, flow, memory, run, surroundings
from fi_doctor.probing.plan import plan

FAKES = Path(__file__).parents[1] / "fake_probes"
RUN = Request(depth=Depth.RUN, jobs=4, budget_s=60)


class Told(Silent):
    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)

    def started(self, probe):
        self.lines.append(f"started {probe.spec.id}")

    def reached(self, probe, stage):
        self.lines.append(f"{probe.spec.id} {stage}")

    def ended(self, probe, outcome):
        self.lines.append(f"ended {probe.spec.id}")


def specs(*names):
    chosen = (FAKES / f"fake_{name}.py" for name in names) if names else sorted(FAKES.glob("fake_*.py"))
    parsed = [catalog.parse(path.read_text(), str(path), "fi-doctor") for path in chosen]
    assert not [errors for errors in parsed if isinstance(errors, list)]
    return parsed


def outcomes_of(facts, *names, request=RUN, watch=None, environ=None):
    planned = plan(specs(*names), facts, request)
    environ = {"PATH": os.environ["PATH"]} if environ is None else environ
    done, _ = run.run_all(planned, facts=facts, request=request, watch=watch or Silent(), environ=environ)
    return {outcome.probe.removeprefix("fake."): outcome for outcome in done}


def marked_processes(marker):
    everybody = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in everybody if f"FI_DOCTOR_CHILD={marker}:".encode() in processes.environ(pid)]


EVERYTHING = f"everything-{os.getpid()}"


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All fakes at once, side by side."""
    scratch = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(scratch))
        patch.setenv("FI_DOCTOR_CHILD", EVERYTHING)  # children carry it in front of their own marker
        environ = {"PATH": os.environ["PATH"], "TMPDIR": str(scratch)}
        outcomes = outcomes_of(machine_samples.bare_facts(), environ=environ)
    assert list(scratch.iterdir()) == []
    return outcomes


EXPECTED = {
    "returned": (Stage.VERIFIED, Ending.RETURNED, ""),
    "raised": (Stage.BUILT, Ending.RAISED, 'a.cu(3): error: identifier "x" is undefined'),
    "segfault": (Stage.BUILT, Ending.SIGNALLED, "SIGSEGV while running"),
    "abort": (Stage.IMPORTED, Ending.SIGNALLED, "SIGABRT while building"),
    "hang": (Stage.BUILT, Ending.TIMED_OUT, "still running after 1 s"),
    "slow_build": (Stage.IMPORTED, Ending.TIMED_OUT, "still building after 1 s"),
    "daemon": (Stage.RAN, Ending.RETURNED, UNCOMPARED),
    "loud": (Stage.RAN, Ending.RETURNED, UNCOMPARED),
    "cut": (Stage.BUILT, Ending.LOST, "its record is cut or unreadable; it was last seen while running"),
    "import": (Stage.NONE, Ending.RAISED, "a: No module named 'a_module_that_nobody_has'"),
    "thread": (Stage.RAN, Ending.RAISED, "in thread worker: division by zero"),
    "stdin": (Stage.RAN, Ending.RETURNED, ""),
    "lazy": (Stage.RAN, Ending.RETURNED, UNCOMPARED),
    "called": (Stage.RAN, Ending.RETURNED, UNCOMPARED),
    "by_hand": (Stage.IMPORTED, Ending.RAISED, "bad one: Triton: no such layout"),
    "build_raises": (Stage.IMPORTED, Ending.RAISED, "second: Ninja build failed"),
    "crash_at_exit": (Stage.RAN, Ending.RETURNED, UNCOMPARED),
    "exits": (Stage.BUILT, Ending.EXITED, "zero: left with status 0 while running variant zero, its record unfinished"),
    "wrong": (Stage.IMPORTED, Ending.WRONG, "own: max error 0.5 over 0.01"),
    "second_crashes": (Stage.BUILT, Ending.SIGNALLED, "second: SIGSEGV while running variant second"),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_each_failure_has_its_own_ending(everything, name):
    outcome = everything[name]
    assert (outcome.stage, outcome.ending, outcome.detail) == EXPECTED[name]


def test_every_fake_is_expected(everything):
    assert set(everything) == set(EXPECTED)


def test_no_process_is_left(everything):
    assert marked_processes(EVERYTHING) == []
    assert not Path(f"/proc/{everything['daemon'].cells[0].measurements['pid']}").exists()


def test_measurements_are_plain_values(everything):
    assert everything["returned"].cells[0].measurements == {
        "elements": 3,
        "error": 0.5,
        "nan": "nan",
        "inf": "-inf",
        "scalar": 0.25,
        "good": True,
        "huge": str(2**70),
        "text": "x",
    }


def test_an_assertion_elsewhere_or_while_building_is_no_wrong_number(everything):
    cells = {cell.variant: cell for cell in everything["wrong"].cells}
    assert (cells["own"].stage, cells["own"].ending) == (Stage.RAN, Ending.WRONG)
    assert (cells["foreign"].stage, cells["foreign"].ending) == (Stage.BUILT, Ending.RAISED)
    assert (cells["building"].stage, cells["building"].ending) == (Stage.IMPORTED, Ending.RAISED)
    assert cells["own"].error == "AssertionError"
    assert "fake_wrong.py" in cells["own"].traceback


def test_a_dead_variant_leaves_the_others_to_a_fresh_process(everything):
    first, second, third = everything["second_crashes"].cells
    assert (first.ending, second.ending, third.ending) == (Ending.RETURNED, Ending.SIGNALLED, Ending.RETURNED)
    assert first.measurements["pid"] != third.measurements["pid"]
    assert "Segmentation fault" in everything["second_crashes"].output


def test_each_way_of_leaving_is_told(everything):
    details = {cell.variant: (cell.ending, cell.detail) for cell in everything["exits"].cells}
    assert details["three"] == (
        Ending.EXITED,
        "left with status 3 while running variant three, its record unfinished",
    )
    assert details["sys_exit"] == (Ending.EXITED, "called sys.exit(4)")
    assert details["fine"][0] is Ending.RETURNED


def test_a_failed_import_is_told_of_every_variant(everything):
    outcome = everything["import"]
    assert [(cell.variant, cell.stage, cell.error) for cell in outcome.cells] == [
        ("a", Stage.NONE, "ModuleNotFoundError"),
        ("b", Stage.NONE, "ModuleNotFoundError"),
    ]


def test_the_last_words_of_a_flood_are_kept(everything):
    assert everything["loud"].output.endswith("xxx" + "the last words\n")
    assert len(everything["loud"].output) == 4096


def test_stacks_are_printed_before_a_hang_is_ended(everything):
    assert "fake_hang.py" in everything["hang"].output


def test_the_harness_folder_is_not_importable(everything):
    assert everything["stdin"].cells[0].measurements == {"read": 0, "path": "[]"}


def test_the_first_call_of_a_lazily_compiled_kernel_counts_as_the_build(everything):
    outcome = everything["lazy"]
    assert outcome.cells[0].measurements == {"calls": 2}
    assert outcome.seconds["built"] > 1.4 > outcome.seconds["ran"]


def pasted(outcome):
    return subprocess.run(outcome.reproduce, shell=True, capture_output=True, text=True, timeout=60)


def told_by_harness(done):
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_the_shell_line_gives_the_same_result(everything):
    outcome = everything["returned"]
    assert outcome.reproduce == f"{sys.executable} {FAKES / 'fake_returned.py'}"
    assert "'error': 0.5" in pasted(outcome).stdout


def test_the_shell_line_runs_the_failed_variant_alone(everything):
    outcome = everything["by_hand"]
    assert outcome.reproduce == f"{sys.executable} {FAKES / 'fake_by_hand.py'} 'bad one'"
    done = pasted(outcome)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"RuntimeError: {outcome.cells[1].detail}"


def test_the_shell_line_of_a_failed_build_builds_that_variant_with_the_harness(everything):
    outcome = everything["build_raises"]
    harness = f"{sys.executable} {surroundings.HARNESS} --record-fd=1 --depth=build"
    assert outcome.reproduce == f"{harness} --variant=second {FAKES / 'fake_build_raises.py'}"
    done = pasted(outcome)
    [ending] = [line for line in told_by_harness(done) if "ending" in line]
    assert (ending["variant"], ending["error"], ending["message"]) == ("second", "RuntimeError", "Ninja build failed")
    assert done.stdout.splitlines()[-1] == '{"end": true, "stopped": ""}'
    assert "the compiler speaks" in done.stdout


@pytest.mark.parametrize(
    ("name", "codes", "said"),
    [
        ("raised", (0,), '"error": "RuntimeError"'),
        ("wrong", (0,), '{"variant": "own", "seconds"'),
        ("abort", (-signal.SIGABRT, 128 + signal.SIGABRT), '{"variant": "", "stage": "building"}'),
        ("second_crashes", (-signal.SIGSEGV, 128 + signal.SIGSEGV), '{"variant": "second", "stage": "running"}'),
        ("import", (0,), "No module named 'a_module_that_nobody_has'"),
        ("exits", (0,), '{"variant": "zero", "stage": "running"}'),
    ],
)
def test_the_shell_line_of_what_does_not_run_by_itself_gives_the_same_failure(everything, name, codes, said):
    done = pasted(everything[name])
    assert done.returncode in codes
    assert said in done.stdout


def at_depth_build(facts, name):
    [planned] = plan(specs(name), facts, RUN)
    limited = replace(planned, depth=Depth.BUILD, skip="not run, only built: CUDA sees no GPU")
    environ = {"PATH": os.environ["PATH"]}
    [outcome], _ = run.run_all([limited], facts=facts, request=RUN, watch=Silent(), environ=environ)
    return outcome


def test_what_is_compiled_only_when_it_is_called_is_not_said_to_be_built(bare_facts):
    outcome = at_depth_build(bare_facts, "called")
    before, lazy = outcome.cells
    assert (before.stage, before.ending, before.detail) == (
        Stage.BUILT,
        Ending.RETURNED,
        "not run, only built: CUDA sees no GPU",
    )
    assert (lazy.stage, lazy.ending, lazy.detail) == (
        Stage.IMPORTED,
        Ending.RETURNED,
        "it is compiled only when it is called",
    )
    assert (outcome.stage, outcome.ending, outcome.detail) == (Stage.IMPORTED, Ending.RETURNED, lazy.detail)


def test_the_shell_line_of_what_was_only_built_builds_it_again(bare_facts):
    outcome = at_depth_build(bare_facts, "called")
    told = [line for line in told_by_harness(pasted(outcome)) if "variant" in line]
    assert [(line["variant"], line.get("stage", line.get("ending"))) for line in told] == [
        ("before", "building"), ("before", "built"), ("lazy", "building"), ("before", "returned"), ("lazy", "returned"),
    ]  # fmt: skip


def test_where_variants_were_left_out_the_shell_line_names_those_that_were_tried(bare_facts):
    [planned] = plan(specs("by_hand"), bare_facts, RUN)
    left_out = replace(planned, variants=("good",), skipped_variants={"bad one": "needs SM100"})
    line = surroundings.reproduce(left_out, bare_facts, {}, None)
    assert line == f"{sys.executable} {FAKES / 'fake_by_hand.py'} good"
    no_time = replace(planned, variants=("good",))
    assert surroundings.reproduce(no_time, bare_facts, {}, None) == line
    assert surroundings.reproduce(planned, bare_facts, {}, None) == line.removesuffix(" good")


def test_at_depth_build_a_probe_without_need_of_a_gpu_runs_all_the_same(bare_facts):
    outcome = outcomes_of(bare_facts, "returned", request=replace(RUN, depth=Depth.BUILD))["returned"]
    assert outcome.stage is Stage.VERIFIED


def test_at_depth_static_nothing_is_started(bare_facts):
    watch = Told()
    outcome = outcomes_of(bare_facts, "returned", request=replace(RUN, depth=Depth.STATIC), watch=watch)["returned"]
    assert (outcome.ending, outcome.stage) == (Ending.NOT_RUN, Stage.NONE)
    assert outcome.detail == "nothing is built or run at depth static"
    assert watch.lines == []


def test_the_watch_hears_each_stage(bare_facts):
    watch = Told()
    outcomes_of(bare_facts, "returned", watch=watch)
    beyond = "--jobs 4 is more than the CPUs that this process may use (2); estimates are for what there is"
    assert watch.lines == [
        beyond,
        "started fake.returned",
        "fake.returned imported",
        "fake.returned built",
        "fake.returned ran",
        "ended fake.returned",
    ]


def test_a_budget_that_is_used_up_is_no_hang(bare_facts):
    request = replace(RUN, budget_s=0.5, jobs=1)
    outcomes = outcomes_of(bare_facts, "lazy", "slow_build", "returned", request=request)
    assert {outcome.ending for outcome in outcomes.values()} == {Ending.NOT_RUN}
    assert "budget of 0.5 s used up while building, " in outcomes["lazy"].detail
    assert outcomes["slow_build"].detail == (
        "budget of 0.5 s used up before it started; estimated 12 s; settle it with: "
        "fi-doctor check --feature fake.slow_build --depth run --jobs 1 --budget 1m"
    )


def test_what_a_killed_probe_leaves_in_the_folder_of_the_run_is_removed(tmp_path, bare_facts):
    path = tmp_path / "fake_leaves.py"
    literal = {"id": "fake.leaves", "feature": "fake.leaves", "gpus": 0, "timeout_s": 20, "checks": "nothing"}
    path.write_text(
        f"'Is it?'\nimport os, pathlib\nPROBE = {literal}\ndef run():\n"
        "    folder = pathlib.Path(os.environ['FI_DOCTOR_SCRATCH'])\n"
        f"    pathlib.Path({str(tmp_path / 'said')!r}).write_text(str(folder))\n"
        "    (folder / 'left').write_text('x')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    planned = plan((catalog.parse(path.read_text(), str(path), "fi-doctor"),), bare_facts, RUN)
    [outcome], _ = run.run_all(planned, facts=bare_facts, request=RUN, watch=Silent(), environ=dict(os.environ))
    assert outcome.ending is Ending.SIGNALLED
    assert not Path((tmp_path / "said").read_text()).exists()


@pytest.mark.parametrize(("family", "most"), [("fake", 3), ("norm", 6)])
def test_so_many_probes_are_on_gpus_at_a_time_and_others_go_on_beside_them(tmp_path, bare_facts, family, most):
    """By what they take of its memory."""
    planned = []
    for number in range(10):
        path = tmp_path / f"fake_waits{number}.py"
        name = f"{family}.waits{number}"
        literal = {"id": name, "feature": name, "gpus": 0, "timeout_s": 20, "checks": "nothing"}
        path.write_text(
            f"'Is it?'\nimport time\nPROBE = {literal}\ndef run():\n    begun = time.time()\n"
            "    time.sleep(1)\n    return {'begun': begun, 'ended': time.time()}\n"
        )
        [one] = plan((catalog.parse(path.read_text(), str(path), "fi-doctor"),), bare_facts, RUN)
        planned.append(replace(one, gpu_uuids=("GPU-1",) if number < 8 else ()))
    request = replace(RUN, jobs=8)
    outcomes, _ = run.run_all(planned, facts=bare_facts, request=request, watch=Silent(), environ=dict(os.environ))
    spans = [tuple(outcome.cells[0].measurements.values()) for outcome in outcomes]
    at_once = [sum(begun <= moment < ended for begun, ended in spans[:8]) for moment, _ in spans]
    assert 1 < max(at_once) <= most
    assert most * max(memory.gpu_mib(one.spec, request) for one in planned) <= memory.GPU_MIB
    if most < ahead.AT_ONCE:
        assert max(begun for begun, _ in spans[8:]) < sorted(ended for _, ended in spans[:8])[2]


@pytest.mark.parametrize(("is_short", "first"), [(True, "page"), (False, "trtllm_comm")])
def test_with_a_budget_that_the_longest_build_exceeds_the_shortest_goes_first(bare_facts, is_short, first):
    [base] = specs("returned")
    made = [replace(base, id=f"x.{module}", module=module) for module in ("trtllm_comm", "page")]
    planned = [replace(plan([base], bare_facts, RUN)[0], spec=spec) for spec in made]
    groups = flow.group(planned, bare_facts, fresh=True, is_short=is_short)
    assert groups[0][0].spec.module == first


def test_a_process_that_had_no_time_to_import_anything_is_not_said_to_have_begun(bare_facts):
    outcome = outcomes_of(bare_facts, "returned", request=replace(RUN, budget_s=0.01))["returned"]
    assert (outcome.ending, outcome.stage) == (Ending.NOT_RUN, Stage.NONE)
    assert outcome.detail.startswith("budget of 0.01 s used up before it started; ")


def test_an_interpreter_that_does_not_start_is_told(bare_facts):
    facts = replace(bare_facts, interpreter=replace(bare_facts.interpreter, executable="/no/such/python"))
    outcome = outcomes_of(facts, "returned")["returned"]
    assert (outcome.stage, outcome.ending) == (Stage.NONE, Ending.LOST)
    assert outcome.detail == "could not be started: /no/such/python: No such file or directory"


def test_ctrl_c_kills_every_child_and_goes_on(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[2])!r}]\n"
        "import machine_samples, signal, test_run\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored\n"
        "facts = machine_samples.bare_facts()\n"
        "print('go', flush=True)\n"
        "try: test_run.outcomes_of(facts, 'slow_build', 'hang', 'returned')\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    marker = f"ctrl-c-{os.getpid()}"
    environ = {**os.environ, "FI_DOCTOR_CHILD": marker}
    main = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=environ, text=True)
    assert main.stdout.readline() == "go\n"
    time.sleep(0.8)
    assert len(marked_processes(marker)) > 2
    main.send_signal(signal.SIGINT)
    said, _ = main.communicate(timeout=10)
    assert said == "interrupted\n"
    assert marked_processes(marker) == []


SLEEPS = """
'Does it sleep?'
import os, time
PROBE = {"id": "fake.sleeps", "feature": "fake.sleeps", "gpus": 0}
def run():
    with open(os.environ["SLEEPER"] + "~", "w") as file: file.write(str(os.getpid()))
    os.rename(os.environ["SLEEPER"] + "~", os.environ["SLEEPER"])
    time.sleep(60)
"""


def test_when_fi_doctor_is_killed_its_child_ends(tmp_path):
    (tmp_path / "fake_sleeps.py").write_text(SLEEPS)
    script = tmp_path / "main.py"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[2])!r}]\n"
        "import machine_samples, os, pathlib, test_run\n"
        f"test_run.FAKES = pathlib.Path({str(tmp_path)!r})\n"
        "test_run.outcomes_of(machine_samples.bare_facts(), 'sleeps', environ=os.environ)\n"
    )
    sleeper = tmp_path / "sleeper"
    main = subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "SLEEPER": str(sleeper), "TMPDIR": str(tmp_path)}
    )
    try:
        assert until(sleeper.exists)
        child = Path(f"/proc/{sleeper.read_text()}/exe")
        assert child.exists()
    finally:
        main.kill()
        main.wait()
    assert until(lambda: not child.exists(), most_s=5.0)


def until(holds, most_s=10.0):
    patience = time.monotonic() + most_s
    while not holds() and time.monotonic() < patience:
        time.sleep(0.02)
    return holds()


def test_a_cache_of_another_user_is_left_alone(bare_facts, flashinfer_facts):
    facts = replace(bare_facts, flashinfer=replace(flashinfer_facts, cache_owner=os.getuid() + 1))
    watch = Told()
    outcome = outcomes_of(facts, "returned", watch=watch)["returned"]
    assert "belongs to user" in watch.lines[0]
    assert outcome.reproduce.startswith('FLASHINFER_WORKSPACE_BASE="$(mktemp -d)" ')


def test_with_a_fresh_cache_every_cache_is_inside_one_folder_that_is_gone_afterwards(bare_facts):
    planned = plan(specs("returned"), bare_facts, RUN)[0]
    with surroundings.scratch(bare_facts, replace(RUN, fresh_cache=True), {}) as base:
        child = surroundings.environment(planned, bare_facts, {"TRITON_CACHE_DIR": "/home/me"}, base, jobs=3)
        assert base.is_dir()
    assert not base.exists()
    assert {Path(child[name]).is_relative_to(base) for name in surroundings.CACHES} == {True}
    assert child["MAX_JOBS"] == "3"
    assert child["NCCL_NVLS_ENABLE"] == "0"


def test_what_a_killed_run_left_is_removed_by_the_next_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = f"""
import os, sys, time
sys.path[:0] = {sys.path!r}
from fi_doctor.probing import surroundings
with surroundings.own_folder(dict()) as variables:
    open(variables[surroundings.OWN_FOLDER] + "/big", "w").close()
    print(variables[surroundings.OWN_FOLDER], flush=True)
    time.sleep(60)
"""
    child = {**os.environ, "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-c", script]
    runs = [subprocess.Popen(argv, env=child, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    try:
        killed, living = (Path(one.stdout.readline().strip()) for one in runs)
        (tmp_path / "fi-doctor-run-strange").mkdir()
        runs[0].kill()
        runs[0].wait()
        assert (killed / "big").exists()
        with surroundings.own_folder({}) as variables:
            own = Path(variables[surroundings.OWN_FOLDER])
            assert sorted(tmp_path.iterdir()) == sorted([own, living, tmp_path / "fi-doctor-run-strange"])
        assert not own.exists()
    finally:
        for one in runs:
            one.kill()
            one.communicate()


def test_without_a_folder_for_it_there_is_no_fresh_cache(bare_facts, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    request = replace(RUN, fresh_cache=True)
    with pytest.raises(UsageError, match="there is no folder for --fresh-cache") as caught:
        outcomes_of(bare_facts, "returned", request=request)
    assert str(tmp_path / "none") in caught.value.why
    assert "TMPDIR" in caught.value.todo


def test_where_nothing_is_writable_probes_run_all_the_same(bare_facts, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path / "none")}
    assert outcomes_of(bare_facts, "returned", environ=environ)["returned"].ending is Ending.RETURNED


def test_without_files_in_memory_the_record_is_a_temporary_file(bare_facts, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    assert outcomes_of(bare_facts, "returned")["returned"].ending is Ending.RETURNED


def test_without_any_file_for_the_record_nothing_is_known(bare_facts, monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    outcome = outcomes_of(bare_facts, "returned")["returned"]
    assert (outcome.stage, outcome.ending) == (Stage.NONE, Ending.LOST)
    assert outcome.detail.startswith("could not be started: ")


@pytest.mark.parametrize(("most", "ending"), [(0, Ending.LOST), (1 << 20, Ending.RETURNED)])
def test_a_limit_of_files_that_holds_no_record_is_no_fault_of_the_probe(bare_facts, most, ending):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        outcome = outcomes_of(bare_facts, "returned")["returned"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert outcome.ending is ending
    assert ("ulimit -f" in outcome.detail) == (ending is Ending.LOST)


ONCE = '''"""Does it have a thread the second time?"""

import pathlib

PROBE = {{"id": "fake.once", "feature": "fake.once", "gpus": 0}}
SEEN = pathlib.Path({seen!r})


def run():
    is_first = not SEEN.exists()
    SEEN.touch()
    if is_first:
        raise RuntimeError({said!r})
    return {{}}
'''


@pytest.mark.parametrize(
    ("said", "ending"),
    [("can't start new thread", Ending.RETURNED), ("no kernel image", Ending.RAISED)],
    ids=["no thread", "another"],
)
def test_who_had_no_thread_while_others_ran_is_tried_again_by_itself(bare_facts, tmp_path, said, ending):
    text = ONCE.format(seen=str(tmp_path / "seen"), said=said)
    (tmp_path / "once.py").write_text(text)
    planned = plan([catalog.parse(text, str(tmp_path / "once.py"), "fi-doctor"), *specs("returned")], bare_facts, RUN)
    done, _ = run.run_all(planned, facts=bare_facts, request=RUN, watch=Silent(), environ={"PATH": os.environ["PATH"]})
    assert [outcome.ending for outcome in done] == [ending, Ending.RETURNED]


def test_too_many_open_files_are_no_fault_of_the_probe(bare_facts):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 2, hard))
    try:
        outcome = outcomes_of(bare_facts, "second_crashes")["second_crashes"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {cell.ending for cell in outcome.cells} == {Ending.LOST}
    assert "Too many open files" in outcome.detail


WRITES_ITS_RECORD = """
import os, sys
PROBE = {"variants": {"a": {}, "b": {}}}
def run(variant):
    with open(os.environ["COUNTED"], "a") as file: file.write("x")
    for fd in range(3, 64):
        try: os.ftruncate(fd, 0); os.lseek(fd, 0, 0); os.write(fd, b'{"variant": "c", "ending": "exited"}\\n')
        except OSError: pass
    os._exit(0)
"""


def test_a_record_of_unknown_variants_is_not_asked_for_again(bare_facts, tmp_path):
    (tmp_path / "probe.py").write_text(WRITES_ITS_RECORD)
    [spec] = specs("second_crashes")
    spec = replace(spec, path=str(tmp_path / "probe.py"), variants={"a": Requires(), "b": Requires()}, has_build=False)
    environ = {"PATH": os.environ["PATH"], "COUNTED": str(tmp_path / "counted")}
    [outcome], _ = run.run_all(
        plan([spec], bare_facts, RUN), facts=bare_facts, request=RUN, watch=Silent(), environ=environ
    )
    assert [cell.ending for cell in outcome.cells] == [Ending.LOST, Ending.LOST]
    assert len((tmp_path / "counted").read_text()) == 1


TMP = """
import os, tempfile
PROBE = {}
def run():
    os.mkdir(os.path.join(tempfile.gettempdir(), "tmpxft"))
    return {"TMPDIR": os.environ["TMPDIR"]}
"""


def test_with_fresh_caches_what_a_child_leaves_in_its_temporary_folder_is_removed(bare_facts, tmp_path, monkeypatch):
    (tmp_path / "probe.py").write_text(TMP)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    [spec] = specs("returned")
    spec = replace(spec, path=str(tmp_path / "probe.py"), has_build=False)
    request = replace(RUN, fresh_cache=True)
    environ = {"PATH": os.environ["PATH"]}
    planned = plan([spec], bare_facts, request)
    [outcome], _ = run.run_all(planned, facts=bare_facts, request=request, watch=Silent(), environ=environ)
    assert Path(outcome.cells[0].measurements["TMPDIR"]).is_relative_to(tmp_path / "tmp")
    assert list((tmp_path / "tmp").iterdir()) == []
    assert "TMPDIR" not in outcome.reproduce


def test_where_caches_stay_the_temporary_folder_stays(bare_facts):
    planned = plan(specs("returned"), bare_facts, RUN)[0]
    assert surroundings.environment(planned, bare_facts, {"TMPDIR": "/x"}, None, jobs=3)["TMPDIR"] == "/x"


def test_the_users_own_max_jobs_is_kept(bare_facts):
    planned = plan(specs("returned"), bare_facts, RUN)[0]
    assert surroundings.environment(planned, bare_facts, {"MAX_JOBS": "7"}, None, jobs=3)["MAX_JOBS"] == "7"


def test_a_hidden_value_is_not_in_the_shell_line(bare_facts):
    planned = replace(plan(specs("returned"), bare_facts, RUN)[0], gpu_uuids=("GPU-1",))
    facts = replace(bare_facts, environment={"FLASHINFER_A": "<hidden>", "FLASHINFER_B": "it's"})
    child = surroundings.environment(planned, facts, {"FLASHINFER_A": "secret", "FLASHINFER_B": "it's"}, None, jobs=1)
    line = surroundings.reproduce(planned, facts, child, None)
    assert line == f"CUDA_VISIBLE_DEVICES=GPU-1 FLASHINFER_B='it'\"'\"'s' {sys.executable} {FAKES / 'fake_returned.py'}"


def grouped(facts, built=()):
    base = specs("returned")[0]
    names = (
        ("x.page", "page", 1),
        ("x.norm_a", "norm", 1),
        ("x.norm_b", "norm", 1),
        ("x.free", "", 1),
        ("import.x", "", 0),
    )
    made = [replace(base, id=name, module=module, gpus=gpus) for name, module, gpus in names]
    planned = [replace(plan([base], facts, RUN)[0], spec=spec) for spec in made]
    return [[probe.spec.id for probe in members] for members in flow.group(planned, facts, fresh=False, built=built)]


def test_imports_come_first_then_the_longest_module_and_a_module_is_one_group(bare_facts):
    assert grouped(bare_facts) == [["import.x"], ["x.norm_a", "x.norm_b"], ["x.page"], ["x.free"]]


def test_probes_of_a_module_that_is_there_do_not_wait_for_each_other(bare_facts):
    assert grouped(bare_facts, built={"norm"}) == [["import.x"], ["x.page"], ["x.free"], ["x.norm_a"], ["x.norm_b"]]


def test_of_probes_that_build_nothing_the_one_with_the_most_variants_is_the_first(bare_facts):
    base = specs("returned")[0]
    made = [replace(base, id=name, module="comm") for name in ("a", "b")]
    planned = [replace(plan([base], bare_facts, RUN)[0], spec=spec) for spec in made]
    planned[1] = replace(planned[1], variants=("one", "two"))
    groups = flow.group(planned, bare_facts, fresh=False, built={"comm"})
    assert [members[0].spec.id for members in groups] == ["b", "a"]


@pytest.mark.parametrize(("gpus", "shared", "ready"), [(1, True, True), (2, False, True), (2, True, False)])
def test_what_starts_processes_of_its_own_waits_for_the_end_of_a_build_that_holds_all_locks(
    bare_facts, flashinfer_facts, gpus, shared, ready
):
    facts = replace(bare_facts, flashinfer=replace(flashinfer_facts, shared_ninja_log=shared))
    [base] = specs("returned")
    probe = replace(plan([base], facts, RUN)[0], spec=replace(base, module="comm", gpus=gpus))
    board = SimpleNamespace(is_ready=lambda _: True, news=None)
    assert flow.Flow([probe], SimpleNamespace(board=board, facts=facts, request=RUN), 1)._is_ready(probe) is ready


def test_where_builds_go_one_at_a_time_the_shortest_module_goes_first(bare_facts, flashinfer_facts):
    facts = replace(bare_facts, flashinfer=replace(flashinfer_facts, shared_ninja_log=True))
    assert grouped(facts) == [["import.x"], ["x.free"], ["x.page"], ["x.norm_a", "x.norm_b"]]


@pytest.mark.parametrize(("asked", "expected"), [(0, 2), (5, 5)], ids=["cpus", "as-asked"])
def test_jobs_are_as_asked_for_or_one_for_each_cpu(bare_facts, asked, expected):
    assert memory.usable_jobs(bare_facts, replace(RUN, jobs=asked)) == expected


@pytest.mark.parametrize(
    ("jobs", "memory_mib", "said"),
    [(0, 0, ""), (2, 1000, ""), (3, 1000, "--jobs 3 "), (2, 4096, "--memory 4096m "), (3, 4096, "; --memory")],
    ids=["nothing", "fits", "jobs", "memory", "both"],
)
def test_a_check_says_where_more_was_asked_for_than_there_is(bare_facts, jobs, memory_mib, said):
    facts = replace(bare_facts, system=replace(bare_facts.system, cpus=2, memory_available_mib=4096))
    request = replace(RUN, jobs=jobs, memory_mib=memory_mib)
    words = memory.beyond(facts, request)
    assert (said in words) if said else words == ""
    assert memory.here(facts, request).memory_mib == min(memory_mib or 3072, 3072)
    assert memory.budget_mib(facts, request) == (memory_mib or 3072)


@pytest.mark.parametrize(
    ("available", "expected"),
    [(Missing(reason="no"), 5), (64_000, 5), (3000, 2), (100, 1)],
    ids=["not-known", "enough", "memory", "at-least-one"],
)
def test_no_more_compilers_run_than_memory_carries(bare_facts, flashinfer_facts, available, expected):
    system = replace(bare_facts.system, memory_available_mib=available)
    facts = replace(bare_facts, system=system, flashinfer=flashinfer_facts)
    assert memory.carried_jobs(facts, replace(RUN, jobs=5), ["norm"]) == expected
