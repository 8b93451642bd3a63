"""What many probes need is built in one go, by a real ninja, before they run; the probes find it built."""

import fcntl
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import machine_samples
import pytest
from msgspec.structs import replace

from fi_doctor import processes
from fi_doctor.model import Depth, Ending, Request, Silent, Stage
from fi_doctor.probing import ahead, catalog, estimates, headline, measured, prebuild, run
from fi_doctor.probing.plan import plan

pytestmark = pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja on PATH")

FAKE = Path(__file__).parents[1] / "fake_jit"
ASKED = Request(depth=Depth.RUN, jobs=4, budget_s=120)
PROBE = '''"""Does it load?"""

import os
import time

PROBE = {{"id": "fake.{name}", "feature": "fake.{name}", "module": "{module}", "gpus": 0, "variants": {variants}}}


def build(variant):
    from flashinfer.ops import get_module

    {build}


def run(variant):
    {run}
    return {{"jobs": os.environ["MAX_JOBS"], "at": time.time()}}
'''
LOAD = "get_module(variant)"


class Told(Silent):
    def __init__(self):
        self.progress = []

    def building(self, modules, done, total, jobs, left_s):
        self.progress.append((modules, done, total, jobs, left_s))


class Machine:
    """A cache, modules to build and probes that build them."""

    def __init__(self, folder, log):
        cache = folder / ".cache/flashinfer/0.7.2.post1/90a"
        flashinfer = replace(
            machine_samples.flashinfer_facts(), root=str(FAKE / "flashinfer"), cache_dir=str(cache),
            shared_ninja_log=log == "shared",
        )  # fmt: skip
        self.facts = replace(machine_samples.bare_facts(), flashinfer=flashinfer)
        self.ops = cache / "cached_ops"
        self.folder = folder
        self.sources = folder / "sources"
        self.sources.mkdir()
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(FAKE),
            "FLASHINFER_WORKSPACE_BASE": str(folder),
            "FAKE_SOURCES": str(self.sources),
            "FAKE_LOG": log,
        }
        self.specs = []
        self.watch = Told()

    def module(self, name, *sources):
        (self.sources / name).mkdir()
        for number, text in enumerate(sources):
            (self.sources / name / f"{name}{number}.cu").write_text(text + "\n")

    def probe(self, name, *variants, build=LOAD, run="pass"):
        variants = {variant: {} for variant in variants or (name,)}
        text = PROBE.format(name=name, module=next(iter(variants)), variants=variants, build=build, run=run)
        path = self.folder / f"fake_{name}.py"
        path.write_text(text)
        self.specs.append(catalog.parse(text, str(path), "fi-doctor"))

    def check(self, request=ASKED):
        planned = plan(self.specs, self.facts, request)
        outcomes, builds = run.run_all(
            planned, facts=self.facts, request=request, watch=self.watch, environ=self.environ
        )
        return {outcome.probe.removeprefix("fake."): outcome for outcome in outcomes}, builds

    def compiled(self):
        """Sources in the order in which their compilers began; each as often as it was compiled."""
        return [line.split()[1].removesuffix(".cu") for line in self._log() if line.startswith("begins")]

    def most_at_once(self):
        at_once = [0]
        for line in self._log():
            at_once.append(at_once[-1] + (1 if line.startswith("begins") else -1))
        return max(at_once)

    def when(self, event):
        """When "begins x0.cu" or "ends x0.cu" was said first."""
        return next(float(line.split()[2]) for line in self._log() if line.startswith(f"{event} "))

    def sources_of(self, name):
        return {cell.variant: cell.module_from for cell in self.check()[0][name].cells}

    def _log(self):
        log = self.sources / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture(params=["shared-fresh", "own-forked"])
def machine(request, tmp_path):
    """Both ways in which FlashInfer keeps ninja's log, one of them with all processes in fresh interpreters."""
    log, _, started = request.param.partition("-")
    made = Machine(tmp_path, log)
    if started == "fresh":
        made.environ["FAKE_STACK"] = "unfit"
    return made


