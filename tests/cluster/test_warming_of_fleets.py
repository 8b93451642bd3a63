import json

import msgspec
import pytest
from fake_grid import FakeGrid, ended, node
from msgspec.structs import replace

from fi_doctor.cluster import warming
from fi_doctor.cluster.rounds import Answer
from fi_doctor.errors import CannotTellError
from fi_doctor.knowledge import examples
from fi_doctor.model import Missing, Place, Warming, WarmModule
from fi_doctor.reports import document

KIND = warming.Kind("13.0", "0.7.2", ("90a",), "/site/flashinfer", "/home/u/.cache/flashinfer/0.7.2/90a")
OLD = KIND._replace(nvcc="12.8")
A, B, C = node("a"), node("b"), node("c")


def warmed(place=Place.BUILT, code=0):
    module = WarmModule(name="norm", place=place)
    done = Warming(schema="", dry_run=False, folder=KIND.cache, jobs=1, memory_mib=0, modules=(module,), code=code)
    return ended(msgspec.json.encode(done))


class Node(FakeGrid):
    """Each node answers as the order asks."""

    def __init__(self, **answers):
        super().__init__(A, B, C)
        self.answers = {"pack": {"digest": "d1", "bytes": 9}, "unpack": {"added": []}, **answers}

    def wait(self, timeout_s):
        number, ticket = next(iter(self.open.items()))
        del self.open[number]
        words = ticket.order.words
        if words[0] == "warm":
            built = self.answers.get(f"warm {ticket.node.name}", warmed(Place.UP_TO_DATE))
            return [(ticket, built)]
        told = self.answers[words[0]]
        return [(ticket, told if hasattr(told, "code") else ended(json.dumps(told).encode()))]


def run(grid, found, share="/share/", **asked):
    done = warming.warm(grid, found, warming.Asked(("--gentle",), share, 60, **asked), lambda line: None)
    return {one.node: one for one in done}


def told(grid):
    return [" ".join(order.words) for order in grid.orders]


def test_each_kind_is_built_once_and_taken_by_its_digest():
    grid = Node()
    done = run(grid, {KIND: [A, B], OLD: [C]})
    place = f"/share/{KIND.file}"
    assert told(grid) == [
        "warm --json --quiet --gentle",
        "warm --json --quiet --gentle",
        f"pack {KIND.cache} {place}",
        f"unpack {KIND.cache} {place} d1",
        "warm --json --quiet --gentle --dry-run",
    ]
    assert {name: (one.did, one.code) for name, one in done.items()} == {
        "a": ("built", 0),
        "b": ("shared", 0),
        "c": ("built", 0),
    }


def test_without_a_place_each_node_builds_its_own():
    grid = Node()
    assert {one.did for one in run(grid, {KIND: [A, B]}, share="").values()} == {"built"}
    assert told(grid) == ["warm --json --quiet --gentle"] * 2


def test_a_shared_cache_that_ninja_does_not_take_is_no_success():
    done = run(Node(**{"warm b": warmed(Place.TO_COMPILE)}), {KIND: [A, B]})
    assert (done["b"].code, done["b"].said) == (1, "0 of 1 modules are there; norm: to compile")


def test_another_digest_is_told_and_nothing_is_asked_of_that_cache():
    refused = ended(b"", code=1, stderr=b"ValueError: /share/x has the digest d2, not d1: nothing of it was used")
    grid = Node(unpack=refused)
    done = run(grid, {KIND: [A, B]})
    assert (done["b"].did, done["b"].code) == ("", 3)
    assert "nothing of it was used" in done["b"].said
    assert not [words for words in told(grid) if "--dry-run" in words]


def test_what_was_not_built_whole_is_not_shared():
    done = run(Node(**{"warm a": warmed(Place.FAILED, code=1)}), {KIND: [A, B]})
    assert (done["a"].code, done["b"].code, done["b"].said) == (1, 3, "a built not all of it")


def test_a_node_that_may_not_compile_says_why():
    refused = ended(b"", code=3, stderr=b"error: it is not known for which GPU to compile\n  why: no driver")
    done = run(Node(**{"warm a": refused}), {KIND: [A]})
    assert (done["a"].code, done["a"].said) == (3, "error: it is not known for which GPU to compile why: no driver")


def test_nodes_are_told_apart_by_what_their_caches_are_built_for():
    report = examples.data("h200")
    whole = document.read(report, "h200")
    lacking = replace(whole, facts=replace(whole.facts, flashinfer=Missing(reason="no flashinfer")))
    lacks = msgspec.json.encode(lacking)
    answers = [
        Answer(A, "", report, 1.0),
        Answer(B, "", lacks, 1.0),
        Answer(C, "", CannotTellError("its node died"), 0.0),
    ]
    found, left = warming.kinds(answers)
    assert [kind.words for kind in found] == ["nvcc 13.0, 90a, FlashInfer 0.7.2.post1"]
    assert list(found.values()) == [[A]]
    assert [(one.node, one.code, one.said) for one in left] == [("b", 3, "no flashinfer"), ("c", 3, "its node died")]


@pytest.mark.parametrize("change", [{"nvcc": "12.9"}, {"architectures": ("100a",)}, {"root": "/other"}])
def test_another_cache_has_another_name(change):
    assert KIND._replace(**change).file != KIND.file
