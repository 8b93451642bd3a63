"""What a builder does with logs and build files, and which of those it left are of another toolkit."""

import textwrap
from types import SimpleNamespace

import pytest
from flashinfer_wheels import VERSIONS

from fi_doctor.facts.builds import Builder, difference, parse_builder, read_builder, read_stale

SHARED = """
from . import env as jit_env
class JitSpec:
    def build(self, verbose):
        with lock:
            run_ninja({workdir}, self.ninja_path, verbose)
    def load(self): ...
def build_jit_specs(specs):
    run_ninja(jit_env.FLASHINFER_JIT_DIR, "flashinfer_jit.ninja", False)
"""
KEPT = """
class JitSpec:
    def is_ninja_generated(self): ...
    def build(self, verbose):
        with lock:
{writes}
            run_ninja(self.build_dir, self.ninja_path, verbose)
def build_jit_specs(specs):
    for spec in specs:
        if not spec.is_ninja_generated:
            spec.write_ninja()
"""
ONCE = "if not self.is_ninja_generated:\n    self.write_ninja()"
HEAD = """ninja_required_version = 1.3
name = norm
cuda_home = {home}
cxx = c++
nvcc = {nvcc}

common_cflags = -isystem $cuda_home/include $
    -DX=cuda_home = no
"""
OWN = "$cuda_home/bin/nvcc"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SHARED.format(workdir="jit_env.FLASHINFER_JIT_DIR"), True),
        ("class JitSpec:\n def build(self): run_ninja(ninja_file=1, workdir=jit_env.FLASHINFER_JIT_DIR)", True),
        (SHARED.format(workdir="FLASHINFER_JIT_DIR"), True),
        (SHARED.format(workdir="self.build_dir"), False),
        (SHARED.format(workdir="jit_env.FLASHINFER_JIT_DIR / self.name"), False),
        (SHARED.format(workdir="jit_env.FLASHINFER_JIT_DIR").replace("JitSpec", "JitSpecNvcc(JitSpec)"), True),
        (SHARED.format(workdir="jit_env.FLASHINFER_JIT_DIR").replace("def build(", "def prebuild("), False),
    ],
    ids=["0.5.3", "keyword", "bare", "0.7.2", "below it", "subclass", "other method"],
)
def test_a_shared_ninja_log_is_read_off_the_builder(text, expected):
    assert parse_builder(text).shares_log is expected


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        (ONCE, True),
        (ONCE.replace("not self.is_ninja_generated", "self.is_ninja_generated() is False"), True),
        ("self.write_ninja()", False),
        (f"{ONCE}\nself.write_ninja()", False),
        (ONCE.replace("is_ninja_generated", "is_cold"), False),
        ("pass", False),
    ],
    ids=["0.5.3", "method", "0.7.2", "both", "other reason", "elsewhere"],
)
def test_whether_build_files_are_kept_is_read_off_the_builder(writes, expected):
    text = KEPT.format(writes=textwrap.indent(writes, " " * 12))
    assert parse_builder(text).keeps_files is expected


@pytest.mark.parametrize("text", ["(", "x = 1\0", None], ids=["broken", "zero byte", "absent"])
def test_a_builder_that_cannot_be_read_has_no_habits(tmp_path, text):
    (tmp_path / "jit").mkdir()
    if text is not None:
        (tmp_path / "jit/core.py").write_text(text)
    assert read_builder(tmp_path) == Builder(shares_log=False, keeps_files=False)


@pytest.mark.wheels
@pytest.mark.parametrize("version", VERSIONS)
def test_the_habits_of_the_releases(unpacked, version):
    expected = {"0.5": Builder(shares_log=True, keeps_files=True), "0.6": Builder(keeps_files=True), "0.7": Builder()}
    assert read_builder(unpacked(version)) == expected[version[:3]]


@pytest.mark.parametrize(
    ("home", "nvcc", "environ", "expected"),
    [
        ("/opt/new", OWN, {}, ""),
        ("/opt/old", OWN, {}, "cuda_home = /opt/old; now /opt/new"),
        ("", OWN, {}, "cuda_home = ; now /opt/new"),
        ("/opt/new", "/opt/old/bin/nvcc", {}, "nvcc = /opt/old/bin/nvcc; now $cuda_home/bin/nvcc"),
        ("/opt/new", OWN, {"FLASHINFER_NVCC": "ccache nvcc"}, "nvcc = $cuda_home/bin/nvcc; now ccache nvcc"),
        ("/opt/new", "ccache nvcc", {"FLASHINFER_NVCC": "ccache nvcc"}, ""),
        ("/opt/new", "/opt/new/bin/nvcc", {"FLASHINFER_NVCC": "${cuda_home}/bin/nvcc"}, ""),
    ],
    ids=["same", "home", "empty home", "variable gone", "variable new", "variable kept", "other spelling"],
)
def test_what_a_build_file_says_is_compared_with_what_would_be_written(home, nvcc, environ, expected):
    assert difference(HEAD.format(home=home, nvcc=nvcc), "/opt/new", environ) == expected


def test_a_file_that_flashinfer_did_not_write_is_not_judged():
    assert difference("rule x\n  cuda_home = /opt/old\n", "/opt/new", {}) == ""


def test_two_names_of_one_toolkit_are_no_difference(tmp_path):
    (tmp_path / "cuda-13.0").mkdir()
    (tmp_path / "cuda").symlink_to("cuda-13.0")
    head = HEAD.format(home=tmp_path / "cuda", nvcc=OWN)
    assert difference(head, str(tmp_path / "cuda-13.0"), {}) == ""


def put(folder, name, home):
    (folder / name).mkdir(parents=True)
    (folder / name / "build.ninja").write_text(HEAD.format(home=home, nvcc=OWN))


def test_the_stale_modules_of_a_cache_are_told_with_both_toolkits(tmp_path):
    put(tmp_path, "page", "/opt/old")
    put(tmp_path, "norm", "/opt/old")
    put(tmp_path, "sampling", "/opt/new")
    (tmp_path / "tmp").mkdir()
    (tmp_path / ".ninja_log").touch()
    (tmp_path / "odd/build.ninja").mkdir(parents=True)
    found = read_stale(tmp_path, SimpleNamespace(cuda_home="/opt/new"), {})
    assert list(found.items()) == [(name, "cuda_home = /opt/old; now /opt/new") for name in ("norm", "page")]
    assert read_stale(tmp_path / "none", SimpleNamespace(cuda_home="/opt/new"), {}) == {}


def test_a_huge_cache_is_read_in_part(tmp_path):
    for number in range(600):
        put(tmp_path, f"m{number:03}", "/opt/old" if number >= 500 else "/opt/new")
    found = read_stale(tmp_path, SimpleNamespace(cuda_home="/opt/new"), {})
    assert list(found) == [f"m{number}" for number in range(500, 512)]
