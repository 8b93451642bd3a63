"""The architecture rule: literals for each rule that FlashInfer had, and the real files beside ours over a grid."""

import itertools
import sys
import types
from types import SimpleNamespace

import pytest
from flashinfer_wheels import VERSIONS
from packaging.version import Version

from fi_doctor.facts.architectures import architectures
from fi_doctor.model import Gpu, GpuFacts, Missing, ToolkitFacts

NONE = Missing(reason="not looked for")
HEADER = """
import os
import torch
import logging

logger = logging.getLogger(__name__)


class CompilationContext:
    FLAGS = ["-DX"]
"""
LITERAL_INIT = """
    def __init__(self):
        self.TARGET_CUDA_ARCHS = set()
        if "FLASHINFER_CUDA_ARCH_LIST" in os.environ:
            for arch in os.environ["FLASHINFER_CUDA_ARCH_LIST"].split(" "):
                major, minor = arch.split(".")
                major = int(major)
                self.TARGET_CUDA_ARCHS.add((int(major), str(minor)))
        else:
            try:
                for device in range(torch.cuda.device_count()):
                    major, minor = torch.cuda.get_device_capability(device)
                    if major >= 9:
                        minor = str(minor) + "a"
                    self.TARGET_CUDA_ARCHS.add((int(major), str(minor)))
            except Exception as e:
                logger.warning(f"Failed to get device capability: {e}.")
"""
NORMALISING_INIT = """
    def __init__(self):
        self.TARGET_CUDA_ARCHS = set()
        if "FLASHINFER_CUDA_ARCH_LIST" in os.environ:
            for arch in os.environ["FLASHINFER_CUDA_ARCH_LIST"].split(" "):
                major, minor = arch.split(".")
                major = int(major)
                if minor[-1].isalpha():
                    self.TARGET_CUDA_ARCHS.add((major, minor))
                else:
                    self.TARGET_CUDA_ARCHS.add(self._normalize_cuda_arch(major, int(minor)))
        else:
            try:
                for device in range(torch.cuda.device_count()):
                    major, minor = torch.cuda.get_device_capability(device)
                    self.TARGET_CUDA_ARCHS.add(self._normalize_cuda_arch(major, minor))
            except Exception as e:
                logger.warning(f"Failed to get device capability: {e}.")
"""
NORMALISE = """
    @staticmethod
    def _normalize_cuda_arch(major: int, minor: int) -> tuple[int, str]:
        if major == 9:
            return (major, str(minor) + "a")
        elif major == 12:
            from flashinfer.jit.cpp_ext import is_cuda_version_at_least
%s
        elif major >= 10:
            return (major, str(minor) + "a")
        return (major, str(minor))
"""
ALL_120F = """
            if is_cuda_version_at_least("12.9"):
                return (major, "0f")
            else:
                raise RuntimeError("SM 12.x requires CUDA >= 12.9")
"""
TOLD_APART = """
            if is_cuda_version_at_least("12.9"):
                if minor == 0:
                    return (major, "0f")
                else:
                    return (major, str(minor) + "a")
            else:
                raise RuntimeError("SM 12.x requires CUDA >= 12.9")
"""
WITH_12_8 = """
            if minor == 0:
                if is_cuda_version_at_least("12.9"):
                    return (major, "0f")
                if is_cuda_version_at_least("12.8"):
                    return (major, "0a")
                raise RuntimeError("SM 120 requires CUDA >= 12.8")
            if is_cuda_version_at_least("12.9"):
                return (major, str(minor) + "a")
            raise RuntimeError("SM 12.1+ requires CUDA >= 12.9")
"""
RULES = {
    "0.5": HEADER + LITERAL_INIT,
    "0.6.7": HEADER + NORMALISE % ALL_120F + NORMALISING_INIT,
    "0.6.8": HEADER + NORMALISE % TOLD_APART + NORMALISING_INIT,
    "0.7": HEADER + NORMALISE % WITH_12_8 + NORMALISING_INIT,
}


