"""Probes that can do with a part of their module, from the probe's file to the verdict: compiled by a real c++."""

import shutil
from pathlib import Path

import factory as make
import machine_samples
import pytest
from msgspec.structs import replace
from test_prebuild import ASKED, Machine

from fi_doctor.diagnosis import cells
from fi_doctor.model import Ending, Evidence, Scope, Stage, Verdict
from fi_doctor.probing import catalog, parts
from fi_doctor.probing.plan import plan

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("ninja", "c++", "nm"))), reason="no ninja, c++ or nm on PATH"
)

MODULE = "fused_moe_90"
LONG = replace(ASKED, budget_s=7200)  # estimates are those of the real module
PROBE = '''"""Does one tactic give three times ten?"""

import ctypes

PROBE = {{
    "id": "fake.moe", "feature": "fake.moe", "module": "fused_moe_90", "gpus": 0,
    "variants": {{"tactic_0": {{}}, "all_tactics": {{}}}}, "subset": {subset},
}}


def build(variant):
    from flashinfer.ops import get_module

    get_module("fused_moe_90")


def run(variant):
    from flashinfer.ops import get_module

    library = ctypes.CDLL(str(get_module("fused_moe_90").__self__.path))
    assert library.run(3, 16) == 30
    if variant == "all_tactics":
        assert library.run(3, 32) == 30
    return {{"tactics": "0 and 0", "elements": 1}}
'''
SUBSET = {"units": "bf16", "variants": ["tactic_0"]}
HEADER = """#pragma once
#include <cstddef>
typedef float __nv_bfloat16;
typedef int cudaStream_t;
namespace cutlass { namespace arch { struct Sm90 {}; } }
namespace cute { template <int N> struct Int {}; template <class... T> struct Shape {}; }
namespace tensorrt_llm { namespace cutlass_extensions { struct EpilogueOpDefault {}; }
namespace kernels { namespace cutlass_kernels_oss {
struct TmaWarpSpecializedGroupedGemmInput { enum class EpilogueFusion { NONE, FINALIZE }; int value; };
template <typename Arch, typename T, typename WeightType, typename OutputType, typename EpilogueTag,
          TmaWarpSpecializedGroupedGemmInput::EpilogueFusion FUSION, typename TileShape, typename ClusterShape,
          bool IsMXFPX, bool BIAS>
void tma_warp_specialized_generic_moe_gemm_kernelLauncher(
    TmaWarpSpecializedGroupedGemmInput* input, int* kernel_occupancy, size_t* workspace_size);
} } }
"""
INL = """#pragma once
#include "launchers/moe_gemm_tma_ws_launcher.h"
#define INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM(ArchTag_, DataType_, WeightType_, OutputType_, EpilogueTag_, \\
    FUSION_, CTA_M_, CTA_N_, CTA_K_, CGA_M_, CGA_N_, CGA_K_, MXFPX_, BIAS_) \\
  template <> void tma_warp_specialized_generic_moe_gemm_kernelLauncher< \\
      cutlass::arch::ArchTag_, DataType_, WeightType_, \\
      OutputType_, cutlass_extensions::EpilogueTag_, TmaWarpSpecializedGroupedGemmInput::EpilogueFusion::FUSION_, \\
      cute::Shape<cute::Int<CTA_M_>, cute::Int<CTA_N_>, cute::Int<CTA_K_>>, \\
      cute::Shape<cute::Int<CGA_M_>, cute::Int<CGA_N_>, cute::Int<CGA_K_>>, MXFPX_, BIAS_>( \\
      TmaWarpSpecializedGroupedGemmInput* input, int*, size_t*) { input->value *= 10; }
"""
DISPATCH = """#pragma once
#include "launchers/moe_gemm_tma_ws_launcher.h"
namespace tensorrt_llm::kernels::cutlass_kernels_oss {
template <typename T, typename WeightType> struct GroupedGemmInput { int* occupancy; };
template <typename T, typename WeightType, typename GemmOutputType>
struct genericMoeGemmKernelLauncher {
  static void call(GroupedGemmInput<T, WeightType> inputs, int sm_count_) {
    if (inputs.occupancy != nullptr) *inputs.occupancy = 1;
  }
};
}
"""
DISPATCHER = """
#include "moe_gemm_template_dispatch.h"

namespace tensorrt_llm {
using namespace kernels::cutlass_kernels_oss;
template <class T, class W, class O> class MoeGemmRunner { public: int run(int value, int tile); };
template <int N> using Tile = cute::Shape<cute::Int<128>, cute::Int<N>, cute::Int<64>>;
using One = cute::Shape<cute::Int<1>, cute::Int<1>, cute::Int<1>>;
template <class T, class W, class O>
int MoeGemmRunner<T, W, O>::run(int value, int tile) {
  TmaWarpSpecializedGroupedGemmInput input{value};
  if (tile == 80) genericMoeGemmKernelLauncher<T, W, O>::call({}, 1);
  auto launch = tile == 16
    ? &tma_warp_specialized_generic_moe_gemm_kernelLauncher<cutlass::arch::Sm90, T, W, O,
        cutlass_extensions::EpilogueOpDefault, TmaWarpSpecializedGroupedGemmInput::EpilogueFusion::NONE, Tile<16>, One,
        false, false>
    : &tma_warp_specialized_generic_moe_gemm_kernelLauncher<cutlass::arch::Sm90, T, W, O,
        cutlass_extensions::EpilogueOpDefault, TmaWarpSpecializedGroupedGemmInput::EpilogueFusion::NONE, Tile<32>, One,
        false, false>;
  launch(&input, nullptr, nullptr);
  return input.value;
}
template class MoeGemmRunner<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16>;
}
"""
RUNNER = """
typedef float __nv_bfloat16;
namespace tensorrt_llm {
template <class T, class W, class O> class MoeGemmRunner { public: int run(int value, int tile); };
template <class T, class W> class CutlassMoeFCRunner { public: int run(int value, int tile); };
template <class T, class W>
int CutlassMoeFCRunner<T, W>::run(int value, int tile) { return MoeGemmRunner<T, W, T>().run(value, tile); }
template class CutlassMoeFCRunner<__nv_bfloat16, __nv_bfloat16>;
}
"""
BINDING = """
namespace tensorrt_llm {
template <class T, class W> class CutlassMoeFCRunner { public: int run(int value, int tile); };
}
extern "C" int run(int value, int tile) { return tensorrt_llm::CutlassMoeFCRunner<float, float>().run(value, tile); }
"""
GENERATED = """#include "launchers/moe_gemm_tma_ws_launcher.inl"
namespace tensorrt_llm { namespace kernels { namespace cutlass_kernels_oss {
INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM(Sm90, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, EpilogueOpDefault, NONE,
    128, {tile}, 64, 1, 1, 1, false, false);
}} }} }}
"""


