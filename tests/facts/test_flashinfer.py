"""The installed flashinfer package, from folders that the tests build and from real wheels."""

import os
import time
from pathlib import Path

import pytest
from flashinfer_rules import CONTEXT
from flashinfer_wheels import VERSIONS
from permissions import printed_by

from fi_doctor.facts.flashinfer import access, cache_base, read_flashinfer
from fi_doctor.facts.named import read_named
from fi_doctor.facts.packages import Survey
from fi_doctor.model import FlashInfer, GpuFacts, Missing, ToolkitFacts

NONE = Missing(reason="not looked for")
GPUS = GpuFacts(driver=NONE, gpus=(), visible_devices=NONE, cuda_order=NONE)
TOOLKIT = ToolkitFacts(
    jit=NONE,
    gate_version="13.0",
    gate_source="nvcc",
    others=(),
    torch_cuda="13.0",
    jit_cache_cuda=NONE,
    ninja=NONE,
    host_compiler=NONE,
    host_compiler_version=NONE,
)
ENV = """
import os
import pathlib

def _get_cubin_dir():
    env_dir = os.getenv("FLASHINFER_CUBIN_DIR")
    return pathlib.Path(env_dir) if env_dir else FLASHINFER_CACHE_DIR / "cubins"
"""
FILES = {
    "__init__.py": "raise SystemExit('flashinfer was imported')\n",
    "_build_meta.py": '__version__ = "0.5.3"\n__git_version__ = "0e68a2f"\n',
    "compilation_context.py": CONTEXT,
    "jit/env.py": ENV,
    "norm.py": "def rmsnorm(): ...\n",
}


def package(folder, **changes):
    for name, text in {**FILES, **changes}.items():
        path = folder / "flashinfer" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text)
    return folder / "flashinfer"


def read(root, environ, symbols=()):
    modules = {"flashinfer": str(root / "__init__.py") if isinstance(root, Path) else root}
    seen = Survey(
        executable="/venv/bin/python",
        version="3.12",
        implementation="cpython",
        prefix="/venv",
        base_prefix="/usr",
        sys_path=(),
        distributions=(),
        modules=modules,
        problems=(),
    )
    return read_flashinfer(seen, environ, GPUS, TOOLKIT, lambda root, version: read_named(root, version, symbols))


def variables(folder, **more):
    return {"FLASHINFER_CUDA_ARCH_LIST": "9.0a", "FLASHINFER_WORKSPACE_BASE": str(folder), **more}


def test_a_package_says_who_it_is_without_being_imported(tmp_path):
    found = read(package(tmp_path), variables(tmp_path), ("flashinfer.norm.rmsnorm", "flashinfer.norm.layernorm"))
    assert isinstance(found, FlashInfer)
    assert (found.version, found.commit, found.root) == ("0.5.3", "0e68a2f", str(tmp_path / "flashinfer"))
    assert (found.architectures, found.architectures_from) == (("90a",), "FLASHINFER_CUDA_ARCH_LIST")
    assert found.cache_dir == str(tmp_path / ".cache" / "flashinfer" / "0.5.3" / "90a")
    assert found.symbols == {
        "flashinfer.norm.rmsnorm": "norm.py:1",
        "flashinfer.norm.layernorm": Missing(
            reason="flashinfer 0.5.3 has no flashinfer.norm.layernorm (norm.py read)", absent=True
        ),
    }


def test_names_and_calls_say_where_the_source_turns_gpus_away_and_a_call_is_no_name(tmp_path):
    source = (
        "def rmsnorm(backend):\n    if backend == 'x':\n        f.get_nvcc_flags_list(supported_major_versions=[9])\n"
    )
    call = "flashinfer.norm.rmsnorm(backend='x')"
    symbols = ("flashinfer.norm.rmsnorm", call, "flashinfer.norm.gen_module")
    found = read(package(tmp_path, **{"norm.py": source}), variables(tmp_path), symbols)
    assert set(found.symbols) == {"flashinfer.norm.rmsnorm", "flashinfer.norm.gen_module"}
    assert list(found.admissions) == [call]
    assert [(one.source, one.admits) for one in found.admissions[call]] == [("norm.py:3", (90,))]


def test_the_reason_of_an_absent_package_is_handed_on():
    absent = Missing(reason="no module flashinfer on sys.path of /venv/bin/python")
    assert read(absent, {}) == absent


def test_a_package_inside_an_archive_is_missing(tmp_path):
    (tmp_path / "x.whl").write_text("")
    found = read(tmp_path / "x.whl" / "flashinfer", {})
    assert isinstance(found, Missing)
    assert "not a folder" in found.reason


@pytest.mark.parametrize(
    ("text", "version", "commit"),
    [
        ('__version__ = "0.7.2"\n__git_commit__ = "beabf50"\n', "0.7.2", "beabf50"),
        ('__version__ = "0.7.2"\n__git_version__ = "unknown"\n', "0.7.2", "names no commit"),
        ("", "has no __version__", "names no commit"),
        ("(", "calls itself 0.0.0+unknown", "is not Python"),
        (None, "calls itself 0.0.0+unknown", "No such file"),
    ],
    ids=["0.7 name", "unknown", "empty", "broken", "absent"],
)
def test_version_and_commit_come_from_the_build_file(tmp_path, text, version, commit):
    found = read(package(tmp_path, **{"_build_meta.py": text}), variables(tmp_path))
    for value, words in ((found.version, version), (found.commit, commit)):
        assert words in (value.reason if isinstance(value, Missing) else value)