def root(folder, rule):
    (folder / "compilation_context.py").write_text(rule)
    return folder


def gpus(*sms, hidden=()):
    listed = tuple(
        Gpu(
            nvml_index=index,
            cuda_index=Missing(reason="hidden by CUDA_VISIBLE_DEVICES=1") if index in hidden else len(sms) - index,
            uuid=f"GPU-{index}",
            name="GPU",
            sm=sm,
            memory_total_mib=NONE,
            memory_free_mib=NONE,
            mig=NONE,
            pci_bus=NONE,
        )
        for index, sm in enumerate(sms)
    )
    return GpuFacts(driver=NONE, gpus=listed, visible_devices=NONE, cuda_order=NONE)


def toolkit(gate="13.0", torch_cuda="13.0"):
    return ToolkitFacts(
        jit=NONE,
        gate_version=gate,
        gate_source="nvcc",
        others=(),
        torch_cuda=torch_cuda,
        jit_cache_cuda=NONE,
        ninja=NONE,
        host_compiler=NONE,
        host_compiler_version=NONE,
    )


def listed(value):
    return {"FLASHINFER_CUDA_ARCH_LIST": value}


def reason(found):
    assert isinstance(found[0], Missing), found
    return found[0].reason


@pytest.mark.parametrize(
    ("rule", "sms", "gate", "expected"),
    [
        ("0.5", (90,), "12.6", ("90a",)),
        ("0.5", (75,), "12.6", ("75",)),
        ("0.5", (120,), "12.6", ("120a",)),
        ("0.5", (121,), "12.6", ("121a",)),
        ("0.5", (90, 80, 90), "12.6", ("80", "90a")),
        ("0.6.7", (90,), "12.6", ("90a",)),
        ("0.6.7", (120,), "12.9", ("120f",)),
        ("0.6.7", (121,), "13.0", ("120f",)),
        ("0.6.8", (120, 121), "12.9", ("120f", "121a")),
        ("0.7", (120,), "12.9", ("120f",)),
        ("0.7", (120,), "12.8", ("120a",)),
        ("0.7", (121,), "12.9", ("121a",)),
        ("0.7", (103,), "12.9", ("103a",)),
        ("0.7", (89,), "12.9", ("89",)),
    ],
)
def test_gpus_get_the_tags_of_the_installed_rule(tmp_path, rule, sms, gate, expected):
    assert architectures(root(tmp_path, RULES[rule]), {}, gpus(*sms), toolkit(gate)) == (expected, "GPUs")


@pytest.mark.parametrize(
    ("rule", "value", "gate", "expected"),
    [
        ("0.5", "9.0", "13.0", ("90",)),
        ("0.5", "9.0a", "13.0", ("90a",)),
        ("0.5", "12.0 9.0a", "13.0", ("90a", "120")),
        ("0.5", "9.0+PTX", "13.0", ("90+PTX",)),
        ("0.6.7", "9.0", "13.0", ("90a",)),
        ("0.6.7", "12.1", "13.0", ("120f",)),
        ("0.6.8", "12.1", "13.0", ("121a",)),
        ("0.7", "12.0", "12.8", ("120a",)),
        ("0.7", "12.0f", "12.0", ("120f",)),
    ],
)
def test_the_variable_gets_the_tags_of_the_installed_rule(tmp_path, rule, value, gate, expected):
    found = architectures(root(tmp_path, RULES[rule]), listed(value), gpus(80), toolkit(gate))
    assert found == (expected, "FLASHINFER_CUDA_ARCH_LIST")


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("8.0;9.0", "one space, not by ';'"),
        ("8.0  9.0a", "double, leading or trailing"),
        ("9.0a ", "double, leading or trailing"),
        ("", "set but empty"),
        ("hopper", "entries look like 9.0a"),
    ],
)
def test_a_list_that_stops_the_import_says_which_trap_it_is(tmp_path, rule, value, words):
    found = architectures(root(tmp_path, RULES[rule]), listed(value), gpus(90), toolkit())
    assert "import flashinfer raises ValueError" in reason(found)
    assert words in reason(found)


