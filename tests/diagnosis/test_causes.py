"""What can be the cause of another verdict: single facts that are changed, and recorded machines either way round."""

from __future__ import annotations

import functools
import itertools

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.conditions import View
from fi_doctor.diagnosis import changes, swaps
from fi_doctor.knowledge import examples
from fi_doctor.model import CauseKind, Depth, Ending, Request, Stage
from fi_doctor.probing import catalog
from fi_doctor.reports import document

KB, SPECS = knowledge.load(), catalog.discover()
RULES = {rule.id: rule for rule in KB.rules}
ROW = "norm.rmsnorm"


def report(facts, *, works=True, request=None, probes=(ROW,)):
    """A machine with these facts, on which the probes do what they should, or raise."""
    ended = () if works else (Ending.RAISED, Stage.BUILT)
    outcomes = tuple(make.outcome(probe, *ended, detail="" if works else "it fails") for probe in probes)
    planned = tuple(make.planned(outcome.probe) for outcome in outcomes)
    request = request or Request(depth=Depth.RUN)
    return pipeline.conclude(request, kb=KB, facts=facts, planned=planned, outcomes=outcomes, created="2026-11-28")


def difference(before, after):
    return changes.difference(before, after, kb=KB, specs=SPECS)


def causes_of(feature, found):
    [row] = [row for row in found.rows if row.feature == feature]
    return row.causes


def named(cause):
    return (cause.kind.value, cause.name)


@pytest.mark.parametrize(
    ("changed", "cause", "fact"),
    [
        (
            {"toolkit": make.toolkit(jit=replace(make.jit(), nvcc=make.nvcc("13.1", "/usr/local/cuda-13.0")))},
            ("nvcc", "nvcc"),
            ("toolkit.jit.nvcc.version", "13.0", "13.1"),
        ),
        (
            {"toolkit": make.toolkit(gate_version="13.1")},
            ("nvcc", "nvcc"),
            ("toolkit.gate_version", "13.0", "13.1"),
        ),
        (
            {"toolkit": make.toolkit(host_compiler_version="14.2.0")},
            ("build tool", "build tools"),
            ("toolkit.host_compiler_version", "13.3.0", "14.2.0"),
        ),
        (
            {"packages": {"flashinfer-python": "0.7.3"}},
            ("flashinfer", "flashinfer-python"),
            ("packages.flashinfer-python.version", "0.7.2.post1", "0.7.3"),
        ),
        (
            {"packages": {"torch": "2.14.1+cu130"}},
            ("package", "torch"),
            ("packages.torch.version", "2.14.0+cu130", "2.14.1+cu130"),
        ),
        (
            {"packages": {"triton": "3.6.0"}},
            ("other", "triton"),
            ("packages.triton.version", "not there", "3.6.0"),
        ),
        (
            {"gpus": make.gpu_facts(driver="581.1.0")},
            ("driver", "driver"),
            ("gpus.driver.version", "580.159.04", "581.1.0"),
        ),
        (
            {"gpus": make.gpu_facts(make.gpu(name="NVIDIA H100"))},
            ("gpu", "gpu"),
            ("gpus.name", "NVIDIA H200", "NVIDIA H100"),
        ),
        (
            {"environment": {"CUDA_HOME": "/usr/local/cuda-13.0"}},
            ("variable", "CUDA_HOME"),
            ("environment.CUDA_HOME", "not there", "/usr/local/cuda-13.0"),
        ),
        (
            {"libraries": {"cudart": make.library("cudart", "13.0.97"), "cublas": make.library("cublas", "13.1.0.3")}},
            ("library", "cudart"),
            ("libraries.cudart.version", "13.0.96", "13.0.97"),
        ),
        (
            {"flashinfer": make.flashinfer(cache_writable=False)},
            ("cache", "caches"),
            ("flashinfer.cache_writable", "True", "False"),
        ),
    ],
    ids=[
        "nvcc",
        "gate",
        "host-compiler",
        "flashinfer",
        "torch",
        "other-package",
        "driver",
        "gpu",
        "variable",
        "library",
        "cache",
    ],
)
def test_a_single_fact_that_differs_is_named(changed, cause, fact):
    found = difference(report(make.facts()), report(make.facts(**changed), works=False))
    plain = [one for one in causes_of(ROW, found) if one.kind is not CauseKind.FINDING]
    assert named(plain[0]) == cause
    assert fact in {(one.name, one.before, one.after) for one in plain[0].facts}


