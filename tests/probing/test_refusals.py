import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.errors import CannotTellError
from fi_doctor.probing import refusals

HEALTHY = make.facts()
BLIND = make.facts(gpus=make.no_gpus())


def flashinfer(**changes):
    return make.facts(flashinfer=replace(HEALTHY.flashinfer, **changes))


CASES = {
    "no-flashinfer": (make.facts(flashinfer=make.absent("not installed in /venv")), "not installed in /venv"),
    "no-nvcc": (make.facts(toolkit=make.without_nvcc()), "/usr/local/cuda does not exist"),
    "no-ninja": (make.facts(toolkit=make.toolkit(ninja=make.absent("no ninja on PATH"))), "no ninja on PATH"),
    "no-host-compiler": (make.facts(toolkit=make.toolkit(host_compiler=make.absent("no c++ on PATH"))), "no c++"),
    "no-architecture": (flashinfer(architectures=make.missing("no GPU is seen")), "no GPU is seen"),
    "two-without-a-gpu": (
        replace(BLIND, flashinfer=replace(HEALTHY.flashinfer, architectures=("80", "90a"))),
        "one must be named: 80, 90a",
    ),
    "foreign": (flashinfer(cache_owner=HEALTHY.system.uid + 1), f"belongs to user {HEALTHY.system.uid + 1}"),
    "read-only": (flashinfer(cache_writable=False), HEALTHY.flashinfer.cache_base),
}
OF_THE_FOLDER = ("foreign", "read-only")


@pytest.mark.parametrize("case", CASES)
def test_where_nothing_can_be_compiled_it_says_why_and_ends_with_3(case):
    facts, why = CASES[case]
    with pytest.raises(CannotTellError) as caught:
        refusals.refuse(facts, writes=True)
    assert why in caught.value.why
    assert caught.value.todo
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("case", OF_THE_FOLDER)
def test_a_folder_that_is_not_written_to_is_no_obstacle(case):
    refusals.refuse(CASES[case][0], writes=False)


def test_one_architecture_is_enough_without_a_gpu():
    refusals.refuse(replace(BLIND, flashinfer=replace(HEALTHY.flashinfer, architectures=("90a",))), writes=True)


def test_a_healthy_machine_is_not_refused():
    refusals.refuse(HEALTHY, writes=True)


def test_without_an_architecture_the_variable_that_names_one_is_given():
    with pytest.raises(CannotTellError) as caught:
        refusals.refuse(CASES["no-architecture"][0], writes=True)
    assert "FLASHINFER_CUDA_ARCH_LIST" in caught.value.todo
