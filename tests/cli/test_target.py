"""--target: verdicts for a machine that is not here, by what is examined and what is named."""

from __future__ import annotations

import json
import os

import pytest
from msgspec.structs import replace

from fi_doctor import conditions, knowledge, pipeline, targeting, upgraded
from fi_doctor.cli import targeting as reading
from fi_doctor.cli import warming
from fi_doctor.cli.asked import AskedWarm
from fi_doctor.conditions import Truth, View
from fi_doctor.conditions.compilers import SINCE
from fi_doctor.errors import UsageError
from fi_doctor.explaining.gpus import sm_of
from fi_doctor.knowledge import examples, gpus, pins
from fi_doctor.model import Depth, Missing, Request
from fi_doctor.model.targets import JIT_CACHE_UNREAD
from fi_doctor.probing import catalog, plan
from fi_doctor.reports import document, expected

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
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "NVIDIA RTX PRO 6000", 120),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000", 120),
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300", 103),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100", 90),
        ("NVIDIA GH200 144G HBM3e", "NVIDIA GH200", 90),
        ("NVIDIA H20-3e", "NVIDIA H20", 90),
        ("GB300 NVL72", "NVIDIA GB300", 103),
        ("NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090", 89),
        ("NVIDIA Jetson AGX Thor Developer Kit", "NVIDIA Thor", 110),
        ("sm=90", "", 90),
        ("sm=10.3", "", 103),
        ("sm=sm_90a", "", 90),
        ("gpu=h200,sm=90", "NVIDIA H200", 90),
        ("sm_90a", "", 90),
        ("9.0", "", 90),
        ("H100NVL", "NVIDIA H100", 90),
        ("H100PCIe", "NVIDIA H100", 90),
        ("RTX PRO 6000 Max-Q", "NVIDIA RTX PRO 6000", 120),
        ("RTX PRO 4500", "NVIDIA RTX PRO 4500", 120),
        ("AGX Thor", "NVIDIA Thor", 110),
        ("dgxspark", "NVIDIA GB10", 121),
        ("3090 Ti", "NVIDIA GeForce RTX 3090 Ti", 86),
        ("RTX 5000 Ada", "NVIDIA RTX 5000 Ada Generation", 89),
        ("L20", "NVIDIA L20", 89),
        ("L2", "NVIDIA L2", 89),
        ("rtx 6000 pro", "NVIDIA RTX PRO 6000", 120),
        ("RTX PRO 2000 Blackwell", "NVIDIA RTX PRO 2000", 120),
        ("TITAN RTX", "NVIDIA TITAN RTX", 75),
        ("RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti", 75),
        ("RTX 4080 SUPER", "NVIDIA GeForce RTX 4080 Super", 89),
    ],
)
def test_gpus_go_by_the_names_that_people_give_them(words, name, sm):
    found = reading.target(words)
    assert (found.name, found.sm) == (name, sm)


@pytest.mark.parametrize(
    ("words", "number"), [("8xH100", 8), ("h100x8", 8), ("h100 x 8", 8), ("rtx5090", 1), ("b200", 1)]
)
def test_a_word_may_say_how_many_gpus_there_are(words, number):
    assert (reading.target(words).gpus, reading.names_number(words)) == (number, number > 1)


def test_every_name_is_read_in_a_log_as_the_same_gpu():
    assert {one.name: one.sm for one in gpus.GPUS} == {one.name: sm_of(one.name) for one in gpus.GPUS}
    assert {one.sm for one in gpus.GPUS} <= set(SINCE)


def test_each_gpu_that_comes_with_an_arm_cpu_is_told_beside_another_one():
    [rule] = [one for one in knowledge.load().rules if one.id == "gpu-comes-with-another-cpu"]
    assert FACTS.system.machine == "x86_64"
    told = {one.name for one in gpus.GPUS if conditions.holds(rule.when, _with_gpu(one.name)) is Truth.YES}
    assert told == gpus.ON_ARM


