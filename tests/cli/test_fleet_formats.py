"""A fleet in every format: one that has all there is to tell, held against golden files and the published schema."""

import functools
import html.parser
import json
import pathlib
import xml.etree.ElementTree as ET

import factory as make
import jsonschema
import pytest
import yaml
from cli_command import report
from msgspec.structs import replace

from fi_doctor import fleet as package
from fi_doctor import knowing
from fi_doctor.errors import DataError
from fi_doctor.fleet import rendering
from fi_doctor.fleet.merging import merge
from fi_doctor.fleet.reading import NodeReport
from fi_doctor.model import Depth, Request

PUBLISHED = pathlib.Path(package.__file__).parents[1] / "schemas" / "fleet.json"


judged = functools.cache(lambda broken: report(facts=make.facts(gpus=make.gpu_facts(make.gpu())), broken=broken))


def node(number, *, broken=(), driver="580.159.04", **environment):
    """A report of a machine with a GPU of its own."""
    gpus = make.gpu_facts(make.gpu(uuid=f"GPU-7f7c6807-4d0a-46a4-e695-{number:012}"))
    gpus = replace(gpus, driver=replace(gpus.driver, version=driver))
    facts = make.facts(gpus=gpus, environment={"CUDA_VERSION": "13.0.2", **environment})
    name = f"node-{number}"
    return NodeReport(name, replace(judged(broken), facts=facts, created="2026-11-29T12:00:00+00:00"), f"{name}.json")


@pytest.fixture(scope="module")
def whole():
    """Odd nodes by a fact and by a verdict, a fact without a majority, a node that was not read, and a driver."""
    nodes = [node(number, HF_HOME="/a" if number % 2 else "/b") for number in range(1, 9)]
    nodes += [node(9, HF_HOME="/a", driver="570.86.10"), node(10, broken=("norm.rmsnorm",), HF_HOME="/b")]
    lost = NodeReport("node-11", DataError('"node-11.json" is not a report', why="it is empty", todo="write it again"))
    kb, specs = knowing.load(None, None)
    asked, notes = Request(depth=Depth.RUN), ("node-12 joined meanwhile",)
    return merge([*nodes, lost], asked, kb=kb, specs=specs, driver="node-1", notes=notes, as_recorded=True)


@pytest.mark.parametrize("form", ["console", "markdown", "junit", "prometheus", "html"])
def test_a_format_is_as_it_was(whole, form, golden):
    golden(f"fleet/whole.{form}", rendering.render(whole, form))


def test_json_and_yaml_say_the_same_and_are_what_is_published(whole):
    told = json.loads(rendering.render(whole, "json"))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    assert yaml.load(rendering.render(whole, "yaml"), Loader=loader) == told
    jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text())).validate(told)
    assert [one["name"] for one in told["nodes"]] == [f"node-{number}" for number in range(1, 11)]


def test_junit_has_a_suite_for_each_node_and_one_for_the_fleet(whole):
    suites = ET.fromstring(rendering.render(whole, "junit"))
    assert [suite.get("name") for suite in suites] == ["fleet", *(f"node-{number}" for number in range(1, 11))]
    failed = {suite.get("name"): int(suite.get("failures")) for suite in suites if suite.get("failures") != "0"}
    assert set(failed) == {"fleet", "node-10"}


def test_every_metric_of_a_node_has_its_name(whole):
    text = rendering.render(whole, "prometheus")
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(
        '{node="' in line for line in samples if not line.startswith(("fi_doctor_fleet_gate", "fi_doctor_fleet_nodes"))
    )
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_the_page_runs_nothing_and_names_every_node(whole):
    class Tags(html.parser.HTMLParser):
        found = frozenset()

        def handle_starttag(self, tag, attrs):
            self.found |= {tag, *(name for name, _ in attrs)}

    text, tags = rendering.render(whole, "html"), Tags()
    tags.feed(text)
    assert not tags.found & {"script", "src", "href", "onclick", "link", "img"}
    assert all(f"<td>node-{number}" in text for number in range(1, 11))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_console_keeps_to_its_width(whole, width):
    assert max(map(len, rendering.render(whole, "console", width=width).splitlines())) <= width
