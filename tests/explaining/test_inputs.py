"""What is packed or in another coding is read as far as it can be; what is no text is refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import zipfile

import pytest

from fi_doctor.errors import DataError
from fi_doctor.explaining import inputs

TEXT = "\n".join(f"line {number}: ValueError" for number in range(400))
DATA = TEXT.encode()
FORMS = {
    "plain": DATA,
    "gzip": gzip.compress(DATA),
    "xz": lzma.compress(DATA),
    "bzip2": bz2.compress(DATA),
    "twice": gzip.compress(gzip.compress(DATA)),
    "utf-8 with a mark": TEXT.encode("utf-8-sig"),
    "utf-16": TEXT.encode("utf-16"),
    "utf-16 without a mark": TEXT.encode("utf-16-le"),
    "packed utf-16": gzip.compress(TEXT.encode("utf-16")),
}


def read(path, data):
    path.write_bytes(data)
    cut = []
    with inputs.opened(str(path), cut) as stream:
        text = b""
        while found := stream.read(1 << 20):
            text += found
    return text, cut


@pytest.mark.parametrize("form", FORMS)
def test_a_log_is_read_whatever_it_is_packed_with(tmp_path, form):
    assert read(tmp_path / "log", FORMS[form]) == (DATA, [])


def test_what_is_before_the_place_where_a_log_is_cut_off_is_read(tmp_path):
    lines = random.Random(0).sample(range(10**9), 20_000)
    packed = gzip.compress("\n".join(map(str, lines)).encode())
    text, cut = read(tmp_path / "log", packed[: len(packed) // 2])
    assert text.startswith(f"{lines[0]}\n".encode())
    assert cut


def test_what_is_no_text_is_refused(tmp_path):
    with pytest.raises(DataError):
        read(tmp_path / "log", random.Random(0).randbytes(9000))
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as file:
        file.writestr("log", DATA)
    with pytest.raises(DataError):
        read(tmp_path / "log", (tmp_path / "z.zip").read_bytes())