def _with_gpu(name):
    return View(replace(FACTS, gpus=replace(FACTS.gpus, gpus=(replace(FACTS.gpus.gpus[0], name=name),))))


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
        ("rtx", "no GPU is known as 'rtx'", "sm=NN, by its compute capability"),
        ("MI300X", "no GPU is known as 'MI300X'", "sm=NN, by its compute capability"),
        (
            "Blackwell,driver=580",
            "'Blackwell' is a generation of GPUs",
            "sm=100,driver=580, or another of these",
        ),
        ("RTX 3080 SUPER", "no GPU is known as 'RTX 3080 SUPER'", "--target sm=86"),
        ("GTX 1080", "'GTX 1080' is of SM61: FlashInfer takes no GPU older", "--target sm=75"),
        ("rtx pro 600", "no GPU is known as", "--target rtx-pro-6000"),
        ("h200,driver=580.95.05,cuda=13", "cuda=13: no such release", "cuda=13.0"),
        ("h200,driver=565,cuda=12.7", "cuda=12.7: no such release", "cuda=12.6"),
        ("h200,cuda=12.7.1", "cuda=12.7.1: no such release", "cuda=12.9"),
        ("sm=61", "FlashInfer takes no GPU older than SM75", "sm=75"),
        ("gpus=4,h100x8", "gpus is given twice", "leave one of the two out"),
        ("h200,cubin=0.1", "cubin=0.1: of that release nothing is known", "cubin=0.5.0"),
        ("h200,jit-cache=99.0", "of that release nothing is known", "jit-cache=0.7.4"),
        ("h200,torch=2.14.0+cu999", "there is no CUDA 99.9", "torch=2.14.0"),
        ("h200,cuda=12.7", "cuda=12.7: no such release", "cuda=12.9"),
        ("rtx 6000", "fits Quadro RTX 6000 (SM75) and NVIDIA RTX 6000 Ada Generation (SM89) and", "rtx-pro-6000"),
        ("h2000", "no GPU is known as 'h2000'", "h200"),
        ("sm=95", "no GPU has that compute capability", "sm=90"),
        ("sm=abc", "no GPU has that compute capability", "sm=70"),
        ("h200,sm=100", "NVIDIA H200 is of SM90", "leave one of the two out"),
        ("h200,cuda=14", "cuda=14: no such release", "cuda=13.5"),
        ("sm=101", "since CUDA 13 it is called SM110", "sm=110"),
        ("sm=٩٠", "no GPU has that compute capability", "sm=70"),
        ("h200,gpus=٣", "a number from 1", "gpus=2"),
        (f"h200,gpus={'9' * 5000}", "a number from 1", "gpus=2"),
        ("h200,driver=999", "driver=999: of branch 999 nothing is known", "driver=615"),
        ("h200,driver=5800", "of branch 5800 nothing is known", "driver=615"),
        ("h200,driver=581", "of branch 581 nothing is known", "driver=580"),
        ("h200,driver=new", "driver=new: it is a version", "driver=580"),
        ("h200,flashinfer=0.6.99", "flashinfer=0.6.99: of that release nothing is known", "flashinfer=0.6."),
        ("h200,flashinfer=0.9.9", "of that release nothing is known", "flashinfer=0.7.4"),
        ("h200,vllm=0.99", "of that release nothing is known", "vllm=0.33.0"),
        ("h200,vllm=0.14.7", "of that release nothing is known", "vllm=0.14.1"),
        ("h200,torch=9.9", "of that release nothing is known", "torch=2.14.0"),
        ("h200,torch=1.13", "of that release nothing is known", "torch=2.4.0"),
        ("h200,torch=2.9.9", "of that release nothing is known", "torch=2.9.1"),
        ("l4,gpus=2,cuda=14", "cuda=14: no such release", "--target l4,gpus=2,cuda=13.5"),
        ("h2000,driver=580", "no GPU is known as 'h2000'", "--target h200,driver=580"),
        ("sm=95,cuda=13.0", "no GPU has that compute capability", "--target sm=90,cuda=13.0"),
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


def test_no_name_that_is_near_fits_several_gpus():
    assert all(len(gpus.named(near)) == 1 for words in ("rtx 600", "rtx 60000", "a600") for near in gpus.near(words))


@pytest.mark.parametrize(("words", "release"), [("12.8.1", "12.8"), ("13.0.2", "13.0"), ("12.8", "12.8")])
def test_a_tag_of_an_image_names_its_release_of_the_toolkit(words, release):
    assert reading.target(f"h200,cuda={words}").cuda == release


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
        (("--target", "b200"), "gpu is given twice"),
    ],
)
def test_options_that_contradict_it(doctor, words, said):
    done = doctor("check", "--target", "h200", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "tags"),
    [("rtx-5090,flashinfer=0.6.18,cuda=12.9", ("120f",)), ("b200,cuda=12.9", ("100a",)), ("b200", ("90a",))],
)
def test_the_architectures_are_those_of_the_target(words, tags):
    """Where neither FlashInfer nor the toolkit moves they were read for its GPUs already."""
    assert targeting.facts_for(FACTS, reading.target(words), Depth.STATIC).flashinfer.architectures == tags


