from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import advice, findings, matrix, reads
from fi_doctor.model import ActionKind, Ending, OtherToolkit, Stage

KB = knowledge.load()
GONE = make.absent("it is in none of the folders")
SAMPLER_FAILS = make.outcome("sampling.top_k_top_p", Ending.SIGNALLED, Stage.BUILT, detail="SIGSEGV")


def advised(facts, *outcomes):
    known = findings.find(KB, facts, outcomes)
    rows = matrix.judge(KB, facts, (), outcomes, known)
    known = findings.with_contradictions(KB, facts, rows, known)
    return advice.advise(KB, facts, outcomes, rows, known)


def wrapped_nvcc(**changes):
    wrapper = make.nvcc(home="/usr/local")
    libraries = {"cudart": make.absent("libcudart.so is in none of: /usr/local/lib64")}
    jit = make.jit(home="/usr/local", found_by="which nvcc", nvcc=wrapper, compiler=wrapper, libraries=libraries)
    return make.facts(toolkit=make.toolkit(jit=jit, others=(make.nvcc(),)), **changes)


def test_a_healthy_machine_needs_no_advice():
    assert advised(make.facts()) == ()


def test_the_toolkit_of_a_wrapped_nvcc_is_recommended_ready_to_paste():
    [one] = advised(wrapped_nvcc())
    assert (one.kind, one.line) == (ActionKind.SET, "export CUDA_HOME=/usr/local/cuda-13.0")
    assert one.findings == ("cuda-home-derived-from-nvcc-wrapper",)


def without_flashinfer(facts):
    absent = make.absent("not installed")
    return replace(facts, packages={**facts.packages, "flashinfer-python": absent}, flashinfer=absent)


@pytest.mark.parametrize("installed", [True, False])
def test_pasting_every_line_completes_the_toolkit_of_a_wrapped_nvcc(installed):
    facts, home = wrapped_nvcc(), "/usr/local/cuda-13.0"
    jit = replace(facts.toolkit.jit, module_libraries={"nvrtc": GONE}, module_headers={"curand.h": GONE})
    lacking = OtherToolkit(
        home=home, nvcc=f"{home}/bin/nvcc", lacks=("libcuda.so",), modules_lack=("libnvrtc.so", "curand.h"), cccl="3.0"
    )
    facts = replace(facts, toolkit=replace(facts.toolkit, jit=jit, toolkits=(lacking,)))
    lines = pasted(facts if installed else without_flashinfer(facts))
    assert lines[0].startswith(f"export CUDA_HOME={home} ")
    assert lines[1:] == ["apt-get install -y cuda-driver-dev-13-0 cuda-nvrtc-dev-13-0 libcurand-dev-13-0"]
    # With the first line pasted the second one stays as it is.
    libraries = {"cudart": f"{home}/lib64/libcudart.so", "cuda": GONE}
    own = make.jit(home=home, libraries=libraries, module_libraries={"nvrtc": GONE}, module_headers={"curand.h": GONE})
    facts = make.facts(toolkit=make.toolkit(jit=own))
    assert pasted(facts if installed else without_flashinfer(facts)) == lines[1:]


def pasted(facts):
    known = advised(facts)
    return [one.line for one in known if one.kind in (ActionKind.SET, ActionKind.RUN) and "pip" not in one.line]


def test_a_variable_that_newer_releases_do_not_read_is_not_set_for_a_flashinfer_that_is_yet_to_come():
    [kept] = [one for one in KB.settings if (one.name, one.owner) == ("CUDA_HOME", "flashinfer-python")]
    gone = without_flashinfer(make.facts())
    assert reads.is_awaited("CUDA_HOME", gone, (kept,))
    assert not reads.is_awaited("CUDA_HOME", gone, (replace(kept, read_by=">=0.2,<0.5"),))
    assert not reads.is_awaited("CUDA_HOME", make.facts(), (kept,))


def test_a_flashinfer_without_metadata_reads_its_settings_too():
    facts = wrapped_nvcc()
    packages = {**facts.packages, "flashinfer-python": make.absent("not installed")}
    lines = [one.line for one in advised(replace(facts, packages=packages))]
    assert "export CUDA_HOME=/usr/local/cuda-13.0" in lines