class MoeMachine(Machine):
    """One with a toy of the MoE module, whose files have the names and shapes of FlashInfer's."""

    def __init__(self, folder, log="own"):
        super().__init__(folder, log)
        self.environ["FAKE_COMPILER"] = "c++"
        self.place = self.sources / MODULE
        (self.place / "launchers").mkdir(parents=True)
        files = {
            "launchers/moe_gemm_tma_ws_launcher.h": HEADER,
            "launchers/moe_gemm_tma_ws_launcher.inl": INL,
            "moe_gemm_template_dispatch.h": DISPATCH,
            "moe_gemm_kernels_bf16_bf16.cu": DISPATCHER,
            "cutlass_fused_moe_instantiation.cu": RUNNER,
            "binding.cu": BINDING,
            "k16.generated.cu": GENERATED.replace("{tile}", "16").replace("}}", "}"),
            "k32.generated.cu": GENERATED.replace("{tile}", "32").replace("}}", "}"),
            **{f"filler{number}.generated.cu": "int unused();\n" for number in range(20)},
        }
        for name, text in files.items():
            (self.place / name).write_text(text)

    def probe_with(self, subset, name="moe"):
        path = self.folder / f"fake_{name}.py"
        path.write_text(PROBE.format(subset=subset).replace("fake.moe", f"fake.{name}"))
        self.specs = [catalog.parse(path.read_text(), str(path), "fi-doctor")]

    def judged(self):
        """Outcome, builds, and the cell of each variant."""
        planned = plan(self.specs, self.facts, LONG)
        outcomes, builds = self.check(LONG)
        found = cells.cells_of(planned[0], outcomes["moe"], self.facts)
        return outcomes["moe"], builds, {cell.variant: cell for cell in found}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where parts are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture(params=["own", "shared"])
