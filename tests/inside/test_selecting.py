"""Asking vLLM's own selectors: the answer is always a file, and what is listened to is told as it was said."""

import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

from fi_doctor.facts import choices as asking
from fi_doctor.inside import selecting, selecting_compiled, selecting_layers, selecting_machine, selecting_watch
from fi_doctor.model import Evidence, Missing

SCRIPT = pathlib.Path(selecting.__file__)
MODELS = pathlib.Path(__file__).parents[1] / "knowledge" / "data" / "models.json"
GPU = {"sm": [9, 0], "name": "NVIDIA H200", "memory_gib": 141, "multiprocessors": 132, "count": 8}


def answer_of(tmp_path, request, python=sys.executable, **environ):
    asked, answered = tmp_path / "request.json", tmp_path / "answer.json"
    asked.write_text(json.dumps(request))
    result = subprocess.run(
        [python, str(SCRIPT), str(asked), str(answered)],
        capture_output=True,
        env={**os.environ, **environ},
        timeout=280,
    )
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(answered.read_text())


def test_without_vllm_the_answer_says_so(tmp_path):
    package = tmp_path / "hidden" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no vLLM for this test')\n")
    answer = answer_of(tmp_path, {"gpu": GPU, "cells": []}, PYTHONPATH=str(package.parent))
    assert "no vLLM for this test" in answer["error"]
    assert answer["cells"] == []
    assert isinstance(asking.read(json.dumps(answer).encode()), Missing)


def test_a_cell_that_dies_is_one_answer_and_not_the_end():
    def die():
        os.kill(os.getpid(), 9)

    def fail():
        raise ValueError("no such model")

    heard = selecting_watch.Watch()
    assert "said nothing" in selecting._forked(die, {"id": "a"}, heard)["error"]
    assert selecting._forked(fail, {"id": "b"}, heard)["error"] == "ValueError: no such model"
    assert selecting._forked(lambda: {"x": 1}, {"id": "c"}, heard) == {"id": "c", "x": 1}


def test_a_config_is_cut_with_the_list_of_its_layers():
    config = {"num_hidden_layers": 4, "layer_types": ["a", "b", "a", "b"]}
    assert selecting._cut(config, 2) == {"num_hidden_layers": 2, "layer_types": ["a", "b"]}
    assert selecting._cut(config, 0) == config
    assert selecting._cut(config, 9) == config


def test_schemas_are_read_from_the_file_that_registers_them(tmp_path):
    path = tmp_path / "_C.abi3.so"
    path.write_bytes(
        b"\x7fELF\0rms_norm(Tensor! result, Tensor input, float epsilon) -> ()\0junk(\0"
        b"quant.out(Tensor! out, (int, int)? group_shape=None) -> (Tensor, Tensor)\0"
    )
    assert selecting_compiled._schemas(str(path)) == [
        "rms_norm(Tensor! result, Tensor input, float epsilon) -> ()",
        "quant.out(Tensor! out, (int, int)? group_shape=None) -> (Tensor, Tensor)",
    ]


def test_who_could_serve_and_stands_behind_is_told_beside_who_could_not():
    heard = {"valid": ["FLASHINFER", "TRITON_ATTN"], "rejected": [{"name": "FLASH_ATTN", "why": "no sinks"}]}
    told = selecting_layers._passed_over("FLASHINFER", heard)
    assert [part["name"] for part in told] == ["FLASH_ATTN", "TRITON_ATTN"]
    assert told[1]["why"] == "could serve; vLLM's order has FLASHINFER before it"


def test_reasons_come_in_the_shapes_of_all_releases():
    class Backend:
        name = "FLASH_ATTN"

    assert selecting_watch._reasons({Backend: (0, ["a", "b"])}) == [{"name": "FLASH_ATTN", "why": "a; b"}]
    assert selecting_watch._reasons({Backend: ["a"]}) == [{"name": "FLASH_ATTN", "why": "a"}]


