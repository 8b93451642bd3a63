import io
import os
import threading

import pytest
from msgspec.structs import replace
from report_samples import outcome, planned

from fi_doctor.model import Builds, CellOutcome, Depth, Ending, Missing, Stage, Watch
from fi_doctor.reports.progress import Progress
from fi_doctor.reports.schedule import Schedule


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


NORM, SAMPLING, TORCH = planned(), planned("sampling.top_k_top_p", "sampling"), planned("import.torch", "")
ESTIMATES = {"norm": 18.0, "sampling": 70.0}


def log(estimates=ESTIMATES):
    stream, clock = io.StringIO(), Clock()
    return Progress(stream, is_terminal=False, now=clock, estimates=estimates), stream, clock


def test_it_is_a_watch():
    watch: Watch = log()[0]
    assert watch


def test_the_budget_and_the_modules_to_build_are_said_first_the_longest_first():
    progress, stream, _ = log()
    unsupported = planned("quant.fp4", "fp4", skip="needs SM100")
    progress.planned((NORM, SAMPLING, TORCH, unsupported), 600.0)
    assert stream.getvalue().splitlines() == [
        "Up to 10 min for 3 probes (--budget changes it).",
        "2 modules to build, unless cached: sampling, norm",
        "Not tried: quant.fp4 (SM90): needs SM100",
    ]


def test_when_nothing_is_tried_that_is_said():
    progress, stream, _ = log()
    progress.planned((planned(skip="no GPU"), planned("import.torch", "", sm=Missing(reason="-"), skip="no GPU")), 600)
    assert stream.getvalue().splitlines() == [
        "Nothing will be built or run here.",
        "Not tried: norm.rmsnorm (SM90), import.torch: no GPU",
    ]


def test_a_log_has_a_line_for_each_start_stage_and_end():
    progress, stream, clock = log()
    progress.planned((NORM,), 600.0)
    progress.started(NORM)
    clock.seconds += 18
    for _variant in range(2):
        progress.reached(NORM, Stage.IMPORTED)
        progress.reached(NORM, Stage.BUILT)
    clock.seconds += 2
    progress.ended(NORM, outcome("norm.rmsnorm"))
    assert stream.getvalue().splitlines()[2:] == [
        "[0:00] norm.rmsnorm (SM90): started",
        "[0:18] norm.rmsnorm (SM90): imported",
        "[0:18] norm.rmsnorm (SM90): built",
        "[0:20] norm.rmsnorm (SM90): verified in 20 s (1 of 1)",
    ]


def test_a_bad_ending_is_said_in_words():
    progress, stream, _ = log()
    progress.planned((NORM,), 600.0)
    progress.started(NORM)
    progress.ended(NORM, outcome("norm.rmsnorm", ending=Ending.SIGNALLED, detail="SIGSEGV"))
    assert stream.getvalue().splitlines()[-1] == "[0:00] norm.rmsnorm (SM90): signalled: SIGSEGV in 0 s (1 of 1)"


def test_a_silent_build_of_65_seconds_yields_at_least_two_heartbeats():
    progress, stream, clock = log()
    progress.planned((NORM, SAMPLING), 600.0)
    progress.started(SAMPLING)
    before = len(stream.getvalue().splitlines())
    stamps = [clock.seconds]
    for _second in range(65):
        clock.seconds += 1
        written = stream.tell()
        progress.tick()
        if stream.tell() > written:
            stamps.append(clock.seconds)
    beats = stream.getvalue().splitlines()[before:]
    assert len(beats) >= 2
    assert all(later - earlier <= 30 for earlier, later in zip(stamps, [*stamps[1:], clock.seconds], strict=True))
    assert all(beat.endswith(" left, 0 of 2 probes done, building sampling") for beat in beats)


def test_the_ticker_of_the_context_manager_writes_heartbeats_and_stops():
    stream, clock = io.StringIO(), Clock()
    spoke = threading.Event()

    class Told(io.StringIO):
        def write(self, text):
            if "still working" in text:
                spoke.set()
            return stream.write(text)

    with Progress(Told(), is_terminal=False, now=clock) as progress:
        progress.planned((NORM,), 600.0)
        progress.started(NORM)
        clock.seconds += 40
        assert spoke.wait(10)
    assert not any(thread.name == "progress" for thread in threading.enumerate())
    length = stream.tell()
    progress.note("after the end")
    assert stream.tell() == length


