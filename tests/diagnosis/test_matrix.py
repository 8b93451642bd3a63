from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings, matrix
from fi_doctor.diagnosis.cells import as_recorded
from fi_doctor.locking.judging import stripped
from fi_doctor.model import Admission, Depth, Ending, Evidence, Feature, Missing, Requires, Scope, Stage, Verdict

KB = knowledge.load()
NOTHING = ("unknown", "none")
VARIANTS = {"bf16": Requires(), "fp16": Requires()}


def judge(facts=None, planned=(), outcomes=(), **options):
    facts = facts or make.facts()
    return matrix.judge(
        KB, facts, tuple(planned), tuple(outcomes), findings.find(KB, facts, tuple(outcomes)), **options
    )


def only(feature="norm.rmsnorm", **inputs):
    [row] = judge(**inputs, selected=(feature,))
    return row


AGREES = "numbers agree with the reference"
UNCOMPARED = "it ran here; its probe names nothing that it compared"
REFUSES = "the call is refused: no such size"


def verdict(row):
    return (row.verdict.value, row.evidence.value)


@pytest.mark.parametrize(
    ("ending", "stage", "expected"),
    [
        (Ending.RETURNED, Stage.VERIFIED, ("works", "verified")),
        (Ending.RETURNED, Stage.RAN, ("works", "ran")),
        (Ending.RETURNED, Stage.BUILT, ("unknown", "built")),
        (Ending.WRONG, Stage.RAN, ("wrong-result", "verified")),
        (Ending.RAISED, Stage.NONE, ("broken", "ran")),
        (Ending.RAISED, Stage.IMPORTED, ("broken", "built")),
        (Ending.RAISED, Stage.BUILT, ("broken", "ran")),
        (Ending.SIGNALLED, Stage.IMPORTED, ("broken", "built")),
        (Ending.SIGNALLED, Stage.BUILT, ("broken", "ran")),
        (Ending.EXITED, Stage.BUILT, ("broken", "ran")),
        (Ending.TIMED_OUT, Stage.BUILT, ("broken", "ran")),
        (Ending.TIMED_OUT, Stage.IMPORTED, ("unknown", "declared")),
        (Ending.TIMED_OUT, Stage.NONE, ("unknown", "declared")),
        (Ending.LOST, Stage.BUILT, ("unknown", "declared")),
        (Ending.NOT_RUN, Stage.NONE, ("unknown", "declared")),
    ],
    ids=lambda value: value.value if hasattr(value, "value") else "-".join(value),
)
def test_an_ending_at_a_stage_gives_its_verdict(ending, stage, expected):
    row = only(planned=[make.planned()], outcomes=[make.outcome(ending=ending, stage=stage, detail="what was said")])
    assert verdict(row) == expected


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        ({"elements": 64}, ("works", "verified", AGREES)),
        ({"elements": 0, "scales": 64}, ("works", "verified", AGREES)),
        ({}, ("works", "ran", UNCOMPARED)),
        ({"elements": 0}, ("works", "ran", UNCOMPARED)),
        ({"elements": True, "rows": "64", "seconds": 2.5}, ("works", "ran", UNCOMPARED)),
        ({"answer": "refused", "refusal": "no such size", "elements": 0}, ("unsupported", "declared", REFUSES)),
        ({"answer": "refused: no such size"}, ("unsupported", "declared", REFUSES)),
        (
            {"answer": "right where not refused: 1 of 2", "refusal": "no such size", "elements": 64},
            ("works", "verified", "numbers agree with the reference where the call is not refused: no such size"),
        ),
        ({"answer": "right where not refused: 1 of 2", "elements": 64}, ("works", "verified", AGREES)),
    ],
    ids=["compared", "scales", "no-measurements", "no-elements", "no-count", "refused", "said", "in-part", "right"],
)
def test_verified_rests_on_a_count_of_what_was_compared(measured, told):
    outcome = make.outcome(cells=(make.cell(measurements=measured),))
    row = only(planned=[make.planned()], outcomes=[outcome])
    assert (*verdict(row), row.why) == told
    locked = only(planned=[make.planned()], outcomes=[stripped(outcome)])
    assert (*verdict(locked), locked.why) == told


