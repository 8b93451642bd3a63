"""For which GPUs a kernel's C++ runner goes on: from real wheels, and from sources of every form."""

import re

import pytest
from flashinfer_wheels import VERSIONS

from fi_doctor.facts import remembered
from fi_doctor.facts.admissions import CAPABILITIES
from fi_doctor.facts.named import read_named
from fi_doctor.facts.runners import read_runner
from fi_doctor.locking import readings
from fi_doctor.model import Admission

FMHA = "data/include/flashinfer/trtllm/fmha/fmhaRunner.cuh"
FILE = "data/a.cuh"
MADE = "  Runner() : mSM(getSMVersion()) {\n"
CHECK = '    FLASHINFER_CHECK(mSM == kSM_100 || mSM == kSM_103, "Unsupported architecture");\n'
KNOWN = dict.fromkeys(VERSIONS, (30, (100, 103))) | {"0.7.2.post1": (37, (100, 103, 107))}  # read by hand


def write(root, text):
    path = root / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.mark.wheels
@pytest.mark.parametrize("version", VERSIONS)
def test_the_runner_of_the_trtllm_gen_kernels_of_a_real_wheel_says_which_gpus_it_is_for(version, unpacked):
    root = unpacked(version)
    [found] = read_runner(root, FMHA)
    line, admits = KNOWN[version]
    assert (found.source, found.admits) == (f"{FMHA}:{line}", admits)
    assert set(found.refuses) == set(CAPABILITIES) - set(admits)
    assert read_named(root, version, (FMHA,)).admissions == {FMHA: (found,)}
    # The check counts, for each call makes a runner: nothing in the launcher comes to a kernel without one.
    launcher = (root / "data/csrc/trtllm_fmha_kernel_launcher.cu").read_text()
    assert re.search(r"make_shared<TllmGenFmhaRunner>\(", launcher)


@pytest.mark.parametrize(
    ("text", "line", "admits"),
    [
        (MADE + CHECK, 2, (100, 103)),
        (MADE + CHECK.replace("||", "||\n        ").replace(", ", ",\n "), 2, (100, 103)),
        (f"// {CHECK}/* {CHECK}\n{CHECK} */\n{MADE}{CHECK}", 7, (100, 103)),
        ("sm = getSMVersion();\n  FLASHINFER_CHECK(sm == kSM_90, x);\n", 2, (90,)),
    ],
    ids=["one-line", "several-lines", "comments", "one-gpu"],
)
def test_every_way_to_write_the_check_is_read(text, line, admits, tmp_path):
    write(tmp_path, text)
    refuses = tuple(sm for sm in CAPABILITIES if sm not in admits)
    assert read_runner(tmp_path, FILE) == (Admission(source=f"{FILE}:{line}", admits=admits, refuses=refuses),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        MADE,
        CHECK,
        MADE + CHECK + CHECK,
        MADE + CHECK.replace("||", "&&"),
        MADE + CHECK.replace("== kSM_103", ">= kSM_103"),
        MADE + CHECK.replace("|| mSM", "|| mOther"),
        MADE + CHECK.replace("kSM_103", "kSM_100f"),
        MADE + CHECK.replace("kSM_103,", "kSM_103 || isFamily,"),
        MADE + CHECK.replace("FLASHINFER_CHECK", "if (x) FLASHINFER_CHECK"),
        MADE.replace("getSMVersion()", "sm") + CHECK,
        f"// {MADE}{CHECK}",
    ],
)
def test_what_is_not_certain_is_not_known(text, tmp_path):
    write(tmp_path, text)
    assert read_runner(tmp_path, FILE) == ()


AR_FUSION = "data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh"
GUARDED = """
__device__ uint32_t round(vec_t<T, 8>& vec,
    uint8_t* out) {
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 1000)
"""
FP4_LINES = {"0.5.3": 604, "0.6.7.post3": 624, "0.7.2.post1": 729}  # read by hand


@pytest.mark.wheels
@pytest.mark.parametrize("version", FP4_LINES)
def test_a_function_whose_whole_body_is_for_newer_gpus_says_so_in_a_real_wheel(version, unpacked):
    name = f"{AR_FUSION}:cvt_warp_fp16_to_fp4"
    [found] = read_runner(unpacked(version), name)
    assert found.source == f"{AR_FUSION}:{FP4_LINES[version]}"
    assert set(found.admits) == {sm for sm in CAPABILITIES if sm >= 100}
    assert read_named(unpacked(version), version, (name,)).admissions == {name: (found,)}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GUARDED, 4),
        (f"// round(x) {{\n{GUARDED}  return round(vec, out);\n", 5),
        (GUARDED.replace(") {", ") {\n  int x;"), None),
        (GUARDED.replace(">=", "<"), None),
        (GUARDED + GUARDED, None),
        (GUARDED.replace("round", "around"), None),
    ],
    ids=["guarded", "called", "not-all", "older", "twice", "other"],
)
def test_the_guard_counts_only_where_it_is_around_the_whole_body(text, line, tmp_path):
    write(tmp_path, text)
    found = read_runner(tmp_path, f"{FILE}:round")
    assert [one.source for one in found] == ([f"{FILE}:{line}"] if line else [])
    assert all(90 in one.refuses and 100 in one.admits for one in found)


def test_a_file_that_is_not_there_says_nothing(tmp_path):
    assert read_runner(tmp_path, FILE) == ()
    assert read_named(tmp_path, "0", (FILE,)).admissions == {}


def test_a_runner_that_was_changed_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(remembered, "FRESH_NS", -(10**18))  # files count as old enough to be remembered at once
    root, memory = tmp_path / "flashinfer", tmp_path / "memory"
    (root / "data").mkdir(parents=True)

    def admits():
        found = readings.Readings(memory).named(root, "0", (FILE,)).admissions
        return [one.admits for one in found.get(FILE, ())]

    assert admits() == []
    write(root, MADE + CHECK)
    assert admits() == [(100, 103)]
    write(root, MADE + CHECK.replace("kSM_103", "kSM_90"))
    assert admits() == [(90, 100)]
