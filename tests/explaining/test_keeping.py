"""Of a log that is full of signs the first of each and the last of all are looked at, and what is left out is told."""

from __future__ import annotations

import string

from fault_cases import diagnosed

WORDS = [f"{one}{two}{three}" for one in string.ascii_letters for two in string.ascii_letters for three in "abc"]
DENIED = "\n".join(f"WARNING 11-28 10:01:00 [a.py:1] upload of {word}: Permission denied" for word in WORDS)
SHM = "RuntimeError: Insufficient space in /dev/shm for ring buffer: 160.0 MiB required, 64.0 MiB free."


def test_what_ends_a_log_is_seen_after_any_number_of_other_signs():
    found = diagnosed(f"{DENIED}\n{SHM}")
    assert [one.cause for one in found.diagnoses] == ["small-shm"]
    assert any("lines with signs were left out" in one for one in found.helps)


def test_where_all_is_looked_at_nothing_is_said_of_it():
    assert not any("left out" in one for one in diagnosed(SHM).helps)
