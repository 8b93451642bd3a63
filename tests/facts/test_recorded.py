"""A file that is not as it was installed says nothing of what a release lacks."""

import pytest

from fi_doctor.facts.recorded import Recorded
from fi_doctor.facts.symbols import Symbols

PAGE = "def append(): ...\n"


@pytest.fixture
def root(tmp_path):
    files = {
        "flashinfer/__init__.py": "",
        "flashinfer/page.py": PAGE,
        "flashinfer/jit/__init__.py": "def build(): ...\n",
    }
    lines = []
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        lines.append(f"{name},sha256=abc,{len(text)}\n")
    (tmp_path / "flashinfer_python-0.7.2.dist-info").mkdir()
    (tmp_path / "flashinfer_python-0.7.2.dist-info/RECORD").write_text("".join(lines) + "x.dist-info/RECORD,,\n")
    return tmp_path / "flashinfer"


def lose(path):
    path.unlink()


def be_folder(path):
    path.unlink()
    path.mkdir()


CHANGES = {
    "empty": (lambda path: path.write_text(""), "0 bytes instead of 18"),
    "patched": (lambda path: path.write_text("x = 1\n"), "6 bytes instead of 18"),
    "gone": (lose, "gone"),
    "a folder": (be_folder, "no plain file"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_an_altered_file_lacks_is_unknown(root, change):
    how, words = CHANGES[change]
    assert Recorded(root).all_altered(".py") == {}
    how(root / "page.py")
    assert Recorded(root).all_altered(".py") == {"page.py": words}
    found = Symbols(root, "flashinfer 0.7.2").where("flashinfer.page.append")
    assert not found.absent
    assert f"page.py is not as it was installed ({words}), so it is not known whether it has" in found.reason


def test_what_a_lost_folder_held_is_unknown(root):
    (root / "jit/__init__.py").unlink()
    found = Symbols(root, "flashinfer 0.7.2").where("flashinfer.jit.append")
    assert not found.absent
    assert "jit/__init__.py is not as it was installed (gone)" in found.reason


@pytest.mark.parametrize("size", ["9" * 5001, "\u0661\u0668", "-1", "18.0"])
def test_a_size_that_is_no_number_says_nothing(root, size):
    record = root.parent / "flashinfer_python-0.7.2.dist-info/RECORD"
    record.write_text(record.read_text().replace(",18\n", f",{size}\n"))
    assert size in record.read_text()
    (root / "page.py").write_text("")
    assert Recorded(root).all_altered(".py") == {}


@pytest.mark.parametrize("name", ["flashinfer.page.gone", "flashinfer.other.gone", "flashinfer.gone"])
def test_what_a_whole_file_lacks_is_absent(root, name):
    assert Symbols(root, "flashinfer 0.7.2").where(name).absent


def test_without_a_record_what_is_not_there_is_absent(root):
    (root / "page.py").write_text("")
    (root.parent / "flashinfer_python-0.7.2.dist-info/RECORD").unlink()
    assert Symbols(root, "flashinfer 0.7.2").where("flashinfer.page.append").absent