def test_the_row_says_the_deciding_line_of_a_failure():
    outcome = make.outcome(
        ending=Ending.RAISED, stage=Stage.BUILT, detail="no kernel image", error="torch.AcceleratorError"
    )
    assert only(planned=[make.planned()], outcomes=[outcome]).why == "AcceleratorError: no kernel image"


def test_a_timeout_of_a_run_without_a_build_is_a_hang():
    of = make.spec("import.torch")
    outcome = make.outcome("import.torch", Ending.TIMED_OUT, Stage.IMPORTED, sm=make.missing())
    row = only("import.torch", planned=[make.planned("import.torch", spec=of, sm=make.missing())], outcomes=[outcome])
    assert verdict(row) == ("broken", "ran")


def test_an_import_that_returned_works_and_nothing_is_compared():
    outcome = make.outcome("import.torch", stage=Stage.RAN, sm=make.missing("this probe needs no GPU"))
    row = only("import.torch", outcomes=[outcome])
    assert verdict(row) == ("works", "ran")
    assert not row.needs_gpu


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ((("verified", "returned"), ("verified", "returned")), ("works", "verified")),
        ((("verified", "returned"), ("ran", "returned")), ("works", "ran")),
        ((("verified", "returned"), ("built", "raised")), ("broken", "ran")),
        ((("built", "raised"), ("ran", "wrong-result")), ("wrong-result", "verified")),
        ((("verified", "returned"), ("none", "not-run")), ("unknown", "declared")),
        ((("none", "not-run"), ("built", "raised")), ("broken", "ran")),
        ((("verified", "returned"), ("built", "returned")), ("unknown", "built")),
    ],
    ids=str,
)
def test_a_row_is_as_bad_as_its_worst_variant_and_as_sure_as_its_weakest(cells, expected):
    made = tuple(make.cell(Ending(end), Stage(stage), name) for name, (stage, end) in zip(VARIANTS, cells, strict=True))
    plan = make.planned(spec=make.spec(variants=VARIANTS))
    assert verdict(only(planned=[plan], outcomes=[make.outcome(cells=made)])) == expected


@pytest.mark.parametrize(
    ("source", "scope"), [("subset", Scope.SUBSET), ("built, subset", Scope.SUBSET), ("cache", Scope.FULL)]
)
def test_one_module_in_part_makes_the_scope_a_part(source, scope):
    cell = make.cell(module_from=source)
    row = only(planned=[make.planned()], outcomes=[make.outcome(cells=(cell,))])
    assert (row.scope, row.cells[0].scope) == (scope, scope)


@pytest.mark.parametrize(("told", "said"), [("0 and 0", ": tactic 0"), ("0 and 45", ": tactics 0 and 45"), ("", "")])
def test_a_tactic_of_a_part_is_named_once(told, said):
    cell = make.cell(module_from="subset", measurements={"tactics": told} if told else {})
    [row] = [only(planned=[make.planned()], outcomes=[make.outcome(cells=(cell,))])]
    assert row.cells[0].why.endswith(f"only a part of the module was compiled{said}")


def test_a_variant_that_is_not_supported_here_does_not_decide_against_the_others():
    variants = {"bf16": Requires(), "fp8": Requires(sm=">=100")}
    plan = make.planned(spec=make.spec(variants=variants), skipped_variants={"fp8": "needs compute capability >=100"})
    row = only(planned=[plan], outcomes=[make.outcome(cells=(make.cell(variant="bf16"),))])
    assert verdict(row) == ("works", "verified")
    assert [(cell.variant, cell.verdict.value, cell.evidence.value) for cell in row.cells] == [
        ("bf16", "works", "verified"),
        ("fp8", "unsupported", "declared"),
    ]
    assert row.cells[1].why == "it is for SM >=100, this is SM90"


