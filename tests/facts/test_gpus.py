"""The real reader over a fake libnvidia-ml.so.1 and libcuda.so.1, which it finds as it finds the real ones."""

import os
import subprocess
import sys
import time
from pathlib import Path

import factory as make
import msgspec
import pytest

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings, matrix
from fi_doctor.facts import cuda_order
from fi_doctor.facts import nvml_reasons as reasons
from fi_doctor.facts.gpus import read_gpus
from fi_doctor.model import Depth, Driver, Ending, GpuFacts, Missing, Request, Stage, Verdict
from fi_doctor.probing import plan

TESTS = Path(__file__).resolve().parents[1]
H200 = "GPU-11111111-2222-3333-4444-555555555555"
GB10 = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
MIG = "MIG-77777777-7777-7777-7777-777777777777"
READ = """
import os, sys, msgspec
from fi_doctor.facts.gpus import read_gpus
answer = read_gpus(os.environ, nvml_timeout_s=float(sys.argv[1]), cuda_timeout_s=float(sys.argv[2]))
sys.stdout.buffer.write(msgspec.json.encode(answer))
"""


def build(folder, source, library):
    """A shared library under a driver's file name, with the link that the dynamic linker follows."""
    file = folder / f"{library}.580.159.04"
    soname = f"{library}.1"
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", str(file), str(TESTS / "fake_nvml" / source)]
    subprocess.run(command, check=True)
    (folder / soname).symlink_to(file.name)
    return folder


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory):
    return build(tmp_path_factory.mktemp("nvml"), "nvml.c", "libnvidia-ml.so")


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory):
    return build(tmp_path_factory.mktemp("cuda"), "cuda.c", "libcuda.so")


def read(*folders, nvml_s=10.0, cuda_s=10.0, **variables):
    """GPUs and sources as a fresh process reads them with these folders on its library path."""
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environ = {**inherited, **variables, "LD_LIBRARY_PATH": ":".join(str(folder) for folder in folders)}
    command = [sys.executable, "-c", READ, str(nvml_s), str(cuda_s)]
    done = subprocess.run(command, env=environ, cwd=TESTS.parent, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=tuple[GpuFacts, dict[str, str]])


def reason(fact):
    assert isinstance(fact, Missing)
    return fact.reason


def test_every_gpu_is_read_and_matched_by_uuid_not_by_number(fake_nvml, fake_cuda):
    facts, sources = read(fake_nvml, fake_cuda)
    assert facts.driver == Driver(version="580.159.04", cuda="13.0")
    first, second = facts.gpus
    assert (first.name, first.uuid, first.sm, first.nvml_index, first.cuda_index) == ("NVIDIA H200", H200, 90, 0, 1)
    assert (second.name, second.uuid, second.sm, second.nvml_index, second.cuda_index) == (
        "NVIDIA GB10",
        GB10,
        121,
        1,
        0,
    )
    assert (first.memory_total_mib, first.memory_free_mib, first.mig) == (143771, 142771, False)
    assert first.pci_bus == "00000000:0F:00.0"
    assert facts.cuda_order == (GB10, H200)
    assert "not set" in reason(facts.visible_devices)
    assert sources == {
        "gpus": "NVML 580.159.04",
        "gpus.cuda_order": f"cuDeviceGetUuid ({fake_cuda}/libcuda.so.580.159.04)",
    }


def test_nvlinks_and_the_ways_between_gpus_are_read(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda)
    assert [gpu.nvlinks for gpu in facts.gpus] == [(True,) * 4] * 2
    [link] = facts.links
    assert (link.one, link.other, link.pcie) == (H200, GB10, "NODE")
    assert (link.nvlink, link.read, link.write) == (True, "ok", "ok")


def test_a_link_that_is_down_is_told_from_one_that_is_not_there(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_NVML_MODE="link-down")
    assert facts.gpus[0].nvlinks == (True, True, False, True)


def test_gpus_without_nvlink_say_why_they_are_no_peers(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_NVML_MODE="no-nvlink")
    assert [gpu.nvlinks for gpu in facts.gpus] == [(), ()]
    [link] = facts.links
    assert (link.nvlink, link.read, link.write) == (False, "chipset not supported", "ok")


