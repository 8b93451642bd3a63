"""The words of how GPUs and processes reach each other: what is in them, and what makes no difference."""

import factory as make
import pytest
from factory import link

from fi_doctor.locking.model import ABSENT
from fi_doctor.locking.needs import gpus
from fi_doctor.locking.peers import between, tracing
from fi_doctor.model import Requires


def facts(*links, count=2, **changes):
    gpus = [make.gpu(index=index, **changes) for index in range(count)]
    return make.facts(gpus=make.gpu_facts(*gpus, links=tuple(links)))


def test_a_pair_and_what_lies_above_its_gpus_is_said():
    of = facts(link(0, 1), nvlinks=(True, True, False), iommu="identity", acs_bridges=("0000:3a:00.0",))
    above = "2 of 3 NVLinks, IOMMU identity, ACS at 1"
    assert between(of, "sm90", 2) == f"0-1 NVLink, SYS, read ok, write ok; 0: {above}; 1: {above}"
    assert between(facts(), "sm90", 2) == "0-1 ?; 0: ? NVLinks, IOMMU ?, ACS at ?; 1: ? NVLinks, IOMMU ?, ACS at ?"


@pytest.mark.parametrize(
    "changes",
    [{"nvlink": False}, {"nvlink": make.missing()}, {"pcie": "PIX"}, {"read": "not supported"}, {"write": "no"}],
    ids=lambda one: next(iter(one)),
)
def test_every_fact_of_a_pair_makes_a_difference(changes):
    assert between(facts(link(0, 1, **changes)), "sm90", 2) != between(facts(link(0, 1)), "sm90", 2)


def test_pairs_are_numbered_by_their_place_and_those_behind_the_last_do_not_count():
    whole = facts(link(0, 1), link(0, 2, nvlink=False), link(1, 2, nvlink=False), count=3)
    assert between(whole, "sm90", 2) == between(facts(link(0, 1)), "sm90", 2)
    assert between(whole, "sm90", 8).count("no NVLink") == 2
    elsewhere = [make.gpu(index=index, visible=index > 0) for index in range(3)]
    moved = make.facts(gpus=make.gpu_facts(*elsewhere, links=(link(1, 2), link(0, 1, nvlink=False))))
    assert between(moved, "sm90", 2) == between(facts(link(0, 1)), "sm90", 2)


def test_ranks_that_some_variants_need_are_looked_at_where_there_are_as_many():
    spec = make.spec(gpus=2, most_gpus=4, variants={"pair": Requires(), "four": Requires(gpus=4)})
    assert [one for one in gpus(90, [spec]) if one.startswith("peers")] == ["peers:sm90:2", "peers:sm90:4+"]
    assert between(facts(count=3), "sm90", 4, least=4) == ABSENT
    four, cut = facts(link(2, 3), count=4), facts(link(2, 3, nvlink=False), count=4)
    assert between(four, "sm90", 4, least=4) != between(cut, "sm90", 4, least=4)
    assert [spec.takes(seen) for seen in (2, 3, 4, 8)] == [2, 2, 4, 4]


def test_one_gpu_of_a_kind_has_no_peers():
    assert between(facts(count=1), "sm90", 2) == between(facts(link(0, 1)), "sm100", 2) == ABSENT


@pytest.mark.parametrize(
    ("scope", "status", "said"),
    [
        ("1\n", "CapEff:\t00000000a80425fb\nSeccomp:\t2\n", "ptrace_scope 1, SYS_PTRACE no, seccomp 2"),
        ("0\n", "CapEff:\t000001ffffffffff\nSeccomp:\t0\n", "ptrace_scope 0, SYS_PTRACE yes, seccomp 0"),
        (None, "Name:\tpython\n", "ptrace_scope ?, SYS_PTRACE ?, seccomp ?"),
    ],
    ids=["container", "root", "not-told"],
)
def test_whether_a_process_may_look_into_another_is_read_from_proc(tmp_path, scope, status, said):
    for name, text in (("proc/sys/kernel/yama/ptrace_scope", scope), ("proc/self/status", status)):
        if text is not None:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    assert tracing(tmp_path) == said
