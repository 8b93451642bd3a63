"""Each fault of the table, tried: every other row is right, the faulty one is named, nothing is left, in time."""

from __future__ import annotations

import json
import subprocess
import time

import faults
import machine
import pytest
import ways


@pytest.mark.parametrize("fault", [one for one in faults.ALL if not one.is_slow], ids=lambda one: one.name)
def test_it_is_survived(fault, server, place):
    if reason := fault.needs():
        pytest.skip(reason)
    assert machine.tried(fault, machine.Machine(place / str(faults.ALL.index(fault)), server)) == []


def test_several_doctors_at_once_do_not_disturb_each_other(server, place):
    if reason := ways.no_ninja():
        pytest.skip(reason)
    one = machine.Machine(place / "many", server)
    variables, log = ways.building(one)
    done = one.at_once(8, "chaos.deaf", "chaos.module_b", **{**variables, "TMPDIR": one.tmp})
    verdicts = [{row["feature"]: row["verdict"] for row in json.loads(each.out)["features"]} for each in done]
    assert verdicts == [dict.fromkeys((*machine.SOUND, "chaos.deaf", "chaos.module_b"), "works")] * 8
    assert [each.code for each in done] == [0] * 8
    assert (one.processes(), one.left()) == ([], [])
    assert log.read_text().count("begins") == 1  # who came later waited for the first


def breaking(*, code=0, rows=(), left="", over_s=0.0):
    """A fault whose command does this."""

    def run(one):
        if left:
            (one.tmp / left).touch()
        if "process" in left:
            subprocess.Popen(["sh", "-c", "sleep 60 &"], start_new_session=True, env={}).wait()
        report = {"features": [{"feature": name, "verdict": verdict, "why": ""} for name, verdict in rows]}
        return machine.Done(code, json.dumps(report), "", over_s)

    return faults.Fault("it breaks", run, {}, 0)


SOUND = tuple(machine.SOUND.items())
LATE_S = machine.BUDGET_S + machine.READING_S + 2


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        (breaking(rows=SOUND), set()),
        (breaking(rows=SOUND, code=1), {"code"}),
        (breaking(rows=SOUND[:1]), {"rows"}),
        (breaking(rows=[(name, "unknown") for name, _ in SOUND]), {"rows"}),
        (breaking(rows=SOUND, left="file"), {"files"}),
        (breaking(rows=SOUND, left="process"), {"files", "orphans"}),
        (breaking(rows=SOUND, over_s=LATE_S), {"seconds"}),
    ],
    ids=["nothing", "code", "a row less", "rows", "file", "process", "seconds"],
)
def test_what_a_fault_breaks_is_seen(fault, kinds, server, place, monkeypatch):
    monkeypatch.setattr(machine, "GOING_S", 0.2)
    found = machine.tried(fault, machine.Machine(place / f"breaks{time.monotonic_ns()}", server))
    assert {one.kind for one in found} == kinds