def machine(request, tmp_path, kept):
    (tmp_path / "machine").mkdir()
    return MoeMachine(tmp_path / "machine", request.param)


def test_a_part_is_compiled_run_and_called_a_part(machine, kept):
    machine.probe_with(SUBSET)
    outcome, builds, found = machine.judged()
    one, rest = found["tactic_0"], found["all_tactics"]
    assert (one.verdict, one.evidence, one.scope) == (Verdict.WORKS, Evidence.VERIFIED, Scope.SUBSET), one.why
    assert "only a part of the module was compiled: tactic 0" in one.why
    assert (rest.verdict, rest.scope) == (Verdict.UNKNOWN, Scope.FULL)
    assert "fused_moe_90 is not compiled: 25 objects, estimated" in rest.why
    assert rest.why.endswith(
        "a server's first start compiles it; settle it with: fi-doctor warm --feature fake.moe --jobs 4"
    )
    assert outcome.whole_module.startswith("fused_moe_90 is not compiled: 25 objects, estimated ")
    assert outcome.whole_module.endswith(" jobs of up to 5.2 GiB")
    assert outcome.cells[0].module_from == "subset"
    assert builds.modules == {
        MODULE: "not compiled: 25 objects; parts stand for it",
        f"{MODULE}.bf16": "built",
    }
    assert not list(machine.ops.rglob("*.so")), "nothing of it is in FlashInfer's cache"
    assert list(kept.rglob("fused_moe_90.so"))


def test_a_part_that_is_there_is_not_compiled_again(machine):
    machine.probe_with(SUBSET)
    machine.judged()
    outcome, builds, found = machine.judged()
    assert builds.modules[f"{MODULE}.bf16"] == "cache"
    assert found["tactic_0"].verdict is Verdict.WORKS
    assert outcome.cells[0].module_from == "subset"


@pytest.mark.parametrize("name", ["fused_moe_90.so", "build.ninja"])
def test_what_is_damaged_in_the_folder_of_parts_is_made_anew(machine, kept, name):
    machine.probe_with(SUBSET)
    machine.judged()
    for path in kept.rglob(name):
        path.write_bytes(b"\xb7 nothing of use")
    outcome, builds, found = machine.judged()
    assert builds.modules[f"{MODULE}.bf16"] in ("built", "cache")
    assert found["tactic_0"].verdict is Verdict.WORKS
    assert outcome.cells[0].module_from == "subset"


def test_where_no_folder_can_be_kept_parts_are_made_for_this_run(machine, kept):
    kept.write_text("a file")
    machine.probe_with(SUBSET)
    _, builds, found = machine.judged()
    assert builds.modules[f"{MODULE}.bf16"] == "built"
    assert found["tactic_0"].verdict is Verdict.WORKS


def test_a_needed_unit_that_is_left_out_breaks_the_row_and_is_named(machine):
    machine.probe_with({**SUBSET, "without": "128, 16, 64"})
    outcome, _, found = machine.judged()
    assert (found["tactic_0"].verdict, found["tactic_0"].evidence) == (Verdict.BROKEN, Evidence.RAN)
    assert "SIGABRT while running variant tactic_0: not compiled in this part of the module: " in found["tactic_0"].why
    assert "tma_warp_specialized_generic_moe_gemm_kernelLauncher" in found["tactic_0"].why
    assert "Int<16>" in found["tactic_0"].why
    assert outcome.cells[0].ending is Ending.SIGNALLED


def test_a_source_of_flashinfer_that_does_not_compile_breaks_the_row(machine):
    (machine.place / "binding.cu").write_text('#include "cublasLt.h"\n' + BINDING)
    machine.probe_with(SUBSET)
    outcome, _, found = machine.judged()
    assert (found["tactic_0"].verdict, found["tactic_0"].evidence) == (Verdict.BROKEN, Evidence.BUILT)
    assert "cublasLt.h" in found["tactic_0"].why
    assert (outcome.cells[0].stage, outcome.cells[0].ending) == (Stage.IMPORTED, Ending.RAISED)


