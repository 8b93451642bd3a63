"""What becomes of a deployment: by what vLLM chooses and by what is known of those kernels, and no better than that."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import deployment, given, operators
from fi_doctor.facts.served_model import model_of
from fi_doctor.knowledge import examples, models
from fi_doctor.model import Deployment, Evidence, Missing, Severity, Verdict
from fi_doctor.model.choices import Choice
from fi_doctor.model.deployed import Effect, Wanted
from fi_doctor.reports import document

KB = knowledge.load()
REPORT = document.read(examples.data("h200"), "an example")


def wanted(name="llama-3.1-8b", **deployed):
    config = models.config_of(name)
    return Wanted(model=model_of(config, name, f"preset {name}"), deployment=Deployment(**deployed), config=config)


def choice(operator="attention", chosen="FLASHINFER", features=("attention.decode",), **rest):
    given = {
        "is_flashinfer": chosen.startswith("FLASHINFER"),
        "how": "the table: a.py:1",
        "evidence": Evidence.DECLARED,
    }
    return Choice(**{"operator": operator, "layers": "all", "chosen": chosen, "features": features, **given, **rest})


def judge(*choices, of=None, report=REPORT):
    return deployment.judge(of or wanted(), choices, KB, report, 90)


def with_row(feature, **changes):
    rows = tuple(replace(row, **changes) if row.feature == feature else row for row in REPORT.features)
    return replace(REPORT, features=rows)


def test_a_kernel_that_works_serves():
    found = judge(choice(), choice("linear", "cutlass", ()))
    assert found.effect is Effect.FLASHINFER
    assert found.why == "it will run, on FlashInfer for attention; linear on cutlass"
    assert [part.effect for part in found.parts] == [Effect.FLASHINFER, Effect.OTHER]


def test_nothing_of_flashinfer_is_no_failure():
    found = judge(choice(chosen="FLASH_ATTN", features=()), choice("all2all", "none", ()))
    assert (found.effect, found.why) == (Effect.OTHER, "it will run without FlashInfer; attention on FLASH_ATTN")


@pytest.mark.parametrize(
    ("verdict", "effect", "begins"),
    [
        (Verdict.BROKEN, Effect.FAILS, "it will fail: sampling (FLASHINFER): sampling.top_k_top_p: "),
        (Verdict.UNSUPPORTED, Effect.FAILS, "it will fail: sampling"),
        (Verdict.WRONG_RESULT, Effect.WRONG_RESULT, "it will give wrong results: sampling"),
        (Verdict.UNKNOWN, Effect.UNKNOWN, "it cannot be told whether it works: sampling"),
    ],
)
def test_a_kernel_that_does_not_work_decides(verdict, effect, begins):
    report = with_row("sampling.top_k_top_p", verdict=verdict)
    found = judge(choice(), choice("sampling", features=("sampling.top_k_top_p",)), report=report)
    assert found.effect is effect
    assert found.why.startswith(begins)


def test_a_row_that_is_not_in_the_report_is_not_known_to_work():
    found = judge(choice(features=("attention.decode", "moe.of_tomorrow")))
    assert (found.effect, found.parts[0].why) == (Effect.UNKNOWN, "moe.of_tomorrow is not in this report")


def test_only_heads_of_the_size_of_the_model_count():
    cells = (
        make_cell("tc_d64", Verdict.BROKEN),
        make_cell("tc_d128", Verdict.WORKS),
        make_cell("graph_tc_d128", Verdict.WRONG_RESULT),
    )
    report = with_row("attention.decode", cells=cells, verdict=Verdict.WORKS)
    assert judge(choice(), report=report).effect is Effect.WRONG_RESULT  # captured, as vLLM does
    eager = wanted(flags={"--enforce-eager": ""})
    assert judge(choice(), of=eager, report=report).effect is Effect.FLASHINFER
    cubins = replace(report, facts=replace(report.facts, environment={"VLLM_HAS_FLASHINFER_CUBIN": "1"}))
    assert judge(choice(), of=wanted("gpt-oss-20b"), report=cubins).effect is Effect.FAILS
    other = judge(choice(), of=wanted("gemma-3-12b"), report=report)
    assert (other.effect, other.parts[0].why) == (
        Effect.UNKNOWN,
        "attention.decode: heads of 256 elements were not tried",
    )


def make_cell(variant, verdict):
    cell = next(row for row in REPORT.features if row.feature == "attention.decode").cells[0]
    return replace(cell, variant=variant, verdict=verdict)


def test_vllm_that_refuses_what_is_asked_for_does_not_start():
    refused = choice(
        chosen="none", features=(), how="nothing serves: vLLM refuses to start; table, read in vLLM 0.33.0: a"
    )
    found = judge(refused)
    assert (found.effect, found.parts[0].why) == (Effect.FAILS, "nothing serves: vLLM refuses to start")
    gate = deployment.with_gate(replace(REPORT.gate, code=0), found)
    assert gate.code == 1
    assert found.why in gate.reason


def test_what_was_forced_and_cannot_serve_is_not_merely_unused():
    how = "nothing serves: vLLM refuses to start with all2all_backend=x; table, read in vLLM 0.33.0: a"
    assert judge(choice("all2all", "none", (), how=how)).effect is Effect.FAILS
    assert judge(choice(), choice("all2all", "none", ())).effect is Effect.FLASHINFER


def test_what_was_forced_and_is_not_known_to_serve_decides():
    forced = choice("moe", "triton_unfused", (), is_flashinfer=None, how="x=y was asked for; table, read in a: b")
    found = judge(choice(), forced)
    assert (found.effect, found.parts[1].why) == (Effect.UNKNOWN, "x=y was asked for")
    assert found.known_by == "the table"  # as the choices are known that are


@pytest.mark.parametrize(
    ("deployed", "severity", "fails"),
    [
        ({"flags": {"--moe-backend": "x"}}, Severity.ERROR, True),
        ({"kv_cache_dtype": "x"}, Severity.ERROR, False),  # the finding is on another option
        ({"flags": {"--moe-backend": "x1"}}, Severity.ERROR, False),
        ({"flags": {"--moe-backend": "x"}}, Severity.WARNING, False),
    ],
)
def test_a_value_that_the_release_does_not_take_fails(deployed, severity, fails):
    title = "vLLM 0.33.0 cannot read --moe-backend x (--vllm-args)"
    refused = replace(REPORT.findings[0], id=given.REFUSED, severity=severity, title=title)
    found = judge(choice(), of=wanted(**deployed), report=replace(REPORT, findings=(refused,)))
    assert (found.effect is Effect.FAILS) is fails
    assert not fails or found.why == "it will fail: vLLM 0.33.0 does not know --moe-backend x"


@pytest.mark.parametrize(
    ("flags", "environment", "said"),
    [
        ({"--attention-config.use_trtllm_attention": "0"}, {}, "--attention-config.use_trtllm_attention may change it"),
        ({}, {"VLLM_KV_CACHE_LAYOUT": "HND", "VLLM_USE_FLASHINFER_SAMPLER": "0"}, None),  # of the sampler it knows
        ({"--logprobs-mode": "processed_logits"}, {}, "--logprobs-mode may change it"),
        ({}, {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}, None),  # 0.33.0 does not know it
        ({"--runner": "pooling"}, {}, "--runner may change it"),
        ({"--attention-backend": "FLASHINFER", "--host": "x"}, {"VLLM_API_KEY": "x"}, None),
    ],
)
def test_what_the_table_does_not_know_makes_its_answer_unknown(flags, environment, said):
    report = replace(REPORT, facts=replace(REPORT.facts, environment=environment))
    choices = choice(), choice("sampling", features=("sampling.top_k_top_p",))
    found = judge(*choices, of=wanted(flags=flags), report=report)
    assert (found.effect is Effect.UNKNOWN) is (said is not None)
    if said:
        assert said in [part.why for part in found.parts]
        assert found.notes
    asked = judge(choice(evidence=Evidence.PREDICTED), of=wanted(flags=flags), report=report)
    assert asked.effect is (Effect.UNKNOWN if flags and said and "--logprobs" not in said else Effect.FLASHINFER)


def test_what_vllm_was_given_itself_is_no_doubt_of_its_own_answer():
    environment = {"VLLM_USE_TRTLLM_RAGGED_ATTENTION": "1", "VLLM_FLASH_ATTN_VERSION": "2"}
    vllm = replace(REPORT.facts.vllm, variables=dict.fromkeys(environment, "envs.py:1"))
    report = replace(REPORT, facts=replace(REPORT.facts, environment=environment, vllm=vllm))
    asked = choice(evidence=Evidence.PREDICTED)
    assert judge(choice(), report=report).effect is Effect.UNKNOWN
    assert judge(asked, report=report).effect is Effect.FLASHINFER
    of_file = replace(wanted(), variables=("VLLM_FLASH_ATTN_VERSION",))
    assert judge(asked, of=of_file, report=report).parts[0].why == "VLLM_FLASH_ATTN_VERSION may change it"


def test_what_a_file_sets_for_the_server_is_not_known_to_the_table():
    files = replace(wanted(), variables=("VLLM_USE_FLASHINFER_SAMPLER",))
    found = judge(choice("sampling", features=("sampling.top_k_top_p",)), of=files)
    assert found.parts[0].why == "VLLM_USE_FLASHINFER_SAMPLER may change it"


def test_where_vllm_sees_no_flashinfer_the_table_is_not_believed():
    finding = next(iter(REPORT.findings))
    closed = replace(finding, id="has-flashinfer-false-without-nvcc-or-ninja")
    found = judge(choice(), report=replace(REPORT, findings=(closed,)))
    assert found.effect is Effect.UNKNOWN


OTHERS = (choice(), choice("moe", "TRITON", ()), choice("sampling", "PYTORCH", ()))


@pytest.mark.parametrize(
    ("name", "operator", "said"),
    [
        ("llama-3.3-70b-fp8", "linear", "the table has no row for fp8_per_tensor"),
        ("qwen3-next-80b-a3b", "mixer", "the table has no row for mixer"),
        ("deepseek-v3.2", "moe", "the table has no row for fp8_block"),
    ],
)
def test_what_the_table_has_no_row_for_is_not_taken_for_something_else(name, operator, said):
    choices = tuple(one for one in OTHERS if one.operator != operator)
    whole = operators.whole(choices, wanted(name).model)
    [unknown] = [one for one in whole if one.operator == operator]
    assert (unknown.chosen, unknown.how) == ("", said)
    found = judge(*whole, of=wanted(name))
    assert found.effect is Effect.UNKNOWN
    assert deployment.with_gate(replace(REPORT.gate, code=0), found).code == 3


def test_a_model_without_experts_or_attention_has_no_choice_of_them():
    choices = tuple(choice(name, "other", ()) for name in ("attention", "moe", "linear", "sampling"))
    assert [one.operator for one in operators.whole(choices, wanted().model)] == ["attention", "linear", "sampling"]
    config = {"model_type": "mamba2", "num_hidden_layers": 4, "hidden_size": 64}
    mamba = operators.whole(choices, model_of(config, "a", "b"))
    assert [one.operator for one in mamba] == ["linear", "sampling", "mixer"]


def test_what_pools_samples_nothing():
    config = {**models.config_of("llama-3.1-8b"), "architectures": ["LlamaModel"]}
    told = operators.whole((choice(), choice("sampling")), model_of(config, "a", "b"))
    assert [one.operator for one in told] == ["attention", "linear"]


def test_choices_that_are_not_known():
    found = deployment.judge(wanted(), Missing(reason="of vLLM 0.31.0 it was not read"), KB, REPORT, 90)
    assert (found.effect, found.parts) == (Effect.UNKNOWN, ())
    assert (
        found.why
        == "it cannot be told whether it works: what vLLM would choose is not known: of vLLM 0.31.0 it was not read"
    )


def test_the_request_is_narrowed_to_what_the_deployment_runs_through():
    asked = deployment.narrowed(REPORT.request, [choice(), choice("linear", "cutlass", ("gemm.fp4",))])
    assert asked.features == ("import.*", "attention.decode")
    assert asked.required == ("attention.decode",)
    named = deployment.narrowed(replace(REPORT.request, features=("norm.*",)), [choice()])
    assert (named.features, named.required) == (("norm.*",), ("attention.decode",))
    assert deployment.narrowed(REPORT.request, []) == REPORT.request


def test_fields_of_the_model_that_make_no_sense_are_told():
    config = {**models.config_of("llama-3.1-8b"), "num_key_value_heads": "many"}
    odd = Wanted(model=model_of(config, "a", "b"), deployment=Deployment(), config=config)
    found = judge(choice(), of=odd)
    assert found.notes == ("num_key_value_heads of the model's configuration: 'many' is not a whole number",)