def test_a_variant_for_more_gpus_than_there_are_does_not_decide_and_says_so():
    spec = make.spec(variants={"two": Requires(), "four": Requires(gpus=4)})
    why = "needs 4 GPUs of one kind, 2 seen"
    not_run = make.cell(Ending.NOT_RUN, Stage.NONE, "four", detail=why)
    cells = (make.cell(variant="two"), not_run)
    row = only(planned=[make.planned(spec=spec, skipped_variants={"four": why})], outcomes=[make.outcome(cells=cells)])
    assert verdict(row) == ("works", "verified")
    assert (row.cells[1].verdict.value, row.cells[1].why) == ("unknown", why)
    # Where there are as many, one that was not reached decides.
    assert verdict(only(planned=[make.planned(spec=spec)], outcomes=[make.outcome(cells=cells)]))[0] == "unknown"


def test_the_reason_names_the_variants_that_it_is_true_of():
    made = (make.cell(variant="bf16"), make.cell(Ending.SIGNALLED, Stage.BUILT, "fp16", detail="SIGSEGV"))
    plan = make.planned(spec=make.spec(variants=VARIANTS))
    assert only(planned=[plan], outcomes=[make.outcome(cells=made)]).why == "fp16: SIGSEGV"


def test_a_variant_without_a_record_is_unknown_when_others_have_one():
    plan = make.planned(spec=make.spec(variants=VARIANTS))
    row = only(planned=[plan], outcomes=[make.outcome(cells=(make.cell(Ending.SIGNALLED, Stage.BUILT, "bf16"),))])
    assert [cell.verdict for cell in row.cells] == [Verdict.BROKEN, Verdict.UNKNOWN]


def test_a_variant_that_the_probe_did_not_have_when_it_ran_takes_no_verdict_from_the_row():
    plan = make.planned(spec=make.spec(variants={**VARIANTS, "graph_bf16": Requires()}))
    ran = make.outcome(cells=(make.cell(variant="bf16"), make.cell(variant="fp16")))
    row = only(planned=[plan], outcomes=[ran])
    assert verdict(row) == ("works", "verified")
    assert (row.cells[2].verdict, row.cells[2].evidence) == (Verdict.UNKNOWN, Evidence.NONE)
    assert "had no such variant when it ran" in row.cells[2].why
    not_run = make.cell(Ending.NOT_RUN, Stage.NONE, "graph_bf16", detail="budget of 60 s")
    cut_off = make.outcome(cells=(*ran.cells, not_run))
    assert only(planned=[plan], outcomes=[cut_off]).verdict is Verdict.UNKNOWN


def test_a_probe_that_a_record_knows_nothing_of_takes_no_verdict_from_its_row():
    ours, theirs = make.planned(), make.planned(spec=make.spec("mine.rmsnorm", feature="norm.rmsnorm"))
    ran = (make.outcome(),)
    row = only(planned=as_recorded((ours, theirs), ran), outcomes=ran)
    assert verdict(row) == ("works", "verified")
    [cell] = [cell for cell in row.cells if cell.probe == "mine.rmsnorm"]
    assert (cell.verdict, cell.why) == (Verdict.UNKNOWN, "not in this report")
    # Of a row that rests on nothing else it is the reason.
    assert "not in this report" in only(planned=as_recorded((theirs,), ran)).why


