"""Before anything is compiled: what the facts alone say of it."""

import factory as make
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings, forecast
from fi_doctor.model import Severity

KB = knowledge.load()
WRAPPER = make.jit(
    "13.0",
    "/usr/local",
    found_by="which nvcc",
    libraries={"cudart": make.absent("no libcudart.so"), "cuda": "/usr/lib/libcuda.so"},
    compiler=make.nvcc("13.0", "/usr/local", resolved="/usr/local/cuda-13.0/bin/nvcc"),
    nvcc=make.nvcc("13.0", "/usr/local", resolved="/usr/local/cuda-13.0/bin/nvcc"),
)
UNLINKED = make.facts(toolkit=make.toolkit(jit=make.jit(libraries={"cudart": make.absent("no libcudart.so")})))


def refused(facts, kb=KB):
    return forecast.refusal(kb, facts)


def test_a_toolkit_that_cannot_link_is_refused_with_the_line_to_paste():
    found = refused(make.facts(toolkit=make.toolkit(jit=WRAPPER)))
    assert found.exit_code == 3
    assert found.what == "compiling would be vain: cuda-home-derived-from-nvcc-wrapper"
    assert "/usr/local/bin/nvcc" in found.why
    assert "What compiles is nvcc 13.0 (/usr/local/bin/nvcc)." in found.why
    assert "--anyway" in found.why
    assert found.todo == "export CUDA_HOME=/usr/local/cuda-13.0"


def test_a_toolkit_that_has_nothing_to_link_with_is_named():
    found = refused(UNLINKED)
    assert "toolkit-lacks-link-libraries" in found.what
    assert "--anyway" in found.why
    assert found.todo


def test_a_healthy_machine_is_not_refused():
    assert refused(make.facts()) is None


def test_what_warns_and_what_is_not_of_the_toolkit_is_no_reason():
    [rule] = [one for one in KB.rules if one.id == "toolkit-lacks-link-libraries"]
    assert refused(UNLINKED, replace(KB, rules=(rule,))) is not None
    assert refused(UNLINKED, replace(KB, rules=(replace(rule, severity=Severity.WARNING),))) is None
    old_driver = make.facts(gpus=make.gpu_facts(driver="550.1", cuda="12.4"))
    assert "driver-too-old-for-torch" in {one.id for one in findings.find(KB, old_driver, ())}
    assert refused(old_driver) is None


def test_the_commands_that_are_named_examine_the_same_interpreter():
    facts = make.facts(toolkit=make.toolkit(jit=WRAPPER))
    facts = replace(facts, interpreter=replace(facts.interpreter, is_own=False, executable="/a b/python"))
    assert "`fi-doctor check --python '/a b/python' --depth static`" in refused(facts).why
