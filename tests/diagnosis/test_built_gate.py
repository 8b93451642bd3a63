"""That rows were built may be all that is asked: it holds without a GPU, and nothing that was only built works."""

from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import Depth, Evidence, Holds, Policy, Request, Requirement, Scope, Verdict

NORM, KV = "norm.rmsnorm", "kv.append_paged"


def need(feature=NORM, evidence="built", scope="subset", verdict="unknown"):
    return Requirement(
        feature=feature,
        verdict=Verdict(verdict),
        evidence=Evidence(evidence),
        scope=Scope(scope),
        source="fi-doctor.toml: require",
    )


def gate(rows, *needs, depth=Depth.BUILD):
    return decide(Request(depth=depth, policy=Policy(requirements=needs)), tuple(rows), (), make.facts())


def row(verdict="unknown", evidence="built", scope="full", feature=NORM, **fields):
    return replace(make.row(feature, Verdict(verdict), Evidence(evidence), **fields), scope=Scope(scope))


NOTHING = row("unknown", "none", feature=KV)


@pytest.mark.parametrize(
    ("given", "scope", "code"),
    [
        (("unknown", "built", "full"), "subset", 0),
        (("unknown", "built", "full"), "full", 0),
        (("unknown", "built", "subset"), "full", 3),
        (("works", "verified", "full"), "full", 0),
        (("works", "ran", "subset"), "subset", 0),
        (("unknown", "none", "full"), "subset", 3),
        (("unknown", "declared", "full"), "subset", 3),
        (("broken", "predicted", "full"), "subset", 3),
        (("broken", "built", "full"), "subset", 1),
        (("broken", "ran", "full"), "subset", 1),
        (("wrong-result", "verified", "full"), "subset", 1),
        (("unsupported", "declared", "full"), "subset", 1),
    ],
)
def test_a_row_is_built_where_it_compiled_and_loaded_or_more_is_known_of_it(given, scope, code):
    done = gate((row(*given), NOTHING), need(scope=scope))
    assert done.code == code
    [asked] = [one for one in done.requirements if one.source == "fi-doctor.toml: require"]
    assert asked.holds is {0: Holds.YES, 1: Holds.NO, 3: Holds.CANNOT_TELL}[code]
    assert asked.requirement == f"norm.rmsnorm: built{', full' * (scope == 'full')}"


def test_what_is_only_built_holds_only_where_that_is_asked_and_does_not_read_as_working():
    rows = (row(), NOTHING)
    assert gate(rows).code == 3
    done = gate(rows, need())
    assert (done.code, done.measured, done.counts["works"]) == (0, 0, 0)
    end = "1 of 2 compiled and loaded, which is what was asked for; none was measured"
    assert done.reason == f"2 rows unknown; {end}"
    assert [(one.requirement, one.why) for one in done.requirements[1:2]] == [
        ("at least one selected row was measured or built", "1 of 2 built, none measured")
    ]


def test_beside_a_row_that_must_work_it_is_not_enough_that_others_are_built():
    assert gate((row(), NOTHING), need(), need(KV, "ran", verdict="works")).code == 3
    works = row("works", "ran", feature=KV)
    done = gate((row(), works), need(), need(KV, "ran", verdict="works"))
    assert (done.code, done.reason) == (0, "1 row works, 1 unknown")


def test_that_a_row_was_not_built_is_said_with_the_reason():
    bare = row("unknown", "declared", why="declared in norm.py:1; not run: there is no nvcc")
    done = gate((bare, row(feature=KV)), need())
    assert done.reason.endswith("; required: norm.rmsnorm on SM90 was not built: there is no nvcc")