@pytest.mark.parametrize(("evidence", "scope"), [(Evidence.RAN, Scope.FULL), (Evidence.VERIFIED, Scope.SUBSET)])
def test_the_reason_of_what_works_is_that_of_the_variant_known_least_well(evidence, scope):
    stage = Stage.RAN if evidence is Evidence.RAN else Stage.VERIFIED
    least = make.cell(stage=stage, variant="fp16", module_from="subset" if scope is Scope.SUBSET else "cache")
    plan = make.planned(spec=make.spec(variants=VARIANTS))
    row = only(planned=[plan], outcomes=[make.outcome(cells=(make.cell(variant="bf16"), least))])
    assert (row.evidence, row.scope) == (evidence, scope)
    assert row.why.startswith("fp16: ")


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        (Requires(flashinfer=">=0.8"), "it needs flashinfer-python >=0.8, here it is 0.7.2.post1"),
        (Requires(nvcc=">=13.1"), "it needs the CUDA version that FlashInfer's gates read >=13.1, here it is 13.0"),
        (Requires(packages={"torch": ">=3"}), "it needs torch >=3, here it is 2.14.0+cu130"),
    ],
    ids=["flashinfer", "nvcc", "package-old"],
)
def test_a_need_that_is_surely_not_met_makes_the_row_unsupported(needs, why):
    row = only(planned=[make.planned(spec=make.spec(requires=needs), skip="needs something else")])
    assert (*verdict(row), row.why) == ("unsupported", "declared", why)


def test_that_our_probe_is_for_other_gpus_does_not_make_the_row_unsupported():
    spec = make.spec(requires=Requires(sm=">=100"))
    row = only(planned=[make.planned(spec=spec, skip="needs compute capability >=100")])
    assert verdict(row) == ("unknown", "declared")
    assert row.why == "offered (flashinfer/norm/__init__.py:642), nothing here runs it on SM90"
    assert [(cell.verdict.value, cell.why) for cell in row.cells] == [
        ("unsupported", "it is for SM >=100, this is SM90")
    ]


def test_a_missing_entry_point_is_unsupported_with_the_place_that_says_so():
    gone = make.absent("norm/__init__.py defines no rmsnorm")
    fi = make.flashinfer(symbols={**make.SYMBOLS, "flashinfer.norm.rmsnorm": gone})
    row = only(facts=make.facts(flashinfer=fi), planned=[make.planned(skip="no such name")])
    assert verdict(row) == ("unsupported", "declared")
    assert row.why == "flashinfer.norm.rmsnorm: norm/__init__.py defines no rmsnorm"


REFUSED = make.flashinfer(
    admissions={
        "flashinfer.norm.rmsnorm": (
            Admission(source="norm/__init__.py:12", admits=(100, 103), refuses=(75, 80)),
            Admission(source="norm/__init__.py:640", admits=(100, 103), refuses=(90,)),
        )
    }
)


def test_what_the_source_refuses_on_this_gpu_is_unsupported_with_the_place_that_says_so():
    row = only(facts=make.facts(flashinfer=REFUSED), planned=[make.planned(skip="not asked for")])
    assert verdict(row) == ("unsupported", "declared")
    assert row.why == "flashinfer/norm/__init__.py:640 admits compute capability 100, 103; this is 90"


def test_what_ran_here_is_judged_whatever_the_source_is_read_to_say():
    row = only(facts=make.facts(flashinfer=REFUSED), planned=[make.planned()], outcomes=[make.outcome()])
    assert verdict(row) == ("works", "verified")


@pytest.mark.parametrize(
    ("symbols", "why"),
    [
        (
            ("flashinfer.norm.rmsnorm",),
            "flashinfer/norm/__init__.py:640 admits compute capability 100, 103; this is 90",
        ),
        (("flashinfer.norm.rmsnorm", "flashinfer.norm.other"), "it is for SM >=100, this is SM90"),
        ((), "it is for SM >=100, this is SM90"),
    ],
    ids=["all-refused", "one-of-two", "none"],
)
def test_a_variant_for_other_gpus_cites_the_source_where_that_refuses_every_name_it_needs(symbols, why):
    needs = Requires(sm=">=100", symbols=symbols)
    plan = make.planned(spec=make.spec(variants={"fp8": needs}), skipped_variants={"fp8": "needs more"}, variants=())
    row = only(facts=make.facts(flashinfer=REFUSED), planned=[plan])
    assert row.cells[0].why == why