def test_an_error_stops_the_import_for_the_variable_but_is_swallowed_for_the_gpus(tmp_path):
    place = root(tmp_path, RULES["0.7"])
    stopped = reason(architectures(place, listed("12.1"), gpus(), toolkit("12.8")))
    assert stopped.startswith("import flashinfer raises RuntimeError: SM 12.1+ requires CUDA >= 12.9")
    swallowed = reason(architectures(place, {}, gpus(121), toolkit("12.8")))
    assert 'logs "Failed to get device capability: SM 12.1+ requires CUDA >= 12.9."' in swallowed
    assert "requires GPUs with sm75 or higher" in swallowed


def test_what_came_before_a_swallowed_error_stays(tmp_path):
    found = architectures(root(tmp_path, RULES["0.6.8"]), {}, gpus(120, 90), toolkit("12.8"))
    assert found == (("90a",), "GPUs")  # CUDA counts the second one first


def test_without_gpu_and_variable_the_reason_says_what_flashinfer_will_say(tmp_path):
    place = root(tmp_path, RULES["0.5"])
    assert "requires GPUs with sm75 or higher" in reason(architectures(place, {}, gpus(), toolkit()))
    without_driver = GpuFacts(driver=NONE, gpus=Missing(reason="no driver"), visible_devices=NONE, cuda_order=NONE)
    assert "no driver" in reason(architectures(place, {}, without_driver, toolkit()))


def test_only_gpus_that_cuda_sees_count(tmp_path):
    place = root(tmp_path, RULES["0.5"])
    assert architectures(place, {}, gpus(80, 90, hidden=(0,)), toolkit()) == (("90a",), "GPUs")
    assert "CUDA_VISIBLE_DEVICES=1" in reason(architectures(place, {}, gpus(80, hidden=(0,)), toolkit()))


def test_a_torch_without_cuda_sees_no_gpu(tmp_path):
    cpu = Missing(reason="torch 2.9.0+cpu is built without CUDA")
    found = architectures(root(tmp_path, RULES["0.7"]), {}, gpus(90), toolkit(torch_cuda=cpu))
    assert "torch sees no GPU: torch 2.9.0+cpu is built without CUDA" in reason(found)


def test_a_compute_capability_that_is_not_known_is_not_guessed(tmp_path):
    unread = gpus(Missing(reason="permission denied"))
    assert "permission denied" in reason(architectures(root(tmp_path, RULES["0.7"]), {}, unread, toolkit()))


def test_without_a_cuda_version_the_gate_raises_as_it_does_in_flashinfer(tmp_path):
    place, gate = root(tmp_path, RULES["0.7"]), Missing(reason="there is no nvcc")
    assert "RuntimeError: there is no nvcc" in reason(architectures(place, listed("12.0"), gpus(), toolkit(gate)))
    assert architectures(place, listed("9.0"), gpus(), toolkit(gate))[0] == ("90a",)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (HEADER + "\n    def __init__(self):\n        self.TARGET_CUDA_ARCHS = {*()}\n", "cannot follow: line"),
        (HEADER + "\n    def __init__(self):\n        while True:\n            pass\n", "cannot follow: line"),
        ("x = 1\n", "there is no class CompilationContext"),
        ("class (", "is not Python"),
    ],
    ids=["unknown expression", "unknown statement", "another file", "broken file"],
)
def test_a_rule_that_cannot_be_followed_is_not_guessed(tmp_path, rule, words):
    assert words in reason(architectures(root(tmp_path, rule), listed("9.0a"), gpus(90), toolkit()))


