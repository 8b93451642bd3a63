"""Files of vLLM that cannot be read, or not in time: each is named, and hides no other."""

from __future__ import annotations

import codecs
import time

import pytest
from test_calls import FLASHINFER, said, write

from fi_doctor.facts import calls

WRONG = "from flashinfer.norm import rmsnorm\nrmsnorm(1, 2, bogus=1)\n"
TOLD = ["UNKNOWN_KEYWORD unexpected keyword argument 'bogus'"]


@pytest.fixture
def bound(tmp_path):
    write(tmp_path / "flashinfer", FLASHINFER)
    write(tmp_path / "vllm", {"good.py": WRONG})

    def bind(other: bytes | None = None):
        if other is not None:
            (tmp_path / "vllm/other.py").write_bytes(other)
        return calls.bind(tmp_path / "vllm", tmp_path / "flashinfer", "flashinfer 0.9.0")

    return bind


def test_a_link_to_itself_is_one_file_that_cannot_be_read(bound, tmp_path):
    (tmp_path / "vllm/loop.py").symlink_to("loop.py")
    found = bound()
    assert said(found) == TOLD
    assert list(found.unread) == ["loop.py"]


def test_a_file_that_is_too_large_is_named(bound):
    found = bound(b"import flashinfer\n" + b"flashinfer.norm.rmsnorm(1, 2)\n" * 40_000)
    assert said(found) == TOLD
    assert found.unread == {"other.py": "it is larger than 1 MiB"}


SLOW = {
    "one-statement": "x = [\n" + "rmsnorm(1, 2),\n" * 40_000 + "]\n",
    "statements": "rmsnorm(1, 2)\n" * 40_000,
    "in-a-function": "def f():\n" + "    a = [1]\n    rmsnorm(*a)\n" * 15_000,
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_a_file_that_takes_too_long_is_named_and_the_rest_is_told(bound, monkeypatch, text):
    monkeypatch.setattr(calls, "_FILE_LIMIT_S", 0.3)
    start = time.monotonic()
    found = bound(f"from flashinfer.norm import rmsnorm\n{text}".encode())
    assert time.monotonic() - start < 10
    assert said(found) == TOLD
    assert list(found.unread) == ["other.py"]


def test_where_all_take_too_long_each_is_named(bound, monkeypatch):
    monkeypatch.setattr(calls, "_LIMIT_S", -1.0)
    found = bound(WRONG.encode())
    assert list(found.unread) == ["good.py", "other.py"]


@pytest.mark.parametrize(
    "text",
    [codecs.BOM_UTF8 + WRONG.encode(), b"# -*- coding: latin-1 -*-\n# \xe9\n" + WRONG.encode(), b"\r" + WRONG.encode()],
    ids=["byte-order-mark", "cookie", "carriage-return"],
)
def test_what_python_reads_is_read(bound, text):
    found = bound(text)
    assert said(found) == TOLD * 2
    assert not found.unread


@pytest.mark.parametrize(
    "text", [b"# \xe9\n" + WRONG.encode(), b"# coding: nothing\n" + WRONG.encode()], ids=["not-utf-8", "no-encoding"]
)
def test_what_python_refuses_is_named(bound, text):
    found = bound(text)
    assert said(found) == TOLD
    assert list(found.unread) == ["other.py"]
