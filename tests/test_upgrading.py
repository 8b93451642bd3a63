"""What an upgrade would mend: the smallest one, what moves with it, and nothing where a setting helps."""

from __future__ import annotations

import upgraded_machines as machines
from msgspec.structs import replace
from upgraded_machines import H200, TWO_H200

from fi_doctor import consequences, pipeline, upgraded, upgrading
from fi_doctor.conditions.requirements import applicable
from fi_doctor.diagnosis import advice, deployment
from fi_doctor.facts import released
from fi_doctor.facts.served_model import model_of
from fi_doctor.knowledge import models, pins
from fi_doctor.model import ActionKind, Deployment, Evidence, Missing
from fi_doctor.model.choices import Choice
from fi_doctor.model.deployed import Wanted

MODERN = "2xh200-cuda13.0-flashinfer0.7.2.post1/warm.json"
SAMPLER, BARRIER = "sampler-repeats-random-numbers", "two-shot-allreduce-barrier-lets-through"


def moved(upgrade):
    return {one.package: (one.installed, one.wanted) for one in upgrade.moves}


def mended(upgrade):
    return {one.row: (one.rules, one.since) for one in upgrade.mends}


def changed(upgrade):
    return {(one.subject, one.before, one.after) for one in upgrade.changes}


def installs(report):
    return [one for one in report.recommendations if one.kind is ActionKind.INSTALL]


def test_where_vllm_pins_flashinfer_the_first_vllm_that_brings_the_mended_one_is_named():
    found = machines.judged(TWO_H200).upgrade
    assert (found.package, found.installed, found.version) == ("vllm", "0.14.1", "0.33.0")
    assert found.line == "/opt/torch/.venv/bin/python3 -m pip install vllm==0.33.0"
    assert moved(found)["flashinfer-python"] == ("0.5.3", "==0.7.2.post1")
    assert moved(found)["torch"] == ("2.11.0", "==2.14.0")
    assert "vLLM 0.14.1 requires flashinfer-python==0.5.3" in found.why
    assert mended(found) == {
        "activation.silu_and_mul on SM90": (("act-and-mul-misaligned",), "flashinfer-python 0.7.1"),
        "comm.allreduce_fusion on SM90": ((BARRIER,), "flashinfer-python 0.7.2.post1"),
        "sampling.top_k_top_p on SM90": ((SAMPLER,), "flashinfer-python 0.6.0"),
    }


def test_what_vllm_does_not_call_here_makes_no_upgrade_needed():
    report = machines.judged(TWO_H200)
    assert not report.upgrade.is_needed
    assert not installs(report)


def test_of_what_can_be_called_the_smallest_release_will_do():
    assert machines.judged(H200).upgrade.version == "0.15.0"  # which brings 0.6.1; the rest is never called by vLLM


def test_without_vllm_flashinfer_alone_is_upgraded_and_that_is_recommended():
    report = machines.judged(TWO_H200, {"vllm": None})
    found = report.upgrade
    assert found.line.endswith("pip install flashinfer-python==0.7.2.post1")
    assert found.is_needed
    assert "torch" not in moved(found)
    [asked] = installs(report)
    assert asked.line == found.line
    assert BARRIER in asked.findings


def test_a_pin_that_admits_the_mended_flashinfer_is_no_reason_to_move_vllm():
    report = machines.recorded(TWO_H200)
    vllm = replace(report.facts.packages["vllm"], requires=("flashinfer-python>=0.5",))
    facts = replace(report.facts, packages={**report.facts.packages, "vllm": vllm})
    kb, specs = machines.shipped()
    found = pipeline.rejudge(replace(report, facts=facts), report.request, kb=kb, specs=specs).upgrade
    assert (found.package, found.version) == ("flashinfer-python", "0.7.2.post1")


def test_packages_that_have_to_be_of_its_version_move_along_from_their_index():
    found = machines.judged(
        TWO_H200, {"vllm": None, "flashinfer-cubin": "0.5.3", "flashinfer-jit-cache": "0.5.3+cu130"}
    ).upgrade
    assert moved(found)["flashinfer-cubin"] == ("0.5.3", "==0.7.2.post1")
    assert found.line.partition("pip install ")[2] == (
        "flashinfer-python==0.7.2.post1 flashinfer-cubin==0.7.2.post1 flashinfer-jit-cache==0.7.2.post1+cu130 "
        "--extra-index-url https://flashinfer.ai/whl --extra-index-url https://flashinfer.ai/whl/cu130"
    )


def test_nothing_is_named_where_a_setting_helps_or_nothing_fails():
    on = machines.judged(H200, environment={"VLLM_USE_FLASHINFER_SAMPLER": "1"})
    assert any(one.line == "export VLLM_USE_FLASHINFER_SAMPLER=0" for one in on.recommendations)
    assert on.upgrade is None
    assert machines.judged(MODERN).upgrade is None


def test_what_nothing_explains_is_not_said_to_be_mended():
    kb, specs = machines.shipped()
    report = machines.judged(TWO_H200)
    [row] = [one for one in report.features if one.feature == "comm.allreduce_fusion"]
    other = replace(row, cells=tuple(replace(cell, variant="oneshot_bf16") for cell in row.cells))
    found = [upgrading.find(kb, replace(report, features=(one,)), specs) for one in (row, other)]
    assert [one is None for one in found] == [False, True]


