"""Probes that let FlashInfer choose between FA2 and FA3 build what the architectures take, where no GPU says which."""

import os
import runpy
import subprocess
import sys

import loading
import pytest

torch = pytest.importorskip("torch")

WITHOUT_TORCH = "comm_peer_transfer"
GPU_PROBES = sorted(
    path for path in loading.PROBES.glob("[!_]*.py") if not path.stem.startswith(("import_", WITHOUT_TORCH))
)


@pytest.mark.parametrize("what", [("attention_cascade", "levels_d128"), ("attention_fp8_kv", "auto_bf16q_d128")])
@pytest.mark.parametrize(
    ("architectures", "backends"),
    [
        pytest.param({(9, "0a")}, {"fa3"}, id="SM90"),
        pytest.param({(8, "0")}, {"fa2"}, id="SM80"),
        pytest.param({(8, "0"), (9, "0a")}, {"fa2", "fa3"}, id="both"),
        pytest.param(set(), {"fa2"}, id="none-named"),
    ],
)
def test_what_the_architectures_take_is_built(architectures, backends, what, paged, monkeypatch):
    import flashinfer._paged
    import flashinfer.jit.core

    paged("prefill", "get_batch_prefill_module")
    paged("utils", "determine_attention_backend", "is_fa3_backend_supported", is_there=False)
    monkeypatch.setenv("FI_DOCTOR_PROBE_DEVICE", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(flashinfer.jit.core.current_compilation_context, "TARGET_CUDA_ARCHS", architectures)
    probe, variant = what
    loading.load(probe).build(variant)
    assert {build[0] for build in flashinfer._paged.BUILDS} == backends


@pytest.mark.parametrize("path", GPU_PROBES, ids=lambda path: path.stem)
def test_by_hand_one_line_says_that_there_is_no_gpu(path, monkeypatch):
    probe = loading.load(path.stem).PROBE
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: probe["gpus"] - 1)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    # With a text Python leaves with 1 and writes it on stderr.
    assert left.value.code == f"{probe['id']} needs {probe['gpus']} GPU, torch sees {probe['gpus'] - 1}"


def test_by_hand_a_probe_that_asks_the_driver_itself_says_so_in_one_line():
    path = loading.PROBES / f"{WITHOUT_TORCH}.py"
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, path], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("comm.peer_transfer: ")