@pytest.mark.parametrize(
    "changed",
    [
        {"environment": {"NCCL_DEBUG": "INFO"}},
        {"system": replace(make.facts().system, kernel="6.9.0")},
        {"interpreter": replace(make.facts().interpreter, prefix="/other")},
        {"toolkit": make.toolkit(others=(make.nvcc("12.6"),))},
        {
            "libraries": {
                "cudart": make.library("cudart", "13.0.96", path="/x"),
                "cublas": make.library("cublas", "13.1.0.3"),
            }
        },
    ],
    ids=["variable-that-nobody-reads", "kernel", "prefix", "nvcc-that-is-not-taken", "path-of-a-library"],
)
def test_what_a_row_cannot_rest_on_is_told_among_the_facts_alone(changed):
    found = difference(report(make.facts()), report(make.facts(**changed), works=False))
    assert found.facts
    assert [cause for cause in causes_of(ROW, found) if cause.kind is not CauseKind.FINDING] == []


def test_where_nothing_differs_there_is_no_cause_beside_what_was_measured():
    found = difference(report(make.facts()), report(make.facts(), works=False))
    assert (found.facts, causes_of(ROW, found)) == ((), ())


def test_the_fewest_and_closest_come_first():
    toolkit = make.toolkit("12.6", jit=make.jit("12.6", home="/opt/cuda-12.6"))
    after = make.facts(
        toolkit=toolkit,
        packages={"torch": "2.14.1+cu130", "triton": "3.6.0"},
        environment={"CUDA_HOME": "/opt/cuda-12.6"},
        gpus=make.gpu_facts(driver="581.1.0"),
    )
    found = difference(
        report(make.facts(), probes=("moe.fp8_block",)), report(after, works=False, probes=("moe.fp8_block",))
    )
    order = [named(cause) for cause in causes_of("moe.fp8_block", found)]
    assert order[:6] == [
        ("finding", "fp8-block-moe-refused-below-cuda-12-8"),
        ("nvcc", "nvcc"),
        ("package", "torch"),
        ("driver", "driver"),
        ("variable", "CUDA_HOME"),
        ("other", "triton"),
    ]


def test_a_finding_has_the_facts_that_turn_its_rule_and_no_others():
    old = make.facts(
        packages={"flashinfer-python": "0.5.3", "vllm": "0.14.1"},
        flashinfer=make.flashinfer("0.5.3"),
        environment={"A": "1"},
    )
    probes = ("sampling.top_k_top_p",)
    found = difference(report(old, works=False, probes=probes), report(make.facts(), probes=probes))
    [first] = [c for c in causes_of("sampling.top_k_top_p", found) if c.name == "sampler-repeats-random-numbers"]
    assert first == causes_of("sampling.top_k_top_p", found)[0]
    assert first.said == "is gone"
    assert [fact.name for fact in first.facts] == ["packages.flashinfer-python.version"]


def test_facts_that_turn_a_rule_only_together_are_found_from_the_other_side():
    before = make.facts(toolkit=make.toolkit("12.6", jit=make.jit("12.6"), torch_cuda="13.0"))
    after = make.facts(toolkit=make.toolkit("14.1", jit=make.jit("14.1"), torch_cuda="14.0"))
    when = RULES["nvcc-major-differs-from-torch"].when
    places = swaps.decisive(when, View(before), View(after), swaps.swaps(before, after))
    assert places == (("toolkit", "jit", "nvcc", "version"), ("toolkit", "torch_cuda"))


