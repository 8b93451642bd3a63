import pytest
from msgspec.structs import replace

from fi_doctor.model import Depth, Ending, ProbeSpec, Request, Requires, Stage
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


def test_a_process_that_dies_while_it_waits_had_only_been_imported(bare_facts):
    spec = ProbeSpec(
        id="x.y",
        feature="x.y",
        path="/p/x_y.py",
        origin="tests",
        question="?",
        module="",
        requires=Requires(),
        variants={},
        gpus=0,
        timeout_s=1,
        build_timeout_s=1,
        compiles=("nvcc",),
        has_build=True,
        checks_numbers=True,
    )
    [planned] = plan([spec], bare_facts, Request(depth=Depth.RUN))
    read = record.read(b'{"stage": "imported"}\n{"variant": "", "stage": "waiting"}\n')
    fate = record.fate(read, replace(ENDED, returncode=None, signal=11), None)
    [cell] = record.cells(planned, ("",), read, fate).values()
    assert (cell.stage, cell.detail) == (Stage.IMPORTED, "SIGSEGV while waiting for another build")


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("", "CUDA error: an illegal memory access was encountered"),
        ("Ninja build failed.\n", "nvcc fatal   : Unsupported gpu architecture 'compute_120a'"),
        ("failed\n", "/usr/bin/ld: cannot find -lcudart"),
        ("failed\n", "a.cu:3:10: fatal error: cublasLt.h: No such file or directory"),
        ("failed\n", "/bin/sh: 1: nvcc: not found"),
        ("", "the first line where none is better"),
    ],
    ids=["cuda", "nvcc", "ld", "header", "shell", "plain"],
)
def test_the_deciding_line_is_the_one_that_says_what_is_wrong(before, line):
    assert record.deciding_line(f"{before}  {line}\nmore") == line


def test_no_message_has_no_deciding_line():
    assert record.deciding_line("") == ""


def test_a_long_line_is_cut():
    assert len(record.deciding_line("x" * 5000)) == record.DETAIL_LIMIT
