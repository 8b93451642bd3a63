"""Time grows with the rows, not with their square: outcomes are not looked through once more for each row."""

import factory as make
import pytest
import report_samples
from msgspec.structs import replace

from fi_doctor.model import Ending, Verdict
from fi_doctor.reports import render


class Counted(tuple):
    """Counts how often it is gone through."""

    __slots__ = ()
    times = 0

    def __iter__(self):
        Counted.times += 1
        return super().__iter__()


SAMPLE = report_samples.all_good()


def gone_through(name, size):
    names = [f"moe.row{number}" for number in range(size)]
    outcomes = Counted(make.outcome(one, Ending.RAISED if one == names[0] else Ending.RETURNED) for one in names)
    rows = tuple(make.row(one, Verdict.UNKNOWN) for one in names)  # of which it is asked what became of their probes
    Counted.times = 0
    render(replace(SAMPLE, features=rows, outcomes=outcomes), name)
    return Counted.times


@pytest.mark.parametrize("name", ["junit", "github", "sarif", "termination-log"])
def test_outcomes_are_not_looked_through_for_each_row(name, monkeypatch):
    monkeypatch.setattr("fi_doctor.reports.junit.in_order", lambda report: report)  # which makes a plain tuple
    assert 0 < gone_through(name, 3) == gone_through(name, 30)