def test_the_same_reason_of_many_layers_is_told_once():
    parts = [{"name": "A", "why": "x; y"}, {"name": "A", "why": "y; z"}, {"name": "B", "why": "x"}]
    assert selecting_layers._union(parts) == [{"name": "A", "why": "x; y; z"}, {"name": "B", "why": "x"}]


def test_the_kernel_of_a_gated_delta_rule_is_named_in_the_shapes_of_all_releases():
    def forward_cuda():
        pass

    named = types.SimpleNamespace(gdn_prefill_backend="cutedsl", _forward_method=forward_cuda)
    older = types.SimpleNamespace(_forward_method=forward_cuda)
    layers = [types.SimpleNamespace(chunk_gated_delta_rule=rule) for rule in (named, older)]
    assert [selecting_layers._rule_of(layer) for layer in layers] == ["cutedsl", "flashinfer"]
    assert selecting_layers._mixers([("a", types.SimpleNamespace(A_log=1))], None) == []


def test_a_group_has_its_size_and_our_place_in_it():
    group = selecting_machine.Group("_TP", 4)
    assert (group.world_size, group.rank_in_group, group.device_group.size()) == (4, 0, 4)


def test_what_was_answered_becomes_choices_with_how_they_are_known():
    cell = {
        "id": "asked",
        "choices": [
            {"operator": "attention", "layers": "MLA", "chosen": "FLASHINFER_MLA", "how": "asked vLLM's selector"},
            {"operator": "moe", "layers": "experts", "chosen": "SM100_FI_MXFP4_BF16", "rejected": []},
            {"operator": "mixer", "layers": "gated delta rule", "chosen": "flashinfer"},
            {"operator": "attention", "layers": "all", "chosen": ""},
            {"operator": "linear", "layers": "x", "chosen": "", "error": "ValueError: y"},
        ],
        "unknown": [{"operator": "all2all", "why": "z"}],
    }
    asked = asking.read(json.dumps({"vllm": "0.33.0", "replaced": ["a"], "cells": [cell]}).encode())
    assert [choice.is_flashinfer for choice in asked.choices] == [True, True, True, None]
    assert {choice.evidence for choice in asked.choices} == {Evidence.PREDICTED}
    assert [part.name for part in asked.unknown] == ["all2all", "linear"]
    assert asked.replaced == ("a",)


def test_an_answer_that_cannot_be_read_is_missing_with_the_reason():
    assert "cannot be read" in asking.read(b"{").reason
    refused = {"vllm": "0.33.0", "cells": [{"id": "asked", "error": "ValueError: sinks"}]}
    assert asking.read(json.dumps(refused).encode()).reason.endswith("ValueError: sinks")


def test_an_interpreter_that_is_not_there_is_missing_with_the_reason():
    gpu = asking.AskedGpu(sm=(9, 0), name="x", memory_gib=1, multiprocessors=1)
    told = asking.ask(["/nowhere/python"], {}, {}, gpu, environ=dict(os.environ))
    assert isinstance(told, Missing)
    assert "/nowhere/python" in told.reason


@pytest.mark.skipif(not os.environ.get("FI_DOCTOR_VLLM_PYTHON"), reason="no interpreter with vLLM was named")
def test_the_installed_vllm_answers_for_a_gpu_that_is_not_here():
    gpu = asking.AskedGpu(sm=(12, 0), name="NVIDIA RTX PRO 6000", memory_gib=96, multiprocessors=188)
    model = json.loads(MODELS.read_text())["llama-3.1-8b"]
    told = asking.ask([os.environ["FI_DOCTOR_VLLM_PYTHON"]], model, {}, gpu, environ=dict(os.environ))
    assert not isinstance(told, Missing), told
    attention = next(choice for choice in told.choices if choice.operator == "attention")
    assert attention.chosen == "FLASH_ATTN"
    assert "vllm/platforms/cuda.py" in attention.how
    assert told.unknown == ()