def test_a_name_that_is_refused_here_says_nothing_of_a_probe_that_is_for_this_gpu():
    spec = make.spec(feature="norm.other", requires=Requires(sm=">=90", symbols=("flashinfer.norm.rmsnorm",)))
    plan = make.planned(spec=spec, skip="CUDA sees no GPU")
    row = only("norm.other", facts=make.facts(flashinfer=REFUSED), planned=[plan])
    assert row.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("sm", "told"),
    [
        (90, ("unsupported", "declared", "flashinfer/mla.py:6 admits compute capability 100; this is 90")),
        (100, ("unknown", "declared", "offered (flashinfer/mla.py:5), nothing here runs it")),
        (130, ("unknown", "declared", "offered (flashinfer/mla.py:5), nothing here runs it")),
    ],
)
def test_a_row_without_a_probe_is_unsupported_or_offered_as_the_source_says(sm, told):
    call = "flashinfer.mla.run(backend='x')"
    feature = Feature(id="mla.run", title="", entry=("flashinfer.mla.run",), call=call, probes=(), vllm=())
    says = {call: (Admission(source="mla.py:6", admits=(100,), refuses=(90,)),)}
    fi = make.flashinfer(symbols={"flashinfer.mla.run": "mla.py:5"}, admissions=says, architectures=(f"{sm}a",))
    facts = make.facts(flashinfer=fi, gpus=make.no_gpus())
    row = next(
        row for row in matrix.judge(replace(KB, features=(feature,)), facts, (), (), ()) if row.feature == "mla.run"
    )
    assert (*verdict(row), row.why) == told


def test_where_python_lets_a_call_through_the_check_of_the_kernels_runner_counts():
    runner = "data/a.cuh"
    feature = Feature(id="mla.run", title="", entry=("flashinfer.mla.run",), runner=runner, probes=(), vllm=())
    says = {runner: (Admission(source=f"{runner}:6", admits=(100, 103), refuses=(90,)),)}
    python = {"flashinfer.mla.run": (Admission(source="mla.py:5", admits=(100,), refuses=(90,)),)}
    rows = [
        next(iter(matrix.judge(replace(KB, features=(feature,)), make.facts(flashinfer=fi), (), (), ())))
        for fi in (make.flashinfer(admissions=says), make.flashinfer(admissions=says | python))
    ]
    assert [row.why for row in rows] == [
        "flashinfer/data/a.cuh:6 admits compute capability 100, 103; this is 90",
        "flashinfer/mla.py:5 admits compute capability 100; this is 90",
    ]
    assert {verdict(row) for row in rows} == {("unsupported", "declared")}


def test_a_row_without_a_probe_is_unknown_where_an_older_report_says_nothing_of_it():
    feature = Feature(id="mla.run", title="", entry=("flashinfer.mla.run",), probes=(), vllm=())
    row = next(iter(matrix.judge(replace(KB, features=(feature,)), make.facts(), (), (), ())))
    assert (*verdict(row), row.why) == ("unknown", "none", "no probe was planned")


def test_a_package_that_is_not_installed_makes_the_row_unknown_since_it_can_be_installed():
    needs = Requires(packages={"vllm": ">=0.25"})
    row = only(planned=[make.planned(spec=make.spec(requires=needs), skip="needs vllm>=0.25: not installed")])
    assert row.verdict is Verdict.UNKNOWN
    assert "needs vllm>=0.25: not installed" in row.why


def test_without_flashinfer_every_row_of_it_is_unknown_even_where_its_import_was_tried():
    gone = make.missing(f"not installed in {make.PYTHON}")
    facts = make.facts(flashinfer=gone, packages={"flashinfer-python": gone})
    failed = make.outcome(
        "import.flashinfer", Ending.RAISED, Stage.IMPORTED, error="ModuleNotFoundError", sm=make.missing()
    )
    rows = judge(facts, planned=[make.planned(skip="FlashInfer is not installed")], outcomes=[failed])
    assert {verdict(row) for row in rows if row.feature != "import.torch"} == {("unknown", "none")}
    assert rows[0].why == f"flashinfer-python is not installed in {make.PYTHON}"