def test_everything_is_built_side_by_side_before_the_probes_and_once(machine):
    for name in "abc":
        machine.module(name, "sleep 0.4", "sleep 0.4")
        machine.probe(name)
    outcomes, builds = machine.check()
    assert builds.modules == {"a": "built", "b": "built", "c": "built"}
    assert builds.jobs == 4
    assert sorted(machine.compiled()) == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert 2 < machine.most_at_once() <= 4
    assert {(outcome.ending, outcome.cached) for outcome in outcomes.values()} == {(Ending.RETURNED, False)}
    assert machine.watch.progress[0][:4] == (3, 0, 6, 4)

    outcomes, builds = machine.check()
    assert set(builds.modules.values()) == {"cache"}
    assert len(machine.compiled()) == 6
    assert {outcome.cached for outcome in outcomes.values()} == {True}


IMPORTS = '''"""Is it there?"""

import sys

PROBE = {{"id": "fake.{name}", "feature": "import.{name}", "gpus": 0, "timeout_s": 20, "checks": "nothing"}}


def run():
    was_imported = "{name}" in sys.modules
    import {name}

    return {{"fresh_process": not was_imported}}
'''


@pytest.mark.parametrize(("fault", "imports"), [("", 1), ("unfit", 7)])
def test_a_check_imports_once_whatever_is_cold(tmp_path, fault, imports):
    machine = Machine(tmp_path, "own")
    for name in "abcd":
        machine.module(name, "true")
        machine.probe(name)
    for name in ("torch", "flashinfer"):
        (tmp_path / f"fake_{name}.py").write_text(text := IMPORTS.format(name=name))
        machine.specs.append(catalog.parse(text, str(tmp_path / f"fake_{name}.py"), "fi-doctor"))
    machine.environ |= {"FAKE_IMPORTS": str(tmp_path / "imports"), "FAKE_STACK": fault}
    for state in ("built", "cache"):
        outcomes, builds = machine.check()
        assert set(builds.modules.values()) == {state}
        assert {outcome.ending for outcome in outcomes.values()} == {Ending.RETURNED}
        assert {outcome.started for outcome in outcomes.values()} == {"fresh" if fault else "forked"}
        assert len((tmp_path / "imports").read_text().splitlines()) == imports
        assert outcomes["torch"].cells[0].measurements == {"fresh_process": bool(fault)}
        assert outcomes["flashinfer"].cells[0].measurements == {"fresh_process": bool(fault)}
        if not fault:
            assert min(outcomes[name].seconds["imported"] for name in ("torch", "flashinfer")) >= 0.3
            assert outcomes["a"].seconds["imported"] < 0.3
        (tmp_path / "imports").unlink()


def test_what_compilers_leave_in_their_temporary_folder_is_the_runs_own(machine):
    machine.module("a", 'echo "$TMPDIR" > "$FAKE_SOURCES/tmp"')
    machine.probe("a")
    machine.check()
    assert "fi-doctor-run-" in (machine.sources / "tmp").read_text()


UNTIL_QUICK_RAN = 'for i in $(seq 100); do test -e "$FAKE_SOURCES/ran" && break; sleep 0.1; done'


def test_a_probe_runs_as_soon_as_its_module_is_there(machine):
    machine.module("quick", "true")
    machine.module("slow", UNTIL_QUICK_RAN)
    machine.probe("quick", run='open(os.environ["FAKE_SOURCES"] + "/ran", "x").close()')
    machine.probe("slow")
    outcomes, builds = machine.check()
    assert builds.modules == {"quick": "built", "slow": "built"}
    quick, slow = (outcomes[name].cells[0].measurements for name in ("quick", "slow"))
    assert quick["at"] < machine.when("ends slow0.cu") < slow["at"]
    assert quick["jobs"] == "1"


