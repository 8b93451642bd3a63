"""The JIT cache is filled by a real ninja with whole modules; a dry run says what that takes and writes nothing."""

import fcntl
import os
import shutil
import signal
import time

import pytest
from msgspec.structs import replace
from test_parts import SUBSET, MoeMachine
from test_prebuild import FAKE, Machine, running_in
from waiting import wait_for

from fi_doctor.errors import CannotTellError
from fi_doctor.model import Depth, Missing, Place, Request, Silent, command
from fi_doctor.probing import refusals, run, warm
from fi_doctor.probing.plan import plan

pytestmark = pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja on PATH")

ASKED = Request(depth=Depth.BUILD, jobs=2, budget_s=600)


class Heard(Silent):
    def __init__(self):
        self.lines = []

    def begun(self, modules):
        self.lines.append(("begun", *modules))

    def settled(self, module, words, done, total):
        self.lines.append((module, words, done, total))


class Noted(Silent):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def fill(machine, request=ASKED, watch=None, *, is_dry=False, obstacle=None):
    planned = plan(machine.specs, machine.facts, request)
    return warm.fill(
        planned,
        facts=machine.facts,
        request=request,
        watch=watch or Heard(),
        environ=machine.environ,
        is_dry=is_dry,
        again="fi-doctor warm",
        obstacle=obstacle,
    )


def places(done):
    return {one.name: str(one.place) for one in done.modules}


def contents(folder):
    """Every file and folder with what it holds and when that was written."""
    return {
        path: (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *sorted(folder.rglob("*"))]
    }