def test_a_row_that_was_not_run_says_where_it_is_declared_and_why_it_was_not_run():
    row = only(planned=[make.planned(skip="CUDA sees no GPU")])
    assert verdict(row) == ("unknown", "declared")
    assert row.why == "declared in norm/__init__.py:642; not run: CUDA sees no GPU"


def test_a_long_reason_for_an_unknown_capability_is_told_once_in_full():
    sm = make.missing("FlashInfer has no architecture to build for: FLASHINFER_CUDA_ARCH_LIST is not set and so on")
    row = only(planned=[make.planned(sm=sm, skip=f"needs compute capability >=75, and it is not known: {sm.reason}")])
    assert row.sm == sm
    assert row.why.endswith("and it is not known: FlashInfer has no architecture to build for")


def test_what_compiled_without_a_gpu_is_unknown_with_evidence_built():
    plan = make.planned(depth=Depth.BUILD, skip="not run, only built: CUDA sees no GPU")
    row = only(planned=[plan], outcomes=[make.outcome(stage=Stage.BUILT, depth=Depth.BUILD)])
    assert verdict(row) == ("unknown", "built")
    assert row.why == "it compiled and loaded here; not run, only built: CUDA sees no GPU"


def test_each_capability_has_its_own_row():
    rows = judge(
        planned=[make.planned(sm=90), make.planned(sm=120)],
        outcomes=[make.outcome(sm=90), make.outcome(sm=120, ending=Ending.SIGNALLED, stage=Stage.BUILT)],
        selected=("norm.rmsnorm",),
    )
    assert [(row.sm, row.verdict.value) for row in rows] == [(90, "works"), (120, "broken")]


@pytest.mark.parametrize(
    ("facts", "sms"),
    [
        (
            make.facts(gpus=make.gpu_facts(make.gpu(sm=120), make.gpu(sm=90, index=1), make.gpu(sm=90, index=2))),
            [90, 120],
        ),
        (make.facts(gpus=make.no_gpus(), flashinfer=make.flashinfer(architectures=("90a", "100a"))), [90, 100]),
    ],
    ids=["gpus", "architectures"],
)
def test_without_a_plan_the_machine_says_which_rows_there_are(facts, sms):
    assert [row.sm for row in judge(facts, selected=("norm.rmsnorm",))] == sms


def test_without_a_gpu_and_an_architecture_the_capability_is_missing():
    fi = make.flashinfer(architectures=make.missing("no GPU"))
    assert isinstance(only(facts=make.facts(gpus=make.no_gpus(), flashinfer=fi)).sm, Missing)


def test_a_rule_predicts_what_was_not_measured_and_only_that():
    facts = make.facts(toolkit=make.toolkit(ninja=make.missing("no ninja on PATH")))
    rows = judge(
        facts, outcomes=[make.outcome("kv.append_paged")], planned=[make.planned("activation.silu_and_mul", skip="x")]
    )
    found = {row.feature: verdict(row) for row in rows}
    assert found["kv.append_paged"] == ("works", "verified")
    assert found["activation.silu_and_mul"] == ("broken", "predicted")
    assert found["sampling.top_k_top_p"] == ("broken", "predicted")
    assert found["norm.rmsnorm"] == ("unknown", "declared")


def test_a_feature_that_only_a_foreign_probe_names_gets_its_row():
    of = make.spec("acme.kernel", variants={})
    row = only("acme.*", planned=[make.planned("acme.kernel", spec=of)], outcomes=[make.outcome("acme.kernel")])
    assert (row.feature, *verdict(row)) == ("acme.kernel", "works", "verified")


def test_without_its_plan_a_recorded_outcome_is_judged_all_the_same():
    assert verdict(only(outcomes=[make.outcome()])) == ("works", "verified")