def test_what_has_to_compile_for_itself_waits_until_there_are_jobs_for_it(machine):
    machine.module("bad", 'echo "bad.cu(3): error: no such thing"; exit 1')
    machine.module("slow", "sleep 3", "sleep 3")
    machine.probe("bad")
    machine.probe("slow")
    machine.probe("lazy", build="return False")
    outcomes, _ = machine.check(replace(ASKED, jobs=3))
    over = max(float(line.split()[2]) for line in machine._log() if line.startswith("ends slow"))
    again = [float(line.split()[2]) for line in machine._log() if line.startswith("begins bad0")]
    assert len(again) == 2
    assert again[0] < over < again[1]
    assert outcomes["lazy"].cells[0].measurements["at"] > over
    assert outcomes["bad"].detail == "bad: bad.cu(3): error: no such thing"


KILLS = """if [ ! -e "$FAKE_SOURCES/killed" ]; then
touch "$FAKE_SOURCES/killed"
sleep 1
pid=$PPID
while [ "$(cat /proc/$pid/comm)" != ninja ]; do pid=$(cut -d " " -f 4 /proc/$pid/stat); done
kill -9 $(cut -d " " -f 4 /proc/$pid/stat)
sleep 60
fi"""


def test_a_process_that_is_killed_while_it_builds_leaves_the_rest_to_the_probes(machine):
    machine.module("good", "true")
    machine.module("killer", KILLS)
    machine.module("slow", "sleep 2")
    for name in ("good", "killer", "slow"):
        machine.probe(name)
    begun = time.monotonic()
    outcomes, builds = machine.check()
    assert time.monotonic() - begun < 30
    assert builds.modules["good"] == "built"
    assert builds.modules["killer"].startswith("cut off: the process that built it ended after ")
    assert {outcome.ending for outcome in outcomes.values()} == {Ending.RETURNED}
    assert outcomes["killer"].cells[0].module_from == "built"
    assert running_in(machine.folder) == []


def test_each_variant_says_where_its_modules_came_from(machine):
    for name in ("aot_norm", "a", "b"):
        machine.module(name, "true")
    machine.probe("a")
    machine.probe("norm", "aot_norm", "b", "none", build="variant == 'none' or get_module(variant)")
    machine.probe("both", build="get_module('a'), get_module('aot_norm')")
    assert machine.sources_of("norm") == {"aot_norm": "jit-cache", "b": "built", "none": ""}
    assert machine.sources_of("norm") == {"aot_norm": "jit-cache", "b": "cache", "none": ""}
    assert machine.sources_of("both") == {"both": "cache, jit-cache"}
    (machine.sources / "b" / "b0.cu").write_text("false\n")
    assert machine.sources_of("norm") == {"aot_norm": "jit-cache", "b": "", "none": ""}


def test_where_nobody_was_asked_facts_and_the_cache_say_where_a_module_came_from(machine):
    facts = machine.facts.flashinfer
    machine.module("a", "true")
    machine.module("aot_b", "true")
    machine.probe("a")
    machine.probe("aot_b")
    machine.facts = replace(
        machine.facts, flashinfer=replace(facts, cached_modules=("a",), jit_cache_modules=("aot_b",))
    )
    outcomes, builds = machine.check()  # the library that the facts tell of is gone
    assert builds.modules == {}
    assert [outcomes[name].cells[0].module_from for name in ("a", "aot_b")] == ["built", "jit-cache"]
    outcomes, _ = machine.check()
    assert [outcomes[name].cells[0].module_from for name in ("a", "aot_b")] == ["cache", "jit-cache"]


def test_more_modules_than_jobs_never_use_more_than_the_jobs(machine):
    for name in "abcdef":
        machine.module(name, "sleep 0.2", "sleep 0.2")
        machine.probe(name)
    _, builds = machine.check(replace(ASKED, jobs=2))
    assert set(builds.modules.values()) == {"built"}
    assert machine.most_at_once() == 2


def test_a_module_is_begun_when_those_before_it_have_too_little_left_for_all_jobs(tmp_path):
    machine = Machine(tmp_path, "own")
    for name in "abc":
        machine.module(name, *["sleep 0.05"] * 40)
        machine.probe(name)
    _, builds = machine.check(replace(ASKED, budget_s=3600))
    assert set(builds.modules.values()) == {"built"}
    assert machine.most_at_once() == 4
    began = [source[0] for source in machine.compiled()]
    for early, late in itertools.pairwise(sorted(set(began), key=began.index)):
        assert began[: began.index(late)].count(early) > 40 - 4, began


