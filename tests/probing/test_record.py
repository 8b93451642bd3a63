import signal

import pytest
from msgspec.structs import replace
from test_plan import SPEC

from fi_doctor.model import Depth, Ending, Request, Requires, Stage
from fi_doctor.model.phrases import UNCOMPARED
from fi_doctor.probing import record
from fi_doctor.probing.plan import plan
from fi_doctor.sandbox import Result

ENDED = Result(
    argv=(), returncode=0, signal=None, timed_out=False, stdout=b"", stderr=b"", seconds=0.0, truncated=False, error=""
)


def test_a_record_is_read_up_to_what_is_no_line():
    read = record.read(b'{"stage": "imported", "seconds": 1.5}\nnoise\n{"end": true}\n')
    assert [line.stage for line in read.lines] == ["imported"]
    assert read.is_cut


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", (None, "")),
        (b'{"stage": "importing"}\n{"versions": {}}\n', (None, "importing")),
        (b'{"variant": "a", "stage": "building"}\n', ("a", "building")),
        (b'{"variant": "a", "ending": "raised"}\n{"gpu": {}}\n', ("a", "raised")),
        (b'{"variant": "a", "ending": "raised"}\n{"end": true}\n', (None, "end")),
    ],
    ids=["nothing", "importing", "building", "between", "end"],
)
def test_the_last_line_tells_where_the_process_is(data, place):
    assert record.read(data).place == place


def test_a_complete_record_outweighs_how_the_process_ended():
    assert record.fate(record.read(b'{"end": true}\n'), ENDED, None) is None


def test_a_process_that_wrote_nothing_left_before_it_began():
    fate = record.fate(record.Record(), ENDED, None)
    assert (fate.ending, fate.detail) == (Ending.EXITED, "left with status 0 before it began, its record unfinished")


def test_what_could_not_be_started_is_lost_and_not_broken():
    failed = replace(ENDED, returncode=None, error="/venv/bin/python: Too many open files")
    fate = record.fate(record.Record(), failed, None)
    assert (fate.ending, fate.detail) == (
        Ending.LOST,
        "could not be started: /venv/bin/python: Too many open files",
    )


@pytest.mark.parametrize(
    ("number", "detail"),
    [
        (signal.SIGTERM, "SIGTERM while running"),
        (signal.SIGUSR1, "SIGUSR1 while running"),
        (
            signal.SIGKILL,
            "SIGKILL, not sent by fi-doctor (the kernel does so when memory runs out) while running",
        ),
    ],
)
def test_the_name_of_the_signal_comes_first(number, detail):
    read = record.read(b'{"variant": "", "stage": "running"}\n')
    fate = record.fate(read, replace(ENDED, returncode=None, signal=int(number)), None)
    assert (fate.ending, fate.detail) == (Ending.SIGNALLED, detail)


@pytest.fixture
def planned(bare_facts):
    [planned] = plan([replace(SPEC, gpus=0, module="")], bare_facts, Request(depth=Depth.RUN))
    return planned


def test_a_probe_that_could_not_look_has_not_failed_and_hides_nothing_of_the_others(bare_facts):
    spec = replace(SPEC, gpus=0, module="", variants={"a": Requires(), "b": Requires()})
    [planned] = plan([spec], bare_facts, Request(depth=Depth.RUN))
    skipped = '{"variant": "a", "ending": "raised", "error": "%s", "message": "no"}\n'
    looked = '{"variant": "b", "stage": "ran"}\n{"variant": "b", "ending": "%s"}\n{"end": true}\n'
    for ending in ("returned", "raised"):
        read = record.read((skipped % "unittest.case.SkipTest" + looked % ending).encode())
        settled = record.cells(planned, ("a", "b"), read, None)
        assert (settled["a"].ending, settled["a"].detail) == (Ending.NOT_RUN, "no")
        assert record.outcome(planned, settled).ending is Ending(ending)
    alone = record.cells(planned, ("a",), record.read((skipped % "unittest.case.SkipTest").encode()), None)
    outcome = record.outcome(planned, alone)
    assert (outcome.ending, outcome.detail) == (Ending.NOT_RUN, "no")
    raised = record.cells(planned, ("a",), record.read((skipped % "RuntimeError").encode()), None)
    assert raised["a"].ending is Ending.RAISED