def test_a_version_that_is_unknown_names_the_cache_as_flashinfer_does(tmp_path):
    found = read(package(tmp_path, **{"_build_meta.py": None}), variables(tmp_path))
    assert str(found.cache_dir).endswith("/.cache/flashinfer/0.0.0+unknown/90a")


def test_several_architectures_name_one_folder_in_order(tmp_path):
    environ = variables(tmp_path, FLASHINFER_CUDA_ARCH_LIST="10.0a 9.0a 8.0")
    assert str(read(package(tmp_path), environ).cache_dir).endswith("/0.5.3/80_90a_100a")


def test_without_architectures_there_is_no_cache_folder(tmp_path):
    found = read(package(tmp_path), variables(tmp_path, FLASHINFER_CUDA_ARCH_LIST="9.0;10.0"))
    assert isinstance(found.architectures, Missing)
    assert isinstance(found.cache_dir, Missing)
    assert found.cache_base == str(tmp_path / ".cache" / "flashinfer")


def test_only_modules_with_a_finished_library_are_cached(tmp_path):
    ops = tmp_path / ".cache" / "flashinfer" / "0.5.3" / "90a" / "cached_ops"
    for name, files in {"norm": ["norm.so"], "page": ["page.o"], "rope": []}.items():
        (ops / name).mkdir(parents=True)
        for file in files:
            (ops / name / file).write_bytes(b"x")
    (ops / "sampling").mkdir()
    (ops / "sampling" / "sampling.so").write_bytes(b"")
    found = read(package(tmp_path), variables(tmp_path))
    assert found.cached_modules == ("norm",)
    assert (found.cache_writable, found.cache_owner) == (True, os.getuid())


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/x"}, "/home/x/.cache/flashinfer"),
        ({"HOME": "/home/x", "FLASHINFER_WORKSPACE_BASE": "/big"}, "/big/.cache/flashinfer"),
        ({"HOME": "/home/x", "FLASHINFER_WORKSPACE_BASE": ""}, ".cache/flashinfer"),
    ],
)
def test_the_cache_lies_where_flashinfer_puts_it(environ, expected):
    assert str(cache_base(environ)) == expected


def test_without_home_the_user_database_says_where():
    assert cache_base({}).is_absolute()


def test_a_file_in_the_way_is_not_writable(tmp_path):
    (tmp_path / "file").write_text("")
    assert access(tmp_path / "file" / "x") == (False, os.getuid())


def test_what_does_not_exist_is_judged_by_the_nearest_folder(tmp_path):
    assert access(tmp_path / "a" / "b" / "c") == (True, os.getuid())
    assert access(Path("/proc/none/such"))[1] == 0


def test_a_folder_that_may_not_be_written_is_not_writable(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    code = (
        "import pathlib, sys; from fi_doctor.facts.flashinfer import access; print(access(pathlib.Path(sys.argv[1])))"
    )
    assert printed_by(code, tmp_path / "closed" / "x") == f"(False, {os.getuid()})\n"


def test_what_may_not_even_be_looked_at_is_not_writable(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    code = "import pathlib, sys; import fi_doctor.facts.flashinfer as f; print(f.access(pathlib.Path(sys.argv[1]))[0])"
    assert printed_by(code, tmp_path / "closed" / "x") == "False\n"


def test_a_path_that_cannot_be_asked_gives_a_reason():
    writable, owner = access(Path("/tmp") / ("x" * 5000))
    assert isinstance(writable, Missing)
    assert writable == owner


def test_cubins_are_counted_where_the_package_looks(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.cubin").write_text("")
    found = read(package(tmp_path), variables(tmp_path, FLASHINFER_CUBIN_DIR=str(tmp_path / "mine")))
    assert (found.cubin_dir, found.cubins) == (str(tmp_path / "mine"), 1)


def test_any_value_switches_the_version_check_off(tmp_path):
    assert read(package(tmp_path), variables(tmp_path, FLASHINFER_DISABLE_VERSION_CHECK="0")).version_check_disabled
    assert not read(package(tmp_path), variables(tmp_path, FLASHINFER_DISABLE_VERSION_CHECK="")).version_check_disabled


ENTRIES = (
    "flashinfer.norm.rmsnorm",
    "flashinfer.norm.fused_add_rmsnorm",
    "flashinfer.activation.silu_and_mul",
    "flashinfer.sampling.top_k_top_p_sampling_from_probs",
    "flashinfer.page.append_paged_kv_cache",
    "flashinfer.rope.apply_rope_with_cos_sin_cache_inplace",
    "flashinfer.BatchDecodeWithPagedKVCacheWrapper.run",
    "flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper",
    "flashinfer.gemm.bmm_fp8",
    "flashinfer.fused_moe.cutlass_fused_moe",
    "flashinfer.comm.trtllm_allreduce_fusion",
)


@pytest.mark.wheels
@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_package_is_read_whole_and_fast(tmp_path, unpacked, version):
    root = unpacked(version)
    begun = time.process_time()
    found = read(root, variables(tmp_path), ENTRIES)
    assert time.process_time() - begun < 2.0  # a tenth of that; the machine may be slow
    assert isinstance(found, FlashInfer)
    assert found.version == version
    assert isinstance(found.commit, str)
    assert found.architectures == ("90a",)
    assert found.cubin_dir == str(tmp_path / ".cache" / "flashinfer" / "cubins")
    assert found.shared_ninja_log == found.version.startswith("0.5.")
    assert all(isinstance(place, str) for place in found.symbols.values()), found.symbols
    for name, place in found.symbols.items():
        file, _, line = place.rpartition(":")
        assert name.rpartition(".")[2] in (root / file).read_text().splitlines()[int(line) - 1]
