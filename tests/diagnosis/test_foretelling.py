"""What rules say of cells that nobody tried, by releases and GPUs alone."""

from __future__ import annotations

import factory as make
import pytest

from fi_doctor import knowledge
from fi_doctor.diagnosis import foretelling
from fi_doctor.diagnosis.foretelling import Foreseen
from fi_doctor.model import Binaries, Binary, Ending, Stage, Verdict, selects

KB = knowledge.load()
FORETELLING = sorted(rule.id for rule in KB.rules if rule.foretells)
BROKEN, WRONG = Verdict.BROKEN, Verdict.WRONG_RESULT


def facts(version, sm=90, gpus=1, *, packages=None, **changes):
    found = tuple(make.gpu(sm=sm, index=number) for number in range(gpus))
    here = {"flashinfer-python": version, **(packages or {})}
    return make.facts(gpus=make.gpu_facts(*found), packages=here, **changes)


def torch_of(unit):
    """A torch with code for that architecture alone, on SM100."""
    path = f"{make.SITE}/torch/lib/libtorch_cuda.so"
    read = Binary(path=path, owner="torch", units={unit: 3}, ptx={}, needed=(), unresolved=())
    return facts("0.7.4", sm=100, binaries=Binaries(files=(read,), unread={}))


def moved_torch(cuda):
    """A torch of which no library was read, on SM100."""
    read = make.missing("it is of a move that was not made")
    return facts("0.7.4", sm=100, binaries=read, toolkit=make.toolkit(torch_cuda=cuda))


@pytest.mark.parametrize(
    ("rule", "cell", "verdict", "fires", "silent"),
    [
        ("act-and-mul-misaligned", ("activation.silu_and_mul", "bf16_d3420"), BROKEN, facts("0.7.0"), facts("0.7.1")),
        ("layernorm-ignores-strides", ("norm.layernorm", "spread_bf16"), WRONG, facts("0.7.2.post1"), facts("0.7.4")),
        (
            "block-quantisers-write-nothing-before-sm100",
            ("quant.mxfp8", "linear"),
            WRONG,
            facts("0.6.7.post3", sm=89),
            facts("0.6.7.post3", sm=100),
        ),
        (
            "fp4-quantisers-refuse-gpus-before-sm90",
            ("quant.fp4", "linear"),
            BROKEN,
            facts("0.6.7.post3", sm=89),
            facts("0.6.7.post3", sm=90),
        ),
        (
            "fp8-cache-takes-fa3-that-does-not-compile",
            ("attention.fp8_kv", "auto_bf16q_d128"),
            BROKEN,
            facts("0.6.4"),
            facts("0.6.7.post3"),
        ),
        (
            "two-empty-states-merge-to-nan",
            ("attention.cascade", "empty_merge_state"),
            WRONG,
            facts("0.5.3"),
            facts("0.7.2.post1"),
        ),
        ("mla-causal-tile-loses-own-key", ("attention.mla", "fa3_h40"), WRONG, facts("0.5.3"), facts("0.7.2.post1")),
        (
            "sinks-drop-soft-cap",
            ("attention.sinks", "fa2_softcap_orders_d64"),
            WRONG,
            facts("0.7.2.post1"),
            facts("0.7.4"),
        ),
        (
            "window-without-mask-loses-keys",
            ("attention.window", "fa2_noncausal_d128"),
            WRONG,
            facts("0.7.2.post1"),
            facts("0.7.4"),
        ),
        (
            "block-scale-gemm-clips-bf16-weight",
            ("gemm.fp8_block_sm90", "bf16_weight"),
            WRONG,
            facts("0.7.2.post1"),
            facts("0.6.4"),
        ),
        (
            "block-scale-gemm-misreads-scales",
            ("gemm.fp8_block_sm90", "fp8_input"),
            WRONG,
            facts("0.7.2.post1"),
            facts("0.6.4"),
        ),
        (
            "two-shot-allreduce-barrier-lets-through",
            ("comm.allreduce", "twoshot_bf16"),
            WRONG,
            facts("0.7.1", gpus=2),
            facts("0.7.1"),
        ),
        (
            "arch-list-misses-gpu",
            ("norm.rmsnorm", "bf16"),
            BROKEN,
            facts(
                "0.7.2.post1",
                flashinfer=make.flashinfer(architectures=("80",)),
                packages={"flashinfer-jit-cache": make.missing("not installed")},
            ),
            facts(
                "0.7.2.post1",
                flashinfer=make.flashinfer(architectures=("80",)),
                packages={"flashinfer-jit-cache": "0.7.2.post1"},
            ),
        ),
        (
            "flashinfer-requirement-not-installed",
            ("gemm.bmm_fp8", "auto_bf16"),
            BROKEN,
            facts(
                "0.6.7.post3",
                packages={
                    "flashinfer-python": make.package(
                        "flashinfer-python", "0.6.7.post3", requires=("nvidia-cudnn-frontend>=1.13.0",)
                    ),
                    "nvidia-cudnn-frontend": make.missing("not installed"),
                },
            ),
            facts("0.6.7.post3"),
        ),
        ("torch-binary-lacks-this-gpu", ("norm.rmsnorm", "bf16"), BROKEN, torch_of("sm_90"), torch_of("sm_100")),
        ("torch-cuda-older-than-gpu", ("norm.rmsnorm", "bf16"), BROKEN, moved_torch("12.6"), moved_torch("12.8")),
    ],
    ids=lambda value: value if isinstance(value, str) and "-" in value else "",
)
def test_a_rule_says_it_of_the_releases_and_gpus_that_have_the_fault(rule, cell, verdict, fires, silent):
    said = f"predicted by {rule}"
    words = tuple(word for word in foretelling.by_facts(KB, fires, ()) if word.why == said)
    assert foretelling.about(Foreseen(words), *cell).verdict is verdict
    assert said not in [word.why for word in foretelling.by_facts(KB, silent, ())]


def test_every_rule_that_foretells_has_its_example():
    [mark] = test_a_rule_says_it_of_the_releases_and_gpus_that_have_the_fault.pytestmark
    assert sorted(values[0] for values in mark.args[1]) == FORETELLING


def test_another_variant_of_the_row_is_not_meant():
    words = Foreseen(foretelling.by_facts(KB, facts("0.5.3"), ()))
    assert foretelling.about(words, "activation.silu_and_mul", "bf16_d3420") is not None
    assert foretelling.about(words, "activation.silu_and_mul", "bf16") is None
    assert foretelling.about(words, "activation.silu_and_mul", None) is None


@pytest.mark.parametrize(
    ("outcome", "is_silent"),
    [
        (make.outcome("activation.silu_and_mul"), True),
        (make.outcome("activation.silu_and_mul", ending=Ending.RAISED, stage=Stage.IMPORTED), True),
        (make.outcome("activation.silu_and_mul", stage=Stage.BUILT), False),
        (make.outcome("activation.silu_and_mul", ending=Ending.NOT_RUN, stage=Stage.NONE), False),
        (make.outcome("norm.rmsnorm"), False),
    ],
    ids=["ran", "failed", "built", "not-run", "another-row"],
)
def test_what_was_tried_is_not_foretold(outcome, is_silent):
    words = foretelling.by_facts(KB, facts("0.5.3"), (outcome,))
    about = [word for word in words if selects(word.features, "activation.silu_and_mul")]
    assert not about if is_silent else about