def test_a_package_of_another_release_than_flashinfer_is_found():
    found = targeting.facts_for(FACTS, reading.target("h200,flashinfer=0.6.7.post3,cubin=0.6.4"), Depth.STATIC)
    [check] = found.flashinfer.version_checks
    assert (check.package, check.ok) == ("flashinfer-cubin", False)
    assert found.flashinfer.cccl.absent
    same = targeting.facts_for(FACTS, reading.target("h200,cubin=0.7.2.post1"), Depth.STATIC)
    assert [one.ok for one in same.flashinfer.version_checks] == [True]


def test_of_a_jit_cache_that_is_not_here_its_version_alone_is_known():
    has_one = replace(FACTS, flashinfer=replace(FACTS.flashinfer, jit_cache_modules=("norm",)))
    found = targeting.facts_for(has_one, reading.target("h200,jit-cache=0.7.2.post1+cu129"), Depth.STATIC)
    assert found.toolkit.jit_cache_cuda == "12.9"
    assert found.flashinfer.jit_cache_modules == ()
    assert found.flashinfer.jit_cache_architectures == JIT_CACHE_UNREAD
    assert conditions.holds({"jit_cache_module_count": 0}, View(found)) is Truth.UNKNOWN
    other = targeting.facts_for(has_one, reading.target("h200,jit-cache=0.6.0"), Depth.STATIC)
    assert conditions.holds({"jit_cache_module_count": 0}, View(other)) is Truth.YES  # FlashInfer does not take it
    assert targeting.facts_for(has_one, reading.target("h200"), Depth.STATIC) == has_one


def test_a_wheel_of_torch_for_a_cuda_of_its_own_is_one_of_its_release():
    newest = next(reversed(pins.load()["torch"]))
    assert reading.target(f"h200,torch={newest}+cu128").versions == {"torch": f"{newest}+cu128"}


@pytest.mark.parametrize(("version", "cuda"), [("2.11.0+cu128", "12.8"), ("2.14.0", "13.0"), ("2.11.0+cpu", None)])
def test_the_cuda_of_a_torch_is_that_of_its_tag(version, cuda):
    found = upgraded.cuda_of_torch(version)
    assert found == cuda or (cuda is None and "+cpu" in found.reason)


def test_a_list_names_the_rows_that_are_not_in_the_image():
    target = reading.target("h200")
    request = Request(depth=Depth.STATIC, required=("norm.rmsnorm", "rope.*"))
    facts = replace(FACTS, flashinfer=replace(FACTS.flashinfer, cached_modules=("rope",)))
    kb, specs = knowledge.load(), catalog.discover()
    found = pipeline.conclude(
        request, kb=kb, facts=facts, planned=plan.plan(specs, facts, request), outcomes=(), created="", target=target
    )
    *head, only = expected.warm_list(found).splitlines()
    assert only == "norm.rmsnorm"
    assert all(line.startswith("# ") for line in head)
    assert head[-1] == "# FLASHINFER_CUDA_ARCH_LIST=9.0a fi-doctor warm --list FILE"


def test_a_list_is_read_without_what_is_no_row(tmp_path):
    path = tmp_path / "warm.txt"
    path.write_text("# --target h200\n\nnorm.rmsnorm\n  # more\nrope.apply\n")
    known = ("norm.rmsnorm", "rope.apply")
    assert warming.features(AskedWarm(listed=str(path)), known) == known
    path.write_text("norm.rmsnorn\n")
    with pytest.raises(UsageError, match="no feature is called"):
        warming.features(AskedWarm(listed=str(path)), known)
    with pytest.raises(UsageError, match="cannot be read"):
        warming.features(AskedWarm(listed=str(tmp_path / "none")), known)
    os.mkfifo(tmp_path / "pipe")  # that nobody writes to
    with pytest.raises(UsageError, match="cannot be read") as error:
        warming.features(AskedWarm(listed=str(tmp_path / "pipe")), known)
    assert error.value.why == "it is not a file"


def test_an_empty_list_compiles_nothing(doctor, tmp_path):
    (tmp_path / "warm.txt").write_text("# nothing\n")
    done = doctor("warm", "--list", f"{tmp_path}/warm.txt")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing is to be compiled" in done.stderr
    both = doctor("warm", "--list", f"{tmp_path}/warm.txt", "--all")
    assert (both.returncode, both.stdout) == (2, "")
    assert doctor("check", "--warm-list", f"{tmp_path}/out.txt").returncode == 2