def test_one_that_fails_stops_no_other_and_its_probe_says_what_the_compiler_said(machine):
    machine.module("good", "sleep 0.2")
    machine.module("bad", "true", 'echo "bad.cu(3): error: no such thing"; exit 1', "true")
    machine.probe("good")
    machine.probe("bad")
    outcomes, builds = machine.check()
    assert builds.modules == {"good": "built", "bad": "failed: bad.cu(3): error: no such thing"}
    assert outcomes["good"].ending is Ending.RETURNED
    assert (outcomes["bad"].stage, outcomes["bad"].ending) == (Stage.IMPORTED, Ending.RAISED)
    assert outcomes["bad"].detail == "bad: bad.cu(3): error: no such thing"
    assert sorted(machine.compiled()) == ["bad0", "bad1", "bad1", "bad2", "good0"]


def test_a_source_that_is_missing_stops_no_other_module(machine):
    machine.module("good", "true")
    machine.module("gone", "true")
    (machine.sources / "gone" / "gone0.cu").unlink()
    (machine.sources / "gone" / "gone0.cu").symlink_to(machine.sources / "gone" / "nothing")
    machine.probe("good")
    machine.probe("gone")
    outcomes, builds = machine.check()
    assert builds.modules["good"] == "built"
    assert builds.modules["gone"].startswith("not begun: left to its probe: ninja: error: ")
    assert outcomes["good"].ending is Ending.RETURNED
    assert "missing and no known rule to make it" in outcomes["gone"].detail


def test_when_the_time_is_up_what_is_finished_stays_and_the_rest_is_named_and_not_begun_again(machine, monkeypatch):
    monkeypatch.setattr(ahead, "LEAST_S", 5.0)
    monkeypatch.setattr(ahead, "PROBE_S", 0.1)
    monkeypatch.setattr(estimates, "UNKNOWN_S", 4)
    machine.module("quick", "true")
    machine.module("slow", "true", "sleep 300")
    machine.probe("quick")
    machine.probe("mixed", "quick", "slow")
    machine.probe("slow")
    begun = time.monotonic()
    outcomes, builds = machine.check(replace(ASKED, budget_s=12))
    assert time.monotonic() - begun < 12
    assert builds.modules["quick"] == "built"
    assert builds.modules["slow"].startswith("cut off: the time for building was up after ")
    assert outcomes["quick"].ending is Ending.RETURNED
    quick, slow = outcomes["mixed"].cells
    assert (quick.stage, quick.ending) == (Stage.RAN, Ending.RETURNED)
    assert (slow.stage, slow.ending) == (Stage.NONE, Ending.NOT_RUN)
    words = "budget of 12 s too short for its module: it was not finished in time; estimated "
    assert slow.detail.startswith(words)
    assert outcomes["mixed"].ending is Ending.NOT_RUN
    assert outcomes["mixed"].detail.startswith(f"slow: {words}")
    assert outcomes["slow"].cells[0].detail.startswith(words)
    assert machine.compiled().count("slow1") == 1


def test_where_not_everything_fits_headlines_are_built_first_unless_one_alone_takes_too_long(machine, monkeypatch):
    monkeypatch.setattr(ahead, "LEAST_S", 5.0)
    monkeypatch.setattr(ahead, "PROBE_S", 0.1)
    monkeypatch.setattr(estimates, "UNKNOWN_S", 8)
    monkeypatch.setitem(measured.BUILD_S, "giant", 24)
    monkeypatch.setattr(headline, "HEADLINE", ("fake.giant", "fake.b"))
    for name in ("giant", "a", "b", "c"):
        machine.module(name, "true")
        machine.probe(name)
    _, builds = machine.check(replace(ASKED, budget_s=22, jobs=1))
    assert set(builds.modules.values()) == {"built"}
    assert machine.compiled() == ["b0", "a0", "c0", "giant0"]


