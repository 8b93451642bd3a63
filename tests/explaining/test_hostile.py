"""Logs that were made to harm: nothing in them is obeyed, and no line takes more than time linear in its length."""

from __future__ import annotations

import json
import time

import pytest
from fault_cases import FAULTS, diagnosed

from fi_doctor.explaining import lines, patterns, readers, usage
from fi_doctor.reports import explained, explained_markdown

HOSTILE = "\x1b]0;owned\x07 \x1b[2J [bold red]x[/] [link=x]y[/link] \u202e \u200b \U000e0001 <script> | `a` **b**"
CAUSE = "RuntimeError: Could not find nvcc and default cuda_home="
FORMS = {
    "console": explained.render,
    "json": explained.to_json,
    "markdown": explained_markdown.render,
}
# What makes engines that try every way back off for hours.
LINES = ("a" * 50_000, "(" * 50_000, "1." * 25_000, "error: " * 7_000, "\\" * 50_000, " =" * 25_000, "[0, 0, " * 7_000)
PATTERNS = sorted(
    {
        *(sign.pattern for fault in FAULTS for sign in fault.signs if sign.pattern),
        *(sign.without for fault in FAULTS for sign in fault.signs if sign.without),
        *(reader.pattern for reader in readers.READERS),
        *(form.pattern for form in usage._FORMS),
        *lines._PREFIXES,
    }
)


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_in_a_log_is_shown_and_not_obeyed(form):
    text = FORMS[form](diagnosed(f"{CAUSE}{HOSTILE}\nValueError: {HOSTILE}"))
    assert "owned" not in text or "\\" in text
    assert [char for char in text if not char.isprintable() and char != "\n"] == []


def test_the_json_of_hostile_text_is_that_text():
    found = json.loads(explained.to_json(diagnosed(f"ValueError: {HOSTILE}")))
    assert "\u202e \u200b \U000e0001" in found["errors"][0]["text"]


@pytest.mark.parametrize("form", ["console", "markdown"])
def test_markup_in_a_log_is_text(form):
    text = FORMS[form](diagnosed(f"{CAUSE}{HOSTILE}"))
    assert "[bold red]x[/]" in " ".join(text.split())


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:7])
def test_no_pattern_takes_long_on_any_line(line):
    began = time.thread_time()
    for pattern in PATTERNS:
        patterns.search(pattern, line)
    assert time.thread_time() - began < 0.05 * len(PATTERNS)


def test_a_pattern_that_re2_does_not_take_is_an_error_and_no_exception():
    assert "no regular expression of RE2" in patterns.wrong("(?=a)b")
    assert patterns.wrong("a+") == ""
