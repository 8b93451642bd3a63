"""What the gate makes of rows that were not measured now, but when they were locked."""

from __future__ import annotations

import factory as make
from gate_samples import KV, NORM, allow, gate, need, row
from msgspec.structs import replace

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import (
    Depth,
    Holds,
    Policy,
    Request,
)

DAY = "2026-11-20"


def test_a_row_of_a_lock_gives_what_it_gave_when_it_was_measured_and_the_requirement_says_locked():
    locked = row().as_locked(DAY)
    done = gate((locked, row(feature=KV)), Policy(requirements=(need(),)))
    assert done.code == 0
    assert done.reason == "2 rows work, 1 of these locked"
    [asked] = [one for one in done.requirements if one.requirement.startswith(NORM)]
    assert (asked.holds, asked.why) == (Holds.YES, f"locked {DAY}")
    both = gate((locked, row(feature="norm.layernorm")), Policy(requirements=(need("norm.*"),)))
    assert both.requirements[-1].why == f"1 of 2 rows locked {DAY}"
    assert both.requirements[1].why == f"2 of 2, 1 of 2 rows locked {DAY}"


def test_a_row_of_a_lock_is_not_known_better_than_it_was_locked():
    done = gate((row("works", "ran").as_locked(DAY),), Policy(requirements=(need(),)))
    assert done.code == 3
    assert done.reason.endswith(f"{NORM} on SM90 works by ran (locked {DAY}), verified is asked for")
    broken = gate((row("broken", "ran").as_locked(DAY),), Policy(requirements=(need(),)))
    assert broken.code == 1
    assert f"locked {DAY}" in next(one.why for one in broken.requirements if one.requirement.startswith(NORM))


def lost(asked=None, *, required=()):
    unknown = row("unknown", "none", why="norm.py:1; not run: since it was locked: cache:norm")
    policy = replace(asked or Policy(), file="/repo/fi-doctor.toml", day="2026-12-01")
    request = Request(depth=Depth.RUN, required=required, policy=policy)
    return decide(request, (unknown, row(feature=KV).as_locked(DAY)), (), make.facts(), missed=(unknown,))


def test_what_a_lock_held_and_is_unknown_cannot_be_told_and_nobody_is_said_to_require_it():
    done = lost()
    assert done.code == 3
    said = "norm.rmsnorm on SM90 is unknown: since it was locked: cache:norm"
    assert done.reason == f"1 row works, 1 unknown, 1 of these locked; {said}"
    assert done.failed_required == ()
    decided = next(one for one in done.requirements if one.decides)
    assert (decided.source, decided.rows) == ("--locked", ("norm.rmsnorm on SM90",))
    assert "; required: norm.rmsnorm on SM90 is unknown" in lost(required=(NORM,)).reason
    assert lost(Policy(allowed=(allow(feature="norm.*"),))).code == 0


def test_without_a_lock_nobody_asks_what_was_locked():
    assert "--locked" not in {one.source for one in gate((row(),)).requirements}
    whole = decide(Request(depth=Depth.RUN), (row().as_locked(DAY),), (), make.facts(), missed=())
    assert [one.holds for one in whole.requirements if one.source == "--locked"] == [Holds.YES]
