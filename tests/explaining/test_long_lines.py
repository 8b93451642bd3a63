"""Of a line that is too long to be shown whole, the part round what was found in it is shown."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

from fi_doctor.reports import explained, explained_markdown
from fi_doctor.reports.text import around

SIGN = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"
LONG = f"{'before ' * 300}{SIGN}{' after' * 300}"


@pytest.mark.parametrize("render", [explained.render, explained_markdown.render])
def test_the_sign_is_shown(render):
    shown = " ".join(render(diagnosed(LONG)).split())
    assert f" before {SIGN} after " in shown
    assert LONG[:100] not in shown


def test_an_error_that_no_fault_fits_is_shown_too():
    [error] = diagnosed(f"{'before ' * 300}CUDA error: nobody knows it{' after' * 300}").errors
    assert "before CUDA error: nobody knows it after" in error.text


@pytest.mark.parametrize(
    ("at", "shown"), [(0, "0123456789abcd..."), (17, "...efghijklmnopqr..."), (35, "...mnopqrstuvwxyz")]
)
def test_what_is_left_out_is_marked(at, shown):
    assert around("0123456789abcdefghijklmnopqrstuvwxyz", at, 20) == shown


def test_a_line_that_is_short_is_left_as_it_is():
    assert around("short", 3, 20) == "short"
