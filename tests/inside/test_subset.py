"""Parts of modules: what is compiled of one, and what a call of the rest does."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from fi_doctor.inside import subset
from fi_doctor.inside.stubs import MARK
from fi_doctor.inside.units import Fallback, Launcher, Units

HEADER = """#pragma once
#include <cstddef>
namespace cute { template <int N> struct Int {}; template <class... T> struct Shape {}; }
namespace tensorrt_llm { namespace kernels { namespace cutlass_kernels_oss {
template <typename T, typename Tile, bool FAST = false>
int launch(T value, size_t* workspace_size);
} } }
"""
INL = """#pragma once
#include "launch.h"
using Short = float;
namespace tensorrt_llm { namespace kernels { namespace cutlass_kernels_oss {
template <typename T, typename Tile, bool FAST>
int launch(T value, size_t* workspace_size) {
  if (workspace_size != nullptr) { *workspace_size = 64; return 0; }
  return static_cast<int>(value) * 10;
}
} } }
"""
DISPATCH = """
#include "launch.h"

namespace tensorrt_llm {
template <class T>
struct Runner {
  int run(T value, int tile, size_t* workspace);
};
template <class T>
int Runner<T>::run(T value, int tile, size_t* workspace) {
  using namespace kernels::cutlass_kernels_oss;
  if (tile == 16) return launch<T, cute::Shape<cute::Int<16>>>(value, workspace);
  return launch<T, cute::Shape<cute::Int<32>>>(value, workspace);
}
template struct Runner<double>;
template class Runner<float>;
template class Runner<int>;
}
"""
BINDING = """
#include "launch.h"
namespace tensorrt_llm {
template <class T> struct Runner { int run(T value, int tile, size_t* workspace); };
int other(int);
}
extern "C" int run_float(int value, int tile, size_t* workspace) {
  return tensorrt_llm::Runner<float>().run(static_cast<float>(value), tile, workspace);
}
extern "C" int run_int(int value, int tile) { return tensorrt_llm::Runner<int>().run(value, tile, nullptr); }
extern "C" int run_other(int value) { return tensorrt_llm::other(value); }
"""
OTHER = "namespace tensorrt_llm { int other(int value) { return value; } }\n"
GENERATED = """#include "launch.inl"
namespace tensorrt_llm { namespace kernels { namespace cutlass_kernels_oss {
template int launch<Short, cute::Shape<cute::Int<16>>> (Short value, size_t* workspace_size);
template int launch<Short, cute::Shape<cute::Int<32>>> (Short value, size_t* workspace_size);
template int launch<int, cute::Shape<cute::Int<16>>> (int value, size_t* workspace_size);
} } }
"""
LAUNCHER = Launcher(
    function="launch",
    header="launch.h",
    answer="if (workspace_size != nullptr) { *workspace_size = 0; return 0; }",
    wanted=(r"launch<Short, cute::Shape<cute::Int<16>>> \(",),
    returns="int",
)
TOY = Units(
    optional=("*.generated.cu", "dispatch.cu", "other.cu"),
    needed=("dispatch.cu",),
    instances={"dispatch.cu": r"Runner<float>"},
    dispatcher="dispatch.cu",
    launchers=(LAUNCHER,),
)
NOT_THERE = TOY._replace(needed=("dispatch.cu", "gone.cu"))
needs_compiler = pytest.mark.skipif(
    not all(map(shutil.which, ("c++", "nm", "ninja"))), reason="needs c++, nm and ninja"
)


@pytest.fixture
def module(tmp_path):
    """The ninja file of a module, and where its sources are."""
    sources = tmp_path / "src with space".replace(" ", "_")
    sources.mkdir()
    files = {
        "launch.h": HEADER,
        "launch.inl": INL,
        "dispatch.cu": DISPATCH,
        "binding.cu": BINDING,
        "other.cu": OTHER,
        "a.generated.cu": GENERATED,
    }
    for name, text in files.items():
        (sources / name).write_text(text)
    units = [sources / name for name in files if name.endswith(".cu")]
    lines = [
        "name = toy",
        "cxx = c++",
        f"cuda_cflags = -x c++ -fPIC $\n    -I{sources}",
        "ldflags = -shared",
        "rule cuda_compile",
        "  command = $cxx $cuda_cflags -c $in -o $out",
        "rule link",
        "  command = $cxx $in $ldflags -o $out",
        *(f"build $name/{source.stem}.cuda.o: cuda_compile {source}" for source in units),
        "build $name/toy.so: link " + " ".join(f"$name/{source.stem}.cuda.o" for source in units),
        "default $name/toy.so",
        "",
    ]
    ninja_file = tmp_path / "build.ninja"
    ninja_file.write_text("\n".join(lines))
    return ninja_file


def written(module, folder, units=TOY, without=""):
    (part,) = subset.write(module, "toy", {"toy.part": subset.Wish(units, without)}, folder).values()
    return part


def built(part):
    done = subprocess.run(
        ["ninja", "-v", "-C", part.ninja_file.parent, "-f", part.ninja_file], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def called(library, call):
    """Exit status and stderr of a call in a process of its own."""
    code = f"import ctypes; lib = ctypes.CDLL({str(library)!r}); size = ctypes.c_size_t(7); print({call})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.returncode, done.stdout.strip(), done.stderr


@needs_compiler
def test_what_is_compiled_works_and_the_rest_says_its_name(module, tmp_path):
    part = written(module, tmp_path / "parts")
    assert (part.objects, part.left_out) == (3, 2)
    built(part)
    assert called(part.library, "lib.run_float(3, 16, None)")[:2] == (0, "30")

    code, _, said = called(part.library, "lib.run_float(3, 32, None)")
    assert code == -6
    assert MARK in said
    assert "launch" in said
    assert "Int<32>" in said

    code, _, said = called(part.library, "lib.run_int(3, 16)")
    assert code == -6
    assert f"{MARK}tensorrt_llm::Runner<int>::run(int, int, unsigned long*)" in said

    code, _, said = called(part.library, "lib.run_other(3)")
    assert f"{MARK}tensorrt_llm::other(int)" in said


@needs_compiler
def test_a_kernel_of_linear_attention_that_is_not_compiled_says_its_name(tmp_path):
    """FlashInfer declares these templates and instantiates each in a source of its own."""
    source = (
        "namespace flat { template <bool B> int launch(int n) { return n + B; } extern template int launch<%s>(int); "
    )
    calls = (
        'template int launch<true>(int); } extern "C" int run(int n) { return n ? flat::launch<true>(n) : flat::%s; }'
    )
    (tmp_path / "launcher.cpp").write_text(source % "false" + calls % "launch<false>(n)")
    subprocess.run(["g++", "-O0", "-fPIC", "-c", "launcher.cpp", "-o", "launcher.o"], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-I", subset.STUBS, "stubs.c", "launcher.o"], cwd=tmp_path, check=True)
    link = ["gcc", "-shared", "-fPIC", "-Wl,-z,now", "stubs.c", "launcher.o", "-o", "part.so"]
    subprocess.run(link, cwd=tmp_path, check=True)
    assert called(tmp_path / "part.so", "lib.run(3)")[:2] == (0, "4")
    code, _, said = called(tmp_path / "part.so", "lib.run(0)")
    assert code == -6
    assert f"{MARK}int flat::launch<false>(int)" in said


@needs_compiler
def test_a_kernel_that_is_not_compiled_asks_for_no_memory(module, tmp_path):
    part = written(module, tmp_path / "parts")
    built(part)
    asked = "(lib.run_float(3, {}, ctypes.byref(size)), size.value)[1]"
    assert called(part.library, asked.format(16))[:2] == (0, "64")
    assert called(part.library, asked.format(32))[:2] == (0, "0")


@needs_compiler
def test_a_needed_unit_that_is_removed_is_named(module, tmp_path):
    part = written(module, tmp_path / "parts", without=r"Int<16>")
    built(part)
    code, _, said = called(part.library, "lib.run_float(3, 16, None)")
    assert code == -6
    assert "Int<16>" in said.partition(MARK)[2]


@needs_compiler
def test_nothing_is_compiled_again_when_nothing_changed(module, tmp_path):
    built(written(module, tmp_path / "parts"))
    part = written(module, tmp_path / "parts")
    assert "no work to do" in built(part)


@pytest.mark.parametrize(
    ("units", "why"),
    [
        (NOT_THERE, "no gone.cu"),
        (TOY._replace(instances={"dispatch.cu": "Runner<half>"}), "0 class templates like Runner<half>"),
        (TOY._replace(instances={"dispatch.cu": "Runner<"}), "2 class templates"),
        (TOY._replace(launchers=(LAUNCHER._replace(wanted=("Int<64>",)),)), "no generated source has an instance"),
        (TOY._replace(launchers=(LAUNCHER._replace(header="binding.cu"),)), "declares no launch"),
    ],
    ids=["source", "class", "classes", "instance", "declaration"],
)
def test_a_module_of_another_shape_is_not_split(module, tmp_path, units, why):
    refused = written(module, tmp_path / "parts", units)
    assert isinstance(refused, subset.CannotSplit)
    assert why in str(refused)


def test_an_original_source_is_told_from_one_that_was_written(module, tmp_path):
    part = written(module, tmp_path / "parts")
    assert part.own == ("launch_0.o", "dispatch.o")


@needs_compiler
def test_what_two_parts_need_is_compiled_once(module, tmp_path):
    wide = TOY._replace(
        launchers=(
            LAUNCHER._replace(
                wanted=("Int<16>>> ", r"Short, cute::Shape<cute::Int<32>>> \("),
            ),
        )
    )
    wishes = {"toy.one": subset.Wish(TOY), "toy.other": subset.Wish(wide), "toy.bad": subset.Wish(NOT_THERE)}
    one, other, bad = subset.write(module, "toy", wishes, tmp_path / "parts").values()
    assert built(one).count("binding.cu -o") == 1
    assert isinstance(bad, subset.CannotSplit)
    assert called(one.library, "lib.run_float(3, 16, None)")[:2] == (0, "30")
    assert called(one.library, "lib.run_float(3, 32, None)")[0] == -6
    assert called(other.library, "lib.run_float(3, 32, None)")[:2] == (0, "30")


FALLBACK = Fallback(
    name="Older",
    header="older.h",
    function="call",
    types={"T": "float"},
    answer="if (asked != nullptr) { *asked = 0; return; }",
)
OLDER = """
#include "launch.h"
namespace tensorrt_llm { namespace kernels { namespace cutlass_kernels_oss {
template <typename T, typename Tile,
          bool FAST = false>
struct Older {
  static void call(T value, int* asked) { *asked = static_cast<int>(value); }
};
} } }
"""


@needs_compiler
def test_kernels_for_older_gpus_can_be_left_out(module, tmp_path):
    sources = module.parent / "src_with_space"
    (sources / "older.h").write_text(OLDER)
    older = "kernels::cutlass_kernels_oss::Older<T, int>::call"
    asked = (
        f"  if (tile == 80) {older}(value, nullptr);\n"
        f"  if (tile == 81) {{ int can = 7; {older}(value, &can); return can; }}\n  using"
    )
    dispatch = DISPATCH.replace('"launch.h"', '"older.h"').replace("  using", asked)
    (sources / "dispatch.cu").write_text(dispatch)
    part = written(module, tmp_path / "parts", TOY._replace(fallbacks=(FALLBACK,)))
    built(part)
    assert called(part.library, "lib.run_float(3, 16, None)")[:2] == (0, "30")
    assert called(part.library, "lib.run_float(3, 81, None)")[:2] == (0, "0")
    code, _, said = called(part.library, "lib.run_float(3, 80, None)")
    assert code == -6
    assert "Older<float, Tile, FAST>::call" in said.partition(MARK)[2]


def test_another_class_for_older_gpus_is_not_replaced(module, tmp_path):
    (module.parent / "src_with_space/older.h").write_text(OLDER.replace("typename T,", "typename U,"))
    refused = written(module, tmp_path / "parts", TOY._replace(fallbacks=(FALLBACK,)))
    assert isinstance(refused, subset.CannotSplit)
    assert "older.h has no Older as it was" in str(refused)
