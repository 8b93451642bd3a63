"""How a change of versions is told: its rows, what moves, what changes; and as comments where settings are printed."""

from __future__ import annotations

import pytest
import upgraded_machines as machines
from msgspec.structs import replace

from fi_doctor.model import Evidence
from fi_doctor.model.upgrade import Change
from fi_doctor.reports import exports, render, upgrades

COMMAND = "/opt/torch/.venv/bin/python3 -m pip install vllm==0.33.0"


@pytest.fixture(scope="module")
def report():
    return machines.judged(machines.TWO_H200)


def test_rows_that_change_alike_share_a_line_and_settings_have_their_own(report):
    shared = {"before": "read", "after": "not known", "why": "write --b", "evidence": Evidence.DECLARED}
    changes = tuple(Change(subject=name, **shared) for name in ("a.b on SM90", "c.d on SM90", "VLLM_A", "--e.f"))
    _, lines = upgrades.told(replace(report, upgrade=replace(report.upgrade, changes=changes)))
    assert [line for line in lines if line.startswith("Would change")] == [
        "Would change: read -> not known (declared): a.b, c.d.",
        "Would change: VLLM_A: read -> not known (declared), write --b.",
        "Would change: --e.f: read -> not known (declared), write --b.",
    ]


def test_of_a_needed_one_the_rows_that_are_not_called_are_marked(report):
    first, *rest = report.upgrade.mends
    needed = replace(report.upgrade, is_needed=True, mends=(replace(first, is_called=True), *rest))
    _, lines = upgrades.told(replace(report, upgrade=needed))
    assert [", which vLLM 0.14.1 does not call here: at the latest from" in line for line in lines[:3]] == [
        False,
        True,
        True,
    ]
    assert not any("asks for it" in line for line in lines)


def test_the_first_release_that_is_known_without_a_fault_need_not_be_the_first_without_it(report):
    _, lines = upgrades.told(report)
    [line] = [line for line in lines if line.startswith("comm.allreduce_fusion")]
    rule = "two-shot-allreduce-barrier-lets-through"  # which says that 0.7.2 mends it; vLLM asks for its .post1
    assert line.endswith(f": at the latest from flashinfer-python 0.7.2.post1 on [{rule}]")


@pytest.mark.parametrize("format_", ["console", "markdown", "json", "yaml"])
def test_every_format_for_people_and_machines_has_the_command(report, format_):
    assert COMMAND in render(report, format_)
    without = replace(report, upgrade=None)
    assert COMMAND not in render(without, format_)


@pytest.mark.parametrize("form", ["shell", "dotenv", "docker", "k8s"])
def test_settings_end_with_it_as_a_comment(report, form):
    *_, why, command = exports.export(report, form).text.splitlines()
    assert why.startswith("# nothing that vLLM 0.14.1 calls here asks for it; other versions would mend activation.")
    assert command == f"# {COMMAND}"
    assert COMMAND not in exports.export(replace(report, upgrade=None), form).text


def test_beside_arguments_it_is_told(report):
    found = exports.export(report, "vllm-args")
    assert found.told[-1] == COMMAND
    assert COMMAND not in found.text


def test_one_that_is_recommended_is_told_once():
    text = exports.export(machines.judged(machines.TWO_H200, {"vllm": None}), "shell").text
    assert text.count("pip install flashinfer-python==0.7.2.post1") == 1
    assert "# install: /opt/torch/.venv/bin/python3 -m pip install flashinfer-python==0.7.2.post1" in text