@pytest.mark.parametrize(
    ("vllm", "words"),
    [
        ("0.11.0", "sampler, on by default"),
        ("0.17.1", "sampler, only with VLLM_USE_FLASHINFER_SAMPLER=1"),
        ("0.33.0", "sampler, on by default"),
        ("0.12.0", "sampler, only with VLLM_USE_FLASHINFER_SAMPLER=1"),
        ("0.22.0", "sampler, on by default"),
        ("1.0.0", "not known for vLLM 1.0.0"),
    ],
)
def test_the_row_says_what_the_installed_vllm_does(vllm, words):
    assert only("sampling.top_k_top_p", facts=make.facts(packages={"vllm": vllm})).vllm == words


def test_without_vllm_the_row_says_what_the_newest_known_one_does():
    assert only("sampling.top_k_top_p").vllm == "sampler, on by default (vLLM >=0.21,<0.34)"


def test_rows_are_sorted_by_feature_then_capability():
    rows = judge(make.facts(gpus=make.gpu_facts(make.gpu(sm=120), make.gpu(sm=90, index=1))))
    assert [(row.feature, row.sm if isinstance(row.sm, int) else -1) for row in rows] == sorted(
        (row.feature, row.sm if isinstance(row.sm, int) else -1) for row in rows
    )


def test_no_evidence_is_weaker_for_a_verdict_than_it_can_be():
    rows = judge(outcomes=[make.outcome(), make.outcome("kv.append_paged", Ending.WRONG, Stage.RAN)])
    assert all(row.evidence is not Evidence.NONE for row in rows if row.verdict is not Verdict.UNKNOWN)


@pytest.mark.parametrize(
    "happened",
    [
        {"ending": Ending.SIGNALLED, "stage": Stage.BUILT, "detail": "SIGKILL, not sent by fi-doctor while running"},
        {"ending": Ending.SIGNALLED, "stage": Stage.BUILT, "detail": "SIGTERM while running"},
        {
            "ending": Ending.RAISED,
            "stage": Stage.BUILT,
            "error": "torch.OutOfMemoryError",
            "detail": "CUDA out of memory",
        },
        {
            "ending": Ending.RAISED,
            "stage": Stage.IMPORTED,
            "error": "OSError",
            "detail": "libcuda.so.1: cannot open shared object file: No such file or directory",
        },
    ],
    ids=["killed-from-outside", "terminated-from-outside", "gpu-memory-taken", "no-driver-to-load-with"],
)
def test_a_failure_that_says_nothing_of_the_kernel_is_unknown(happened):
    row = only(planned=[make.planned()], outcomes=[make.outcome(**happened)])
    assert row.verdict is Verdict.UNKNOWN
    assert happened["detail"] in row.why


STOPPED = [
    "norm: Killed",
    "norm: error: killed by signal 9: norm.cuda.o",
    "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
    "error: a command ended without a word, as one that is killed does: norm.cuda.o",
    "c++: fatal error: Killed signal terminated program cc1plus",
    "fatal error: error writing to /tmp/x.s: No space left on device",
    "cc1plus: out of memory: virtual memory exhausted: Cannot allocate memory",
]


@pytest.mark.parametrize("detail", STOPPED)
def test_a_compiler_that_the_machine_stopped_says_nothing_of_the_kernel(detail):
    planned = [make.planned(spec=make.spec(has_build=True))]
    happened = {"ending": Ending.RAISED, "stage": Stage.IMPORTED, "error": "RuntimeError"}
    row = only(planned=planned, outcomes=[make.outcome(**happened, detail=detail)])
    assert row.verdict is Verdict.UNKNOWN
    assert detail in row.why
    assert "the machine stopped it, which says nothing of the kernel" in row.why


