import io
import json

import msgspec
import pytest
from msgspec import convert
from msgspec.structs import replace
from report_samples import report
from test_progress import Clock

from fi_doctor.model import WARMING_SCHEMA, Builds, FirstStart, Missing, Place, Warming, WarmModule
from fi_doctor.reports import console, warming
from fi_doctor.reports.built import first_start_line
from fi_doctor.reports.progress import Progress

BUILT = WarmModule(name="norm", place=Place.BUILT, objects=2, seconds=41.3, cpu_seconds=30.0, peak_job_mib=900)
DONE = Warming(
    schema=WARMING_SCHEMA,
    dry_run=False,
    folder="/home/me/.cache/flashinfer/0.5.3/90a",
    jobs=4,
    memory_mib=8192,
    modules=(
        replace(
            BUILT, name="moe", place=Place.NOT_BEGUN, why="estimated 900 s with 4 jobs, 60 s were left", seconds=0.0
        ),
        BUILT,
        replace(BUILT, name="page", place=Place.UP_TO_DATE),
        replace(BUILT, name="rope", place=Place.FAILED, why="rope.cu:3: error: no such type"),
        replace(BUILT, name="xqa", place=Place.IN_JIT_CACHE),
    ),
    seconds=62.0,
    build_seconds=55.0,
    cpu_seconds=120.0,
    least_seconds=41.3,
    longest="norm",
    peak_mib=2100,
    disk_mib=12.5,
    command="fi-doctor warm --feature 'moe.*'",
    look="fi-doctor check --feature rope.apply",
    code=1,
)
STALE = WarmModule(
    name="norm", place=Place.TO_COMPILE, objects=2, estimated_seconds=50.0, peak_job_mib=950, disk_mib=3.7
)
DRY = replace(
    DONE,
    dry_run=True,
    modules=(
        replace(STALE, name="fused_moe_90", objects=181, estimated_seconds=9000.0, disk_mib=Missing(reason="-")),
        STALE,
        WarmModule(name="page", place=Place.UP_TO_DATE),
    ),
    estimated_seconds=9060.0,
    disk_mib=Missing(reason="1 of 2 modules were never measured"),
    code=0,
)


def test_each_module_has_a_line_and_the_totals_follow():
    assert warming.render(DONE, width=120).splitlines() == [
        "moe   not begun: estimated 900 s with 4 jobs, 60 s were left",
        "norm  built 41 s",
        "page  up to date",
        "rope  failed: rope.cu:3: error: no such type",
        "xqa   in jit-cache",
        "",
        "5 modules: 1 in jit-cache, 1 up to date, 1 built, 1 failed, 1 not begun; 1 min 2 s",
        "compilers ran 55 s for 120 CPU s; at best it takes 41 s (norm alone, or CPU s over 4 jobs: 30 s)",
        "compilers held up to 2100 MiB of 8192 MiB; 12.5 MiB added in /home/me/.cache/flashinfer/0.5.3/90a",
    ]


def test_the_last_line_says_what_it_means_for_a_server():
    there = tuple(one for one in DONE.modules if one.place.is_there)
    assert warming.verdict(DONE) == (
        "1 module is still to be compiled: fi-doctor warm --feature 'moe.*'; "
        "1 module failed to compile; what says why: fi-doctor check --feature rope.apply"
    )
    assert warming.verdict(replace(DONE, modules=there)) == "a server's first start compiles nothing of the above"
    assert "no module belongs to it" in warming.verdict(replace(DONE, modules=()))
    assert warming.verdict(DRY) == "2 modules would be compiled: fi-doctor warm --feature 'moe.*'"


def test_a_dry_run_is_a_table_and_what_was_never_measured_is_a_question_mark():
    assert warming.render(DRY).splitlines() == [
        "units         time  MiB a job  MiB on disk  module",
        "  181      150 min        950            ?  fused_moe_90",
        "    2  under 1 min        950          3.7  norm",
        "                                            page: up to date",
        "  183      151 min        950            ?  all of them",
        "",
        "Times are estimated for 4 jobs and 8192 MiB for all compilers, of each by",
        "  itself.",
        "MiB on disk were measured for sm_90a with nvcc 13.0; ?: no such module was",
        "  measured.",
        "Nothing was compiled or written in /home/me/.cache/flashinfer/0.5.3/90a",
    ]


def test_what_could_not_be_asked_is_no_success():
    done = replace(DONE, modules=(BUILT,), unasked={"a.b fp8": "AssertionError: no libcudart"}, code=1)
    assert "Not known what it needs: a.b fp8: AssertionError: no libcudart\n" in warming.render(done)
    assert warming.verdict(done) == (
        "it is not known what a.b fp8 would compile; what says why: fi-doctor check --feature rope.apply"
    )


LONG = (
    "batch_prefill_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_head_dim_qk_{}_head_dim_vo_{}_"
    "posenc_0_use_swa_False_use_logits_cap_False_f16qk_False_sm90"
)


@pytest.mark.parametrize("dry", [False, True], ids=["done", "dry"])
def test_names_that_are_longer_than_a_line_are_folded_and_nothing_of_them_is_lost(dry):
    names = [LONG.format(size, size) for size in (64, 128)]
    base = STALE if dry else BUILT
    modules = (*(replace(base, name=name) for name in names), base)
    lines = warming.render(replace(DRY if dry else DONE, modules=modules)).splitlines()
    assert max(map(len, lines)) <= 80
    text = "".join(line.strip() for line in lines)
    assert all(name in text for name in names)
    assert [line for line in lines if line.startswith("norm  ") or line.endswith("  norm")] != []


