"""What the rows ask SGLang to be told: by its own releases and calls, and nothing of vLLM's by the same name."""

from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import advice, called, matrix
from fi_doctor.knowledge import registry
from fi_doctor.model import ActionKind, Ending, Stage

KB = knowledge.load()
RELEASES = registry.releases("sglang")
FI, TRITON = "--attention-backend flashinfer", "--attention-backend triton"
CELLS = {
    "attention.prefill": ("fa2_d64", "fa2_d128", "fa2_d256", "fa3_d128"),
    "sampling.top_k_top_p": ("top_k_top_p", "joint", "successive_calls"),
    "ssm.mamba": ("f32_state", "graph_f32_state"),
}


def outcome(feature, sm, *, works=True, broken=()):
    """The probe of a feature, of which the variants work or not."""
    bad = CELLS[feature] if not works else broken
    cells = tuple(
        make.cell(
            *((Ending.SIGNALLED, Stage.BUILT) if name in bad else (Ending.RETURNED, Stage.VERIFIED)),
            name,
            detail="SIGSEGV" if name in bad else "",
        )
        for name in CELLS[feature]
    )
    return replace(make.outcome(feature, sm=sm, cells=cells), feature=feature)


def advised(packages, sm, *outcomes):
    facts = make.facts(packages=packages, gpus=make.gpu_facts(make.gpu(sm=sm)))
    rows = matrix.judge(KB, facts, (), outcomes, (), selected=tuple(one.feature for one in outcomes))
    return advice.advise(KB, facts, outcomes, rows, ())


@pytest.mark.parametrize(
    ("sm", "works", "release", "line"),
    [
        (90, True, "0.5.18", FI),
        (90, False, "0.5.18", ""),
        (120, True, "0.5.18", ""),
        (120, False, "0.5.18", TRITON),
        (89, False, "0.5.5.post3", TRITON),
        (90, True, "0.5.5.post3", ""),  # fa3 for some models, FlashInfer for others
        (90, True, "0.5.1.post3", ""),  # its FlashInfer is older than what is known
        (90, True, "0.6.0", ""),
    ],
)
def test_each_release_is_told_what_it_reads_for_its_gpu(sm, works, release, line):
    given = advised({"sglang": release}, sm, outcome("attention.prefill", sm, works=works))
    assert [one.line for one in given] == ([line] if line else [])
    assert all(one.holds.startswith("sglang >=0.4.3,") and f"SGLang {release}" in one.why for one in given)
    assert all(one.kind is ActionKind.FLAG and one.optional is works for one in given)


def test_the_cells_that_sglang_calls_decide_and_not_those_of_vllm():
    joint = outcome("sampling.top_k_top_p", 90, broken=("joint",))
    assert [one.line for one in advised({"sglang": "0.5.18"}, 90, joint)] == ["--sampling-backend pytorch"]
    others = outcome("sampling.top_k_top_p", 90, broken=("top_k_top_p",))
    assert advised({"sglang": "0.5.18"}, 90, others) == ()


def test_a_flag_of_one_server_is_not_given_to_the_other():
    given = advised({"vllm": "0.33.0"}, 90, outcome("attention.prefill", 90))
    assert [one.line for one in given] == ["--attention-backend FLASHINFER"]


def test_one_line_for_two_servers_is_said_for_each():
    given = advised({"vllm": "0.33.0", "sglang": "0.5.18"}, 90, outcome("ssm.mamba", 90))
    assert [one.line for one in given] == ["--mamba-backend flashinfer"] * 2
    assert sorted(one.holds.split()[0] for one in given) == ["sglang", "vllm"]


@pytest.mark.parametrize("release", RELEASES)
def test_of_each_release_something_is_known_from_0_5_5_on(release):
    server = called.Server("sglang", release)
    known = [feature.id for feature in KB.features if server.use_of(feature, 90) is not None]
    assert bool(known) is (release != "0.5.1.post3")