@pytest.fixture(params=["shared", "own"])
def machine(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    (tmp_path / "machine").mkdir()
    made = Machine(tmp_path / "machine", request.param)
    for name in ("a", "b"):
        made.module(name, "sleep 0.2", "true")
        made.probe(name)
    return made


def test_a_dry_run_tells_what_is_stale_and_writes_nothing_in_an_empty_cache(machine):
    done = fill(machine, is_dry=True)
    assert places(done) == {"a": "to compile", "b": "to compile"}
    assert [one.objects for one in done.modules] == [2, 2]
    assert all(one.estimated_seconds > 0 and isinstance(one.disk_mib, Missing) for one in done.modules)
    assert (done.code, done.command) == (0, "fi-doctor warm")
    assert machine.compiled() == []
    assert not machine.ops.parent.exists()


def test_a_dry_run_leaves_a_filled_cache_byte_for_byte_as_it_was(machine):
    fill(machine)
    (machine.sources / "b" / "b0.cu").write_text("true # changed\n")
    before = contents(machine.folder / ".cache")
    done = fill(machine, is_dry=True)
    assert contents(machine.folder / ".cache") == before
    assert places(done) == {"a": "up to date", "b": "to compile"}
    assert [one.objects for one in done.modules] == [0, 1]


def test_whole_modules_are_compiled_into_the_cache_and_each_is_told(machine):
    watch = Heard()
    done = fill(machine, watch=watch)
    assert places(done) == {"a": "built", "b": "built"}
    assert (done.code, done.command) == (0, "")
    assert done.disk_mib > 0
    assert {path.name for path in machine.ops.rglob("*.so")} == {"a.so", "b.so"}
    assert {name for line in watch.lines if line[0] == "begun" for name in line[1:]} == {"a", "b"}
    assert [line[1:] for line in watch.lines if line[0] != "begun"] == [("built", 1, 2), ("built", 2, 2)]
    assert {one.name: one.features for one in done.modules} == {"a": ("fake.a",), "b": ("fake.b",)}

    again = fill(machine)
    assert places(again) == {"a": "up to date", "b": "up to date"}
    assert (again.code, again.disk_mib, len(machine.compiled())) == (0, 0.0, 4)


def filling(machine):
    """A process of its own that fills the cache, to be killed."""
    pid = os.fork()
    if pid == 0:
        try:
            fill(machine)
        finally:
            os._exit(0)
    return pid


def test_a_run_that_is_killed_is_taken_up_where_it_was(machine):
    machine.module("c", "true", "sleep 60")
    machine.probe("c")
    pid = filling(machine)
    finished = {"a0", "a1", "b0", "b1", "c0"}
    try:
        assert wait_for(lambda: finished <= set(ended(machine)) and "c1" in machine.compiled())
        time.sleep(0.5)  # ninja takes down what has ended
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert wait_for(lambda: not running_in(machine.folder))
    assert not (machine.ops / "c" / "c.so").exists()
    (machine.sources / "c" / "c1.cu").write_text("true\n")
    done = fill(machine)
    assert places(done) == {"a": "up to date", "b": "up to date", "c": "built"}
    begun = machine.compiled()
    assert {name: begun.count(name) for name in finished} == dict.fromkeys(finished, 1)
    assert begun.count("c1") == 2
    assert (machine.ops / "c" / "c.so").exists()


def test_compilers_that_ignore_signals_end_with_a_run_that_is_killed(machine):
    machine.module("c", 'trap "" TERM HUP INT; while :; do sleep 1; done')
    machine.probe("c")
    pid = filling(machine)
    try:
        assert wait_for(lambda: "c0" in machine.compiled())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert wait_for(lambda: not running_in(machine.folder), seconds=10)


def test_what_fails_is_named_and_the_rest_is_there(machine):
    (machine.sources / "b" / "b1.cu").write_text("echo 'b1.cu:3: error: no such type' >&2; exit 1\n")
    done = fill(machine)
    assert places(done) == {"a": "built", "b": "failed"}
    assert done.modules[1].why == "b1.cu:3: error: no such type"
    look = command.line(machine.facts.interpreter, "check", "--feature", "fake.b", "--jobs", "2")
    assert (done.code, done.command, done.look) == (1, "", look)


def test_what_does_not_fit_is_not_begun_and_says_what_it_would_take(machine):
    machine.module("fused_moe_90", *["true"] * 30)
    machine.probe("fused_moe_90")
    done = fill(machine, replace(ASKED, budget_s=200))
    assert places(done)["fused_moe_90"] == "not begun"
    assert "estimated" in next(one.why for one in done.modules if one.name == "fused_moe_90")
    assert (done.code, places(done)["a"]) == (1, "built")
    assert not [name for name in machine.compiled() if name.startswith("fused")]


def test_a_module_of_a_jit_cache_package_is_not_compiled(machine):
    machine.module("aot_x", "true")
    machine.probe("aot_x")
    assert places(fill(machine))["aot_x"] == "in jit-cache"


def test_a_module_that_another_process_builds_is_not_begun(machine):
    (machine.ops / "tmp").mkdir(parents=True)
    with (machine.ops / "tmp" / "b.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = fill(machine)
    assert places(done) == {"a": "built", "b": "not begun"}
    assert "another process holds its lock" in done.modules[1].why
    assert "probe" not in done.modules[1].why


def test_a_variant_that_asks_for_no_module_is_named(machine):
    machine.probe("none", build="pass")
    done = fill(machine)
    assert done.without_module == ("fake.none none",)


def test_a_variant_whose_build_raises_is_named_with_what_it_raised_and_is_no_success(machine):
    machine.probe("raises", build="raise OSError('no libcudart')")
    done = fill(machine)
    assert done.unasked == {"fake.raises raises": "OSError: no libcudart"}
    assert (done.code, done.command, places(done)) == (1, "", {"a": "built", "b": "built"})


def test_a_variant_that_ends_the_process_is_named_too(machine):
    machine.probe("dies", build="os._exit(3)")
    done = fill(machine)
    assert done.unasked == {"fake.dies dies": "the process ended or hung when it was asked"}
    assert (done.code, places(done)) == (1, {"a": "built", "b": "built"})


def test_memory_and_cpus_count_in_the_estimates(machine):
    system = replace(machine.facts.system, cpus=8, memory_available_mib=1 << 20)
    machine.facts = replace(machine.facts, system=system)
    machine.module("fused_moe_90", *["true"] * 30)
    machine.probe("fused_moe_90")
    roomy, narrow = (
        next(
            one for one in fill(machine, replace(ASKED, jobs=8, memory_mib=mib), is_dry=True).modules if one.objects > 2
        )
        for mib in (1 << 20, 4700)
    )
    assert narrow.estimated_seconds > 4 * roomy.estimated_seconds
    watch = Noted()
    many = fill(machine, replace(ASKED, jobs=800), watch, is_dry=True)
    assert next(one for one in many.modules if one.objects > 2).estimated_seconds == roomy.estimated_seconds
    assert watch.notes == [
        "--jobs 800 is more than the CPUs that this process may use (8); estimates are for what there is"
    ]


def test_without_flashinfer_in_the_interpreter_it_says_so(machine):
    site = machine.folder / "site"  # with a torch, or the interpreter's own would be imported, which takes long
    site.mkdir()
    shutil.copy(FAKE / "torch.py", site)
    machine.environ["PYTHONPATH"] = str(site)
    with pytest.raises(CannotTellError) as caught:
        fill(machine)
    assert "No module named" in caught.value.why


@pytest.mark.skipif(not all(map(shutil.which, ("c++", "nm"))), reason="no c++ or nm on PATH")
@pytest.mark.parametrize("log", ["shared", "own"])
def test_a_module_that_parts_stand_for_is_compiled_as_a_whole(tmp_path, monkeypatch, log):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    (tmp_path / "machine").mkdir()
    machine = MoeMachine(tmp_path / "machine", log)
    machine.probe_with(SUBSET)
    long = replace(ASKED, budget_s=24 * 3600)  # estimates are those of the real module
    dry = fill(machine, long, is_dry=True)
    assert [(one.name, one.objects) for one in dry.modules] == [("fused_moe_90", 25)]
    assert places(fill(machine, long)) == {"fused_moe_90": "built"}
    assert [path.name for path in machine.ops.rglob("*.so")] == ["fused_moe_90.so"]
    assert not (tmp_path / "kept").exists()
    _, builds, _ = machine.judged()
    assert builds.modules == {"fused_moe_90": "cache"}


def test_a_dry_run_sees_a_module_whose_ninja_file_flashinfer_would_keep(machine):
    fill(machine)
    done = fill(machine, is_dry=True)
    assert places(done) == {"a": "up to date", "b": "up to date"}


def ended(machine):
    log = machine.sources / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1].removesuffix(".cu") for line in lines if line.startswith("ends")]


