"""The peer transfer probe on a stand-in for the driver: a real libcuda.so.1, whose GPUs' memory is shared files."""

import os
import re
import subprocess
import sys
import time
import unittest
from pathlib import Path

import loading
import pytest

TESTS = Path(__file__).parents[1]
PROBE = loading.PROBES / "comm_peer_transfer.py"
WRONG = {  # fault, of what goes from GPU 0 to GPU 1 -> what is said of the first transfer with it
    "lost": "4 bytes, .*: nothing arrived: the buffer holds what it held before, although the driver reports",
    "lost_by_kernel": r"4 bytes, .* \(kernel\): nothing arrived",
    "lost_by_memcpy": r"4 bytes, .* \(memcpy\): nothing arrived",
    "large_lost": "1048580 bytes, .*: nothing arrived",
    "one_word": "4 bytes, .*: 1 of 1 words are wrong, the first at 0: got 0x",
    "one_bit_of_largest": "3145728 bytes, .*: 1 of 786432 words are wrong, the first at 393216",
    "tail_lost": "1048580 bytes, .*: 1 of 262145 words are wrong, the first at 262144: got 0x00000000",
    "stale": "4 bytes, .*: 1 of 1 words are wrong",
    "swapped": "4 bytes, .*: nothing arrived: .*; GPU 0 -> GPU 1, .*: another buffer, of GPU 0, was changed",
    "other_buffer": "4 bytes, .*: nothing arrived: .*; GPU 0 -> GPU 1, .*: another buffer, of GPU 1, was changed",
    "both_buffers": "4 bytes, .*: another buffer, of GPU 1, was changed",
    "written_before": "4 bytes, .*: 1 of 1 words are wrong, the first at -1: got 0x00000000",
    "written_behind": "4 bytes, .*: 1 of 1 words are wrong, the first at 1: got 0x00000000",
    "source_changed": "4 bytes, .*: another buffer, of GPU 0, was changed: 1 of 1 words are wrong, the first at 0",
}
BOTH = pytest.mark.parametrize("variant", ["peer_copy", "ipc"])


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fake_cuda")
    command = ["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]
    subprocess.run([*command, folder / "libcuda.so.1", TESTS / "fake_nvml" / "peers.c"], check=True)
    return folder


@pytest.fixture
def fault(library, monkeypatch, tmp_path):
    """Two GPUs; sets what goes wrong from now on."""
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("FI_DOCTOR_SCRATCH", str(tmp_path))
    monkeypatch.setenv("FAKE_CUDA_GPUS", "2")
    monkeypatch.setenv("FAKE_CUDA_FOLDER", str(memory))
    monkeypatch.setenv("FAKE_CUDA_FAULT", str(tmp_path / "fault"))
    set_fault = (tmp_path / "fault").write_text
    set_fault("")
    return set_fault


@pytest.fixture
def three(fault, monkeypatch):
    """The same with three GPUs."""
    monkeypatch.setenv("FAKE_CUDA_GPUS", "3")
    return fault


@pytest.fixture
def probe(fault):
    """The probe with a smaller largest size."""
    return loading.load("comm_peer_transfer", SIZES=(4, 1 << 10, (1 << 20) + 4, 3 << 20))


def failures(probe, variant):
    team = probe._Team(variant)
    try:
        return probe._check_pairs(team)[0]
    finally:
        team.close()


@BOTH
@pytest.mark.usefixtures("three")
def test_what_arrives_everywhere_passes_with_the_speed_of_every_direction(probe, variant):
    measured = probe.run(variant)
    assert measured["pairs"] == 3
    assert measured["transfers"] == 3 * 4 * (4 + 3)  # ways, sizes by memcpy, sizes by the kernel
    assert measured["peer_access"] == measured["native_atomics"] == "yes"
    assert measured["moved_by"] == "memcpy and kernel"
    assert measured["gb_s"].count(">") == 6
    assert measured["slowest_gb_s"] == pytest.approx((3 << 20) / 0.5e6, abs=0.1)
    assert measured["gpus"].startswith("0 Fake 0 at 0000:01:00.0, 1 Fake 1 at ")


@BOTH
def test_every_fault_of_one_direction_is_wrong_and_named_and_nothing_else_is(probe, fault, variant):
    probe.SIZES = (4, *probe.SIZES[2:])
    team, missed = probe._Team(variant), {}
    try:
        for name, said in WRONG.items():
            fault(f"{name}@0>1")
            verdict = probe._verdict(probe._check_pairs(team)[0], team.names)
            there = isinstance(verdict, AssertionError) and re.search(f"^GPU 0 -> GPU 1, {said}", str(verdict))
            if not there or "GPU 1 -> GPU 0" in str(verdict):
                missed[name] = verdict
        fault("")
        assert probe._check_pairs(team)[0] == []  # the same processes, which no fault has ended
    finally:
        team.close()
    assert not missed


@BOTH
def test_only_the_pair_that_is_wrong_is_named(probe, three, variant):
    three("lost_by_kernel@2>1")
    with pytest.raises(AssertionError) as caught:
        probe.run(variant)
    assert set(re.findall(r"GPU \d -> GPU \d", str(caught.value))) == {"GPU 2 -> GPU 1"}
    assert "GPU 2: Fake 2 at 0000:03:00.0)" in str(caught.value)  # whatever numbers other tools give them


@BOTH
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hangs", "hangs: nothing came back within 0.7 s"),
        ("dies", "its process was killed by signal 6"),
        ("lingers", "its process says no more and does not end within 0.6 s"),
        ("fails", "cu[A-Za-z_2]+: CUDA_ERROR_UNKNOWN"),
    ],
)
def test_a_pair_that_does_not_come_back_is_named_and_the_others_are_checked(probe, three, variant, name, said):
    probe.STALL_S, probe.KILLED_S = 0.7, 0.6
    three(f"{name}@0>2")
    begun, found = time.monotonic(), failures(probe, variant)
    assert time.monotonic() - begun < 20
    ((_, sentence),) = found
    assert re.fullmatch(rf"GPU 0 -> GPU 2, 4 bytes, written by GPU 0 \(memcpy\): {said}", sentence)
    assert isinstance(probe._verdict(found, []), RuntimeError)