def test_what_surely_does_not_fit_is_not_begun(machine):
    machine.module("quick", "true")
    machine.module("fused_moe", *["true"] * 4)
    machine.probe("quick")
    machine.probe("moe", "fused_moe")
    machine.facts = replace(machine.facts, system=replace(machine.facts.system, cpus=4))
    outcomes, builds = machine.check()
    assert builds.modules["quick"] == "built"
    assert builds.modules["fused_moe"].startswith("not begun: estimated 6 min with 4 jobs")
    assert outcomes["moe"].ending is Ending.NOT_RUN
    assert machine.compiled() == ["quick0"]


def test_what_is_prebuilt_is_not_built(machine):
    machine.module("aot_norm", "false")
    machine.probe("aot_norm")
    outcomes, builds = machine.check()
    assert builds.modules == {"aot_norm": "jit-cache"}
    assert outcomes["aot_norm"].ending is Ending.RETURNED
    assert machine.compiled() == []


def test_nobody_is_asked_when_every_probe_has_a_library_of_just_its_name(machine):
    machine.module("norm", "true")
    machine.probe("norm")
    machine.check()
    machine.facts = replace(machine.facts, flashinfer=replace(machine.facts.flashinfer, cached_modules=("norm",)))
    outcomes, builds = machine.check()
    assert builds.modules == {}
    assert outcomes["norm"].cached
    machine.module("page", "true")
    machine.probe("page")
    outcomes, builds = machine.check()
    assert builds.modules == {"norm": "cache", "page": "built"}
    assert (outcomes["norm"].cached, outcomes["page"].cached) == (True, False)


ODD = {
    "raises": 'raise RuntimeError("no such size")',
    "lazy": "return False",
    "nothing": "pass",
    "swallows": "\n    try:\n        get_module(variant)\n    except Exception:\n        pass",
    "sets": 'os.environ["FAKE_SOURCES"] = "/nowhere"',
    "calls": "get_module('other')(); get_module(variant)()",
}


def test_a_build_that_asks_for_no_module_is_left_alone_and_others_are_noted(machine):
    for name in (*ODD, "other"):
        machine.module(name, "true")
    for name, build in ODD.items():
        machine.probe(name, build=build)
    outcomes, builds = machine.check()
    assert builds.modules == {"other": "built", "swallows": "built"}
    assert outcomes["raises"].detail == "raises: no such size"
    endings = {name: outcome.ending for name, outcome in outcomes.items()}
    assert endings.pop("raises") is Ending.RAISED
    assert set(endings.values()) == {Ending.RETURNED}


def test_a_module_that_two_probes_keep_is_known_as_needed_by_both(machine):
    machine.module("fused_moe", "true")
    machine.probe("a", "fused_moe")
    machine.probe("b", "fused_moe")
    outcomes, _ = machine.check()
    assert [outcome.ending for outcome in outcomes.values()] == [Ending.NOT_RUN] * 2


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 11)"], ids=["leaves", "crashes"])
def test_a_build_that_ends_the_process_costs_the_others_nothing(machine, end):
    machine.module("good", "true")
    machine.module("dies", "true")
    machine.probe("dies", build=end)
    machine.probe("good")
    outcomes, builds = machine.check()
    assert builds.modules == {"good": "built"}
    assert outcomes["good"].ending is Ending.RETURNED
    assert outcomes["dies"].ending in (Ending.EXITED, Ending.SIGNALLED)


def test_without_flashinfer_in_the_interpreter_the_probes_say_so(machine):
    machine.module("norm", "true")
    machine.probe("norm")
    bare = machine.folder / "bare"  # the torch that is found there costs no seconds to import
    bare.mkdir()
    (bare / "torch.py").symlink_to(FAKE / "torch.py")
    machine.environ["PYTHONPATH"] = str(bare)
    outcomes, builds = machine.check()
    assert builds.modules == {}
    assert "No module named 'flashinfer'" in outcomes["norm"].detail


def test_the_users_own_max_jobs_holds(machine):
    machine.environ["MAX_JOBS"] = "1"
    for name in "ab":
        machine.module(name, "sleep 0.1", "sleep 0.1")
        machine.probe(name)
    _, builds = machine.check()
    assert builds.jobs == 1
    assert machine.most_at_once() == 1