@pytest.mark.parametrize("order", [("returned", "wrong-result"), ("wrong-result", "returned")])
def test_a_forked_probe_that_ends_a_variant_twice_is_as_bad_as_the_worse_of_them(planned, order):
    lines = "".join(f'{{"variant": "", "ending": "{ending}", "message": "1 == 2"}}\n' for ending in order)
    settled = record.cells(planned, ("",), record.read(f'{lines}{{"end": true}}\n'.encode()), None)
    assert settled[""].ending is Ending.WRONG


def test_a_process_that_dies_while_it_waits_had_only_been_imported(planned):
    read = record.read(b'{"stage": "imported"}\n{"variant": "", "stage": "waiting"}\n')
    fate = record.fate(read, replace(ENDED, returncode=None, signal=11), None)
    [cell] = record.cells(planned, ("",), read, fate).values()
    assert (cell.stage, cell.detail) == (Stage.IMPORTED, "SIGSEGV while waiting for another build")


BUILT = '{"variant": "a", "stage": "built"}\n'
BUILDING = '{"variant": "a", "stage": "building"}\n'
RAISED = '{"variant": "a", "ending": "raised"}\n'


@pytest.mark.parametrize(
    ("records", "in_build"),
    [
        ([BUILDING + RAISED], True),
        ([BUILDING + BUILT + '{"variant": "a", "stage": "running"}\n' + RAISED], False),
        ([BUILDING + BUILT + BUILDING + RAISED], False),
        ([BUILDING + BUILDING + RAISED], False),
        ([BUILDING + BUILT, BUILDING], True),
        ([BUILDING, '{"variant": "b", "stage": "running"}\n'], True),
        (['{"stage": "importing"}\n'], False),
    ],
    ids=["build", "run", "first-call", "first-call-not-built", "second-process", "other-process", "import"],
)
def test_a_failure_in_the_build_is_told_from_one_in_the_first_call(planned, records, in_build):
    read = [record.read(text.encode()) for text in records]
    assert record.failed_in_build(planned, "a", read) == in_build


def test_without_a_build_the_first_call_is_all_that_is_called_building(planned):
    bare = replace(planned, spec=replace(planned.spec, has_build=False))
    assert not record.failed_in_build(bare, "a", [record.read((BUILDING + RAISED).encode())])


def test_what_a_stub_says_is_looked_for_in_the_same_words():
    from fi_doctor.inside import stubs

    assert record.ABSENT == stubs.MARK


@pytest.mark.parametrize(
    ("checks", "measured", "reached"),
    [
        (True, '{"elements": 64}', (Stage.VERIFIED, "")),
        (True, '{"elements": 0}', (Stage.RAN, UNCOMPARED)),
        (True, "{}", (Stage.RAN, UNCOMPARED)),
        (True, '{"answer": "refused", "refusal": "no such size", "elements": 0}', (Stage.RAN, "")),
        (False, '{"elements": 64}', (Stage.RAN, "")),
    ],
    ids=["compared", "none-compared", "nothing", "refused", "an-import"],
)
def test_a_return_is_verified_only_where_something_was_compared(bare_facts, checks, measured, reached):
    [planned] = plan((replace(SPEC, checks_numbers=checks),), bare_facts, Request(depth=Depth.RUN))
    lines = b"".join(
        text.encode() + b"\n"
        for text in (
            '{"variant": "", "stage": "running"}',
            '{"variant": "", "stage": "ran"}',
            f'{{"variant": "", "ending": "returned", "measurements": {measured}}}',
            '{"end": true}',
        )
    )
    cell = record.cells(planned, ("",), record.read(lines), None)[""]
    assert (cell.stage, cell.detail) == reached
