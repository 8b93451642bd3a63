"""Estimates scale with the jobs, and order builds so that something is finished when not everything fits."""

import pytest

from fi_doctor.probing import estimates, headline
from fi_doctor.probing.estimates import Build

FA2 = "batch_prefill_with_kv_cache_dtype_q_bf16_head_dim_qk_128_f16qk_False"
MEASURED = [  # module, objects, seconds on 16 cores
    (f"{FA2}_sm90", 10, 142),
    (FA2, 10, 55),
    ("batch_decode_with_kv_cache_dtype_q_bf16", 3, 58),
    ("batch_prefill_attention_sink_bf16_swa_False_fa3_head_dim_128", 10, 127),
    ("xqa_input_bf16_kv_cache_bf16", 5, 10),
    ("trtllm_comm", 3, 130),
]


@pytest.mark.parametrize(
    ("module", "objects", "seconds"), MEASURED, ids=[row[0][:40] + row[0][-5:] for row in MEASURED]
)
def test_what_was_measured_is_about_what_is_estimated(module, objects, seconds):
    assert seconds / 2.5 <= estimates.wall_seconds({module: objects}, 16) <= 2.5 * seconds


def test_more_jobs_take_less_until_the_slowest_object_is_what_counts():
    modules = {f"page{number}": 4 for number in range(8)}
    walls = [estimates.wall_seconds(modules, jobs) for jobs in (1, 2, 8, 64)]
    assert walls[0] == 2 * walls[1] == 8 * walls[2]
    assert walls[3] == estimates.object_seconds("page")


def test_nothing_to_build_takes_no_time():
    assert estimates.wall_seconds({}, 4) == 0
    assert estimates.wall_seconds({"norm": 0}, 4) == 0


BUILDS = {
    "silu_and_mul": Build(objects=1, rank=0),
    "page": Build(objects=2, rank=1),
    "norm": Build(objects=2, rank=0),
    "trtllm_comm": Build(objects=3, rank=0),
}


def test_when_everything_fits_the_longest_goes_first():
    ordered, left_out = estimates.order(BUILDS, jobs=16, seconds=600)
    assert ordered == ["trtllm_comm", "silu_and_mul", "norm", "page"]
    assert left_out == {}


def test_where_only_what_decides_rows_fits_it_goes_first_and_of_that_the_longest():
    builds = {**BUILDS, "page": Build(objects=2, rank=headline.PLACES), "xqa": Build(objects=1200, rank=headline.LAST)}
    ordered, left_out = estimates.order(builds, jobs=16, seconds=301)
    assert ordered == ["trtllm_comm", "silu_and_mul", "norm", "xqa", "page"]
    assert left_out == {}


def test_when_not_even_that_fits_ranks_decide_and_of_one_rank_the_cheapest():
    ordered, left_out = estimates.order(BUILDS, jobs=1, seconds=650)
    assert ordered == ["silu_and_mul", "norm", "trtllm_comm", "page"]
    assert left_out == {}


def test_what_takes_little_is_neither_first_nor_last():
    builds = {f"batch_prefill_{number}": Build(objects=10, rank=0) for number in range(4)}
    builds |= {f"batch_prefill_{number}_sm90": Build(objects=10, rank=3 - number) for number in range(4)}
    ordered, _ = estimates.order({**builds, "silu_and_mul": Build(objects=1, rank=5)}, jobs=16, seconds=1000)
    assert ordered[:5] == [
        *(f"batch_prefill_{number}_sm90" for number in (3, 2, 1)),
        "silu_and_mul",
        "batch_prefill_0_sm90",
    ]


def test_what_nearly_fits_is_taken_to_fit():
    builds = {f"batch_prefill_{number}_sm90": Build(objects=10, rank=number) for number in range(4)}
    builds["sampling"] = Build(objects=3, rank=8)
    needed_s = estimates.wall_seconds({name: build.objects for name, build in builds.items()}, 16)
    assert estimates.order(builds, jobs=16, seconds=0.85 * needed_s)[0][0] == "sampling"
    assert estimates.order(builds, jobs=16, seconds=0.7 * needed_s)[0][-1] == "sampling"


def test_what_fits_only_just_is_not_taken_to_fit_with_what_decides_nothing():
    builds = {"sampling": Build(objects=3, rank=0), "trtllm_comm": Build(objects=30, rank=headline.PLACES)}
    needed_s = estimates.wall_seconds({name: build.objects for name, build in builds.items()}, 4)
    assert estimates.order(builds, jobs=4, seconds=1.1 * needed_s)[0] == ["sampling", "trtllm_comm"]
    assert estimates.order(builds, jobs=4, seconds=1.5 * needed_s)[0] == ["trtllm_comm", "sampling"]


def test_what_does_not_fit_by_itself_is_not_begun_and_says_why():
    ordered, left_out = estimates.order({**BUILDS, "fused_moe_90": Build(objects=240, rank=0)}, jobs=64, seconds=400)
    assert "fused_moe_90" not in ordered
    assert left_out == {"fused_moe_90": "estimated 16 min with 64 jobs, 7 min were left for building"}


def test_a_long_time_is_told_in_minutes():
    assert [estimates.in_words(seconds) for seconds in (90.4, 119, 120, 22102)] == ["90 s", "119 s", "2 min", "369 min"]


def test_no_module_is_lost_or_built_twice():
    for seconds in (0, 30, 100, 300, 1000, 10000):
        ordered, left_out = estimates.order(BUILDS, jobs=2, seconds=seconds)
        assert sorted([*ordered, *left_out]) == sorted(BUILDS)