def test_the_time_left_comes_from_estimates_then_from_the_objects_compiled():
    progress, stream, clock = log()
    progress.planned((NORM, SAMPLING), 600.0)
    progress.started(NORM)
    progress.started(SAMPLING)
    clock.seconds += 30
    progress.tick()
    assert "about 0:50 left" in stream.getvalue()  # 70 - 30 of the build, 10 to import and run
    progress.objects(SAMPLING, 1, 4)
    clock.seconds += 30
    progress.tick()
    last = stream.getvalue().splitlines()[-1]
    assert "building norm, sampling 1/4 objects" in last
    assert "1:00 elapsed, about 1:02 left," in last  # a quarter of 180 s by objects, three of the 10 s estimated, 10 s
    progress.objects(SAMPLING, 3, 4)
    progress.tick()
    clock.seconds += 30
    progress.tick()
    assert (
        "1:30 elapsed, about 0:35 left," in stream.getvalue().splitlines()[-1]
    )  # three quarters of 30 s, a quarter of 9


def test_the_time_left_is_never_more_than_the_budget_has():
    progress, stream, clock = log({"sampling": 5000.0})
    progress.planned((SAMPLING,), 100.0)
    progress.started(SAMPLING)
    clock.seconds += 40
    progress.tick()
    assert "0:40 elapsed, about 1:00 left" in stream.getvalue()


def test_without_an_estimate_the_time_left_is_not_made_up():
    progress, stream, clock = log({})
    progress.planned((SAMPLING,), 600.0)
    progress.started(SAMPLING)
    clock.seconds += 30
    progress.tick()
    assert "time left not known" in stream.getvalue()


def test_a_build_that_is_late_is_not_said_to_be_nearly_over():
    progress, stream, clock = log()
    progress.planned((NORM,), 6000.0)
    progress.started(NORM)
    clock.seconds += 300
    progress.tick()
    assert "about 0:40 left" in stream.getvalue()  # a tenth of what it took so far, and 10 s


def test_where_all_is_there_nothing_is_said_to_be_built():
    progress, stream, _ = log()
    progress.planned((NORM, TORCH), 6000.0)
    progress.building(0, 0, 0, 32, 0.0)
    assert "0 modules" not in stream.getvalue()


def test_what_is_built_beforehand_is_counted_with_its_jobs_and_the_time_left():
    progress, stream, clock = log()
    progress.planned((NORM, SAMPLING, TORCH), 6000.0)
    progress.building(31, 0, 380, 32, 400.0)
    clock.seconds += 30
    progress.building(20, 214, 380, 32, 170.0)
    assert len(stream.getvalue().splitlines()) == 3
    progress.tick()
    clock.seconds += 10
    modules = {f"m{n}": "built" for n in range(29)} | {"n": "cache", "x": "failed: error", "y": "not begun: -"}
    progress.prebuilt(Builds(seconds=40.0, jobs=32, modules=modules))
    assert stream.getvalue().splitlines()[2:] == [
        "[0:00] building 31 modules, 380 objects, 32 jobs, about 7 min",
        "[0:30] still working: 0:30 elapsed, about 3:00 left, building 20 modules, 214 of 380 objects, 32 jobs",
        "[0:40] 32 modules: 29 built, 1 in the cache, 1 failed, 1 not begun in 40 s",
    ]
    progress.started(NORM)
    clock.seconds += 25
    progress.tick()
    assert "1:05 elapsed, about 0:30 left, 0 of 3 probes done" in stream.getvalue().splitlines()[-1]


def test_probes_that_are_over_while_others_build_are_counted():
    progress, stream, clock = log()
    progress.planned((NORM, SAMPLING, TORCH), 6000.0)
    progress.building(31, 0, 380, 32, 400.0)
    progress.started(TORCH)
    progress.ended(TORCH, outcome("import.torch"))
    clock.seconds += 30
    progress.tick()
    told = "still working: 0:30 elapsed, about 6:20 left, building 31 modules, 0 of 380 objects, 32 jobs"
    assert stream.getvalue().splitlines()[-1] == f"[0:30] {told}, 1 of 3 probes done"


def test_the_time_left_while_building_beforehand_is_never_more_than_the_budget_has():
    progress, stream, clock = log()
    progress.planned((NORM,), 100.0)
    progress.building(1, 0, 3, 2, 5000.0)
    clock.seconds += 40
    progress.tick()
    assert "0:40 elapsed, about 1:00 left, building 1 module, 0 of 3 objects, 2 jobs" in stream.getvalue()


def test_when_all_was_built_already_no_time_is_told():
    progress, stream, _ = log()
    progress.planned((NORM,), 100.0)
    progress.prebuilt(Builds(seconds=9.0, jobs=2, modules={"norm": "jit-cache"}))
    assert stream.getvalue().splitlines()[-1] == "[0:00] 1 module: 1 in jit-cache"


