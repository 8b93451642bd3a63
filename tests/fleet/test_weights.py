"""What is said to be read by rules is read by their conditions, and what is said to tell nodes apart is a fact."""

import pathlib
import re

import msgspec
import pytest
import simulated

from fi_doctor.fleet import following, identity
from fi_doctor.fleet.weighing import READ_BY_RULES

CONDITIONS = "\n".join(
    path.read_text() for path in (pathlib.Path(identity.__file__).parents[1] / "conditions").glob("*.py")
)
RENAMED = {"peers": "links", "cuda_sees": "cuda_order"}  # told here otherwise than the facts are called


@pytest.mark.parametrize("fact", READ_BY_RULES)
def test_conditions_read_it(fact):
    name = fact.rstrip(".").rpartition(".")[2]
    assert re.search(rf"\.{RENAMED.get(name, name)}\b", CONDITIONS)


def kinds(value, name=""):
    """Every name below facts, without the numbers of lists."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield f"{name}.{key}".lstrip(".")
            yield from kinds(one, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list):
        for one in value:
            yield from kinds(one, name)


def test_what_tells_nodes_apart_is_a_fact_of_a_recorded_machine():
    facts = msgspec.json.decode(msgspec.json.encode(simulated.base()["facts"]))
    facts["system"]["hostname"] = "node-1"
    there = {*kinds(facts), "server.pid", "server.parent", "server.cgroup", "server.root", "server.shell"}
    assert [name for name in (*identity.IDENTIFIES, *identity.FOLLOWS_FROM_FILES) if name not in there] == []


@pytest.mark.parametrize(
    ("subjects", "leads"),
    [
        (("environment.CUDA_HOME", "toolkit.jit", "toolkit.gate", "host_limits"), "environment.CUDA_HOME"),
        (("toolkit.jit", "toolkit.gate", "host_limits"), "toolkit.jit"),
        (("gpus.sm", "gpus.name", "flashinfer.cache", "flashinfer.cached_modules"), "gpus.sm"),
        (("packages.torch", "site.installed.torch", "libraries.cublas"), "packages.torch"),
        (("environment.CC", "system.image.CC"), "environment.CC"),
    ],
)
def test_what_follows_is_told_below_what_leads(subjects, leads):
    assert set(following.leaders(subjects).values()) == {leads}


@pytest.mark.parametrize(
    "subjects", [("gpus.driver", "gpus.count"), ("environment.A", "environment.B"), ("system.libc", "toolkit.jit")]
)
def test_what_does_not_follow_stands_by_itself(subjects):
    assert following.leaders(subjects) == {one: one for one in subjects}
