"""The std::optional face of a toolkit that is too old, with the CUDA C++ headers of two real releases and c++."""

import re
import shutil
import subprocess
import zipfile

import factory as make
import pytest
from flashinfer_wheels import wheel

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings
from fi_doctor.facts.toolchain import parse_cccl

pytestmark = pytest.mark.wheels

RULE = "allreduce-fusion-needs-newer-cccl"
HEADER = "flashinfer/data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh"
RELEASES = {"12.6.77": "2.5.0", "12.8.90": "2.7.0"}  # CUDA's release -> CCCL's
KB = knowledge.load()


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    """headers("12.6.77"): the include folder of that release."""

    def unpack(release):
        folder = tmp_path_factory.getbasetemp() / f"cccl-{release}"
        if not folder.is_dir():
            with zipfile.ZipFile(wheel("nvidia-cuda-cccl-cu12", release)) as archive:
                archive.extractall(folder)
        return folder / "nvidia/cuda_cccl/include"

    return unpack


@pytest.fixture(scope="module")
def fusion_header():
    """What FlashInfer 0.5.3 includes and how it names optionals, from its own header."""
    with zipfile.ZipFile(wheel("flashinfer-python", "0.5.3")) as archive:
        return archive.read(HEADER).decode()


def compile_optional(include, text):
    """c++ on the lines of FlashInfer's header that matter: what it includes of CUDA's std, and one std::optional."""
    included = "\n".join(re.findall(r"^#include <cuda/std/optional>$", text, re.MULTILINE))
    used = re.search(r"(?<!cuda::)\bstd::optional<\w+>", text)
    unit = f"{included}\n{used[0].split('<')[0]}<int> value;\n"
    command = [shutil.which("c++"), "-std=c++17", "-fsyntax-only", "-x", "c++", f"-I{include}", "-"]
    return subprocess.run(command, input=unit, capture_output=True, text=True, timeout=60, check=False)


def found_with(cccl):
    kit = make.toolkit("12.6", jit=make.jit("12.6", cccl=cccl))
    facts = make.facts(toolkit=kit, flashinfer=make.flashinfer("0.5.3"), packages={"flashinfer-python": "0.5.3"})
    return {finding.id for finding in findings.find(KB, facts, ())}


def test_headers_of_12_6_do_not_bring_the_optional_that_flashinfer_0_5_3_names(headers, fusion_header):
    failed = compile_optional(headers("12.6.77"), fusion_header)
    assert failed.returncode != 0
    [rule] = [rule for rule in KB.rules if rule.id == RULE]
    assert re.search(rule.explains, failed.stderr), failed.stderr


def test_headers_of_12_8_bring_it(headers, fusion_header):
    assert compile_optional(headers("12.8.90"), fusion_header).returncode == 0


def test_the_words_of_nvcc_are_explained_too():
    [rule] = [rule for rule in KB.rules if rule.id == RULE]
    assert re.search(rule.explains, 'error: namespace "std" has no member "optional"')
    assert not re.search(rule.explains, 'error: namespace "std" has no member "format"')


@pytest.mark.parametrize("release", RELEASES)
def test_the_rule_fires_on_the_headers_that_fail_and_only_there(headers, fusion_header, release):
    text = (headers(release) / "cuda/std/__cccl/version.h").read_text()
    cccl = parse_cccl(text)
    assert cccl == RELEASES[release]
    fails = compile_optional(headers(release), fusion_header).returncode != 0
    assert (RULE in found_with(cccl)) == fails