class Announced(Silent):
    def __init__(self):
        self.first = []

    def first_start(self, found):
        self.first.append(found)


def check(machine, served, request):
    """A check of probes whose named variants a server calls; what was announced, and what the report says."""
    planned = tuple(
        replace(probe, served=tuple(name for name in probe.variants if name in served))
        for probe in plan(machine.specs, machine.facts, request)
    )
    watch = Announced()
    _, builds = run.run_all(planned, facts=machine.facts, request=request, watch=watch, environ=machine.environ)
    return [one for one in watch.first if one.modules], builds.first_start


def test_a_check_says_first_what_a_server_would_compile_and_last_what_is_left_of_it(machine):
    (machine.sources / "b" / "b1.cu").write_text("echo 'error: no' >&2; exit 1\n")
    machine.module("unserved", "true")
    machine.probe("unserved")
    [announced], left = check(machine, {"a", "b"}, replace(ASKED, depth=Depth.RUN))
    assert (announced.modules, announced.objects, announced.jobs) == (("a", "b"), 4, 2)
    assert announced.command == "fi-doctor warm --jobs 2"
    assert announced.estimated_seconds > 0
    assert left.modules == ("b",)


def test_the_command_is_of_the_modules_that_are_counted_and_no_others(machine):
    (machine.sources / "b" / "b1.cu").write_text("true\n")
    machine.module("unserved", "true")
    machine.probe("unserved")
    asked = replace(ASKED, depth=Depth.RUN, features=("fake.*",))
    [announced], _ = check(machine, {"b"}, asked)
    assert (announced.modules, announced.command) == (("b",), "fi-doctor warm --feature fake.b --jobs 2")


def test_what_is_up_to_date_is_not_announced(machine):
    fill(machine)
    (machine.sources / "b" / "b0.cu").write_text("true # changed\n")
    [announced], left = check(machine, {"a", "b"}, replace(ASKED, depth=Depth.RUN))
    assert (announced.modules, announced.objects) == (("b",), 1)
    assert left.modules == ()


def test_fresh_caches_say_nothing_of_a_servers(machine):
    announced, left = check(machine, {"a", "b"}, replace(ASKED, depth=Depth.RUN, fresh_cache=True))
    assert (announced, left.modules) == ([], ())


@pytest.mark.skipif(not all(map(shutil.which, ("c++", "nm"))), reason="no c++ or nm on PATH")
def test_where_a_part_is_compiled_a_server_would_compile_the_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    (tmp_path / "machine").mkdir()
    machine = MoeMachine(tmp_path / "machine", "own")
    machine.probe_with(SUBSET)
    [announced], left = check(machine, {"tactic_0"}, replace(ASKED, depth=Depth.RUN, budget_s=7200))
    assert (announced.modules, announced.objects) == (("fused_moe_90",), 25)
    assert (left.modules, left.objects) == (("fused_moe_90",), 25)


