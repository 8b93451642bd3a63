"""A fork that keeps the sizes of files is seen where the files decide."""

import base64
import hashlib
import re
from fnmatch import fnmatchcase
from pathlib import Path

import factory as make
import pytest

from fi_doctor.facts import contents
from fi_doctor.model import Missing

CHOICES = Path(contents.__file__).parents[1] / "knowledge" / "choices"
FILES = ("envs.py", "config/kernel.py", "platforms/cuda.py", "tasks.py")


@pytest.fixture
def vllm(tmp_path):
    """An installed vLLM with a RECORD as pip writes it, of version 0.33.0+cu129."""
    lines = []
    for name in FILES:
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("FA, FI")
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"vllm/{name},sha256={digest},{path.stat().st_size}")
    (tmp_path / "vllm-0.33.0+cu129.dist-info").mkdir()
    (tmp_path / "vllm-0.33.0+cu129.dist-info" / "RECORD").write_text("\r\n".join([*lines, "vllm-0.33.0/RECORD,,"]))
    return make.vllm(root=str(tmp_path / "vllm"))


@pytest.mark.parametrize("name", FILES[:3])
def test_a_changed_file_of_the_same_size_is_named(vllm, name):
    assert contents.with_contents(vllm).altered == {}
    (Path(vllm.root) / name).write_text("FI, FA")
    assert contents.with_contents(vllm).altered == {name: contents.OTHER}


def test_what_does_not_decide_is_gone_or_has_no_record_is_not_said_to_be_changed(vllm):
    root = Path(vllm.root)
    (root / "tasks.py").write_text("FI, FA")
    (root / "envs.py").unlink()
    assert contents.with_contents(vllm).altered == {}
    (root / "config/kernel.py").write_text("FI, FA")
    next(root.parent.glob("*/RECORD")).unlink()
    assert contents.with_contents(vllm).altered == {}


def test_what_is_known_of_a_size_stays(vllm):
    known = make.vllm(root=vllm.root, altered={"envs.py": "6 bytes instead of 7"})
    (Path(vllm.root) / "envs.py").write_text("FI, FA")
    assert contents.with_contents(known) is known
    absent = Missing(reason="vllm is not installed")
    assert contents.with_contents(absent) is absent


def test_every_file_that_the_table_of_choices_was_read_in_decides():
    texts = [path.read_text() for path in CHOICES.glob("*.yaml")]
    named = {name for text in texts for name in re.findall(r"\bvllm/([\w/]+\.py)", text)}
    assert len(named) > 20
    assert [name for name in sorted(named) if not any(fnmatchcase(name, glob) for glob in contents.DECIDING)] == []
