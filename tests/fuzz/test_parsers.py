"""Whatever comes from outside is read, or refused in words: a short run of what benchmarks/fuzz.py does for hours."""

from __future__ import annotations

import itertools
import re

import fuzz_seeds
import mutating
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outside_data import BY_NAME, PARSERS

from fi_doctor.errors import DataError

EXAMPLES = 60  # of a cheap parser; fewer of a dear one
SHORT = settings(
    database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=False
)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda one: one.name)
def test_what_campaigns_found_is_read_or_refused(parser):
    for data in (*parser.seeds, *fuzz_seeds.kept(parser.name)):
        mutating.tried(parser, data)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda one: one.name)
def test_anything_is_read_or_refused(parser):
    @settings(SHORT, max_examples=max(4, EXAMPLES // parser.cost))
    @given(
        st.one_of(
            mutating.mutated(parser.seeds),
            st.binary(max_size=300),
            st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")),
        )
    )
    def holds(data):
        mutating.tried(parser, data)

    holds()


@pytest.mark.parametrize("parser", PARSERS, ids=lambda one: one.name)
def test_numbers_without_end_are_read_or_refused(parser):
    """Python converts none of more than 4300 digits, and says so with a plain ValueError."""
    numbers = rb"\d+" if parser.cost <= 10 else rb"(?<![\w.])\d+(?=\.\d)"  # of dear ones those that begin a version
    for seed in parser.seeds:
        for number in itertools.islice(re.finditer(numbers, seed), 100):
            mutating.tried(parser, seed[: number.start()] + b"9" * 5001 + seed[number.end() :])


def test_a_mistake_would_be_seen():
    broken = BY_NAME["policy"]._replace(allowed=())
    with pytest.raises(DataError):
        mutating.tried(broken, b"[require")
    mutating.tried(BY_NAME["policy"], b"[require")
