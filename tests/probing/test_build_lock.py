"""Builds that share one ninja log, by real probes that the real harness builds: one at a time, whatever happens."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from fi_doctor.model import Depth, Ending, Request, Silent, Stage
from fi_doctor.probing import catalog, run
from fi_doctor.probing.plan import plan

RUN = Request(depth=Depth.RUN, jobs=4, budget_s=60)
SOURCE = '''"""Is it built alone?"""

import os
import subprocess
import time
from pathlib import Path

PROBE = {{"id": "fake.{name}", "feature": "fake.{name}", "gpus": 0, "build_timeout_s": {limit_s}}}
FOLDER = Path({folder!r})


def say(word):
    with (FOLDER / "log").open("a") as log:
        log.write("{name} " + word + "\\n")


def wait_for(name, limit_s):
    end = time.monotonic() + limit_s
    while not (FOLDER / name).exists() and time.monotonic() < end:
        time.sleep(0.01)
    return (FOLDER / name).exists()


{at_import}


def build():
    say("starts")
    {build}
    say("stops")


def run():
    return {{"jobs": os.environ["MAX_JOBS"]}}
'''


class Builds:
    """Probes of the test's own in a folder, and what they tell in its log."""

    def __init__(self, folder, facts):
        self.folder = folder
        self.facts = facts
        self.probes = []

    @property
    def lock(self):
        return Path(self.facts.flashinfer.cache_dir) / "cached_ops"

    def add(self, name, build="pass", at_import="", limit_s=20):
        path = self.folder / f"fake_{name}.py"
        text = SOURCE.format(name=name, folder=str(self.folder), build=build, at_import=at_import, limit_s=limit_s)
        path.write_text(text)
        self.probes.append(catalog.parse(text, str(path), "fi-doctor"))

    def run(self, request=RUN):
        planned = plan(self.probes, self.facts, request)
        environ = {"PATH": os.environ["PATH"]}
        done, _ = run.run_all(planned, facts=self.facts, request=request, watch=Silent(), environ=environ)
        return {outcome.probe.removeprefix("fake."): outcome for outcome in done}

    def log(self):
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture
def builds(tmp_path, bare_facts, flashinfer_facts):
    shared = replace(flashinfer_facts, shared_ninja_log=True, cache_dir=str(tmp_path / "cache" / "0.5.3" / "90a"))
    return Builds(tmp_path, replace(bare_facts, flashinfer=shared))


def test_builds_go_one_at_a_time_with_all_jobs_each(builds):
    for name in "abc":
        builds.add(name, "time.sleep(0.3)")
    outcomes = builds.run()
    assert {outcome.ending for outcome in outcomes.values()} == {Ending.RETURNED}
    log = builds.log()
    assert [line.split()[1] for line in log] == ["starts", "stops"] * 3
    assert all(starts[0] == stops[0] for starts, stops in zip(log[::2], log[1::2], strict=True))
    assert {outcome.cells[0].measurements["jobs"] for outcome in outcomes.values()} == {"4"}
    assert list(builds.lock.iterdir()) == []


def test_builds_with_logs_of_their_own_go_side_by_side(builds):
    flashinfer = replace(builds.facts.flashinfer, shared_ninja_log=False)
    builds.facts = replace(builds.facts, flashinfer=flashinfer)
    for name, other in ("ab", "ba"):
        builds.add(name, f'(FOLDER / "{name}").touch(); assert wait_for("{other}", 15)')
    outcomes = builds.run()
    assert {outcome.ending for outcome in outcomes.values()} == {Ending.RETURNED}
    assert not builds.lock.exists()


def test_a_build_that_hangs_is_killed_and_the_next_one_builds(builds):
    builds.add("hang", '(FOLDER / "held").touch(); subprocess.run(["sleep", "300"])', limit_s=3)
    late = 'assert time.time() - (FOLDER / "held").stat().st_mtime > 2'
    builds.add("next", late, at_import='assert wait_for("held", 15)', limit_s=1)
    outcomes = builds.run()
    assert (outcomes["hang"].stage, outcomes["hang"].ending) == (Stage.IMPORTED, Ending.TIMED_OUT)
    assert outcomes["hang"].detail == "still building after 3 s"
    assert (outcomes["next"].stage, outcomes["next"].ending) == (Stage.RAN, Ending.RETURNED)
    assert builds.log() == ["hang starts", "next starts", "next stops"]
    assert outcomes["next"].seconds["built"] < 1  # though it waited for longer than its limit


def test_a_budget_that_ends_while_waiting_says_so(builds):
    builds.add("late")
    builds.lock.mkdir(parents=True)
    fd = os.open(builds.lock, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        outcome = builds.run(replace(RUN, budget_s=2))["late"]
    finally:
        os.close(fd)
    assert (outcome.stage, outcome.ending) == (Stage.IMPORTED, Ending.NOT_RUN)
    assert outcome.detail.startswith("budget of 2 s used up while waiting for another build, 2 s after it started; ")
    assert not (builds.folder / "log").exists()


NINJA = """rule compile
  command = {wait}; echo "$out: $in" > $out.d; cp $in $out; echo $out >> compiled
  depfile = $out.d
  deps = gcc
build {name}.o: compile source
"""
# Side by side, a's ninja starts before b's records are written and writes its own after them.
COMMANDS = {"a": "touch a.begun; {until}; sleep 0.3", "b": "{until}"}
UNTIL = "for i in 1 2 3 4 5 6 7 8 9 10; do test -e {} || sleep 0.1; done"


@pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja on PATH")
def test_ninja_finds_everything_built_the_second_time(builds):
    """Without the lock the records of one make those of the other unreadable in the .ninja_deps that they share."""
    (builds.folder / "source").write_text("")
    for name, other in (("a", "b.o"), ("b", "a.begun")):
        wait = COMMANDS[name].format(until=UNTIL.format(other))
        (builds.folder / f"{name}.ninja").write_text(NINJA.format(name=name, wait=wait))
        builds.add(name, f'subprocess.run(["ninja", "-C", FOLDER, "-f", "{name}.ninja"], check=True)')
    for _ in range(2):
        assert {outcome.ending for outcome in builds.run().values()} == {Ending.RETURNED}
    assert sorted((builds.folder / "compiled").read_text().split()) == ["a.o", "b.o"]