def test_what_a_lost_gpu_does_not_tell_of_its_links_has_a_reason(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_NVML_MODE="lost-later")
    [link] = facts.links
    for fact in (facts.gpus[1].nvlinks, link.pcie, link.nvlink, link.read, link.write):
        assert "reset the GPU" in reason(fact)


def test_a_hidden_gpu_is_listed_with_the_variable_that_hides_it(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, CUDA_VISIBLE_DEVICES="1", FAKE_CUDA_SEES="0")
    assert facts.visible_devices == "1"
    assert facts.cuda_order == (H200,)
    assert facts.gpus[0].cuda_index == 0
    assert reason(facts.gpus[1].cuda_index) == "hidden by CUDA_VISIBLE_DEVICES=1"


def test_an_empty_variable_hides_all_and_the_order_is_empty_not_missing(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, CUDA_VISIBLE_DEVICES="", FAKE_CUDA_SEES="")
    assert (facts.visible_devices, facts.cuda_order) == ("", ())
    assert {reason(gpu.cuda_index) for gpu in facts.gpus} == {"hidden by an empty CUDA_VISIBLE_DEVICES"}


def test_a_list_with_which_cuda_sees_nothing_is_not_called_hiding(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, CUDA_VISIBLE_DEVICES="7\x1b[2J", FAKE_CUDA_SEES="")
    assert reason(facts.gpus[0].cuda_index) == r"CUDA sees no GPU at all with CUDA_VISIBLE_DEVICES=7\x1b[2J"


def test_cuda_that_sees_none_of_the_gpus_is_a_reason_when_nothing_hides_them(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_CUDA_SEES="")
    assert "CUDA_ERROR_NO_DEVICE" in reason(facts.cuda_order)
    assert "/dev/nvidia-uvm" in reason(facts.gpus[0].cuda_index)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("not-loaded", "kernel driver"),
        ("mismatch", "libraries (580.159.04) do not match the loaded kernel driver"),
        ("no-permission", f"permission denied: user {os.getuid()} may not"),
        ("incomplete", "does not find another library of the driver"),
        ("unknown", "code 999"),
    ],
)
def test_nvml_that_does_not_start_says_why(fake_nvml, mode, words):
    facts, _ = read(fake_nvml, FAKE_NVML_MODE=mode)
    assert words in reason(facts.gpus)
    assert facts.driver == facts.gpus
    assert "no libcuda.so.1" in reason(facts.cuda_order)


def test_a_machine_without_a_driver_says_so_and_starts_no_child(monkeypatch):
    if Path("/proc/driver/nvidia/version").exists() or cuda_order.may_have_libcuda(os.environ):
        pytest.skip("this machine has a driver")
    monkeypatch.setattr(cuda_order.sandbox, "run", lambda *_args, **_named: pytest.fail("a child was started"))
    facts, _ = read_gpus({})
    assert "libnvidia-ml.so.1" in reason(facts.gpus)
    assert "no libcuda.so.1" in reason(facts.cuda_order)