REFUSED = '#include "limits.h"\nstatic_assert(sizeof(int) == 3, "no such machine");\n'


class Refusing:
    """A machine with a source that its compiler refuses; how often that was asked."""

    def __init__(self, machine, monkeypatch):
        self.machine = machine
        self.calls = machine.folder / "calls"
        folder = machine.folder / "bin"
        folder.mkdir()
        self.compiler = folder / "c++"
        self.compiler.write_text(f'#!/bin/sh\necho "$*" >> {self.calls}\nexec {shutil.which("c++")} "$@"\n')
        self.compiler.chmod(0o755)
        machine.environ["PATH"] = f"{folder}:{machine.environ['PATH']}"
        (machine.place / "limits.h").write_text("#pragma once\n")
        (machine.place / "binding.cu").write_text(REFUSED + BINDING)
        machine.probe_with(SUBSET)

    def judged(self):
        """The cell of the variant that can do with a part, and whether its source was compiled for that."""
        self.calls.unlink(missing_ok=True)
        outcome, _, found = self.machine.judged()
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        return found["tactic_0"], outcome.cells[0], any("-c " in call and "binding.cu" in call for call in calls)


@pytest.fixture
def refusing(machine, monkeypatch):
    return Refusing(machine, monkeypatch)


def test_what_a_compiler_refused_is_not_compiled_again_while_nothing_has_changed(refusing):
    first, outcome, was_compiled = refusing.judged()
    assert (first.verdict, first.evidence, was_compiled) == (Verdict.BROKEN, Evidence.BUILT, True)
    assert "not compiled again" not in outcome.traceback
    again, outcome, was_compiled = refusing.judged()
    assert (again.verdict, again.evidence, was_compiled) == (Verdict.BROKEN, Evidence.BUILT, False)
    assert again.why == first.why
    assert "not compiled again: what the compiler read has not changed since 20" in outcome.traceback


@pytest.mark.parametrize(
    "change", ['"said": null', '"time": 1e30', "[" * 200_000, "\0"], ids=["said", "time", "deep", "nul"]
)
def test_a_damaged_memory_of_what_was_refused_is_none(refusing, kept, change):
    refusing.judged()
    [memory] = kept.rglob("failed.json")
    text = memory.read_text()
    key, _, _ = change.partition(":")
    memory.write_text(text.replace(key, f'{change}, {key[:-1]}_"', 1) if ":" in change else change)
    found, outcome, was_compiled = refusing.judged()
    assert (found.verdict, was_compiled) == (Verdict.BROKEN, True)
    assert "not compiled again" not in outcome.traceback


@pytest.mark.parametrize("change", ["source", "header", "compiler", "variable", "flags"])
def test_it_is_compiled_again_once_anything_has_changed(refusing, change):
    machine = refusing.machine
    refusing.judged()
    if change == "source":
        (machine.place / "binding.cu").write_text(BINDING)
    elif change == "header":
        (machine.place / "limits.h").write_text("#pragma once\n#define static_assert(...)\n")
    elif change == "compiler":
        refusing.compiler.write_text(refusing.compiler.read_text().replace("exec ", "exec nice -n 0 "))
    elif change == "variable":
        machine.environ["CPATH"] = str(machine.folder)
    else:
        machine.environ["FAKE_FLAGS"] = "-O1"
    found, _, was_compiled = refusing.judged()
    assert was_compiled
    assert found.verdict is (Verdict.WORKS if change in ("source", "header") else Verdict.BROKEN), found.why


@pytest.mark.parametrize(
    "says",
    [
        "cc1plus: error: out of memory",
        "binding.cu:1:1: fatal error: cannot write: No space left on device",
        "binding.cu:1:1: internal compiler error: Segmentation fault",
        "elsewhere.cu:1:1: error: no file that was read",
        "Killed",
        "",
    ],
)
def test_what_no_source_is_to_blame_for_is_forgotten(refusing, says):
    compiler = refusing.compiler.read_text()
    place = refusing.machine.place
    said = says.replace("binding.cu", str(place / "binding.cu"))
    failing = f'case "$*" in *"-c "*binding.cu*) echo "{said}" >&2; exit 1;; esac\n'
    refusing.compiler.write_text(compiler.replace("exec ", f"{failing}exec ", 1))
    (place / "binding.cu").write_text(BINDING)
    found, _, was_compiled = refusing.judged()
    assert (found.verdict is Verdict.WORKS, was_compiled) == (False, True)
    found, _, was_compiled = refusing.judged()
    assert (found.verdict is Verdict.WORKS, was_compiled) == (False, True)


