import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.errors import CannotTellError
from fi_doctor.model import Place
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
IN_THE_WAY = ("no-nvcc", "no-ninja", "no-host-compiler", "foreign", "read-only")


def refused(facts):
    """What is raised, or what there is in the way of compiling."""
    try:
        refusals.refuse(facts)
    except CannotTellError as error:
        return error
    found = refusals.obstacle(facts, None)
    return found and found.error


@pytest.mark.parametrize("case", CASES)
def test_where_nothing_can_be_compiled_it_says_why_and_ends_with_3(case):
    facts, why = CASES[case]
    error = refused(facts)
    assert why in error.why
    assert error.todo
    assert error.exit_code == 3


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_what_is_in_the_way_of_compiling_only_is_not_refused_before_it_is_known_what_there_is(case):
    refusals.refuse(CASES[case][0])


def test_a_cache_that_cannot_be_written_to_makes_no_use_of_what_is_in_it_and_a_missing_tool_does():
    of_folder = refusals.obstacle(CASES["read-only"][0], None)
    assert of_folder.harmless == {Place.IN_JIT_CACHE}
    assert refusals.obstacle(CASES["no-nvcc"][0], None).harmless > {Place.IN_JIT_CACHE, Place.UP_TO_DATE}


def test_one_architecture_is_enough_without_a_gpu():
    facts = replace(BLIND, flashinfer=replace(HEALTHY.flashinfer, architectures=("90a",)))
    assert refused(facts) is None


def test_a_healthy_machine_is_not_refused():
    assert refused(HEALTHY) is None


def test_what_is_known_of_the_toolkit_is_in_the_way_unless_a_tool_is_not_even_there():
    known = CannotTellError("compiling would be vain")
    assert refusals.obstacle(HEALTHY, known).error is known
    assert "no ninja" in refusals.obstacle(CASES["no-ninja"][0], known).error.what


def test_without_an_architecture_the_variable_that_names_one_is_given():
    assert "FLASHINFER_CUDA_ARCH_LIST" in refused(CASES["no-architecture"][0]).todo


def not_tried(facts):
    [skipped] = [make.planned("norm.rmsnorm", skip="torch is not installed in /usr/bin/python3")]
    return refusals.not_tried(facts, [skipped]).todo


def test_where_torch_is_not_installed_the_interpreter_that_serves_is_to_be_named():
    without = replace(HEALTHY, packages={**HEALTHY.packages, "torch": make.absent("not installed")})
    assert not_tried(without) == "fi-doctor warm --python /path/to/venv/bin/python"
    assert not_tried(HEALTHY) == "fi-doctor features"


def test_the_command_that_says_more_examines_the_same_interpreter():
    facts, _ = CASES["no-nvcc"]
    facts = replace(facts, interpreter=replace(facts.interpreter, is_own=False, executable="/a b/python"))
    assert refused(facts).todo == "fi-doctor check --python '/a b/python' --depth static"
