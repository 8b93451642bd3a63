"""Wheels to read, fetched once with pip into the user's cache; FlashInfer's may lie in the folder FI_DOCTOR_WHEELS."""

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import platformdirs
import pytest

VERSIONS = ("0.5.2", "0.5.3", "0.6.7.post3", "0.7.2.post1")
# What is read of the rest of a wheel: the runner of the trtllm-gen kernels, who makes one, and all-reduce with NVFP4.
SOURCES = (
    "flashinfer/data/include/flashinfer/trtllm/fmha/fmhaRunner.cuh",
    "flashinfer/data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh",
    "flashinfer/data/csrc/trtllm_fmha_kernel_launcher.cu",
)


def locate(version):
    """A folder that holds flashinfer/, or a wheel, of this version; skips the test only where FI_DOCTOR_OFFLINE=1."""
    given = os.environ.get("FI_DOCTOR_WHEELS")
    if given:
        unpacked = Path(given) / f"fi-{version}"
        found = unpacked if (unpacked / "flashinfer").is_dir() else _wheel_in(Path(given), "flashinfer-python", version)
        assert found is not None, f"FI_DOCTOR_WHEELS holds neither fi-{version}/flashinfer nor a wheel of {version}"
        return found
    return wheel("flashinfer-python", version)


def wheel(distribution, version):
    """The wheel of a distribution, fetched if need be; skips the test only where FI_DOCTOR_OFFLINE=1."""
    cache = Path(platformdirs.user_cache_dir("fi-doctor")) / "test-wheels"
    found = _wheel_in(cache, distribution, version)
    if found is None and os.environ.get("FI_DOCTOR_OFFLINE") == "1":
        pytest.skip(f"{distribution} {version} is not in {cache}, and FI_DOCTOR_OFFLINE=1 is set")
    return found or _download(distribution, version, cache)


class Unpacked:
    """The Python files of each version that is asked for, unpacked once; of data/, most of a wheel, only SOURCES."""

    def __init__(self, folder):
        self._folder = folder

    def __call__(self, version):
        """The package folder flashinfer/ of this version."""
        found = locate(version)
        if found.is_dir():
            return found / "flashinfer"
        folder = self._folder / version
        if not folder.is_dir():
            with zipfile.ZipFile(found) as wheel:
                wheel.extractall(folder, [name for name in wheel.namelist() if _is_wanted(name)])
        return folder / "flashinfer"


def _is_wanted(name):
    return name in SOURCES or _is_python_of_package(name)


def _is_python_of_package(name):
    return name.startswith("flashinfer/") and name.endswith(".py") and not name.startswith("flashinfer/data/")


def _wheel_in(folder, distribution, version):
    pattern = re.compile(rf"{distribution.replace('-', '_')}-{re.escape(version)}-.*\.whl")
    return next((path for path in sorted(folder.glob("*.whl")) if pattern.fullmatch(path.name)), None)


def _download(distribution, version, cache):
    """Fetched once, also where several processes ask for it; a name in the cache is never that of half a file."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=cache) as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := _wheel_in(cache, distribution, version):
            return found
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        done = subprocess.run([*command, f"{distribution}=={version}"], capture_output=True, text=True, timeout=280)
        if done.returncode:
            pytest.fail(f"{distribution} {version} cannot be fetched (FI_DOCTOR_OFFLINE=1 skips): {done.stderr}")
        fetched = _wheel_in(Path(folder), distribution, version)
        return fetched and fetched.replace(cache / fetched.name)
