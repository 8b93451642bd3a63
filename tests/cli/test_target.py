"""--target: verdicts for a machine that is not here, by what is examined and what is named."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from fi_doctor import targeting
from fi_doctor.cli import targeting as reading
from fi_doctor.errors import UsageError
from fi_doctor.explaining.gpus import sm_of
from fi_doctor.knowledge import examples, gpus
from fi_doctor.model import Depth, Missing
from fi_doctor.reports import document

FACTS = document.read(examples.data("h200"), "an example").facts


@pytest.mark.parametrize(
    ("words", "name", "sm"),
    [
        ("h200", "NVIDIA H200", 90),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100", 80),
        ("H100 PCIe", "NVIDIA H100", 90),
        ("rtx-pro-6000", "NVIDIA RTX PRO 6000", 120),
        ("RTX 5090", "NVIDIA GeForce RTX 5090", 120),
        ("dgx-spark", "NVIDIA GB10", 121),
        ("gb200", "NVIDIA GB200", 100),
        ("thor", "NVIDIA Thor", 110),
        ("l40s", "NVIDIA L40S", 89),
        ("sm=90", "", 90),
        ("sm=10.3", "", 103),
        ("sm=sm_90a", "", 90),
        ("gpu=h200,sm=90", "NVIDIA H200", 90),
    ],
)
def test_gpus_go_by_the_names_that_people_give_them(words, name, sm):
    found = reading.target(words)
    assert (found.name, found.sm) == (name, sm)


def test_every_name_is_read_in_a_log_as_the_same_gpu():
    assert {one.name: one.sm for one in gpus.GPUS} == {one.name: sm_of(one.name) for one in gpus.GPUS}
    assert {one.sm for one in gpus.GPUS} <= set(gpus.SINCE)


def test_all_that_can_be_named():
    found = reading.target("h200,gpus=2,driver=580.159.04,cuda=12.8,flashinfer=0.6.7.post3,vllm=0.17.1,cubin=0.6.7")
    assert (found.gpus, found.driver, found.cuda) == (2, "580.159.04", "12.8")
    assert found.versions == {"flashinfer-python": "0.6.7.post3", "vllm": "0.17.1", "flashinfer-cubin": "0.6.7"}
    assert found.told.startswith(
        "2 x NVIDIA H200 (SM90), driver 580.159.04, CUDA toolkit 12.8, flashinfer-python 0.6.7"
    )


@pytest.mark.parametrize(
    ("words", "said", "near"),
    [
        ("rtx 6000", "fits Quadro RTX 6000 (SM75) and NVIDIA RTX 6000 Ada Generation (SM89) and", "rtx-pro-6000"),
        ("h2000", "no GPU is known as 'h2000'", "h200"),
        ("sm=95", "no GPU has that compute capability", "sm=90"),
        ("sm=abc", "no GPU has that compute capability", "sm=70"),
        ("h200,sm=100", "NVIDIA H200 is of SM90", "leave one of the two out"),
        ("h200,cuda=14", "cuda=14: no such release", "cuda=13.4"),
        ("h200,driver=new", "driver=new: it is a version", "driver=580"),
        ("h200,flashinfer=0.6.99", "flashinfer=0.6.99: of that release nothing is known", "flashinfer=0.6."),
        ("h200,vllm=latest", "vllm=latest: it is no version", "vllm="),
        ("h200,gpus=0", "gpus=0: a number from 1", "gpus=2"),
        ("h200,drivr=5", "there is no 'drivr'; did you mean driver", "--target"),
        ("h200,h100", "gpu is given twice", "leave one of the two out"),
        ("h200,", "an empty word names nothing", "--target"),
        ("", "an empty word names nothing", "--target"),
        ("h200,cuda=", "'cuda=' has no value", "--target"),
        ("driver=580", "it names no GPU", "--target"),
    ],
)
def test_words_that_mean_nothing_name_what_is_near(words, said, near):
    with pytest.raises(UsageError) as raised:
        reading.target(words)
    assert said in raised.value.what
    assert near in raised.value.todo


def test_the_driver_of_the_target_runs_the_cuda_of_its_branch():
    read = targeting.gpus_of(reading.target("h200,driver=535.54,gpus=2"))
    found, sources = read({})
    assert (found.driver.version, found.driver.cuda) == ("535.54", "12.2")
    assert [gpu.sm for gpu in found.gpus] == [90, 90]
    assert found.cuda_order == tuple(gpu.uuid for gpu in found.gpus)
    assert sources["gpus"] == "--target"


def test_another_toolkit_has_its_own_architectures_and_files_that_nobody_saw():
    found = targeting.facts_for(FACTS, reading.target("b300,cuda=12.8"), Depth.STATIC)
    jit = found.toolkit.jit
    assert (found.toolkit.gate_version, jit.nvcc.version) == ("12.8", "12.8")
    assert "sm_100" in jit.nvcc.architectures
    assert "sm_103" not in jit.nvcc.architectures
    assert all(isinstance(place, Missing) for place in jit.headers.values())
    assert found.flashinfer.cached_modules == ()
    assert targeting.facts_for(FACTS, reading.target("h200"), Depth.STATIC) == FACTS


def test_packages_of_the_target_are_judged_by_what_is_shipped_of_them():
    found = targeting.facts_for(FACTS, reading.target("h200,flashinfer=0.5.3,vllm=0.14.1"), Depth.STATIC)
    assert found.flashinfer.version == "0.5.3"
    assert found.flashinfer.symbols["flashinfer.norm.rmsnorm"] != FACTS.flashinfer.symbols["flashinfer.norm.rmsnorm"]
    assert found.vllm_version == "0.14.1"
    absent = replace(FACTS, flashinfer=Missing(reason="it is not installed"), packages={})
    assert (
        targeting.facts_for(absent, reading.target("h200,flashinfer=0.5.3"), Depth.STATIC).flashinfer.version == "0.5.3"
    )


@pytest.mark.parametrize("words", ["h200,cuda=12.8", "h200,flashinfer=0.5.3"])
def test_nothing_is_compiled_with_what_is_not_here(words):
    with pytest.raises(UsageError, match="what is to be compiled with is not here"):
        targeting.facts_for(FACTS, reading.target(words), Depth.BUILD)


@pytest.mark.parametrize(("tags", "value"), [(("90a",), "9.0a"), (("80", "120f"), "8.0 12.0f"), (("100a",), "10.0a")])
def test_what_compiles_is_told_the_architecture(tags, value):
    facts = replace(FACTS, flashinfer=replace(FACTS.flashinfer, architectures=tags))
    assert targeting.environ_for(facts, {})["FLASHINFER_CUDA_ARCH_LIST"] == value
    own = {"FLASHINFER_CUDA_ARCH_LIST": "8.0"}
    assert targeting.environ_for(facts, own) == own


def test_a_check_for_a_target(doctor, tmp_path):
    done = doctor(
        "check", "--target", "h200,driver=580", "--format", f"json:{tmp_path}/out.json", "--format", "console"
    )
    assert done.returncode == 3, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["target"]["sm"] == 90
    assert report["request"]["depth"] == "static"
    assert {row["sm"] for row in report["features"] if row["sm"] is not None and row["needs_gpu"]} == {90}
    assert not [row for row in report["features"] if row["verdict"] == "works" and row["needs_gpu"]]
    assert "--target h200,driver=580, and of what it does not name what is here" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--depth", "run"), "nothing can be run on a GPU that is not here"),
        (("--example", "h200"), "--example and --target"),
        (("--prove", "--depth", "build"), "--prove and --target"),
        (("--locked",), "--target and --locked"),
    ],
)
def test_options_that_contradict_it(doctor, words, said):
    done = doctor("check", "--target", "h200", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
