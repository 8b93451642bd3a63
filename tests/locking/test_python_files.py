"""Which Python files a name of FlashInfer goes through, in small trees and in a real FlashInfer."""

from __future__ import annotations

import pytest
from installation import write

from fi_doctor.locking.python_files import PythonFiles, names_in_probe


@pytest.fixture
def closure(tmp_path):
    def made(files, *names):
        for name, text in files.items():
            write(tmp_path / "flashinfer" / name, text)
        found = PythonFiles(tmp_path / "flashinfer").closure(names)
        return {path.relative_to(tmp_path / "flashinfer").as_posix() for path in found}

    return made


TREES = {
    "relative": ({"norm.py": "from .utils import x\ndef rmsnorm(): ...", "utils.py": "x = 1"}, {"norm.py", "utils.py"}),
    "absolute": (
        {"norm.py": "import flashinfer.utils\ndef rmsnorm(): ...", "utils.py": "x = 1"},
        {"norm.py", "utils.py"},
    ),
    "late": (
        {"norm.py": "def rmsnorm():\n    from . import utils", "utils.py": "x = 1"},
        {"norm.py", "utils.py"},
    ),
    "handed-on": (
        {
            "norm.py": "from .jit import gen\ndef rmsnorm(): ...",
            "jit/__init__.py": "from .a import gen\nfrom .b import other",
            "jit/a.py": "gen = 1",
            "jit/b.py": "other = 1",
        },
        {"norm.py", "jit/a.py"},
    ),
    "defined-in-a-package": (
        {
            "norm.py": "from .jit import gen\ndef rmsnorm(): ...",
            "jit/__init__.py": "from .b import other\ndef gen(): ...",
            "jit/b.py": "other = 1",
        },
        {"norm.py", "jit/__init__.py", "jit/b.py"},
    ),
    "star": (
        {
            "norm.py": "from .jit import *\ndef rmsnorm(): ...",
            "jit/__init__.py": "from .a import gen",
            "jit/a.py": "gen = 1",
        },
        {"norm.py", "jit/__init__.py", "jit/a.py"},
    ),
    "from-above": (
        {
            "norm.py": "from .kernels.a import f\ndef rmsnorm(): ...",
            "kernels/__init__.py": "",
            "kernels/a.py": "from ..utils import x\ndef f(): ...",
            "utils.py": "x = 1",
        },
        {"norm.py", "kernels/a.py", "utils.py"},
    ),
    "a-circle": (
        {"norm.py": "from .utils import x\ndef rmsnorm(): ...", "utils.py": "from .norm import rmsnorm\nx = 1"},
        {"norm.py", "utils.py"},
    ),
    "not-python": (
        {"norm.py": "from .utils import x\ndef rmsnorm(): ...", "utils.py": "x = ("},
        {"norm.py", "utils.py"},
    ),
    "nothing-there": ({"norm.py": "from .gone import x\ndef rmsnorm(): ..."}, {"norm.py"}),
}


@pytest.mark.parametrize(("files", "expected"), TREES.values(), ids=TREES)
def test_files_are_followed_by_what_they_import(closure, files, expected):
    assert closure({"__init__.py": "from .norm import rmsnorm\n", **files}, "flashinfer.norm.rmsnorm") == {
        "__init__.py",
        *expected,
    }


def test_a_probe_names_what_it_calls_and_not_the_package_around_it():
    text = "import flashinfer.comm\nfrom flashinfer.jit.norm import gen\nflashinfer.comm.create(1)\n"
    assert names_in_probe(text) == {"flashinfer.jit.norm.gen", "flashinfer.comm.create"}


@pytest.mark.parametrize(("version", "own"), [("0.5.3", "norm.py"), ("0.7.2.post1", "norm/__init__.py")])
def test_a_real_norm_goes_through_its_own_files_and_not_through_attention(unpacked, version, own):
    root = unpacked(version)
    files = PythonFiles(root)
    found = files.closure(["flashinfer.norm.rmsnorm"])
    names = {path.relative_to(root).as_posix() for path in found}
    assert {own, "jit/norm.py", "jit/core.py", "jit/cpp_ext.py", "utils.py"} <= names
    assert not {"prefill.py", "decode.py", "sampling.py", "jit/sampling.py", "jit/fused_moe.py"} & names
    assert "FLASHINFER_CUDA_ARCH_LIST" in files.variables(found)
    assert "apache-tvm-ffi" in files.distributions(found)
