"""The table of choices, against what vLLM's own selectors answered when they were executed."""

import importlib.util
import json
import pathlib

import pytest

from fi_doctor.facts.served_model import model_of
from fi_doctor.knowledge import choosing
from fi_doctor.model import Evidence
from fi_doctor.model.traits import traits_of

ROOT = pathlib.Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("selection", ROOT / "benchmarks" / "selection.py")
selection = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(selection)
RECORDED = json.loads(selection.RECORDED.read_text())
COMPARED = selection.compare(RECORDED)
MODELS = {name: model_of(config, name, name) for name, config in selection.models().items()}


def chosen(model, sm, version, operator, **options):
    told = choosing.choose(traits_of(MODELS[model], options, sm), options, version)
    return next(choice for choice in told if choice.operator == operator)


def test_the_table_agrees_with_every_executed_cell():
    assert [row for row in COMPARED if row[4] in ("differs", "not in the table")] == []


def test_most_cells_were_executed_and_the_others_are_named():
    count = {kind: sum(row[4] == kind for row in COMPARED) for kind in ("agrees", "not executed")}
    assert count["agrees"] > 10 * count["not executed"]
    read = {"0.14.1", "0.20.2", "0.28.0", "0.33.0"}
    assert read <= {row[1] for row in COMPARED if row[4] == "agrees"}
    assert not read & {row[1] for row in COMPARED if row[4] == "said to be unknown"}
    assert {row[2] for row in COMPARED if row[4] == "agrees"} == {"SM90", "SM100", "SM120"}


def test_each_row_of_the_table_says_where_it_was_read():
    for table in choosing.tables():
        for row in table.rows:
            assert row.source.startswith("vllm/"), row
            assert row.candidates, row


def test_the_features_of_the_table_are_rows_of_the_matrix():
    text = (ROOT / "fi_doctor" / "knowledge" / "data" / "features.yaml").read_text()
    known = {line.removeprefix("- id: ") for line in text.splitlines() if line.startswith("- id: ")}
    rows = [row for table in choosing.tables() for row in table.rows]
    used = {runs.id for row in rows for candidate in row.candidates for runs in candidate.features}
    assert used <= known


def test_a_release_that_was_not_read_gets_no_answer():
    traits = traits_of(MODELS["llama-3.1-8b"], {}, 90)
    assert choosing.choose(traits, {}, "0.34.0") == ()
    assert choosing.choose(traits, {}, "0.13.0") == ()
    assert choosing.choose(traits, {}, "not a version") == ()


def test_between_releases_that_were_read_only_what_both_choose_is_known():
    told = choosing.choose(traits_of(MODELS["gpt-oss-20b"], {}, 120), {}, "0.24.0")
    found = {choice.operator: choice for choice in told}
    assert (found["moe"].chosen, found["sampling"].chosen) == ("MARLIN", "")
    assert found["moe"].how.startswith("vLLM 0.20.2 and 0.28.0 choose alike, 0.24.0 was not read; table, ")
    assert found["sampling"].how == "vLLM 0.20.2 PYTORCH and 0.28.0 FLASHINFER would choose; 0.24.0 was not read"
    assert (found["sampling"].is_flashinfer, found["sampling"].evidence) == (None, Evidence.NONE)


def test_a_rejected_candidate_has_its_reason_and_the_choice_its_source():
    choice = chosen("gpt-oss-20b", 120, "0.20.2", "attention")
    assert choice.chosen == "TRITON_ATTN"
    assert {part.name: part.why for part in choice.rejected}["FLASHINFER"] == "attention sinks not supported"
    assert "vllm/platforms/cuda.py:79" in choice.how
    assert choice.evidence is Evidence.DECLARED
    assert choice.is_flashinfer is False


def test_the_rows_of_the_matrix_follow_the_choice():
    choice = chosen("gpt-oss-20b", 100, "0.33.0", "attention")
    assert choice.chosen == "FLASHINFER"
    assert {"attention.trtllm_gen", "attention.sinks", "attention.window"} <= set(choice.features)


def test_a_backend_that_is_asked_for_and_cannot_serve_is_no_choice():
    choice = chosen("gpt-oss-20b", 90, "0.20.2", "attention", attention_backend="FLASHINFER")
    assert choice.chosen == "none"
    assert "refuses to start" in choice.how


@pytest.mark.parametrize("version", ["0.28.0", "0.33.0"])
def test_a_backend_that_is_asked_for_by_its_flag_is_taken(version):
    choice = chosen("qwen3-30b-a3b", 90, version, "moe", moe_backend="flashinfer_cutlass")
    assert choice.chosen == "FLASHINFER_CUTLASS"
    assert choice.is_flashinfer


@pytest.mark.parametrize(
    ("model", "sm", "version", "operator", "kernel", "rows"),
    [
        ("deepseek-v3.2", 90, "0.33.0", "attention", "FLASH_ATTN_MLA_SPARSE", ()),
        ("deepseek-v3.2", 120, "0.20.2", "attention", "none", ()),
        ("deepseek-v3", 90, "0.33.0", "attention", "FLASH_ATTN_MLA", ()),
        ("qwen3-next-80b-a3b", 90, "0.20.2", "mixer", "flashinfer", ("ssm.gdn",)),
        ("qwen3-next-80b-a3b", 120, "0.28.0", "mixer", "triton", ()),
        ("qwen3-30b-a3b-nvfp4", 100, "0.33.0", "moe", "FLASHINFER_TRTLLM", ("moe.nvfp4",)),
        ("mixtral-8x7b-fp8", 90, "0.28.0", "moe", "FLASHINFER_CUTLASS", ("moe.fp8_per_tensor",)),
        ("llama-3.1-8b-fp8-tensor", 120, "0.33.0", "linear", "FlashInferFP8ScaledMMLinearKernel", ("gemm.bmm_fp8",)),
        ("deepseek-r1-nvfp4", 90, "0.33.0", "linear", "HummingNvFp4LinearKernel", ()),
    ],
)
def test_what_serves_and_the_rows_that_it_runs_through(model, sm, version, operator, kernel, rows):  # noqa: PLR0917
    choice = chosen(model, sm, version, operator)
    assert (choice.chosen, choice.features) == (kernel, rows)


def test_scales_that_are_made_as_activations_come_are_not_taken_for_stored_ones():
    config = {**selection.models()["mixtral-8x7b-fp8"], "quantization_config": {"quant_method": "fp8"}}
    told = choosing.choose(traits_of(model_of(config, "a", "b"), {}, 90), {}, "0.33.0")
    assert {"moe", "linear"}.isdisjoint(choice.operator for choice in told)


def test_a_condition_does_not_take_one_for_true():
    assert not choosing._holds({"sinks": (1,)}, traits_of(MODELS["gpt-oss-20b"], {}, 90))


def test_an_unknown_trait_in_a_table_is_told():
    row = choosing._Row(operator="moe", layers="experts", when={"sinc": (True,)}, source="vllm/x.py:1", candidates=())
    table = choosing._Table(vllm=">=1", read_in="1", rows=(row,))
    assert "sinc: no such trait" in choosing._unknown_traits(table)[0]


def test_what_vllm_answered_gets_the_rows_of_the_matrix_too():
    traits = traits_of(MODELS["qwen3-30b-a3b-fp8"], {}, 100)
    choice = chosen("qwen3-30b-a3b-fp8", 100, "0.33.0", "moe")
    assert choosing.features_of(choice, traits, "0.33.0") == ("moe.trtllm_fp8_block",)
