"""A report as a bug report: in the project's own order, with what failed, without whose machine it was."""

import re

import pytest
from msgspec.structs import replace
from report_samples import SAMPLES, all_good, broken_toolkit, one_variant_broken

from fi_doctor.model import Severity
from fi_doctor.reports.issue import FORMS, render
from fi_doctor.reports.redaction import redacted

# The headings of bug_report.yml and 400-bug-report.yml, in their order.
HEADINGS = {
    "flashinfer": [
        "Before submitting",
        "Environment",
        "Bug description",
        "Minimal reproduction",
        "Additional context",
    ],
    "vllm": ["Your current environment", "🐛 Describe the bug", "Before submitting a new issue..."],
}
SCRIPT = 'def run(variant):\n    print("two  blanks", "```")\n\n\trun'


@pytest.mark.parametrize("project", FORMS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_every_report_has_the_headings_of_the_form_and_nothing_that_a_terminal_obeys(sample, project):
    text = render(SAMPLES[sample](), project, {})
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == HEADINGS[project]
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_what_fails_is_told_with_its_script_and_the_box_is_left_to_the_reporter():
    text = render(one_variant_broken(), "flashinfer", {"norm.rmsnorm": SCRIPT})
    assert "title: [Bug]: norm.rmsnorm broken on NVIDIA H200 (SM90) with flashinfer-python " in text
    assert "- [ ] I have searched" in text
    assert "- **norm.rmsnorm on SM90**: broken (" in text
    assert '````python\ndef run(variant):\n    print("two  blanks", "```")\n\n    run\n````' in text
    assert "TODO" not in text


def test_where_nothing_fails_it_asks_what_was_seen():
    assert "TODO: fi-doctor found nothing that fails." in render(all_good(), "vllm", {})


def test_where_only_the_machine_is_wrong_it_is_not_said_that_nothing_is():
    found = [replace(one, severity=Severity.ERROR) for one in broken_toolkit().findings[:1]]
    text = render(replace(all_good(), findings=(*found, replace(found[0], severity=Severity.INFO))), "flashinfer", {})
    assert "TODO: fi-doctor saw no kernel fail, and finds 1 error of this machine (see below). What did" in text
    assert "nothing that fails" not in text


def test_a_script_that_makes_it_too_long_is_left_out():
    text = render(one_variant_broken(), "flashinfer", {"norm.rmsnorm": "x = 1\n" * 20_000})
    assert len(text) < 60_000
    assert "which needs torch" not in text


def test_what_is_known_stands_there():
    report = broken_toolkit()
    assert report.findings
    assert all(f"(`{finding.id}`)" in render(report, "vllm", {}) for finding in report.findings)


def test_names_of_people_serial_numbers_and_addresses_are_gone():
    report = all_good()
    facts = replace(
        report.facts,
        interpreter=replace(report.facts.interpreter, executable="/home/alice/venv/bin/python"),
        environment={"CUDA_HOME": "/scratch/alice/cuda", "MASTER": "10.1.2.3:2222"},
    )
    text = render(replace(report, facts=facts), "vllm", {})
    assert "alice" not in text
    assert "10.1.2.3" not in text
    assert "CUDA_HOME=~/cuda" in text
    assert "(~/venv/bin/python)" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU-7F7C6807-4D0A-46A4-E695-5F23DE83BC70", "GPU-<serial>"),
        ("tcp 10.20.30.40 and fd00:1234::17 and 02:42:ac:11:00:02", "tcp <address> and <address> and <address>"),
        ("C:\\Users\\carol\\x, /scratch/bob.smith/x, ~dave/x", "~\\x, ~/x, ~/x"),
        ("[alice@gpu17] gpu17.corp.acme.internal", "[<address>] <address>"),
        ("token=abcd1234 and hf_abcdefghijkl", "token=<hidden> and <hidden>"),
        ("Authorization: Basic YWxpY2U6cHc=", "Authorization: Basic <hidden>"),
        ("nvidia-cublas 13.1.0.3, cudnn 9.20.0.48, at::native::add, std::vector", None),
        ("GPU-7f7c6807-4d0a-46a4-e695-5f23de83bc70 fails", "GPU-<serial> fails"),
        ("https://me:secret@example.org/x", "https://<address>example.org/x"),
        ("flashinfer 0.7.2.1 on 13.0.2", "flashinfer 0.7.2.1 on 13.0.2"),  # versions are no addresses
        ("/home/bo/x and /data/bo", "~/x and /data/bo"),  # a name of two letters stands for much else
    ],
)
def test_only_that_is_gone(text, expected):
    assert redacted(text) == (text if expected is None else expected)


def test_a_hostile_title_stays_in_its_comment():
    report = all_good()
    gpus = replace(
        report.facts.gpus, gpus=tuple(replace(one, name="H200 --> <img src=x>") for one in report.facts.gpus.gpus)
    )
    text = render(replace(report, facts=replace(report.facts, gpus=gpus)), "vllm", {})
    comment = next(line for line in text.splitlines() if "title:" in line)
    assert comment.count("-->") == 1
    assert comment.endswith(" -->")
    assert "<img" not in comment


def test_variables_that_name_hosts_have_no_value():
    report = all_good()
    facts = replace(
        report.facts, environment={"VLLM_HOST_IP": "1.2.3.4", "HF_ENDPOINT": "https://hub", "CUDA_HOME": "/x"}
    )
    text = render(replace(report, facts=facts), "vllm", {})
    assert "VLLM_HOST_IP=<hidden>" in text
    assert "HF_ENDPOINT=<hidden>" in text
    assert "CUDA_HOME=/x" in text