def test_folders_of_another_user_below_the_top_are_not_written_to(machine):
    machine.ops.mkdir(parents=True, exist_ok=True)
    other = replace(machine.facts.system, uid=machine.ops.stat().st_uid + 1)
    machine.facts = replace(machine.facts, system=other)
    with pytest.raises(CannotTellError, match="another user's"):
        fill(machine)
    assert not list(machine.ops.iterdir())


def with_libraries(machine):
    """The facts name what is compiled, as they are read before a run."""
    cached = tuple(sorted(path.stem for path in machine.ops.rglob("*.so")))
    machine.facts = replace(machine.facts, flashinfer=replace(machine.facts.flashinfer, cached_modules=cached))


@pytest.mark.parametrize("is_dry", [False, True], ids=["filled", "dry"])
def test_what_is_in_the_way_of_compiling_matters_only_where_something_is_to_be_compiled(machine, is_dry):
    obstacle = refusals.Obstacle(CannotTellError("no nvcc"), frozenset([Place.UP_TO_DATE]))
    with pytest.raises(CannotTellError, match="no nvcc"):
        fill(machine, is_dry=is_dry, obstacle=obstacle)
    assert not machine.ops.exists()
    fill(machine)
    with_libraries(machine)
    before = contents(machine.ops)
    done = fill(machine, is_dry=is_dry, obstacle=obstacle)
    assert (done.code, done.dry_run, places(done)) == (0, is_dry, {"a": "up to date", "b": "up to date"})
    (machine.sources / "b" / "b0.cu").write_text("true # changed\n")
    with pytest.raises(CannotTellError, match="no nvcc"):
        fill(machine, is_dry=is_dry, obstacle=obstacle)
    assert contents(machine.ops) == before


def test_a_cache_that_cannot_be_written_to_is_no_obstacle_to_modules_of_a_package(machine):
    obstacle = refusals.of_folder(CannotTellError("it cannot be written to"))
    fill(machine)
    with_libraries(machine)
    with pytest.raises(CannotTellError, match="it cannot be written to"):
        fill(machine, obstacle=obstacle)
    machine.specs = []
    machine.module("aot_x", "true")
    machine.probe("aot_x")
    assert places(fill(machine, obstacle=obstacle)) == {"aot_x": "in jit-cache"}


def test_a_budget_that_ends_before_anything_is_known_is_called_too_short(machine):
    slow = machine.folder / "slow"
    slow.mkdir()
    (slow / "torch.py").write_text("import time\n\ntime.sleep(60)\n")
    machine.environ["PYTHONPATH"] = f"{slow}{os.pathsep}{machine.environ['PYTHONPATH']}"
    with pytest.raises(CannotTellError, match="budget of 1 s ended before it was known"):
        fill(machine, replace(ASKED, budget_s=1))


class Begun(Silent):
    """How long it is said to take when it begins."""

    def __init__(self):
        self.seconds = []

    def building(self, waiting, done, total, jobs, left_s):
        self.seconds.append(left_s)


@pytest.mark.skipif(not all(map(shutil.which, ("c++", "nm"))), reason="no c++ or nm on PATH")
@pytest.mark.parametrize("memory_mib", [0, 4700], ids=["memory", "little-memory"])
def test_a_dry_run_and_the_run_and_a_check_estimate_the_same_of_the_same_cache(tmp_path, monkeypatch, memory_mib):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    (tmp_path / "machine").mkdir()
    machine = MoeMachine(tmp_path / "machine", "own")
    machine.probe_with(SUBSET)
    system = replace(machine.facts.system, cpus=4, memory_available_mib=1 << 20)
    machine.facts = replace(machine.facts, system=system)
    asked = replace(ASKED, depth=Depth.RUN, jobs=8, memory_mib=memory_mib, budget_s=48 * 3600)
    check(machine, {"tactic_0"}, asked)  # a part is compiled, of which ninja's log tells what it took
    [announced], _ = check(machine, {"tactic_0"}, asked)
    dry = fill(machine, asked, is_dry=True)
    watch = Begun()
    fill(machine, asked, watch)
    assert announced.modules == tuple(one.name for one in dry.modules) == ("fused_moe_90",)
    assert dry.estimated_seconds == dry.modules[0].estimated_seconds == announced.estimated_seconds
    assert watch.seconds[0] == pytest.approx(dry.estimated_seconds, abs=5)
    assert announced.jobs == (1 if memory_mib else 4)
