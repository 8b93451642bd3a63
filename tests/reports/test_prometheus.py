"""The metrics as Prometheus' own parser reads them."""

from __future__ import annotations

import re

import pytest
from hostile_reports import TEXT, everywhere
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from report_samples import SAMPLES, all_good, broken_toolkit, empty, outcome, row, two_sms

from fi_doctor.model import Verdict
from fi_doctor.model.targets import Target
from fi_doctor.reports import render
from fi_doctor.reports.text import clean


def families(report):
    return {one.name: one for one in text_string_to_metric_families(render(report, "prometheus"))}


def values(report, name):
    """The labels of each sample, as a sorted tuple of values -> its value."""
    return {tuple(one.labels.values()): one.value for one in families(report)[f"fi_doctor_{name}"].samples}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("make", [lambda name: SAMPLES[name](), everywhere], ids=["as-it-is", "hostile"])
def test_the_parser_reads_every_line_as_a_gauge_with_help_and_without_a_time(name, make):
    report = make(name)
    text, found = render(report, "prometheus"), families(report)
    assert text.endswith("\n")
    samples = [sample for one in found.values() for sample in one.samples]
    assert len(samples) == sum(not line.startswith("#") for line in text.splitlines())
    assert {one.type for one in found.values()} == {"gauge"}
    assert all(one.documentation for one in found.values())
    assert {sample.timestamp for sample in samples} == {None}
    assert len({(sample.name, *sorted(sample.labels.items())) for sample in samples}) == len(samples)
    assert set(found) == set(families(all_good()))
    assert all(re.fullmatch(r"fi_doctor_[a-z_]+", one) for one in found)


def test_a_row_says_what_is_known_of_it_and_how():
    report = replace(all_good(), features=(row("norm.rmsnorm", Verdict.BROKEN), row("kv.append_paged")))
    found = families(report)["fi_doctor_feature"].samples
    assert [(one.labels["feature"], one.labels["sm"], one.labels["verdict"], one.value) for one in found] == [
        ("kv.append_paged", "90", "works", 1),
        ("norm.rmsnorm", "90", "broken", 1),
    ]
    assert values(report, "features") == {(one.value,): float(one in ("broken", "works")) for one in Verdict}


def test_counts_and_the_gate_are_there_when_they_are_zero_too():
    assert values(empty(), "gate_exit_code") == {(): 3}
    assert set(values(empty(), "features").values()) == {0}
    assert values(empty(), "findings") == {("info",): 0, ("warning",): 0, ("error",): 0}
    assert values(broken_toolkit(), "findings") == {("info",): 1, ("warning",): 0, ("error",): 1}
    assert values(empty(), "feature") == {}


def test_versions_that_are_not_known_are_empty():
    [about] = families(broken_toolkit())["fi_doctor_info"].samples
    assert about.labels["sglang"] == ""
    assert about.labels["flashinfer"] == broken_toolkit().facts.packages["flashinfer-python"].version


def test_a_label_holds_the_text_as_people_see_it():
    [about] = families(everywhere())["fi_doctor_info"].samples
    assert about.labels["version"] == clean(TEXT, 200)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), float("-inf"), 1e300, 12.345, 0.0])
def test_any_number_can_be_said(seconds):
    report = replace(all_good(), outcomes=(replace(outcome("norm.rmsnorm"), seconds={"ran": seconds}),))
    [found] = values(report, "probe_duration_seconds").values()
    assert repr(float(found)) == repr(seconds)


def test_the_order_does_not_hang_on_that_of_the_report():
    mixed = two_sms()
    assert render(replace(mixed, features=mixed.features[::-1]), "prometheus") == render(mixed, "prometheus")


def test_what_is_foretold_for_another_machine_says_for_which():
    aimed = replace(all_good(), target=Target(words="b200,driver=580", sm=100))
    assert 'target="b200,driver=580"' in render(aimed, "prometheus")
    assert "target=" not in render(all_good(), "prometheus")
