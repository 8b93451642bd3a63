"""The smallest change of a move that keeps what is required."""

from __future__ import annotations

from msgspec.structs import replace
from packaging.version import Version
from test_moving import facts, known, planned
from upgraded_machines import TWO_H200

from fi_doctor.cli import targeting as reading
from fi_doctor.facts import released
from fi_doctor.model import Holds
from fi_doctor.moving import planning, searching


def changed(one):
    return {pin.what: pin.after for pin in one.changes}


def test_a_driver_that_is_too_old_is_the_one_change():
    found = planned("driver=570", required=("norm.rmsnorm",))
    assert found.code == 1
    assert {"driver": "580"} in [changed(one) for one in found.search.found]
    assert all(len(one.changes) == 1 for one in found.search.found)


def test_of_pairs_only_those_are_tried_that_together_leave_nothing():
    found = planned("b200,cuda=12.4,driver=570", required=("norm.rmsnorm",)).search
    singles = sum(int(one.rpartition("(")[2].rstrip(")")) for one in found.dimensions)
    assert singles < found.tried < 2 * singles


def test_two_changes_only_where_no_single_one_will_do():
    found = planned("b200,cuda=12.4,driver=570", required=("norm.rmsnorm",)).search
    assert all(len(one.changes) == 2 for one in found.found)
    assert changed(found.found[0])["driver"] == "580"
    assert float(changed(found.found[0])["nvcc"]) >= 12.8


def test_the_nearest_toolkit_comes_first():
    found = planned("b200,vllm=0.17.1,cuda=12.4", required=("norm.rmsnorm",)).search
    [nvcc] = [changed(one) for one in found.found if "nvcc" in changed(one)]
    assert nvcc == {"nvcc": "12.8"}


def test_beside_the_nearest_toolkit_the_one_with_fewer_problems_is_named():
    found = planned("cuda=12.6", required=("moe.fp8_block",)).search.found
    assert [changed(one)["nvcc"] for one in found if "nvcc" in changed(one)] == ["13.0", "12.8"]
    [nearest] = [one for one in found if changed(one) == {"nvcc": "12.8"}]
    assert nearest.problems


def test_staying_with_an_older_vllm_keeps_what_the_new_flashinfer_lacks():
    found = planned("vllm=0.28.0", required=("quant.fp8",))
    assert "0.6.16.post3 has no" in found.required[0].why
    first, *others = found.search.found
    assert changed(first).keys() == {"vllm"}
    assert Version(changed(first)["vllm"]) > Version("0.28.0")
    assert first.overrides == ()
    [other] = [one for one in others if changed(one).keys() == {"flashinfer-python"}]
    assert other.overrides == ("vLLM 0.28.0 requires flashinfer-python==0.6.16.post3",)


def test_what_only_another_gpu_has_is_kept_by_no_version():
    found = planned("b200", required=("gemm.fp8_block_sm90",)).search
    assert [changed(one) for one in found.found] == [{"GPU": "2 x NVIDIA H200 (SM90)"}]
    assert not found.bound
    both = planned("b200", required=("gemm.fp8_block_sm90", "gemm.mxfp8")).search
    assert both.found == ()
    [why] = both.why_none
    assert why.startswith("gemm.fp8_block_sm90: ")
    assert "this is 100" in why


def test_nothing_is_looked_for_where_nothing_is_lost():
    assert planned("b200", required=("norm.rmsnorm",)).search is None
    assert planned("b200").search is None


def test_the_search_ends_and_says_where(monkeypatch):
    monkeypatch.setattr(searching, "MOST", 5)
    found = planned.__wrapped__("b200", required=("gemm.fp8_block_sm90", "gemm.mxfp8")).search
    assert (found.tried, found.bound) == (5, "it stopped after 5")


def test_releases_of_which_nothing_is_shipped_are_counted_and_not_tried(monkeypatch):
    every = planned("vllm=0.28.0", required=("quant.fp8",)).search.untold
    of_release = released.of_release
    monkeypatch.setattr(released, "of_release", lambda name, kind: None if "0.7" in name else of_release(name, kind))
    found = planned.__wrapped__("vllm=0.28.0", required=("quant.fp8",)).search
    assert found.untold > every
    assert not [one for one in found.found if changed(one).get("vllm") == "0.33.0"]


def test_what_a_move_costs_besides_is_told():
    found = planned("driver=570", required=("norm.rmsnorm",)).search
    older = [one for one in found.found if "vllm" in changed(one)]
    assert all("quant.fp8" in one.costs for one in older)
    assert all(one.costs == () for one in found.found if "driver" in changed(one))


def test_an_alternative_is_a_target_that_gives_what_it_says():
    found = planned("driver=570", required=("norm.rmsnorm",)).search
    for one in found.found:
        to = reading.target(one.words, needs_gpu=False)
        again = planning.plan(
            facts(), to, required=("norm.rmsnorm",), known=known(), words=("", one.words), is_here=False
        )
        assert [kept.holds for kept in again.required] == [Holds.YES]


def test_equal_searches_find_the_same():
    one = planned("driver=570", required=("norm.rmsnorm",))
    other = planned.__wrapped__("driver=570", required=("norm.rmsnorm",))
    assert replace(one, created="") == replace(other, created="")


def test_what_was_measured_to_fail_is_kept_only_where_a_mend_is_known():
    row = "activation.silu_and_mul"
    found = planned("driver=590", TWO_H200, required=(row,), is_recorded=True).search
    [mended] = [changed(one) for one in found.found if changed(one).keys() == {"flashinfer-python"}]
    assert Version(mended["flashinfer-python"]) >= Version("0.7.1")
    assert all("nvcc" not in changed(one) for one in found.found)