def test_a_library_that_is_not_one_is_told_apart_from_none(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("not ELF at all, but more than a header's length of text" * 4)
    facts, _ = read(tmp_path)
    assert "is there but cannot be loaded" in reason(facts.gpus)
    assert "invalid ELF header" in reason(facts.gpus)


def test_the_toolkits_stub_is_recognised_and_not_called(tmp_path):
    folder = tmp_path / "stubs"
    folder.mkdir()
    build(folder, "nvml.c", "libnvidia-ml.so")
    facts, _ = read(folder, FAKE_NVML_MODE="crash")
    assert "stub for linking" in reason(facts.gpus)


def test_nvml_that_hangs_is_left_after_the_limit_and_cuda_is_not_asked(fake_nvml, fake_cuda):
    begun = time.perf_counter()
    facts, _ = read(fake_nvml, fake_cuda, nvml_s=0.5, FAKE_NVML_MODE="hang", FAKE_CUDA_MODE="hang")
    assert time.perf_counter() - begun < 5
    assert "did not answer within 0.5 s while starting (nvmlInit)" in reason(facts.gpus)
    assert facts.driver == facts.gpus
    assert "NVML hangs" in reason(facts.cuda_order)


def test_a_hang_on_one_gpu_names_it_and_keeps_the_driver(fake_nvml):
    facts, _ = read(fake_nvml, nvml_s=2, FAKE_NVML_MODE="hang-on-second")
    assert "while reading GPU 1 of 2" in reason(facts.gpus)
    assert facts.driver == Driver(version="580.159.04", cuda="13.0")


def test_no_gpus_at_all_is_an_answer(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_NVML_MODE="none", FAKE_CUDA_SEES="")
    assert (facts.gpus, facts.cuda_order) == ((), ())


def test_memory_that_nvml_does_not_know_is_missing_in_that_gpu_only(fake_nvml):
    facts, _ = read(fake_nvml, FAKE_NVML_MODE="unified")
    first, second = facts.gpus
    assert first.memory_total_mib == 143771
    assert "not supported" in reason(second.memory_total_mib)
    assert "not supported" in reason(second.memory_free_mib)
    assert (second.name, second.sm) == ("NVIDIA GB10", 121)


def test_memory_that_nvml_does_not_know_is_taken_from_cuda(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_NVML_MODE="unified")
    assert facts.gpus[1].memory_total_mib == 122502
    assert "not supported" in reason(facts.gpus[1].memory_free_mib)


def test_a_gpu_that_is_lost_while_it_is_read_keeps_its_identity(fake_nvml):
    facts, _ = read(fake_nvml, FAKE_NVML_MODE="lost-later")
    lost = facts.gpus[1]
    assert lost.uuid == GB10
    for fact in (lost.sm, lost.memory_total_mib, lost.mig, lost.pci_bus):
        assert "GPU is lost" in reason(fact)
    assert facts.gpus[0].sm == 90


@pytest.mark.parametrize(
    ("mode", "left", "words"),
    [("lost", H200, "GPU 1: no handle: GPU is lost"), ("forbidden", GB10, "GPU 0: NVML may not tell the handle")],
)
def test_a_gpu_that_cannot_be_opened_is_told_apart_from_the_list(fake_nvml, mode, left, words):
    facts, _ = read(fake_nvml, FAKE_NVML_MODE=mode)
    assert [gpu.uuid for gpu in facts.gpus] == [left]
    assert len(facts.unreadable) == 1
    assert facts.unreadable[0].startswith(words)


def test_a_name_that_is_not_text_harms_nothing_else(fake_nvml):
    facts, _ = read(fake_nvml, FAKE_NVML_MODE="garbled")
    assert (facts.gpus[1].name, facts.gpus[1].sm) == ("(no name from NVML)", 121)


def test_without_a_libcuda_for_nvml_to_ask_the_older_question_is_put(fake_nvml):
    facts, _ = read(fake_nvml, FAKE_NVML_MODE="no-libcuda")
    assert facts.driver == Driver(version="580.159.04", cuda="12.8")


def test_a_mig_instance_is_matched_to_its_gpu_and_the_order_names_the_instance(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_NVML_MODE="mig", FAKE_CUDA_MODE="mig", FAKE_CUDA_SEES="0")
    first, second = facts.gpus
    assert (first.mig, first.cuda_index, first.memory_total_mib) == (True, 0, 143771)
    assert second.mig is False
    assert "single MIG instance" in reason(second.cuda_index)
    assert facts.cuda_order == (MIG,)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("34", "stub for linking"),
        ("46", "compute mode"),
        ("802", "nvidia-fabricmanager"),
        ("803", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        ("804", "data-centre GPUs only"),
        ("999", "/dev/nvidia-uvm"),
        ("12345", "cuInit gives CUDA_ERROR_OTHER"),
        ("crash", "crashed when asked for its devices (SIGSEGV)"),
        ("no-uuid", "cuDeviceGetUuid gives"),
    ],
)
def test_cuda_that_fails_says_why_and_nvmls_list_stands(fake_nvml, fake_cuda, mode, words):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_CUDA_MODE=mode)
    assert words in reason(facts.cuda_order)
    assert [gpu.uuid for gpu in facts.gpus] == [H200, GB10]
    assert facts.gpus[0].cuda_index == facts.cuda_order


