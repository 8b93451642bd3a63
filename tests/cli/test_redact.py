"""--redact: neither whose machine it was nor where it stands, in any format; and still a report."""

from __future__ import annotations

import json

import cli_command
import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.reports import redaction, render

ENVIRON = {"USER": "erika", "HOSTNAME": "gpu-node-17"}
SEEDS = (
    "erika",
    "mustermann",
    "gpu-node-17",
    "10.11.12.13",
    "node9.corp.acme.internal",
    "02:42:ac:11:00:02",
    "7f7c6807",
)
ONE, OTHER = "GPU-7f7c6807-4d0a-46a4-e695-5f23de83bc70", "GPU-7f7c6807-4d0a-46a4-e695-5f23de83bc71"


def whose():
    """A machine that names its people, its host and its addresses wherever it can."""
    said = "erika@gpu-node-17 (10.11.12.13, 02:42:ac:11:00:02) at /home/mustermann/venv of node9.corp.acme.internal"
    gpus = make.gpu_facts(make.gpu(uuid=ONE), make.gpu(index=1, uuid=OTHER))
    environment = {"HOME": "/home/erika", "VLLM_HOST_IP": "gpu-node-17", "CUDA_HOME": "/scratch/mustermann/cuda"}
    done = cli_command.report(facts=make.facts(environment=environment, gpus=gpus), broken=("norm.rmsnorm",))
    rows = tuple(replace(row, why=f"{row.why}: {said} on {OTHER}") for row in done.features)
    return replace(done, features=rows, gate=replace(done.gate, reason=f"{done.gate.reason} {said}"))


@pytest.mark.parametrize("form", cli_command.FORMATS)
def test_no_format_tells_whose_machine_it_was(form):
    text = render(redaction.redact(whose(), ENVIRON), form)
    assert [seed for seed in SEEDS if seed in text] == []


def test_all_of_it_would_be_seen_without():
    text = render(whose(), "json")
    assert [seed for seed in SEEDS if seed not in text] == []


def test_gpus_are_still_told_apart_and_the_report_can_be_judged_again(doctor):
    place = doctor.folder / "report.json"
    place.write_text(render(redaction.redact(whose(), ENVIRON), "json"))
    done = doctor("check", "--no-config", "--from", place, "-f", "json", "--redact")
    told = json.loads(done.stdout)
    assert [gpu["uuid"] for gpu in told["facts"]["gpus"]["gpus"]] == ["GPU-<serial-1>", "GPU-<serial-2>"]
    assert told["gate"]["code"] == done.returncode == 1


def test_versions_and_names_that_everybody_has_stay():
    report = cli_command.report(facts=make.facts(environment={"CUDA_VERSION": "13.0.2.1"}))
    text = render(redaction.redact(report, {"USER": "root", "HOSTNAME": "localhost"}), "json")
    assert "13.0.2.1" in text
    assert "<user>" not in text


@pytest.mark.parametrize("command", [("check", "--no-config"), ("report", "--json")], ids=lambda words: words[0])
def test_both_commands_take_it(doctor, command):
    doctor.folder.joinpath("report.json").write_text(render(whose(), "json"))
    done = doctor(*command, "--from", "report.json", "--redact", env=ENVIRON)
    assert done.returncode in (0, 1), done.stderr
    assert [seed for seed in SEEDS if seed in done.stdout + done.stderr] == []


def test_a_lock_is_not_redacted(doctor):
    done = doctor("check", "--no-config", "--locked", "--redact")
    assert (done.returncode, "--redact and --locked" in done.stderr) == (2, True)
