"""What an import loads, told by a real child of a real interpreter that imports packages made for it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from fi_doctor.facts.imports import parse, read_imports
from fi_doctor.locking import loads

TORCH = """
import os
import sys
import json.decoder
from . import _inner
try:
    import looked_for
except ImportError:
    pass
os.environ.get("TORCH_OPTION")
"TORCH_SWITCH" in os.environ
sys.modules["torch.alias"] = _inner
print("imports may print what they like")
"""


@pytest.fixture
def site(tmp_path):
    files = {
        "torch/__init__.py": TORCH,
        "torch/_inner.py": "import helper\n",
        "torch/late.py": "",
        "helper.py": "",
        "flashinfer/__init__.py": "import torch.late\nimport tvm_ffi\n",
        "tvm_ffi/__init__.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def told(site):
    imports = read_imports(sys.executable, {**os.environ, "PYTHONPATH": str(site)})
    return imports, loads.words(imports, platform.python_version())


def test_each_import_tells_what_it_asks_for_and_loads(site):
    imports, words = told(site)
    assert [(one.name, one.error) for one in imports.loaded] == [("torch", ""), ("flashinfer", "")]
    assert words["torch:torch"] == ("torch", "torch._inner")
    assert words["torch:helper"] == ("helper",)
    assert words["torch:looked_for"] == ("looked_for",)
    # Some distributions have one beside the standard library, which then tells of it.
    assert "sitecustomize" in (*words.get("torch:sitecustomize", ()), *words["torch:standard-library"])
    assert "json.decoder" in words["torch:standard-library"]
    assert words["flashinfer:torch"] == ("torch.late",)
    assert words["flashinfer:flashinfer"] == ("flashinfer",)
    assert "flashinfer:helper" not in words
    assert not [word for some in words.values() for word in some if str(site) in word]


def test_the_variables_that_an_import_asks_for_are_among_what_it_rests_on(site):
    imports, words = told(site)
    asked = [name for name in loads.groups(imports, words)["loads:torch"] if not name.startswith("loads:")]
    assert asked == ["variable:TORCH_OPTION", "variable:TORCH_SWITCH"]


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("os._exit(3)", "left without a word"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
    ],
    ids=["raises", "exits", "leaves", "is-killed"],
)
def test_an_import_that_fails_tells_how_far_it_came_and_why(site, end, why):
    (site / "torch" / "_inner.py").write_text(f"import os\nimport helper\n{end}\nimport never\n")
    imports, words = told(site)
    assert why in imports.loaded[0].error
    assert "torch._inner" in words["torch:torch"]
    assert words["torch:helper"] == ("helper",)
    assert "torch:never" not in words


def test_a_file_that_no_name_leads_to_is_a_word_below_its_entry_or_a_path(site, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "hidden.py"
    elsewhere.write_text("")
    (site / "torch" / "strange.txt").write_text("")
    (site / "torch" / "_inner.py").write_text(
        "import helper, importlib.machinery as m, importlib.util as u, sys\n"
        f"for name, path in (('torch.strange', {str(site / 'torch/strange.txt')!r}), ('hidden', {str(elsewhere)!r})):\n"
        "    spec = u.spec_from_loader(name, m.SourceFileLoader(name, path))\n"
        "    sys.modules[name] = module = u.module_from_spec(spec)\n"
    )
    _, words = told(site)
    assert "./torch/strange.txt" in words["torch:torch"]
    assert str(elsewhere) in words["torch:elsewhere"]
    assert words["torch:hidden"] == ("hidden",)


def test_a_library_goes_by_the_name_under_which_it_was_opened(site, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    (store / "one.c").write_text("int one(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(store / "libone.so"), str(store / "one.c")], check=True)
    (site / "torch" / "lib").mkdir()
    (site / "torch" / "lib" / "libone.so").symlink_to(store / "libone.so")
    (site / "torch" / "_inner.py").write_text(
        "import ctypes, os, helper\nctypes.CDLL(os.path.join(os.path.dirname(__file__), '../torch/lib/libone.so'))\n"
    )
    _, words = told(site)
    assert "./torch/lib/libone.so" in words["torch:torch"]


def test_what_is_cut_off_is_left_out():
    lines = [{"began": [["/site"], ["/lib"]]}, {"stage": "torch"}, {"asked": "torch"}]
    imports = parse("\n".join(map(json.dumps, lines)).encode() + b'\n{"asked": "tor', "it was ended")
    assert (imports.sys_path, imports.loaded[0].asked) == (("/site",), {"torch"})
    assert imports.loaded[0].error == "it was ended"
    assert parse(b"", "it was ended").loaded == ()