@pytest.mark.parametrize(("count", "files"), [(2, "m0 m1"), (9, "*")])
def test_stale_build_files_are_removed_by_a_line_that_can_be_pasted(count, files):
    stale = {f"m{number}": "cuda_home = /opt/old; now /opt/new" for number in range(count)}
    [one] = advised(make.facts(flashinfer=make.flashinfer("0.5.3", stale_modules=stale, cache_dir="/c")))
    paths = " ".join(f"/c/cached_ops/{name}/build.ninja" for name in files.split())
    assert (one.kind, one.line) == (ActionKind.RUN, f"rm -f {paths}")


def test_equal_advice_is_given_once_with_all_the_findings_that_ask_for_it():
    kit = make.toolkit(
        "12.6",
        jit=make.jit("12.6", compiler=make.nvcc("12.6", architectures=("sm_80", "sm_90"))),
        others=(make.nvcc("12.9"), make.nvcc("13.0")),
    )
    fi = make.flashinfer(architectures=("90a", "103a"))
    facts = make.facts(toolkit=kit, flashinfer=fi, gpus=make.gpu_facts(make.gpu(), make.gpu(index=1, sm=103)))
    sets = [one for one in advised(facts) if one.kind is ActionKind.SET]
    assert [(one.line, one.findings) for one in sets] == [
        (
            "export CUDA_HOME=/usr/local/cuda-13.0",
            ("nvcc-too-old-for-gpu", "fp8-block-moe-refused-below-cuda-12-8", "nvcc-major-differs-from-torch"),
        )
    ]


@pytest.mark.parametrize(
    ("vllm", "recommended"),
    [("0.11.0", True), ("0.33.0", True), ("0.17.1", False), ("0.40.0", False), (None, False)],
    ids=["on-by-default", "on-by-default-again", "off-by-default", "a-vllm-not-known-to-read-it", "no-vllm"],
)
def test_a_setting_is_recommended_only_to_a_version_that_reads_it(vllm, recommended):
    facts = make.facts(packages={"vllm": vllm} if vllm else None)
    lines = [one.line for one in advised(facts, SAMPLER_FAILS)]
    assert ("export VLLM_USE_FLASHINFER_SAMPLER=0" in lines) is recommended


def test_a_setting_of_flashinfer_is_not_recommended_where_flashinfer_is_too_old_to_read_it():
    cells = (make.cell(Ending.RAISED, Stage.BUILT, "bf16"), make.cell(variant="cuda_bf16"))
    facts = make.facts(packages={"flashinfer-python": "0.7.2.post1"})
    assert "export FLASHINFER_USE_CUDA_NORM=1" in [one.line for one in advised(facts, make.outcome(cells=cells))]
    old = make.facts(packages={"flashinfer-python": "0.6.6"})
    assert "export FLASHINFER_USE_CUDA_NORM=1" not in [one.line for one in advised(old, make.outcome(cells=cells))]


def test_variables_come_first_and_work_for_others_last():
    facts = wrapped_nvcc(packages={"vllm": "0.33.0"}, gpus=make.no_gpus())
    failure = make.outcome("norm.rmsnorm", Ending.WRONG, Stage.RAN, detail="max error 3")
    mixed = (SAMPLER_FAILS, failure)
    kinds = [one.kind for one in advised(make.facts(packages={"vllm": "0.33.0"}), *mixed)]
    assert kinds == [ActionKind.SET, ActionKind.REPORT, ActionKind.REPORT]
    assert [one.kind for one in advised(facts)] == [ActionKind.SET, ActionKind.NOTE]


def test_a_finding_that_is_only_information_asks_for_nothing():
    kit = make.toolkit("12.8", torch_cuda="12.8")
    facts = make.facts(gpus=make.gpu_facts(cuda="12.4"), toolkit=kit, libraries={})
    assert [one.id for one in findings.find(KB, facts, ())] == ["torch-cuda-newer-than-driver"]
    assert advised(facts) == ()
