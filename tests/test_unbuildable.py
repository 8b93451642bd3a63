"""What is expected on a machine that is not here where nothing can be compiled for it, or all of it was."""

from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.conditions import relations
from fi_doctor.knowledge import atlas
from fi_doctor.model import Depth, Ending, Request, Requires, Stage, Verdict
from fi_doctor.model.expected import Start
from fi_doctor.model.targets import Target
from fi_doctor.probing import plan

KB = knowledge.load()
SPEC = make.spec("norm.rmsnorm", module="norm", has_build=True)
STATIC = Request(depth=Depth.STATIC)


def report(facts, spec=SPEC, *, request=STATIC, outcomes=()):
    return pipeline.conclude(
        request,
        kb=KB,
        facts=facts,
        planned=plan.plan((spec,), facts, request),
        outcomes=outcomes,
        created="",
        target=Target(words="", sm=0),
        known=atlas.Atlas((), (), ()),
    )


def row_of(found, name="norm.rmsnorm"):
    return next(one for one in found.features if one.feature == name)


def expected_of(found):
    return next(one for one in found.expected.rows if one.feature == "norm.rmsnorm")


def without_compiler(**flashinfer):
    """A machine whose nvcc does not know its GPU."""
    nvcc = make.nvcc("12.4", architectures=("sm_80", "sm_90"))
    toolkit = make.toolkit("12.4", jit=make.jit("12.4", nvcc=nvcc, compiler=nvcc))
    package = make.flashinfer(architectures=("100a",), **flashinfer)
    return make.facts(gpus=make.gpu_facts(make.gpu(sm=100)), toolkit=toolkit, flashinfer=package)


def test_what_cannot_be_compiled_is_foretold_to_be_broken_and_not_to_compile():
    found = report(without_compiler())
    assert (row_of(found).verdict, row_of(found).why) == (Verdict.BROKEN, "predicted by nvcc-too-old-for-gpu")
    assert expected_of(found).start is Start.CANNOT
    assert (
        expected_of(found).why == "nvcc-too-old-for-gpu: nvcc 12.4 does not know the architecture to compile for: 100a"
    )


def of_gpu(architectures, **changes):
    package = make.flashinfer(architectures=architectures)
    return make.facts(gpus=make.gpu_facts(make.gpu()), flashinfer=package, **changes)


@pytest.mark.parametrize(
    ("facts", "cannot"),
    [
        (without_compiler(), ("norm.rmsnorm",)),
        (without_compiler(cached_modules=("norm",)), ()),
        (of_gpu(make.missing("nothing names one")), ("norm.rmsnorm",)),
        (of_gpu(("90a",), packages={"torch": make.missing("not installed")}), ("norm.rmsnorm",)),
        (of_gpu(("90a",)), ()),
    ],
    ids=["old-nvcc", "in-image", "no-architecture", "no-torch", "compiles"],
)
def test_a_first_start_tells_what_cannot_be_compiled_from_what_is_nothing_to_compile(facts, cannot):
    request = replace(STATIC, required=("norm.rmsnorm",))
    assert report(facts, request=request).expected.first_start.cannot == cannot


def of_other_gpus(name, **flashinfer):
    """A row whose probe is for other GPUs than the one whose nvcc is too old."""
    spec = make.spec(name, module="fused_moe_90", has_build=True, requires=Requires(sm="==90"))
    return row_of(report(without_compiler(**flashinfer), spec), name)


def test_a_row_that_no_probe_is_for_is_foretold_where_its_module_is_known():
    assert (of_other_gpus("moe.bf16").verdict, of_other_gpus("moe.bf16").why) == (
        Verdict.BROKEN,
        "predicted by nvcc-too-old-for-gpu",
    )
    assert row_of(report(without_compiler()), "moe.trtllm_bf16").verdict is Verdict.BROKEN


def test_it_is_not_where_its_module_is_there_or_not_known():
    assert of_other_gpus("moe.bf16", cached_modules=("fused_moe_100",)).verdict is not Verdict.BROKEN
    assert of_other_gpus("gemm.bf16").verdict is not Verdict.BROKEN