def test_a_rule_that_never_ends_is_given_up(tmp_path):
    endless = "\n    def __init__(self):\n        for a in range(10**9):\n            pass\n"
    endless = endless.replace("10**9", "1000000000")
    found = architectures(root(tmp_path, HEADER + endless), listed("9.0a"), gpus(90), toolkit())
    assert "steps" in reason(found)


def test_a_missing_rule_is_said(tmp_path):
    assert "No such file" in reason(architectures(tmp_path, listed("9.0a"), gpus(90), toolkit()))


VALUES = (
    None, "", " ", "9.0", "9.0a", "9", "9.", ".9", "8.0 9.0a", "9.0a 8.0", "8.0;9.0", "8.0,9.0", "8.0  9.0", " 9.0",
    "9.0 ", "12.0", "12.1", "12.0f", "12.0a 12.1a", "10.0", "10.3", "10.7", "11.0", "9.0+PTX", "x.y",
    "7.5 8.6 8.9 9.0 10.0 12.0",
)  # fmt: skip
DEVICES = (
    (),
    (75,),
    (86,),
    (89,),
    (90,),
    (100,),
    (103,),
    (107,),
    (110,),
    (120,),
    (121,),
    (80, 90),
    (121, 90),
    (90, 90),
)
GATES = ("12.4", "12.8", "12.9", "13.0", None)


def real(path, value, devices, gate, monkeypatch):
    """What the package's own file gives, with a torch and a gate of ours under it."""

    def is_cuda_version_at_least(wanted):
        if gate is None:
            raise RuntimeError("no CUDA version")
        return Version(gate) >= Version(wanted)

    torch = types.ModuleType("torch")
    torch.cuda = SimpleNamespace(
        device_count=lambda: len(devices),
        get_device_capability=lambda device: divmod(devices[device], 10),
        is_available=lambda: bool(devices),
    )
    cpp_ext = types.ModuleType("flashinfer.jit.cpp_ext")
    cpp_ext.is_cuda_version_at_least = is_cuda_version_at_least
    names = {"torch": torch, "flashinfer.jit.cpp_ext": cpp_ext}
    names |= {name: types.ModuleType(name) for name in ("flashinfer", "flashinfer.jit")}
    for name, module in names.items():
        monkeypatch.setitem(sys.modules, name, module)
    if value is None:
        monkeypatch.delenv("FLASHINFER_CUDA_ARCH_LIST", raising=False)
    else:
        monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", value)
    scope = {"__name__": "flashinfer.compilation_context"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    try:
        targets = scope["CompilationContext"]().TARGET_CUDA_ARCHS
    except Exception as error:  # noqa: BLE001 - whatever the package raises is the answer
        return type(error).__name__, str(error)
    return tuple(f"{major}{minor}" for major, minor in sorted(targets))


@pytest.mark.wheels
@pytest.mark.parametrize("version", VERSIONS)
def test_every_case_agrees_with_the_real_file(unpacked, version, monkeypatch):
    package = unpacked(version)
    cases = [(value, (), gate) for value, gate in itertools.product(VALUES[1:], GATES)]
    cases += [(None, devices, gate) for devices, gate in itertools.product(DEVICES, GATES)]
    for value, devices, gate in cases:
        theirs = real(package / "compilation_context.py", value, devices, gate, monkeypatch)
        known = toolkit(Missing(reason="no CUDA version") if gate is None else gate)
        environ = {} if value is None else listed(value)
        ours, _ = architectures(package, environ, gpus(*reversed(devices)), known)
        told = f"{value!r} {devices} {gate}: theirs {theirs}, ours {ours}"
        if not theirs:
            assert isinstance(ours, Missing), told
            assert "sm75" in ours.reason, told
        elif isinstance(ours, Missing):
            assert f"import flashinfer raises {theirs[0]}: {theirs[1]}" in ours.reason, told
        else:
            assert ours == theirs, told