def test_a_build_that_hangs_when_it_is_asked_costs_the_others_some_seconds(machine, monkeypatch):
    monkeypatch.setitem(prebuild.PATIENCE_S, "asking", 2.0)
    machine.module("good", "true")
    machine.module("hangs", "true")
    # A signal handler runs only in Python code: this sleep starts anew each time. The probe's own build is quick.
    first = 'not os.path.exists(os.environ["FAKE_SOURCES"] + "/asked")'
    hang = 'open(os.environ["FAKE_SOURCES"] + "/asked", "x"), ctypes.PyDLL(None).usleep(60_000_000)'
    machine.probe("hangs", build=f"import ctypes; {first} and ({hang})")
    machine.probe("good")
    outcomes, builds = machine.check()
    assert builds.modules == {"good": "built"}
    assert outcomes["good"].ending is Ending.RETURNED
    assert outcomes["hangs"].ending is Ending.RETURNED


def test_where_all_modules_share_a_log_another_build_is_waited_for(tmp_path):
    machine = Machine(tmp_path, "shared")
    machine.module("good", "true")
    machine.probe("good")
    machine.ops.mkdir(parents=True)
    fd = os.open(machine.ops, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    freed = threading.Timer(4.0, os.close, [fd])
    freed.start()
    _, builds = machine.check()
    freed.join()
    assert builds.modules == {"good": "built"}
    assert builds.seconds > 3


def test_a_module_that_another_process_builds_is_left_to_its_probe(machine):
    machine.module("good", "true")
    machine.module("busy", "true")
    machine.probe("good")
    machine.probe("busy")
    (machine.ops / "tmp").mkdir(parents=True)
    fd = os.open(machine.ops / "tmp" / "busy.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    freed = threading.Timer(5.0, os.close, [fd])
    freed.start()
    outcomes, builds = machine.check()
    freed.join()
    assert builds.modules["good"] == "built"
    assert builds.modules["busy"].startswith("not begun: left to its probe: another process holds its lock")
    assert outcomes["busy"].ending is Ending.RETURNED
    assert not outcomes["busy"].cached


def test_ctrl_c_leaves_nothing_running(machine, tmp_path):
    machine.module("slow", "sleep 300", "sleep 300")
    machine.probe("slow")
    script = tmp_path / "main.py"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[2])!r}]\n"
        "import pathlib, signal, test_prebuild\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"pathlib.Path({str(tmp_path / 'again')!r}).mkdir()\n"
        f"machine = test_prebuild.Machine(pathlib.Path({str(tmp_path / 'again')!r}), {machine.environ['FAKE_LOG']!r})\n"
        "machine.module('slow', 'sleep 300', 'sleep 300')\n"
        "machine.probe('slow')\n"
        "try: machine.check()\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
        "for source in machine.sources.glob('slow/*.cu'): source.write_text('true')\n"
        "print(machine.check()[0]['slow'].ending, flush=True)\n"
    )
    marker = f"prebuild-{os.getpid()}"
    main = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env={**os.environ, "FI_DOCTOR_CHILD": marker}, text=True
    )
    log = tmp_path / "again/sources/log"
    end = time.monotonic() + 20
    while time.monotonic() < end and not log.exists():
        time.sleep(0.05)
    assert log.exists()
    assert marked(marker)
    main.send_signal(signal.SIGINT)
    assert main.communicate(timeout=30)[0] == "interrupted\nreturned\n"
    assert marked(marker) == []


def marked(marker):
    everybody = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in everybody if f"FI_DOCTOR_CHILD={marker}:".encode() in processes.environ(pid)]


def test_compilers_end_with_a_prebuild_that_is_killed(machine):
    """fi-doctor may be killed by the kernel: then nobody is left to end what it started."""
    machine.module("a", "sleep 60")
    machine.probe("a")
    pid = os.fork()
    if pid == 0:
        try:
            machine.check()
        finally:
            os._exit(0)
    deadline = time.monotonic() + 30
    while not machine.compiled() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert machine.compiled()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while running_in(machine.folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running_in(machine.folder) == []


def running_in(folder):
    """Compilers and ninjas whose command names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in command:
                found.append(command)
    return found
