"""The example of a package that brings a probe: found through its entry point, and its own checks catch faults."""

import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from flashinfer_wheels import VERSIONS, locate

EXAMPLE = pathlib.Path(__file__).parent / "example_package"
PROBES = EXAMPLE / "attention_weights_probes"
COMMAND = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), "-m", "fi_doctor"]
FAULTS = (
    "not_normalised",
    "one_weight_off",
    "first_position_skipped",
    "last_position_skipped",
    "one_head_of_another_group",
    "default_scale",
    "weights_behind_the_end",
    "one_weight_not_written",
    "one_element_of_the_output_not_written",
    "output_of_another_head",
    "key_changed",
    "written_behind",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder in which both are installed; built from a copy, because setuptools leaves build/ beside its source."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder / "site"]
    done = subprocess.run([*pip, folder / "source"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for package in ("fi_doctor", "probes"):
        name = {"probes": "fi_doctor_probes"}.get(package, package)
        (folder / "site" / name).symlink_to(EXAMPLE.parents[1] / package)
    return folder / "site"


def ask(site, *words):
    environ = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(site.parent)}
    return subprocess.run([*COMMAND, *words], cwd=site.parent, env=environ, capture_output=True, text=True)


def test_its_probe_is_found_through_the_entry_point(site):
    listed = ask(site, "probes", "list")
    assert listed.returncode == 0, listed.stderr
    assert "weights.decode" in listed.stdout
    assert "norm.rmsnorm" in listed.stdout


def test_its_probe_is_shown_as_it_stands(site):
    assert ask(site, "probes", "show", "weights.decode").stdout == (PROBES / "weights_decode.py").read_text()


def test_its_row_its_probe_and_its_variants_are_explained(site):
    done = ask(site, "explain", "weights.decode")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Decided by the probes: weights.decode" in done.stdout
    assert "Brought by: attention-weights-probes" in done.stdout
    assert "weights.decode, row weights.decode" in ask(site, "explain", "gqa4").stdout
    assert "fi-doctor explain weights.decode" in ask(site, "explain", "weights.decod").stderr


def test_it_has_a_row_and_can_be_required(site):
    words = ("check", "--depth", "static", "--feature", "weights.*", "--require", "weights.decode", "--format", "json")
    done = ask(site, *words)
    assert done.returncode == 3, done.stderr
    [row] = json.loads(done.stdout)["features"]
    assert (row["feature"], row["verdict"]) == ("weights.decode", "unknown")


def test_fi_doctor_is_not_among_what_it_imports():
    assert "fi_doctor" not in (PROBES / "weights_decode.py").read_text()


@pytest.mark.wheels
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_kernel_compiles_against_the_headers_of(version, tmp_path, probe):
    """With the macros that torch's builder sets, and what the probe takes back."""
    headers = locate(version)
    if not headers.is_dir():
        with zipfile.ZipFile(headers) as wheel:
            wanted = [name for name in wheel.namelist() if name.startswith("flashinfer/data/include/")]
            wheel.extractall(tmp_path, wanted)
        headers = tmp_path
    include = headers / "flashinfer" / "data" / "include"
    source, target = PROBES / "csrc" / "attention_weights.cu", tmp_path / "kernel.o"
    from torch.utils.cpp_extension import COMMON_NVCC_FLAGS as TORCHS

    options = [*TORCHS, "-std=c++17", *(f"-U{name}" for name in probe.TAKEN_AWAY)]
    command = ["nvcc", "-c", *options, "-gencode=arch=compute_90a,code=sm_90a", "-I", include, source, "-o", target]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def probe(monkeypatch):
    pytest.importorskip("torch").set_num_threads(1)
    monkeypatch.setenv("FI_DOCTOR_PROBE_DEVICE", "cpu")
    spec = importlib.util.spec_from_file_location("weights_decode", PROBES / "weights_decode.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class StandIn:
    """The kernel in torch, with at most one fault."""

    def __init__(self, fault=""):
        self.fault = fault

    def decode_with_weights(self, query, key, value, lengths, output, weights, scale, stream):  # noqa: PLR0917
        weights.zero_()
        output.zero_()
        for request, length in enumerate(lengths.tolist()):
            for head in range(query.shape[1] if length else 0):
                self.one((query, key, value, output, weights), request, head, length, scale)
        if self.fault == "one_weight_not_written":
            weights[4, 2, 60] = float("nan")
        if self.fault == "one_element_of_the_output_not_written":
            output[6, 7, 127] = float("nan")
        if self.fault == "weights_behind_the_end":
            weights[0, 3, 299] = 1e-20
        if self.fault == "key_changed":
            key[1, 5, 0, 3] += 1
        if self.fault == "written_behind":
            weights.as_strided((1,), (1,), weights.storage_offset() + weights.numel()).zero_()

    def one(self, tensors, request, head, length, scale):
        query, key, value, output, weights = tensors
        group = head // (query.shape[1] // key.shape[2])
        if self.fault == "one_head_of_another_group" and head == 7:
            group = (group + 1) % key.shape[2]
        scale = 1 / query.shape[2] ** 0.5 if self.fault == "default_scale" else scale
        keys, values = key[request, :length, group].float(), value[request, :length, group].float()
        scores = keys @ query[request, head].float() * scale
        if self.fault == "first_position_skipped":
            scores[0] = -1e30 if length > 200 else scores[0]
        if self.fault == "last_position_skipped":
            scores[-1] = -1e30 if length > 200 else scores[-1]
        found = scores.softmax(-1)
        if self.fault == "not_normalised":
            found = (scores - scores.max()).exp()
        if self.fault == "one_weight_off" and (request, head) == (5, 1):
            found[100] *= 1 + 4 * 2**-16
        weights[request, head, :length] = found
        other = 1 - head if self.fault == "output_of_another_head" and head < 2 and request == 5 else head
        output[request, other] = (found @ values).bfloat16()


@pytest.mark.parametrize("variant", ["gqa4", "gqa8"])
def test_a_right_kernel_passes(variant, probe, monkeypatch):
    monkeypatch.setattr(probe, "_extension", StandIn)
    measured = probe.run(variant)
    assert 1 / 8 <= max(measured["weight_share_of_tolerance"], measured["output_share_of_tolerance"]) <= 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault, probe, monkeypatch):
    monkeypatch.setattr(probe, "_extension", lambda: StandIn(fault))
    with pytest.raises(AssertionError):
        probe.run("gqa4")
