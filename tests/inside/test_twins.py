"""What is written twice, since inside/ imports nothing of ours and runs elsewhere, is the same."""

from __future__ import annotations

from fi_doctor.inside import ninja
from fi_doctor.model import words


def test_a_command_that_said_nothing_is_called_the_same_on_both_sides():
    assert ninja.SILENT == words.SILENT