def test_what_takes_several_gpus_has_to_be_compiled_too():
    spec = make.spec("comm.all2all", module="comm", has_build=True, gpus=2)
    assert row_of(report(without_compiler(), spec), "comm.all2all").verdict is Verdict.BROKEN


@pytest.mark.parametrize(
    ("tag", "release", "knows"),
    [
        ("90a", "11.8", False),
        ("90a", "12.0", True),
        ("90", "11.8", True),
        ("120f", "12.8", False),
        ("120f", "12.9", True),
        ("100a", "12.8", True),
    ],
)
def test_an_nvcc_has_to_take_the_end_of_an_architecture_too(tag, release, knows):
    nvcc = make.nvcc(release, architectures=("sm_80", f"sm_{tag[:-1] if tag[-1].isalpha() else tag}"))
    toolkit = make.toolkit(release, jit=make.jit(release, nvcc=nvcc, compiler=nvcc))
    facts = make.facts(toolkit=toolkit, flashinfer=make.flashinfer(architectures=(tag,)))
    assert relations.architecture_unknown_to_nvcc(facts) == (() if knows else (tag,))


def test_what_is_in_the_image_needs_no_compiler():
    found = report(without_compiler(cached_modules=("norm",)))
    assert row_of(found).verdict is Verdict.UNKNOWN
    assert expected_of(found).start is Start.FROM_IMAGE


@pytest.mark.parametrize(
    ("sm", "said"), [(70, "predicted by gpus-older-than-flashinfer-takes"), (75, "it is for SM >=80, this is SM75")]
)
def test_that_no_probe_is_for_a_gpu_hides_no_word_of_a_rule(sm, said):
    spec = make.spec("rope.apply", module="rope", has_build=True, requires=Requires(sm=">=80"))
    facts = make.facts(gpus=make.gpu_facts(make.gpu(sm=sm)))
    assert row_of(report(facts, spec), "rope.apply").why == said


def test_what_another_compiler_may_serve_is_not_said_to_be_broken():
    spec = make.spec("norm.rmsnorm", module="norm", has_build=True, compiles=("nvcc", "cute-dsl"))
    found = report(without_compiler(), spec)
    assert (row_of(found).verdict, expected_of(found).start) == (Verdict.UNKNOWN, Start.UNKNOWN)
    assert "nvcc 12.4 does not know" in expected_of(found).why
    assert "the CuTe DSL" in expected_of(found).why
    assert "the CuTe DSL" not in expected_of(report(without_compiler())).why


@pytest.mark.parametrize(("cached", "verdict"), [((), Verdict.BROKEN), (("sinks",), Verdict.WRONG_RESULT)])
def test_what_cannot_be_compiled_gives_no_wrong_numbers(cached, verdict):
    """In the image there may be a module of before, which does give them."""
    variants = dict.fromkeys(("fa2_softcap_orders_d64", "fa2_d64"), Requires())
    spec = make.spec("attention.sinks", module="sinks", has_build=True, variants=variants)
    found = row_of(report(without_compiler(cached_modules=cached), spec), "attention.sinks")
    assert found.verdict is verdict
    assert found.cells[0].why == f"predicted by {'sinks-drop-soft-cap' if cached else 'nvcc-too-old-for-gpu'}"


@pytest.mark.parametrize(("is_fresh", "start"), [(False, Start.FROM_IMAGE), (True, Start.COMPILES)])
def test_what_was_just_compiled_starts_from_the_image_unless_its_cache_is_thrown_away(is_fresh, start):
    facts = make.facts(gpus=make.gpu_facts(make.gpu()))
    request = Request(depth=Depth.BUILD, fresh_cache=is_fresh)
    made = (make.outcome("norm.rmsnorm", Ending.RETURNED, Stage.BUILT),)
    one = expected_of(report(facts, request=request, outcomes=made))
    assert one.start is start
    assert bool(one.modules) is is_fresh
