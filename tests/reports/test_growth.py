"""Time grows with the rows, not with their square: outcomes are not looked through once more for each row."""

import factory as make
import pytest
import report_samples
from msgspec.structs import replace

from fi_doctor.model import Ending
from fi_doctor.reports import FORMATS, render


class Counted(tuple):
    """Counts how often it is gone through."""

    __slots__ = ()
    times = 0

    def __iter__(self):
        Counted.times += 1
        return super().__iter__()


def gone_through(name, size):
    rows = [f"moe.row{number}" for number in range(size)]
    outcomes = Counted(
        make.outcome(one, Ending.RETURNED if number else Ending.RAISED) for number, one in enumerate(rows)
    )
    report = replace(SAMPLE, features=tuple(map(make.row, rows)), outcomes=outcomes)
    Counted.times = 0
    render(report, name)
    return Counted.times


SAMPLE = report_samples.all_good()


@pytest.mark.parametrize("name", FORMATS)
def test_outcomes_are_not_looked_through_for_each_row(name):
    assert gone_through(name, 3) == gone_through(name, 30)
