"""Lines are found with their numbers, however a log is cut into blocks, and a log's size is never its memory."""

from __future__ import annotations

import io
import tracemalloc

import pytest

from fi_doctor.explaining import stream


def found(data: bytes, *literals: bytes):
    reading = stream.Reading()
    return list(stream.hits(io.BytesIO(data), literals, reading)), reading


class Endless(io.RawIOBase):
    """So many bytes of one line, and then its end; nothing of it is kept."""

    def __init__(self, size: int, end: bytes) -> None:
        self.left, self.end = size, end

    def read(self, size: int = -1) -> bytes:
        if self.left <= 0:
            end, self.end = self.end, b""
            return end
        now = min(size, self.left)
        self.left -= now
        return b"x" * now


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
def test_a_line_is_found_once_however_the_log_is_cut(block, monkeypatch):
    monkeypatch.setattr(stream, "_BLOCK", block)
    hits, reading = found(b"one\ntwo needle\n\nfour needle needle\nlast needle", b"needle")
    assert [(hit.number, hit.raw) for hit in hits] == [
        (2, b"two needle"),
        (4, b"four needle needle"),
        (5, b"last needle"),
    ]
    assert (reading.lines, reading.bytes) == (5, 46)


@pytest.mark.parametrize("block", [1 << 13, 1 << 20])
def test_lines_are_the_same_whether_each_is_asked_or_places_are_searched(block, monkeypatch):
    monkeypatch.setattr(stream, "_BLOCK", block)
    long = b" pin".join(b"word " * times for times in range(1000, 4000, 200))
    log = b"\n".join([b"a needle\r", b"", b"  b pin", b"none", b"needle pin", long, b"c", b"x needle", b"\x00pin"] * 5)
    monkeypatch.setattr(stream, "_DENSE", 1 << 20)
    asked, _ = found(log, b"needle", b"pin")
    monkeypatch.setattr(stream._Searched, "is_dense", property(lambda _: False, lambda *_: None), raising=False)
    searched, _ = found(log, b"needle", b"pin")
    assert asked == searched
    assert len({hit.number for hit in asked}) == 5 * 6


def test_every_literal_of_a_line_is_told():
    [hit], _ = found(b"needles and needle and pin\n", b"needle", b"needles", b"pin", b"thread")
    assert hit.literals == (b"needle", b"needles", b"pin")


def test_a_line_of_100_mb_takes_no_memory():
    tracemalloc.start()
    hits = list(stream.hits(Endless(100 << 20, b"needle at the end"), [b"needle"], stream.Reading()))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [hit.number for hit in hits] == [1]
    assert len(hits[0].raw) < 1 << 16
    assert most < 16 << 20


def test_what_repeats_itself_is_no_longer_looked_for_and_what_comes_later_is(monkeypatch):
    monkeypatch.setattr(stream, "_BLOCK", 1 << 10)
    hits, reading = found(b"step 1 pin\n" * 5000 + b"needle\n", b"pin", b"needle")
    assert len(hits) < 1000
    assert (hits[-1].number, reading.lines) == (5001, 5001)


def test_colours_within_a_message_are_passed_over():
    [hit], _ = found(b"x.cu:3: \x1b[01;31m\x1b[Kfatal error: \x1b[m\x1b[Kcurand.h: No\n", b"fatal error: curand.h")
    assert hit.raw == b"x.cu:3: fatal error: curand.h: No"


def test_binary_data_and_crlf_are_lines_like_others():
    hits, _ = found(b"\x00\xff\xfe\x00needle\x80\r\n\x00\n", b"needle")
    assert [hit.raw for hit in hits] == [b"\x00\xff\xfe\x00needle\x80"]


def test_where_all_is_found_too_often_the_rest_is_still_counted(monkeypatch):
    monkeypatch.setattr(stream, "_LOOK", 300)
    hits, reading = found(b"pin 7\n" * 2000, b"pin")
    assert (len(hits), reading.lines) == (100, 2000)