def test_cuda_that_hangs_is_killed_after_the_limit(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, cuda_s=0.5, FAKE_CUDA_MODE="hang")
    assert "did not answer within 0.5 s" in reason(facts.cuda_order)
    assert len(facts.gpus) == 2


def test_without_nvml_the_gpus_that_cuda_sees_are_listed(fake_cuda):
    facts, sources = read(fake_cuda)
    first, second = facts.gpus
    assert (first.nvml_index, first.cuda_index, first.uuid, first.name, first.sm) == (0, 1, H200, "NVIDIA H200", 90)
    assert (second.nvml_index, second.cuda_index, second.memory_total_mib) == (1, 0, 122502)
    assert "only NVML could tell" in reason(first.memory_free_mib)
    assert isinstance(facts.driver, Driver)
    assert facts.driver.cuda == "13.0"
    assert sources["gpus"].startswith("CUDA driver, only what it sees")


def test_a_value_that_cuda_does_not_give_is_missing_alone(fake_cuda):
    facts, _ = read(fake_cuda, FAKE_CUDA_MODE="no-memory")
    assert "did not tell" in reason(facts.gpus[0].memory_total_mib)
    assert facts.gpus[0].sm == 90


def test_libcuda_is_looked_for_where_the_dynamic_linker_looks(tmp_path, fake_cuda):
    (tmp_path / "etc").mkdir()
    assert not cuda_order.may_have_libcuda({}, tmp_path)
    assert cuda_order.may_have_libcuda({"LD_LIBRARY_PATH": f"/nowhere::{fake_cuda}"}, tmp_path)
    (tmp_path / "etc/ld.so.cache").write_bytes(b"libcudart.so.12\0libcuda.so.1\0/opt/libcuda.so.1\0")
    assert cuda_order.may_have_libcuda({}, tmp_path)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n", "535.104.05"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@h)\nGCC\n",
            "580.159.04",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86  Release Build\n", "570.86"),
        ("something else\n", None),
    ],
)
def test_the_kernel_drivers_version_is_found_in_its_text(text, version):
    assert reasons.kernel_module_version(text) == version


@pytest.mark.parametrize(
    ("kernel", "container", "words"),
    [
        ("580.159.04", True, "the host runs the NVIDIA driver 580.159.04, but this container"),
        ("580.159.04", False, "libnvidia-compute"),
        (None, True, "--gpus all"),
        (None, False, "no NVIDIA driver on this machine"),
    ],
)
def test_a_missing_library_is_explained_by_where_it_is_missing(kernel, container, words):
    text = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
    assert words in reasons.why_not_loaded(text, kernel=kernel, container=container)


def test_advice_fits_a_container():
    assert "reboot" in reasons.why_not_started(18, "", library="", kernel=None, container=False)
    assert "restart this container" in reasons.why_not_started(18, "", library="", kernel=None, container=True)
    assert "modprobe" in reasons.why_not_started(9, "", library="", kernel=None, container=False)
    assert "--gpus all" in reasons.why_not_started(9, "", library="", kernel=None, container=True)
    assert "systemctl daemon-reload" in reasons.why_not_started(999, "", library="", kernel=None, container=True)


@pytest.mark.parametrize(("number", "version"), [(12080, "12.8"), (13000, "13.0"), (11020, "11.2"), (12090, "12.9")])
def test_the_drivers_number_becomes_a_version(number, version):
    assert reasons.cuda_version(number) == version


