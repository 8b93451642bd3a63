"""Whether benchmarks/signs.py finds the words of a sign in the file that its source names."""

from __future__ import annotations

import importlib.util
import pathlib
import zipfile

import pytest

from fi_doctor.model import Sign, Strength

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "signs.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("signs_benchmark", SCRIPT)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize(
    ("written", "literal", "is_there"),
    [
        (b'raise ValueError("no such page")', "no such page", True),
        (b'raise ValueError(\n    f"no {such} "\n    f"page here"\n)', "page here", True),
        (b'raise ValueError(\n    "no such "\n    "page here"\n)', "such page here", True),
        (b'TORCH_CHECK(ok, "no such " << "page");', "such page", True),
        (b"def plan(self):", "in plan", True),
        (b'raise ValueError("no such page")', "no such head", False),
        (b"", "flashinfer/decode.py", False),
    ],
    ids=["as it is", "of a part", "over lines", "in C++", "a function", "other words", "no such file"],
)
def test_words_are_looked_up(script, written, literal, is_there):
    assert script.has(written, "flashinfer/decode.py", literal) is is_there


@pytest.mark.parametrize("kind", ["wheel", "folder"])
def test_a_source_is_read_in_a_wheel_or_a_folder(script, tmp_path, kind):
    if kind == "wheel":
        with zipfile.ZipFile(tmp_path / "flashinfer_python-0.6.4-py3-none-any.whl", "w") as wheel:
            wheel.writestr("flashinfer/decode.py", "no such page")
    else:
        file = tmp_path / "flashinfer-python-0.6.4" / "flashinfer" / "decode.py"
        file.parent.mkdir(parents=True)
        file.write_text("no such page")
    packages = script.found_in([tmp_path])
    source = "flashinfer-python 0.6.4: flashinfer/decode.py:12; Python, of flashinfer-python 0.6.4: flashinfer/mla.py"
    [one] = script.named(Sign(text="no such page", strength=Strength.DECIDES, source=source))
    assert script.is_there(one, packages)
    assert script.text(packages["flashinfer-python", "0.6.4"], one["path"]) == b"no such page"