def test_a_swap_puts_one_difference_on_the_other_side():
    before = make.facts(environment={"A": "1", "B": "2"})
    after = make.facts(environment={"A": "1", "C": "3"}, packages={"vllm": "0.33.0"})
    found = {swap.place: swap for swap in swaps.swaps(before, after)}
    assert set(found) == {("environment", "B"), ("environment", "C"), ("packages", "vllm")}
    assert found["environment", "B"].before.environment == {"A": "1"}
    assert found["environment", "B"].after.environment == {"A": "1", "C": "3", "B": "2"}
    assert found["packages", "vllm"].before == replace(before, packages=after.packages)


def test_a_row_of_another_gpu_is_compared_with_that_of_the_first_and_rests_on_the_gpu():
    def on(sm, *, works):
        done = report(make.facts(gpus=make.gpu_facts(make.gpu(sm=sm))), works=works)
        rows = tuple(replace(row, sm=sm) for row in done.features if row.feature == ROW)
        return replace(done, features=rows)

    assert difference(on(90, works=True), on(100, works=True)).rows == ()
    [row] = difference(on(90, works=True), on(100, works=False)).rows
    assert row.sms == (90, 100)
    [gpu] = [cause for cause in row.causes if cause.kind is CauseKind.GPU]
    assert (gpu.facts[0].name, gpu.facts[0].before, gpu.facts[0].after) == ("gpus.sm", "90", "100")


def test_where_one_side_has_two_gpus_of_two_kinds_no_row_is_taken_for_another():
    done = report(make.facts())
    [row] = [row for row in done.features if row.feature == ROW]
    one, two = replace(done, features=(row,)), replace(done, features=(replace(row, sm=100), replace(row, sm=120)))
    found = difference(one, two)
    assert [change.sms for change in found.rows] == [(row.sm, None), (None, 100), (None, 120)]
    assert found.rows_compared == 3


def test_the_row_of_an_import_does_not_rest_on_what_compiles():
    toolkit = make.toolkit("12.9", ninja="/opt/ninja")
    before, after = (
        report(facts, works=works, probes=("import.torch",))
        for facts, works in ((make.facts(), True), (make.facts(toolkit=toolkit), False))
    )
    assert causes_of("import.torch", difference(before, after)) == ()


def test_what_was_asked_for_is_a_cause():
    shallow = report(make.facts(), request=Request(depth=Depth.BUILD, jobs=4), works=False)
    found = difference(report(make.facts()), shallow)
    assert [(fact.name, fact.before, fact.after) for fact in found.request] == [
        ("request.depth", "run", "build"),
        ("request.jobs", "0", "4"),
    ]
    [cause] = causes_of(ROW, found)
    assert (cause.kind, [fact.name for fact in cause.facts]) == (CauseKind.REQUEST, ["request.depth"])


def test_a_finding_that_rests_on_what_was_measured_has_no_facts_and_comes_last():
    probes, facts = ("attention.sinks",), make.facts(packages={"vllm": "0.33.0"})
    before = report(facts, works=False, probes=probes)
    gone = replace(before.findings[0], id="toolkit-lacks-headers", features=probes)  # its rule does not read the change
    before = replace(before, findings=(gone,))
    after = report(make.facts(packages={"vllm": "0.32.0"}), probes=probes)
    *others, last = causes_of("attention.sinks", difference(before, after))
    assert (last.name, last.said, last.facts) == ("toolkit-lacks-headers", "is gone", ())
    assert ("package", "vllm") in map(named, others)


def test_time_jobs_and_memory_count_where_something_is_unknown_and_after_what_compiles_it():
    facts, request = make.facts(toolkit=make.toolkit(gate_version="13.1")), Request(depth=Depth.RUN, jobs=4)
    found = difference(report(make.facts()), report(facts, request=request, probes=()))
    kinds = [cause.kind for cause in causes_of(ROW, found) if cause.kind is not CauseKind.FINDING]
    assert kinds == [CauseKind.NVCC, CauseKind.BUDGET]
    failed = difference(report(make.facts()), report(facts, request=request, works=False))
    assert CauseKind.BUDGET not in {cause.kind for cause in causes_of(ROW, failed)}


