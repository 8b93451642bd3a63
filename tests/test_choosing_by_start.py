"""What starting vLLM tells goes before what is predicted; where it cannot be started that is said."""

from __future__ import annotations

import json
import os

import pytest
from msgspec.structs import replace

from fi_doctor import choosing, knowledge
from fi_doctor.diagnosis import deployment
from fi_doctor.facts.served_model import model_of
from fi_doctor.knowledge import examples, models
from fi_doctor.model import Deployment, Evidence, Missing
from fi_doctor.model.deployed import Effect, Wanted
from fi_doctor.reports import console, document

REPORT = document.read(examples.data("h200"), "an example")
FACTS = REPORT.facts
CONFIG = models.config_of("llama-3.1-8b")
WANTED = Wanted(model=model_of(CONFIG, "llama", "preset"), deployment=Deployment(tensor_parallel=2), config=CONFIG)
HELD = {"operator": "attention", "chosen": "FLASHINFER", "layers": "full attention layers"}


@pytest.fixture
def started(tmp_path):
    """A function: what comes of an interpreter that writes this answer in place of starting vLLM."""

    def start(**answer):
        given, python = tmp_path / "given.json", tmp_path / "python"
        given.write_text(json.dumps({"vllm": "0.33.0", **answer}))
        python.write_text(f'#!/bin/sh\ncp {given} "$4"\n')
        python.chmod(0o755)
        facts = replace(FACTS, interpreter=replace(FACTS.interpreter, executable=str(python)))
        predicted = choosing.by_table(WANTED, facts, 90)
        return predicted, choosing.by_start(WANTED, predicted, facts, {"PATH": os.environ["PATH"]}, fresh=True)

    return start


def of(operator, choices):
    return [one for one in choices if one.operator == operator]


def test_a_disagreement_is_told_and_the_measured_one_wins(started):
    predicted, seen = started(phase="generated", choices=[HELD])
    [was] = of("attention", predicted)
    [one] = of("attention", seen.choices)
    assert (was.chosen, was.evidence) == ("FLASH_ATTN", Evidence.DECLARED)
    assert (one.chosen, one.predicted, one.evidence) == ("FLASHINFER", "FLASH_ATTN", Evidence.RAN)
    assert one.is_flashinfer
    assert "attention.prefill" in one.features
    assert of("linear", seen.choices) == of("linear", predicted)
    assert not seen.stopped
    assert [note.partition(":")[0] for note in seen.notes] == ["all-reduce and all-to-all were not measured"]


def test_a_recording_keeps_what_was_measured_and_says_both(started):
    predicted, seen = started(phase="generated", choices=[HELD])
    recorded = replace(REPORT, deployed=deployment.judge(WANTED, seen.choices, knowledge.load(), REPORT, 90))
    assert choosing.as_recorded(WANTED, predicted, recorded, 90) == seen
    other = replace(WANTED, deployment=Deployment())
    assert choosing.as_recorded(other, predicted, recorded, 90) == choosing.Chosen(predicted)
    untold = choosing.as_recorded(WANTED, Missing(reason="a release between"), recorded, 90).choices
    assert [(one.operator, one.chosen) for one in untold] == [("attention", "FLASHINFER")]
    text = console.render(recorded, width=200)
    assert "attention (full attention layers): FLASHINFER (ran; FLASH_ATTN was predicted): attention." in text


def test_what_ended_it_is_told_and_the_answer_is_open(started):
    _, seen = started(phase="started", choices=[HELD], error="RuntimeError: no kernel image")
    assert of("attention", seen.choices)[0].evidence is Evidence.BUILT
    [stopped] = seen.stopped
    assert stopped.endswith("ended before it had generated tokens: RuntimeError: no kernel image")
    judged = deployment.judge(WANTED, seen.choices, knowledge.load(), REPORT, 90, stopped=seen.stopped)
    assert judged.effect is Effect.UNKNOWN
    assert judged.why.startswith("it cannot be told whether it works: vLLM was started here, and the tiny model for")
    recorded = replace(REPORT, deployed=judged)
    assert choosing.as_recorded(WANTED, (), recorded, 90).stopped == seen.stopped
    assert "vLLM was started" not in deployment.judge(WANTED, seen.choices, knowledge.load(), REPORT, 90).why


def test_nothing_is_guessed_where_it_did_not_start(started):
    predicted, seen = started(phase="starting", error="ValueError: no room")
    assert seen.choices == predicted
    assert seen.stopped[-1].endswith("vLLM did not start on a tiny model while starting: ValueError: no room")


def test_without_a_gpu_it_is_not_started():
    gpus = replace(FACTS.gpus, gpus=Missing(reason="no driver"))
    seen = choosing.by_start(WANTED, (), replace(FACTS, gpus=gpus), {}, fresh=True)
    assert seen == ((), ("which kernels vLLM really takes: it was not started, since CUDA sees no GPU",), ())


def test_where_no_row_has_an_architecture_that_of_the_gpu_is_taken():
    assert choosing.capability((), FACTS) == 90
    gpus = replace(FACTS.gpus, gpus=Missing(reason="no driver"))
    assert isinstance(choosing.capability((), replace(FACTS, gpus=gpus)), Missing)