@pytest.mark.parametrize(
    ("variables", "order"),
    [
        ({}, (H200, GB10)),
        ({"CUDA_VISIBLE_DEVICES": H200}, (H200,)),
        ({"CUDA_VISIBLE_DEVICES": GB10[:12]}, (GB10,)),
        ({"CUDA_VISIBLE_DEVICES": f"{GB10}, {H200}"}, (GB10, H200)),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ()),
        ({"CUDA_VISIBLE_DEVICES": f"{H200},nonsense,{GB10}"}, (H200,)),
        ({"CUDA_VISIBLE_DEVICES": f"{H200},{H200}"}, (H200,)),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, (GB10,)),
        ({"CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ()),
    ],
)
def test_without_cuda_the_order_is_reckoned_from_nvml_and_the_variable(fake_nvml, variables, order):
    facts = read_by_nvml(fake_nvml, **variables)
    assert facts.cuda_order == order
    assert tuple(gpu.uuid for gpu in facts.gpus if isinstance(gpu.cuda_index, int)) == tuple(
        uuid for uuid in (H200, GB10) if uuid in order
    )
    assert facts.driver == Driver(version="580.159.04", cuda="13.0")


def test_without_cuda_numbers_of_gpus_of_several_kinds_tell_nothing(fake_nvml):
    facts = read_by_nvml(fake_nvml, CUDA_VISIBLE_DEVICES="0")
    assert "several kinds" in reason(facts.cuda_order)
    assert {reason(gpu.cuda_index) for gpu in facts.gpus} == {reason(facts.cuda_order)}


def test_without_cuda_and_nvml_there_is_the_reason(tmp_path):
    assert "libnvidia-ml.so.1" in reason(read_by_nvml(tmp_path).cuda_order)


def read_by_nvml(folder, **variables):
    code = READ.replace("read_gpus", "read_gpus_of_nvml").replace(", cuda_timeout_s=float(sys.argv[2])", "")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    environ = {**inherited, **variables, "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-c", code, "10"]
    done = subprocess.run(command, env=environ, cwd=TESTS.parent, capture_output=True, timeout=60, check=True)
    return msgspec.json.decode(done.stdout, type=tuple[GpuFacts, dict[str, str]])[0]


def test_who_else_is_on_a_gpu_and_who_may_be_is_read(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_NVML_MODE="busy")
    first, second = facts.gpus
    assert (first.compute_mode, first.compute_processes, first.memory_free_mib) == ("exclusive-process", 2, 53771)
    assert (second.compute_mode, second.compute_processes) == ("default", 0)


def test_a_prohibited_gpu_is_told_though_cuda_sees_none(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_NVML_MODE="prohibited", FAKE_CUDA_SEES="")
    found = {one.id for one in findings.find(knowledge.load(), make.facts(gpus=facts), ())}
    assert "gpu-compute-mode-prohibited" in found


def test_mig_mode_without_an_instance_is_named(fake_nvml, fake_cuda):
    facts, _ = read(fake_nvml, fake_cuda, FAKE_NVML_MODE="mig", FAKE_CUDA_SEES="")
    found = {one.id for one in findings.find(knowledge.load(), make.facts(gpus=facts), ())}
    assert "mig-mode-without-instance" in found


def test_gpus_of_two_kinds_have_a_row_each(fake_nvml, fake_cuda):
    gpus, _ = read(fake_nvml, fake_cuda)
    facts, kb = make.facts(gpus=gpus), knowledge.load()
    specs = tuple(make.spec(name) for name in ("norm.rmsnorm", "sampling.softmax"))
    planned = plan.plan(specs, facts, Request(depth=Depth.RUN))
    assert [(probe.spec.id, probe.sm, probe.gpu_uuids) for probe in planned] == [
        ("norm.rmsnorm", 90, (H200,)),
        ("norm.rmsnorm", 121, (GB10,)),
        ("sampling.softmax", 90, (H200,)),
        ("sampling.softmax", 121, (GB10,)),
    ]
    outcomes = (make.outcome(sm=90), make.outcome(sm=121, ending=Ending.RAISED, stage=Stage.BUILT, detail="no kernel"))
    rows = [row for row in matrix.judge(kb, facts, planned, outcomes, ()) if row.feature == "norm.rmsnorm"]
    assert [(row.sm, row.verdict) for row in rows] == [(90, Verdict.WORKS), (121, Verdict.BROKEN)]
