"""Code of other packages runs only where it is asked for, and is named where it runs."""

from __future__ import annotations

import factory as make
import pytest

from fi_doctor.model import Depth, Request
from fi_doctor.probing import foreign, plan

THEIRS = make.spec("weights.decode", origin="attention-weights-probes")
OURS = make.spec("norm.rmsnorm")


def asked(**request):
    return Request(**{"depth": Depth.RUN, **request})


def planned(**request):
    found = plan.plan((OURS, THEIRS), make.facts(), asked(**request))
    return {one.spec.id: one for one in found}


def test_by_itself_only_our_own_runs():
    found = planned()
    assert found["norm.rmsnorm"].is_tried
    assert not found["weights.decode"].is_tried
    assert "of attention-weights-probes, and runs only where it is asked for" in found["weights.decode"].skip
    assert list(foreign.told((OURS, THEIRS), asked())) == []


@pytest.mark.parametrize("named", [{"features": ("weights.decode",)}, {"required": ("weights.decode",)}], ids=str)
def test_where_its_row_is_named_it_runs_and_is_named(named):
    assert planned(**named)["weights.decode"].is_tried
    [line] = foreign.told((OURS, THEIRS), asked(**named))
    assert line.startswith("note: weights.decode is measured by a probe of attention-weights-probes")


def test_what_would_not_run_anyway_keeps_its_reason():
    found = planned(depth=Depth.STATIC)
    assert found["weights.decode"].skip == found["norm.rmsnorm"].skip