def test_a_problem_that_no_release_is_free_of_asks_for_none():
    kb, specs = machines.shipped()
    report = machines.judged(TWO_H200)
    rule = next(one for one in kb.rules if one.id == BARRIER)
    lasting = replace(rule, when={"sm": 90})
    rules = tuple(lasting if one.id == BARRIER else one for one in kb.rules)
    rows = tuple(row for row in report.features if row.feature == "comm.allreduce_fusion")
    assert upgrading.find(replace(kb, rules=rules), replace(report, features=rows), specs) is None


def test_a_release_whose_torch_the_driver_does_not_run_does_not_mend():
    assert machines.judged(TWO_H200, cuda="12.8").upgrade.version == "0.15.0"  # with torch 2.9.1, for CUDA 12.8


def test_rows_that_the_other_release_has_may_work_and_nothing_works():
    found = machines.judged(TWO_H200).upgrade
    assert ("sampling.top_k on SM90", "unsupported", "may work") in changed(found)
    assert ("comm.allreduce on SM90", "not called without a flag", "called without a flag") in changed(found)
    assert "works" not in {one.after for one in found.changes}
    assert {str(one.evidence) for one in found.changes} <= {"declared", "predicted"}


def test_a_row_that_works_here_and_that_the_other_release_lacks_is_named():
    kb, specs = machines.shipped()
    report = machines.judged(TWO_H200)
    gone = Missing(reason="flashinfer 9 has no flashinfer.norm.rmsnorm", absent=True)
    facts = upgraded.completed(report.facts)
    package = replace(facts.flashinfer, symbols={**facts.flashinfer.symbols, "flashinfer.norm.rmsnorm": gone})
    target = replace(facts, flashinfer=package)
    [change] = consequences.find(kb, report, target, specs, (), besides=set())
    assert (change.subject, change.before, change.after) == ("norm.rmsnorm on SM90", "works", "unsupported")
    assert change.why == f"flashinfer.norm.rmsnorm: {gone.reason}"
    assert not consequences.find(kb, report, target, specs, (), besides={"norm.rmsnorm on SM90"})


def test_a_release_whose_files_are_not_shipped_says_so_and_opens_no_row(monkeypatch, tmp_path):
    monkeypatch.setattr(released, "FOLDER", tmp_path)
    found = machines.judged_anew(H200).upgrade
    assert any("the files of flashinfer-python 0.6.1 are not in the shipped data" in note for note in found.notes)
    assert "may work" not in {one.after for one in found.changes}


def test_settings_that_the_other_vllm_does_not_read_are_named_with_what_stands_for_them():
    report = machines.judged(TWO_H200, environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    [change] = [one for one in report.upgrade.changes if one.subject == "VLLM_ATTENTION_BACKEND"]
    assert (change.before, change.after) == ("read", "not known")
    assert "--attention-backend FLASHINFER" in change.why
    assert "VLLM_ATTENTION_BACKEND" not in {one.subject for one in machines.judged(TWO_H200).upgrade.changes}


def test_problems_that_come_with_the_other_versions_are_named():
    subjects = {one.subject: one for one in machines.judged(H200).upgrade.changes}
    assert subjects["nvcc-major-differs-from-torch"].why == "nvcc is of CUDA 13.0, torch of CUDA 12.8"


def test_what_the_named_model_runs_through_makes_it_needed():
    kb, specs = machines.shipped()
    report = machines.judged(TWO_H200)
    config = models.config_of("llama-3.1-8b")
    wanted = Wanted(model=model_of(config, "llama-3.1-8b", "a preset"), deployment=Deployment(), config=config)
    fused = Choice(
        operator="allreduce_fusion",
        layers="all",
        chosen="FLASHINFER",
        features=("comm.allreduce_fusion",),
        is_flashinfer=True,
        how="the table: a.py:1",
        evidence=Evidence.DECLARED,
    )
    served = replace(report, deployed=deployment.judge(wanted, (fused,), kb, report, 90))
    found = upgrading.find(kb, served, specs)
    assert [one.row for one in found.mends if one.is_called] == ["comm.allreduce_fusion on SM90"]
    assert found.is_needed
    [asked] = installs(advice.with_upgrade(served, found))
    assert asked.features == ("comm.allreduce_fusion",)


def test_an_upgrade_takes_the_place_of_the_one_before():
    kb, specs = machines.shipped()
    report = machines.judged(TWO_H200, {"vllm": None})
    again = advice.with_upgrade(report, upgrading.find(kb, report, specs))
    assert again == report
    assert not installs(advice.with_upgrade(report, None))


def test_what_is_shipped_of_requirements_is_what_recorded_installations_say():
    facts = [machines.recorded(name).facts for name in (TWO_H200, MODERN, "h200-moe-flashinfer0.6.7.post3/cold.json")]
    for one in facts:
        for name in ("vllm", "flashinfer-python"):
            package = one.packages[name]
            lines = [applicable(line, one) for line in pins.load()[name][package.version]]
            installed = {str(applicable(line, one)) for line in package.requires}
            watched = [str(line) for line in lines if line.name in one.packages]
            assert watched, name
            assert set(watched) <= installed


def test_every_release_that_is_named_has_its_pins():
    known = pins.load()
    pinned = {pins.exact(line) for of in known["vllm"].values() for line in of if line.startswith("flashinfer-python")}
    assert pinned <= known["flashinfer-python"].keys()
    assert all(any(line.startswith("torch==") for line in of) for of in known["vllm"].values())
    assert all(pins.exact(line) for of in known["torch"].values() for line in of)
