"""The units of one call are found in the real sources of every release that is known."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import zipfile

import pytest
from flashinfer_wheels import VERSIONS, locate

from fi_doctor.inside import subset
from fi_doctor.inside.stubs import MARK
from fi_doctor.inside.units import FUSED_MOE_90, units_of

CSRC = "flashinfer/data/csrc/"
GENERATE = """
import sys
from flashinfer.jit.gemm.cutlass.generate_kernels import generate_gemm_operations
generate_gemm_operations(sys.argv[1], "90;90-real")
"""


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def module(version, tmp_path_factory):
    """The ninja file of fused_moe_90, with the sources that this FlashInfer lists and those that it generates."""
    folder = tmp_path_factory.mktemp(version)
    jit = _unpacked(locate(version), folder)
    listed = re.findall(r'"([\w/]+\.(?:cu|cpp))"', _function(jit, "gen_cutlass_fused_moe_module"))
    sources = [folder / CSRC / name for name in listed]
    assert len(sources) > 20
    assert all(source.is_file() for source in sources)
    generated = folder / "generated"
    subprocess.run([sys.executable, "-c", GENERATE, generated], cwd=folder, check=True)
    sources += sorted(generated.rglob("*.cu"))
    lines = ["name = fused_moe_90", "cuda_cflags = -O3", "rule cuda_compile", "  command = nvcc", "rule compile"]
    lines += [f"build $name/{one.stem}.o: {'cuda_' * (one.suffix == '.cu')}compile {one}" for one in sources]
    (folder / "build.ninja").write_text("\n".join(lines))
    return folder / "build.ninja"


def written(module, units, folder):
    (part,) = subset.write(module, "fused_moe_90", {"part": subset.Wish(units)}, folder).values()
    return part


@pytest.mark.parametrize("name", FUSED_MOE_90)
def test_a_part_of_the_moe_module_is_a_tenth_of_it(module, name, tmp_path):
    units = FUSED_MOE_90[name]
    part = written(module, units, tmp_path)
    assert part.objects < 20
    assert part.left_out > 140
    wanted = [one for launcher in units.launchers for one in launcher.wanted]
    assert len(list(part.library.parent.glob("launch_*.cu"))) == len(wanted)


@pytest.mark.parametrize("name", FUSED_MOE_90)
def test_a_dispatcher_is_told_which_kernels_exist(module, name, tmp_path):
    units = FUSED_MOE_90[name]
    part = written(module, units, tmp_path)
    text = (part.library.parent / units.dispatcher).read_text()
    assert len(re.findall(r"^template class ", text, re.MULTILINE)) == 1
    assert text.count("extern template void") == len(list(part.library.parent.glob("launch_*.cu")))
    assert "SafeFP4" not in text  # the launcher's own name for a type
    assert text.count(MARK) == len(units.launchers) + len(units.fallbacks)


def test_most_of_a_part_is_shared_with_the_other_parts(module, tmp_path):
    wishes = {name: subset.Wish(units) for name, units in FUSED_MOE_90.items()}
    parts = subset.write(module, "fused_moe_90", wishes, tmp_path)
    outs = re.findall(r"^build (\S+): \w*compile", (tmp_path / "build.ninja").read_text(), re.MULTILINE)
    assert len(outs) == len(set(outs)) < sum(part.objects for part in parts.values()) - 2 * len(parts)
    assert sum("/fused_moe_90.common/" in out for out in outs) >= 10


@pytest.mark.parametrize(
    ("name", "objects"), [("no_mask_or_causal", 6), ("paged", 4), ("paged_causal", 3), ("ragged", 4)]
)
@pytest.mark.parametrize("hopper", ["", "_sm90"])
def test_a_part_of_attention_is_the_masks_that_are_called(name, objects, hopper, version, tmp_path):
    """By the names that this FlashInfer gives its sources."""
    text = _function(
        _text(locate(version), "flashinfer/jit/attention/modules.py"), "gen_customize_batch_prefill_module"
    )
    listed = set(re.findall(rf'"(batch_prefill_(?:paged|ragged){hopper}_kernel_mask_){{mask_mode}}\.cu"', text))
    assert listed == {f"batch_prefill_paged{hopper}_kernel_mask_", f"batch_prefill_ragged{hopper}_kernel_mask_"}
    sources = [f"{one}{mask}.cu" for one in listed for mask in range(4)]
    sources += [f"batch_prefill{hopper}.cu", f"batch_prefill{hopper}_jit_binding.cu"]
    lines = ["rule cuda_compile", "  command = nvcc", *(f"build {one}.o: cuda_compile /x/{one}" for one in sources)]
    (tmp_path / "build.ninja").write_text("\n".join(lines))
    module = f"batch_prefill_with_kv_cache{hopper}"
    wish = subset.Wish(units_of(module)[name])
    (part,) = subset.write(tmp_path / "build.ninja", module, {"part": wish}, tmp_path / "parts").values()
    assert (part.objects, part.left_out) == (objects, 10 - objects)


@pytest.mark.parametrize("checkpoints", [False, True], ids=["to-0.6.7", "from-0.6.8"])
def test_a_part_of_the_gated_delta_rule_is_two_kernels(checkpoints, tmp_path):
    """By the names that FlashInfer 0.6.4 to 0.6.13 gives its sources."""
    last = ("c0", "c1") if checkpoints else ("",)
    switches = itertools.product(("half", "bf16"), *(("0", "1") for _ in "gbai"), last)
    sources = [f"gdn_prefill_kernel_{t}_g{g}b{b}a{a}i{i}{c}.cu" for t, g, b, a, i, c in switches]
    sources += ["gdn_prefill_launcher.cu", "prefill_kernel_delta_rule_sm90.cu"]
    lines = ["rule cuda_compile", "  command = nvcc", *(f"build {one}.o: cuda_compile /x/{one}" for one in sources)]
    (tmp_path / "build.ninja").write_text("\n".join(lines))
    wish = subset.Wish(units_of("gdn_prefill_sm90")["as_vllm"])
    (part,) = subset.write(tmp_path / "build.ninja", "gdn_prefill_sm90", {"part": wish}, tmp_path / "parts").values()
    assert (part.objects, part.left_out) == (4, len(sources) - 4)
    compiled = re.findall(r"gdn_prefill_kernel_\w+\.cu", (tmp_path / "parts" / "build.ninja").read_text())
    assert {name[:31] for name in compiled} == {"gdn_prefill_kernel_bf16_g0b1a1i", "gdn_prefill_kernel_bf16_g1b1a1i"}


def _text(found, name):
    """Of one file of a wheel or of a folder that holds what it would."""
    if found.is_dir():
        return (found / name).read_text()
    with zipfile.ZipFile(found) as wheel:
        return wheel.read(name).decode()


def _unpacked(found, folder):
    """The sources and the generator, in a package that stands for FlashInfer; gives the text of jit/fused_moe.py."""
    wanted = (CSRC + "nv_internal/", CSRC + "fused_moe/", "flashinfer/jit/gemm/cutlass/", "flashinfer/jit/fused_moe.py")
    if found.is_dir():
        for path in found.rglob("*"):
            name = path.relative_to(found).as_posix()
            if path.is_file() and name.startswith(wanted) and "/cutlass_instantiations/" not in name:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    else:
        with zipfile.ZipFile(found) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(wanted)])
    for package in ("", "jit/", "jit/gemm/", "jit/gemm/cutlass/"):
        (folder / "flashinfer" / package / "__init__.py").write_text("")
    (folder / "flashinfer/jit/cpp_ext.py").write_text("def is_cuda_version_at_least(version):\n    return True\n")
    return (folder / "flashinfer/jit/fused_moe.py").read_text()


def _function(text, name):
    return text[text.index(f"def {name}(") :].partition("\ndef ")[0]