def test_flashinfer_itself_comes_before_what_compiles_it():
    gone = make.facts(
        packages={"flashinfer-python": make.absent("not installed")},
        flashinfer=make.absent("not installed"),
        toolkit=make.toolkit(gate_version="13.1"),
    )
    causes = causes_of(ROW, difference(report(make.facts()), report(gone, probes=())))
    assert [named(cause) for cause in causes][:2] == [("flashinfer", "flashinfer-python"), ("nvcc", "nvcc")]
    assert (causes[0].facts[0].before, causes[0].facts[0].after) == ("0.7.2.post1", "not there")


def test_a_list_that_only_one_side_has_is_all_new():
    path = replace(make.facts().interpreter, sys_path=())
    bare = make.facts(interpreter=path, flashinfer=make.missing("not installed"))
    found = difference(report(bare), report(make.facts()))
    told = {fact.name: fact for fact in found.facts}
    assert (told["flashinfer.architectures"].before, told["flashinfer.architectures"].new) == ("not there", ("90a",))
    assert told["interpreter.sys_path"].new == (make.SITE,)


def test_a_list_says_what_is_gone_and_what_is_new():
    modules = tuple(f"module_{number}" for number in range(50))
    old = make.facts(flashinfer=make.flashinfer(cached_modules=(*modules, "norm")))
    new = make.facts(flashinfer=make.flashinfer(cached_modules=(*modules, "page", "rope")))
    [fact] = difference(report(old), report(new)).facts
    assert (fact.name, fact.gone, fact.new) == ("flashinfer.cached_modules", ("norm",), ("page", "rope"))
    assert (fact.before, fact.after) == ("51 in the list", "52 in the list")


def test_a_list_in_another_order_is_told_as_it_is():
    old, new = (replace(make.facts().interpreter, sys_path=path) for path in (("/a", "/b"), ("/b", "/a")))
    [fact] = difference(report(make.facts(interpreter=old)), report(make.facts(interpreter=new))).facts
    assert (fact.before, fact.after, fact.gone, fact.new) == ("/a, /b", "/b, /a", (), ())


@pytest.fixture(scope="module")
def recorded():
    reports = {name: document.read(examples.data(name), name) for name in examples.names()}
    return {name: pipeline.rejudge(one, one.request, kb=KB, specs=SPECS) for name, one in reports.items()}


@pytest.fixture(scope="module")
def told(recorded):
    """told(one, other): what differs between two recorded machines."""
    return functools.cache(lambda one, other: difference(recorded[one], recorded[other]))


def exchanged(found):
    """The same difference told the other way round."""

    def fact(one):
        return replace(one, before=one.after, after=one.before, gone=one.new, new=one.gone)

    def cause(one):
        said = {"is gone": "is new", "is new": "is gone"}.get(one.said, one.said)
        return replace(one, said=said, facts=tuple(map(fact, one.facts)))

    def row(one):
        pairs = {name: getattr(one, name)[::-1] for name in ("sms", "verdicts", "evidence", "scope", "why")}
        return replace(one, **pairs, causes=tuple(map(cause, one.causes)))

    return replace(
        found,
        rows=tuple(map(row, found.rows)),
        facts=tuple(map(fact, found.facts)),
        request=tuple(map(fact, found.request)),
        findings_gone=found.findings_new,
        findings_new=found.findings_gone,
    )


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(examples.names(), 2)))
def test_the_other_way_round_it_says_the_same_exchanged(one, other, told):
    forth, back = told(one, other), told(other, one)
    assert forth.facts
    assert back == exchanged(forth)


def test_every_finding_of_a_rule_that_reads_facts_has_some_that_turn_it(told):
    turned = set()
    for one, other in itertools.permutations(examples.names(), 2):
        for row in told(one, other).rows:
            for cause in row.causes:
                if cause.kind is CauseKind.FINDING and "outcome" not in str(RULES[cause.name].when):
                    assert cause.facts or reads_outcomes(cause.name), (one, other, cause.name)
                    turned.add(cause.name)
    assert {"fp8-block-moe-refused-below-cuda-12-8", "sampler-repeats-random-numbers"} <= turned


def reads_outcomes(rule):
    words = str(RULES[rule].when)
    subjects = ("not_compiled", "header_not_found", "library_not_found", "python_module_not_found")
    return any(word in words for word in subjects)
