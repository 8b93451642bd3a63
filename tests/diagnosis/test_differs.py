"""Variables that a serving process has otherwise than the shell from which fi-doctor was started."""

import serving

from fi_doctor import knowledge
from fi_doctor.diagnosis import differs
from fi_doctor.model import Severity

KB = knowledge.load()


def found(server, shell):
    return differs.find(KB, serving.served(server, shell=shell))


def test_a_variable_that_only_the_shell_has_is_a_warning_with_both_values():
    [one] = found({}, {"CUDA_HOME": "/usr/local/cuda 13"})
    assert (one.severity, one.title) == (Severity.WARNING, "the server does not have the CUDA_HOME that you have")
    assert 'Process 4711: not set; this shell: "/usr/local/cuda 13".' in one.why
    assert one.fix == ("Start the server with CUDA_HOME='/usr/local/cuda 13', where that is what it should have",)


def test_a_variable_that_only_the_server_has_is_an_info_to_try_by_hand():
    [one] = found({"VLLM_USE_FLASHINFER_SAMPLER": "1"}, {})
    assert (one.severity, one.title) == (
        Severity.INFO,
        "the server has a VLLM_USE_FLASHINFER_SAMPLER that you do not have",
    )
    assert one.fix == ("To try by hand what the server does: export VLLM_USE_FLASHINFER_SAMPLER=1",)


def test_each_variable_with_two_values_is_a_finding_of_its_own():
    one, other = found(
        {"CUDA_VISIBLE_DEVICES": "0", "MAX_JOBS": "4"}, {"CUDA_VISIBLE_DEVICES": "", "MAX_JOBS": "8", "LANG": "C"}
    )
    assert one.title == "the server has another CUDA_VISIBLE_DEVICES than you have"
    assert other.title == "the server has another MAX_JOBS than you have"
    assert {one.id, other.id} == {differs.SERVER_DIFFERS}
    assert one.cause == other.cause


def test_what_no_setting_names_and_hidden_values_are_not_compared():
    assert found({"LANG": "C", "HF_TOKEN": "<hidden>"}, {"LANG": "de", "HF_TOKEN": "<hidden>"}) == ()


def test_another_home_matters_where_the_cache_lies_in_it():
    here = {"HOME": "/root"}
    assert [one.title for one in found({"HOME": "/srv"}, here)] == ["the server has another HOME than you have"]
    named = {"HOME": "/srv", "FLASHINFER_WORKSPACE_BASE": "/cache"}
    assert [one.title.split()[4] for one in found(named, here)] == ["FLASHINFER_WORKSPACE_BASE"]


def test_a_tool_that_the_server_does_not_find_is_told():
    tools = {"c++": ("/usr/bin/c++",) * 2, "ninja": ("", "/my venv/bin/ninja"), "nvcc": ("/usr/bin/nvcc", "/opt/nvcc")}
    one, other = differs.find(KB, serving.served(tools=tools))
    assert (one.title, other.title) == (
        "the server finds no ninja on its PATH",
        "the server finds another nvcc than you do",
    )
    assert one.fix == ("Start the server with '/my venv/bin' on its PATH, where that is what it should find",)
    assert "Process 4711: none; this shell: /my venv/bin/ninja." in one.why
    assert differs.find(KB, serving.served(tools={"nvcc": ("/usr/bin/nvcc", "")})) == ()


def test_without_a_process_nothing_is_compared():
    assert differs.find(KB, serving.with_folders()) == ()