def test_a_torch_without_cuda_is_no_fault_of_the_kernel():
    happened = {"ending": Ending.RAISED, "stage": Stage.IMPORTED, "error": "AssertionError"}
    detail = "libcudart is not loaded in the current process"
    planned = [make.planned(spec=make.spec(has_build=True))]
    row = only(planned=planned, outcomes=[make.outcome(**happened, detail=detail)])
    assert row.verdict is Verdict.UNKNOWN
    assert "this torch has no CUDA" in row.why


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        ("AssertionError", "Torch not compiled with CUDA enabled"),
        ("RuntimeError", "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"),
        ("RuntimeError", "No CUDA GPUs are available"),
        ("torch.AcceleratorError", "CUDA error: no CUDA-capable device is detected"),
        ("RuntimeError", "The NVIDIA driver on your system is too old (found version 11040)."),
    ],
)
def test_a_build_that_asks_for_a_gpu_says_nothing_of_the_kernel_where_there_is_none(error, detail):
    planned = [make.planned(spec=make.spec(has_build=True))]
    happened = make.outcome(ending=Ending.RAISED, stage=Stage.IMPORTED, error=error, detail=detail)
    row = only(facts=make.facts(gpus=make.no_gpus()), planned=planned, outcomes=[happened])
    assert row.verdict is Verdict.UNKNOWN
    assert f"it asks for a GPU and CUDA sees none: {error.rpartition('.')[2]}: {detail}" in row.why
    assert only(planned=planned, outcomes=[happened]).verdict is Verdict.BROKEN  # CUDA sees a GPU


@pytest.mark.parametrize(
    "detail", ["nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)", "killed by signal 6"]
)
def test_a_compiler_that_crashes_breaks_the_row(detail):
    planned = [make.planned(spec=make.spec(has_build=True))]
    happened = {"ending": Ending.RAISED, "stage": Stage.IMPORTED, "error": "RuntimeError"}
    assert only(planned=planned, outcomes=[make.outcome(**happened, detail=detail)]).verdict is Verdict.BROKEN


def test_an_entry_point_whose_file_cannot_be_read_says_nothing_against_the_row():
    unread = make.missing("norm/__init__.py cannot be parsed: invalid syntax")
    fi = make.flashinfer(symbols={**make.SYMBOLS, "flashinfer.norm.rmsnorm": unread})
    assert only(facts=make.facts(flashinfer=fi), planned=[make.planned(skip="CUDA sees no GPU")]).verdict is (
        Verdict.UNKNOWN
    )


def test_a_success_without_records_of_the_variants_vouches_for_none():
    row = only(planned=[make.planned(spec=make.spec(variants=VARIANTS))], outcomes=[make.outcome(cells=())])
    assert {cell.verdict for cell in row.cells} == {Verdict.UNKNOWN}


def test_of_two_records_of_one_variant_the_worse_is_believed_in_whatever_order():
    good, bad = make.cell(variant="bf16"), make.cell(Ending.WRONG, Stage.RAN, "bf16", detail="off by one")
    plan = make.planned(spec=make.spec(variants={"bf16": Requires()}))
    for cells in ((good, bad), (bad, good)):
        assert only(planned=[plan], outcomes=[make.outcome(cells=cells)]).verdict is Verdict.WRONG_RESULT


def test_of_two_outcomes_of_one_probe_the_worse_is_believed():
    crashed = make.outcome(ending=Ending.SIGNALLED, stage=Stage.BUILT, detail="SIGSEGV while running")
    for outcomes in ((make.outcome(), crashed), (crashed, make.outcome())):
        assert only(planned=[make.planned()], outcomes=outcomes).verdict is Verdict.BROKEN


def test_a_library_that_an_import_lacks_is_not_said_to_have_compiled():
    detail = "libcuda.so.1: cannot open shared object file: No such file or directory"
    row = only(planned=[make.planned()], outcomes=[make.outcome(ending=Ending.RAISED, stage=Stage.NONE, detail=detail)])
    assert row.verdict is Verdict.BROKEN
    assert "compiled" not in row.why


def test_what_was_begun_is_not_called_not_run():
    outcome = make.outcome(ending=Ending.SIGNALLED, stage=Stage.BUILT, detail="SIGTERM while running")
    why = only(planned=[make.planned()], outcomes=[outcome]).why
    assert "killed from outside: SIGTERM while running" in why
    assert "not run" not in why