def test_after_two_pairs_that_fail_the_rest_is_said_to_be_unchecked(probe, three):
    three("fails")
    *_, (kind, sentence) = found = failures(probe, "peer_copy")
    assert [kind for kind, _ in found] == ["raised", "raised", "unchecked"]
    assert (kind, sentence) == ("unchecked", "not checked any more: pairs 1-2")


def test_without_peer_access_memory_of_the_host_is_used_and_has_to_work(probe, fault):
    fault("no_access")
    measured = probe.run("peer_copy")
    assert measured["peer_access"] == "no"
    assert measured["transfers"] == 16  # the kernel is not asked


def test_access_in_one_direction_only_is_told(probe, fault):
    fault("no_access@0>1")
    assert probe.run("peer_copy")["peer_access"] == "not 1>0"  # GPU 1 does not reach GPU 0's memory


def test_where_no_two_gpus_have_peer_access_ipc_says_nothing(probe, fault):
    fault("no_access@1>0")
    with pytest.raises(unittest.SkipTest, match=r"^the driver reports no peer access between any two GPUs$"):
        probe.run("ipc")


def test_pairs_without_peer_access_are_left_out_of_ipc_and_the_others_decide(probe, three):
    three("no_access@1>0")
    measured = probe.run("ipc")
    assert (measured["pairs"], measured["left_out"]) == (2, "0-1")
    three("no_access@2>0")
    assert failures(probe, "ipc") == []
    assert probe.run("peer_copy")["left_out"] == ""


@BOTH
def test_what_no_time_was_left_for_is_no_failure(probe, three, variant):
    """Neither the step that the end of the time has cut short nor the pairs that were not begun."""
    probe.SIZES, probe.DEADLINE_S, probe.STALL_S = (4,), 12.0, 60.0
    three("hangs@0>2")
    with pytest.raises(unittest.SkipTest, match=r"^no time was left \(12 s\): not checked any more: pairs 0-2; .*1-2"):
        probe.run(variant)


@BOTH
def test_wrong_numbers_are_a_verdict_also_where_no_time_was_left_for_the_rest(probe, three, variant):
    probe.SIZES = (4,)
    team = probe._Team(variant)
    three("lost@0>1")
    try:
        found = probe._check_pairs(team)[0]
        team.end = 0.0
        late = probe._check_pairs(team)[0]
    finally:
        team.close()
    assert late == [("unchecked", "not checked any more: pairs 0-1 0-2 1-2")]
    assert isinstance(probe._verdict(late, []), unittest.SkipTest)
    assert isinstance(probe._verdict([*found, *late], []), AssertionError)


@pytest.mark.parametrize(
    ("variant", "name", "said"),
    [
        (
            "ipc",
            "not_opened",
            r"GPU 1 opens memory of GPU 0 \(CUDA IPC\): cuIpcOpenMemHandle_v2: CUDA_ERROR_MAP_FAILED",
        ),
        ("peer_copy", "not_enabled", "GPU 1 is given access to GPU 0: cuCtxEnablePeerAccess: CUDA_ERROR_PEER_ACCESS_U"),
    ],
)
def test_access_that_is_reported_and_refused_is_an_error_of_that_pair(probe, fault, variant, name, said):
    fault(f"{name}@0>1")
    with pytest.raises(RuntimeError, match=f"^{said}"):
        probe.run(variant)


def test_a_driver_that_does_not_compile_leaves_memcpy_and_says_so(probe, fault):
    fault("no_compiler")
    measured = probe.run("ipc")
    assert measured["moved_by"] == "memcpy only: cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU"
    assert measured["transfers"] == 16


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("FAKE_CUDA_GPUS", "1", "2 GPUs are needed, 1 are visible"),
        ("LD_LIBRARY_PATH", "", "asking the driver: libcuda.so.1: cannot open shared object file"),
    ],
)
def test_too_few_gpus_and_no_driver_are_said(probe, monkeypatch, variable, value, said):
    if value == "" and any(
        Path(path).exists() for path in ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1")
    ):
        pytest.skip("this machine has a driver")
    monkeypatch.setenv(variable, value)
    with pytest.raises(RuntimeError, match=f"^{said}"):
        probe.run("peer_copy")


def test_no_process_outlives_the_run(probe, fault, tmp_path):
    fault("lost")
    with pytest.raises(AssertionError):
        probe.run("ipc")
    mine = [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/environ")
        if path.parent.name != str(os.getpid()) and str(tmp_path).encode() in _read(path)
    ]
    assert mine == []


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_neither_torch_nor_flashinfer_is_imported(fault):
    code = f"import runpy, sys; runpy.run_path({str(PROBE)!r}); print({{'torch', 'flashinfer'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_no_multicast_object_is_made():
    assert "ulticast" not in re.sub(r'"""(.|\n)*?"""', "", PROBE.read_text())