def test_two_parts_share_what_both_need(machine, kept):
    machine.probe_with(SUBSET)
    first = machine.specs
    machine.probe_with({**SUBSET, "without": "128, 16, 64"}, name="holed")
    machine.specs = [*first, *machine.specs]
    outcomes, builds = machine.check(LONG)
    assert builds.modules[f"{MODULE}.bf16"] == builds.modules[f"{MODULE}.bf16.without"] == "built"
    assert len(list(kept.rglob("binding.o"))) == 1
    assert [outcomes[name].cells[0].ending for name in ("moe", "holed")] == [Ending.RETURNED, Ending.SIGNALLED]
    assert {cell.module_from for name in ("moe", "holed") for cell in outcomes[name].cells[:1]} == {"subset"}


def test_what_two_parts_share_fails_both(machine):
    (machine.place / "binding.cu").write_text('#include "cublasLt.h"\n' + BINDING)
    machine.probe_with(SUBSET)
    first = machine.specs
    machine.probe_with({**SUBSET, "without": "128, 16, 64"}, name="holed")
    machine.specs = [*first, *machine.specs]
    outcomes, builds = machine.check(LONG)
    for name, part in (("moe", "bf16"), ("holed", "bf16.without")):
        assert builds.modules[f"{MODULE}.{part}"].startswith("failed: ")
        assert "cublasLt.h" in outcomes[name].cells[0].detail


def test_a_source_of_ours_that_does_not_compile_says_nothing_of_flashinfer(machine):
    text = INL.replace("input->value *= 10;", "input->value *= 10; }\nthis is no C++ {")
    (machine.place / "launchers/moe_gemm_tma_ws_launcher.inl").write_text(text)
    machine.probe_with(SUBSET)
    _, _, found = machine.judged()
    assert (found["tactic_0"].verdict, found["tactic_0"].evidence) == (Verdict.UNKNOWN, Evidence.NONE)
    assert "no part of fused_moe_90 could be compiled" in found["tactic_0"].why


def test_a_module_of_another_shape_is_unknown_and_not_compiled_as_a_whole(machine):
    (machine.place / "k16.generated.cu").write_text("int unused();\n")
    machine.probe_with(SUBSET)
    outcome, _, found = machine.judged()
    assert found["tactic_0"].verdict is Verdict.UNKNOWN
    assert "no generated source has an instance of" in found["tactic_0"].why
    assert [cell.ending for cell in outcome.cells] == [Ending.NOT_RUN, Ending.NOT_RUN]


def test_the_whole_module_is_taken_where_it_is_there(machine):
    machine.probe_with({"units": "bf16", "variants": []})
    machine.specs = [replace(machine.specs[0], subset=None)]
    machine.judged()  # compiles the whole
    machine.probe_with(SUBSET)
    outcome, builds, found = machine.judged()
    assert builds.modules == {MODULE: "cache"}
    assert {cell.scope for cell in found.values()} == {Scope.FULL}
    assert {cell.verdict for cell in found.values()} == {Verdict.WORKS}
    assert outcome.whole_module == ""


def test_parts_of_another_toolkit_lie_elsewhere(kept):
    facts = machine_samples.bare_facts()
    other = replace(facts, toolkit=make.toolkit("12.9"))
    assert parts.folder(facts, None, Path("unused")) != parts.folder(other, None, Path("unused"))
    assert parts.folder(facts, None, Path("unused")) == parts.folder(facts, None, Path("unused"))


def test_with_fresh_caches_parts_are_fresh_too(tmp_path, kept):
    found = parts.folder(machine_samples.bare_facts(), tmp_path, Path("unused"))
    assert found.is_relative_to(tmp_path)
    assert not kept.exists()