def test_where_there_is_nothing_to_do_a_dry_run_has_one_sentence():
    there = WarmModule(name="page", place=Place.UP_TO_DATE)
    assert warming.render(replace(DRY, modules=(there, replace(there, name="norm"))), width=120) == (
        f"All 2 modules are there: nothing would be compiled in {DRY.folder}\n"
    )


def test_the_first_line_names_the_vllm_that_is_assumed_and_the_compiler():
    done = replace(DONE, caller="no vLLM is installed: as vLLM 0.33 would call them", toolkit="nvcc 13.0 (/cuda/nvcc)")
    assert warming.render(done, width=120).splitlines()[0] == (
        "No vLLM is installed: as vLLM 0.33 would call them; compiled with nvcc 13.0 (/cuda/nvcc)"
    )


def test_why_rows_were_not_asked_is_said_once_for_all():
    text = warming.render(
        replace(DONE, skipped={"a.b": "needs SM100", "a.c": "needs SM100"}, without_module=("d.e x",))
    )
    assert "Not asked: a.b, a.c: needs SM100\n" in text
    assert "Asked for nothing that is compiled beforehand: d.e x\n" in text


@pytest.mark.parametrize("done", [DONE, DRY], ids=["done", "dry"])
def test_json_reads_back_as_it_was(done):
    assert convert(json.loads(warming.to_json(done)), type=Warming) == done


def test_the_shape_of_the_json_has_a_schema_that_names_every_field():
    names = {name for one in msgspec.json.schema(Warming)["$defs"].values() for name in one.get("properties", {})}
    assert {"modules", "place", "why", "disk_mib", "least_seconds", "command", "code"} <= names


def test_what_a_terminal_would_obey_is_not_sent():
    hostile = replace(BUILT, name="a\x1b[31m", place=Place.FAILED, why="\x1b]0;title\x07")
    for done in (replace(DONE, modules=(hostile,), folder="/\x1b"), replace(DRY, modules=(hostile,))):
        assert "\x1b" not in warming.render(done)
        assert "\x1b" not in warming.to_json(done)


def log(*, is_terminal=False):
    stream, clock = io.StringIO(), Clock()
    return warming.WarmProgress(stream, is_terminal=is_terminal, now=clock), stream, clock


def test_a_log_has_a_line_as_each_module_begins_and_ends_with_count_and_time_left():
    progress, stream, clock = log()
    progress.building(2, 0, 3, 4, 60.0)
    progress.begun(("norm", "page"))
    clock.seconds += 20
    progress.building(2, 2, 3, 4, 40.0)
    progress.settled("norm", "built", 1, 2)
    clock.seconds += 30
    progress.settled("page", "failed: no such type", 2, 2)
    assert stream.getvalue().splitlines() == [
        "[0:00] building 2 modules, 3 objects, 4 jobs, about 1 min",
        "[0:00] begins: norm, page",
        "[0:20] 1/2 norm: built after 20 s, about 0:40 left",
        "[0:50] 2/2 page: failed: no such type after 50 s",
    ]


def test_a_silent_log_shows_that_it_is_alive_and_what_is_building():
    progress, stream, clock = log()
    progress.building(2, 1, 3, 4, 60.0)
    clock.seconds += 30
    progress.tick()
    assert stream.getvalue().splitlines()[-1] == (
        "[0:30] still working: 0:30 elapsed, about 0:30 left, building 2 modules, 1 of 3 objects, 4 jobs"
    )
    progress.prebuilt(Builds())
    written = stream.getvalue()
    clock.seconds += 60
    progress.tick()
    assert stream.getvalue() == written


def test_on_a_terminal_the_live_line_is_there():
    progress, stream, _ = log(is_terminal=True)
    progress.building(2, 1, 3, 4, 60.0)
    assert "building 2 modules, 1 of 3 objects" in stream.getvalue()
    progress.settled("norm", "built", 1, 2)
    assert "\r\x1b[K1/2 norm: built, about 1:00 left\n" in stream.getvalue()


FIRST = FirstStart(modules=("moe", "norm"), objects=183, jobs=16, estimated_seconds=4200.0, command="fi-doctor warm")
WORDS = "A server's first start would compile 2 modules here (183 objects, about 70 min with 16 jobs): fi-doctor warm"


def test_a_short_first_start_and_the_vllm_that_is_assumed_are_said():
    found = replace(FIRST, estimated_seconds=20.0, caller="vLLM 0.33.0, which is installed")
    assert "(183 objects, under 1 min with 16 jobs; vLLM 0.33.0, which is installed): fi-" in first_start_line(
        found, selected=False
    )
    assert first_start_line(found, selected=True).startswith("For the selected rows a server's first start would ")


def test_a_check_says_first_and_last_what_a_server_would_compile():
    stream = io.StringIO()
    progress = Progress(stream, is_terminal=False, now=Clock())
    progress.first_start(FIRST)
    progress.first_start(FirstStart())
    assert stream.getvalue() == f"[0:00] {WORDS}\n"
    text = console.render(report(builds=Builds(first_start=FIRST)), width=200)
    assert WORDS in text
    assert "first start" not in console.render(report(builds=Builds()), width=200)