def test_a_slow_machine_stretches_the_estimates():
    progress, stream, clock = log()
    progress.planned((NORM, SAMPLING), 6000.0)
    progress.started(NORM)
    progress.objects(NORM, 2, 2)
    clock.seconds += 36
    progress.reached(NORM, Stage.BUILT)
    progress.ended(NORM, outcome("norm.rmsnorm"))
    clock.seconds += 25
    progress.tick()
    assert "about 2:30 left" in stream.getvalue().splitlines()[-1]  # twice 70, and 10


def test_after_a_cached_module_less_is_expected_of_those_that_have_not_begun():
    cached, stream, clock = log()
    cached.planned((NORM, SAMPLING), 6000.0)
    cached.started(NORM)
    cached.reached(NORM, Stage.BUILT)
    cached.ended(NORM, outcome("norm.rmsnorm", cached=True))
    clock.seconds += 25
    cached.tick()
    assert "about 0:45 left" in stream.getvalue().splitlines()[-1]


def test_a_terminal_has_one_status_line_and_a_lasting_line_for_each_ended_probe():
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, is_terminal=True, now=clock, estimates=ESTIMATES)
    progress.planned((NORM, SAMPLING), 600.0)
    progress.started(NORM)
    progress.started(SAMPLING)
    progress.objects(SAMPLING, 1, 3)
    progress.reached(NORM, Stage.BUILT)
    clock.seconds += 41
    progress.ended(NORM, outcome("norm.rmsnorm"))
    progress.tick()
    screen = on_screen(stream.getvalue())
    assert screen[2] == "norm.rmsnorm (SM90): verified in 41 s (1 of 2)"
    assert screen[3].startswith("0:41 elapsed, about 0:57 left, 1 of 2 probes done, building sampling 1/3")
    assert len(screen) == 4
    progress.close()
    assert on_screen(stream.getvalue())[3] == ""


def on_screen(written):
    """What a terminal would show of text with carriage returns and ESC[K, line by line."""
    return [line.split("\r")[-1].replace("\x1b[K", "") for line in written.split("\n")]


def test_the_status_line_never_wraps():
    stream = io.StringIO()
    progress = Progress(stream, is_terminal=True, now=Clock())
    probes = tuple(planned(f"family.kernel{n}", f"a_module_with_a_long_name_{n}") for n in range(9))
    progress.planned(probes, 600.0)
    for probe in probes:
        progress.started(probe)
    status = on_screen(stream.getvalue())[-1]
    assert status == "0:00 elapsed, time left not known, 0 of 9 probes done, building 9 modules"
    assert len(status) <= 79


@pytest.mark.parametrize("width", [20, 40, 60, 70, 79, 100, 120, 200])
def test_a_narrow_status_line_leaves_whole_parts_out(width):
    clock = Clock()
    schedule = Schedule({"norm": 18.0}, clock)
    schedule.plan((NORM, SAMPLING), 600.0)
    schedule.start(NORM)
    schedule.start(SAMPLING)
    schedule.count_objects(NORM, 1, 4)
    full, cut = schedule.status(), schedule.status(width)
    assert len(cut) <= width
    parts = full.split(", ")
    assert cut.split(", ")[:3] == parts[: len(cut.split(", "))][:3]
    assert cut.rsplit(", ", 1)[-1] in (*parts, "building 2 modules", "sampling", "building norm 1/4 and 1 more")


def test_a_probe_without_a_module_has_no_stages_in_a_log():
    progress, stream, _ = log()
    progress.planned((TORCH,), 600.0)
    progress.started(TORCH)
    progress.reached(TORCH, Stage.IMPORTED)
    progress.ended(TORCH, outcome("import.torch", ending=Ending.RAISED, detail="No module named 'torch'"))
    assert not any(line.endswith("imported") for line in stream.getvalue().splitlines())


def test_a_long_line_is_cut_at_a_space_on_a_terminal():
    stream = io.StringIO()
    progress = Progress(stream, is_terminal=True, now=Clock())
    progress.note("word " * 30)
    assert stream.getvalue().splitlines() == [" ".join(["word"] * 16), "  " + " ".join(["word"] * 14)]


def test_the_detail_of_an_ended_probe_is_short():
    progress, stream, _ = log()
    progress.planned((NORM,), 600.0)
    progress.started(NORM)
    detail = f"in /opt/a/lib/python3.12/site-packages/flashinfer/jit/core.py: {'word ' * 100}"
    progress.ended(NORM, outcome("norm.rmsnorm", ending=Ending.RAISED, detail=detail))
    last = stream.getvalue().splitlines()[-1]
    assert "raised: in .../flashinfer/jit/core.py: word" in last
    assert "word... in 0 s (1 of 1)" in last
    assert len(last) < 160 + 60


