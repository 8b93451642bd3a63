"""Names of GPUs and packages and lines of logs from strangers: no format lets them command who reads it."""

from __future__ import annotations

import html.parser
import json
import xml.etree.ElementTree as ET

import factory as make
import hostile_reports
import pytest
import yaml
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from report_samples import SAMPLES

from fi_doctor.reports import FORMATS, issue, redaction, render

TEXT = hostile_reports.TEXT


def _by_stranger(where):
    report = SAMPLES["one-variant-broken"]()
    facts = report.facts
    match where:
        case "gpu":
            facts = replace(facts, gpus=make.gpu_facts(make.gpu(name=TEXT, uuid=f"GPU-{TEXT}")))
        case "package":
            facts = replace(facts, packages={TEXT: make.package(TEXT, TEXT, location=TEXT)})
        case "log":
            outcomes = tuple(replace(one, detail=TEXT, output=TEXT) for one in report.outcomes)
            return replace(report, outcomes=outcomes, gate=replace(report.gate, reason=TEXT))
        case "everywhere":
            return hostile_reports.everywhere()
    return replace(report, facts=facts)


REPORTS = {where: _by_stranger(where) for where in ("gpu", "package", "log", "everywhere")}


@pytest.mark.parametrize("where", REPORTS)
@pytest.mark.parametrize("form", [*FORMATS, "issue"])
def test_nothing_that_a_terminal_obeys_is_written(form, where):
    text = issue.render(REPORTS[where], "vllm", {}) if form == "issue" else render(REPORTS[where], form)
    bad = {char for char in text if not char.isprintable()} - {"\n"}
    assert bad <= ({"\t"} if form == "html" else set())
    assert "\x1b" not in text


@pytest.mark.parametrize("where", REPORTS)
def test_each_format_is_whole_and_has_no_more_than_we_wrote(where):
    report, plain = REPORTS[where], SAMPLES["one-variant-broken"]()
    assert json.loads(render(report, "json"))["schema"] == yaml.safe_load(render(report, "yaml"))["schema"]
    assert json.loads(render(report, "sarif"))["version"] == "2.1.0"
    tags = [one.tag for one in ET.fromstring(render(report, "junit")).iter()]
    assert set(tags) <= {one.tag for one in ET.fromstring(render(plain, "junit")).iter()} | {"skipped"}
    families = [one.name for one in text_string_to_metric_families(render(report, "prometheus"))]
    assert families == [one.name for one in text_string_to_metric_families(render(plain, "prometheus"))]
    commands = {line.split(" ")[0] for line in render(report, "github").splitlines() if line.startswith("::")}
    assert commands <= {"::error", "::warning", "::notice", "::group::", "::endgroup::"} | {
        line.split(" ")[0] for line in render(plain, "github").splitlines() if line.startswith("::")
    }
    labels = [line.partition("=")[0] for line in render(report, "nfd").splitlines() if not line.startswith("#")]
    assert all(name.startswith("fi-doctor.io/") for name in labels if name)


class _Scripts(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [tag] if tag in ("script", "img", "iframe", "object") else []
        self.found += [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize("where", REPORTS)
def test_a_page_has_our_own_script_alone(where):
    told, plain = _Scripts(), _Scripts()
    told.feed(render(REPORTS[where], "html"))
    plain.feed(render(SAMPLES["one-variant-broken"](), "html"))
    assert told.found == plain.found


def test_a_redacted_report_of_a_stranger_is_no_worse():
    text = render(redaction.redact(REPORTS["everywhere"], {"USER": "erika"}), "console")
    assert [char for char in text if not char.isprintable() and char != "\n"] == []