def test_a_hostile_probe_name_or_note_cannot_command_the_terminal():
    progress, stream, _ = log()
    bad = planned("x\x1b[2J\n\r", "m\x1b]0;t\x07")
    progress.planned((bad,), 600.0)
    progress.started(bad)
    progress.note("a\x1b[31m\nnote")
    progress.ended(bad, outcome("x", ending=Ending.RAISED, detail="\x1b[5m"))
    text = stream.getvalue()
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "a\\x1b[31m note" in text


def everything(progress):
    with progress:
        progress.note("n\u2713")
        progress.planned((NORM, TORCH, planned("b.c", "", skip="why")), float("inf"))
        progress.building(0, 3, 0, 0, -1.0)
        progress.prebuilt(Builds(modules={"\udcff": "odd"}))
        for probe in (NORM, TORCH, SAMPLING):  # the last was never planned
            progress.started(probe)
            progress.reached(probe, Stage.IMPORTED)
            progress.objects(probe, 0, 0)
            progress.objects(probe, 3, 2)
            progress.tick()
            progress.ended(probe, outcome("x"))
            progress.ended(probe, outcome("x", detail="\udcff", ending=Ending.LOST))
        progress.reached(planned("never.started"), Stage.VERIFIED)
        progress.ended(planned("never.started"), outcome("x", ending=Ending.NOT_RUN))


@pytest.mark.parametrize("is_terminal", [False, True], ids=["log", "terminal"])
def test_it_never_raises_whatever_the_stream_is(is_terminal):
    closed = io.StringIO()
    closed.close()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as broken:
        for stream in (io.StringIO(), closed, broken):
            everything(Progress(stream, is_terminal=is_terminal, now=Clock()))
        # Closing flushes what could not be written: that is the pipe's trouble, not ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)


def test_a_stream_that_knows_only_ascii_gets_escapes():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    everything(Progress(stream, is_terminal=False, now=Clock()))
    assert b"n\\u2713" in raw.getvalue()


def test_several_threads_may_tell_it_things_at_once():
    progress, stream, _ = log()
    probes = tuple(planned(f"family.kernel{n}", f"module{n}") for n in range(8))
    progress.planned(probes, 600.0)

    def work(probe):
        progress.started(probe)
        for done in range(20):
            progress.objects(probe, done, 20)
            progress.tick()
        progress.ended(probe, outcome("x", cells=(CELL,)))

    threads = [threading.Thread(target=work, args=(probe,)) for probe in probes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    ends = [line for line in stream.getvalue().splitlines() if ": verified in" in line]
    assert sorted(line.rpartition("(")[2] for line in ends) == [f"{n} of 8)" for n in range(1, 9)]


CELL = CellOutcome(variant="", stage=Stage.VERIFIED, ending=Ending.RETURNED, detail="")


def test_what_is_only_built_is_followed_like_the_rest():
    progress, stream, clock = log()
    limited = planned(skip="not run, only built: CUDA sees no GPU", depth=Depth.BUILD)
    progress.planned((limited,), 600.0)
    progress.started(limited)
    clock.seconds += 3
    progress.ended(limited, outcome("norm.rmsnorm"))
    said = stream.getvalue()
    assert "Limited: norm.rmsnorm (SM90): not run, only built: CUDA sees no GPU" in said
    assert "(1 of 1)" in said


def test_that_a_probe_was_only_built_is_said_once():
    progress, stream, clock = log()
    only_built = replace(NORM, depth=Depth.BUILD)
    progress.planned((only_built,), 100.0)
    progress.started(only_built)
    clock.seconds += 2
    progress.reached(only_built, Stage.BUILT)
    progress.ended(only_built, outcome("norm.rmsnorm", stage=Stage.BUILT))
    assert [line for line in stream.getvalue().splitlines() if "built" in line] == [
        "[0:02] norm.rmsnorm (SM90): built in 2 s (1 of 1)"
    ]


def test_the_command_that_settles_it_is_whole_in_progress_too():
    command = f"fi-doctor check --python /{'x' * 250}/bin/python --budget 11m"
    why = f"{'the budget is too short and ' * 30}; settle it with: {command}"
    progress, stream, _ = log()
    progress.planned((NORM, replace(SAMPLING, depth=Depth.STATIC, skip=why)), 100.0)
    progress.started(NORM)
    progress.ended(NORM, outcome("norm.rmsnorm", ending=Ending.NOT_RUN, detail=why))
    told = [line for line in stream.getvalue().splitlines() if command in line]
    assert len(told) == 2
    assert all(why not in line for line in told)
