"""Every recorded machine is judged again from its facts and outcomes, and looks as it did; none was touched."""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import re

import jsonschema
import msgspec
import pytest
from golden_texts import kept
from prometheus_client.parser import text_string_to_metric_families

from fi_doctor import knowledge, pipeline
from fi_doctor.diagnosis import changes
from fi_doctor.knowledge import examples
from fi_doctor.model import (
    Allowance,
    CauseKind,
    Ending,
    Evidence,
    Policy,
    Request,
    Requirement,
    Scope,
    Verdict,
)
from fi_doctor.probing import catalog
from fi_doctor.reports import FORMATS, document, render

MACHINES = pathlib.Path(__file__).parent / "machines"
FOLDERS = sorted(path for path in MACHINES.iterdir() if path.is_dir())
SARIF = jsonschema.Draft4Validator(
    json.loads((MACHINES.parent / "reports/published/sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
)
RECORDINGS = sorted(MACHINES.glob("*/*.json"))
OLD_NVCC, PUT_RIGHT = "h200-nvcc-says-12.6-flashinfer0.5.3/cold.json", "h200-nvcc-put-right-flashinfer0.5.3/warm.json"
# vLLM was started there on tiny models; no kernels were asked for.
STARTED = ("gpt-oss-flashinfer0.7.2.post1/cold", "llama-flashinfer0.5.3/cold", "llama-flashinfer0.7.2.post1/warm")
# Pages of which the markup is kept too.
WHOLE_PAGES = (OLD_NVCC, "h200-moe-flashinfer0.6.7.post3/cold.json", "2xh200-comm-flashinfer0.7.2.post1/warm.json")
EXAMPLES = {
    "h100": "h100-cuda13.0-flashinfer0.7.2.post1/cold.json",
    "h200": "h200-cuda13.0-flashinfer0.7.2.post1/warm.json",
    "h200-flashinfer-0.5.3": "h200-cuda13.0-flashinfer0.5.3/warm.json",
    "2xh200-flashinfer-0.5.3": "2xh200-cuda13.0-flashinfer0.5.3/warm.json",
    "h200-nvcc-12.6": OLD_NVCC,
    "h200-nvcc-mended": PUT_RIGHT,
}
_LATER_PROBES = dict.fromkeys(("moe.bf16", "moe.fp8_per_tensor"), "unknown")  # than any recording
_NOT_BUILT = {"moe.fp8_block": "unknown", "moe.mxfp4_bf16": "unknown", **_LATER_PROBES}
_OF_OTHER_GPUS = {"moe.trtllm_fp8_block": "unsupported"}
_NO_PROBES_YET = {
    **dict.fromkeys(("attention.decode", "attention.prefill", "attention.sinks", "comm.allreduce_fusion"), "unknown"),
    **_NOT_BUILT,
}
# 0.5: a width that crashes the kernel, and random numbers that repeat.
_OF_0_5 = {"activation.silu_and_mul": "broken", "sampling.top_k_top_p": "wrong-result"}
_NEWER_THAN_0_5 = dict.fromkeys(
    ("gemm.bf16", "gemm.fp8_block_sm90", "quant.fp8", "sampling.top_k", "ssm.gdn", "ssm.mamba"), "unsupported"
)
_ONE_GPU = {"comm.allreduce_fusion": "unknown"}
_FEW_SELECTED = {
    **dict.fromkeys(("attention.decode", "attention.prefill", "attention.sinks", "comm.allreduce_fusion"), "unknown"),
    **dict.fromkeys(("norm.rmsnorm", "norm.fused_add_rmsnorm"), "unknown"),
    **_OF_0_5,
    **_OF_OTHER_GPUS,
}
_ONLY_MOE = {
    **dict.fromkeys(("import.flashinfer", "import.torch", "kv.append_paged"), "unknown"),
    **_FEW_SELECTED,
    **dict.fromkeys(("activation.silu_and_mul", "sampling.top_k_top_p"), "unknown"),
}
# Kernels that are compiled empty for SM90, and one that is given no strides; vLLM calls none of them.
_NOT_CALLED = dict.fromkeys(("norm.layernorm", "quant.fp4", "quant.mxfp4", "quant.mxfp8"), "wrong-result")
# One is decided by what the check has not, and two need a package that is not there.
_NOT_HERE = dict.fromkeys(("attention.soft_cap", "quant.fp8", "ssm.gdn"), "unknown")
_NO_CUDNN = {"gemm.bmm_fp8": "broken"}  # nvidia-cudnn-frontend was left out


def _predicted(version):
    """What is known of a release without a measurement."""
    return {"sampling.top_k_top_p": "wrong-result"} if version == "0.5.3" else {}


VERDICTS = {  # every row that does not work
    **{
        f"h200-operators-flashinfer{version}/{state}": {
            **_OF_0_5,
            **_NOT_CALLED,
            **_NEWER_THAN_0_5,
            "attention.fp8_kv": "broken",
        }
        for version, state in (("0.5.2", "cold"), ("0.5.3", "cold"), ("0.5.3", "warm"))
    },
    "h200-operators-flashinfer0.5.2/warm": {
        **_OF_0_5,
        **_NOT_CALLED,
        **_NEWER_THAN_0_5,
        "attention.fp8_kv": "unknown",  # what did not compile was not tried again
    },
    **{
        f"h200-operators-flashinfer0.6.7.post3/{state}": {
            **_NOT_CALLED,
            **_NO_CUDNN,
            **dict.fromkeys(("gemm.bf16", "quant.fp8"), "unsupported"),
            "activation.silu_and_mul": "broken",
        }
        for state in ("cold", "warm")
    },
    **{f"h200-operators-flashinfer0.7.2.post1/{state}": {**_NOT_CALLED, **_NOT_HERE} for state in ("cold", "warm")},
    **{
        f"h200-cuda13.0-flashinfer0.5.3/{state}": {**_OF_OTHER_GPUS, **_OF_0_5, **_ONE_GPU}
        for state in ("cold", "warm")
    },
    **{
        f"{gpu}-cuda13.0-flashinfer0.7.2.post1/{state}": {**_OF_OTHER_GPUS, **_ONE_GPU}
        for gpu, state in (("h100", "cold"), ("h200", "cold"), ("h200", "warm"))
    },
    # Two-shot all-reduce lets blocks through its barrier.
    "2xh200-cuda13.0-flashinfer0.5.3/warm": {**_OF_OTHER_GPUS, **_OF_0_5, "comm.allreduce_fusion": "wrong-result"},
    # Checked over CUDA IPC; vLLM 0.33 takes NVLink multicast.
    "2xh200-cuda13.0-flashinfer0.7.2.post1/warm": {**_OF_OTHER_GPUS, "comm.allreduce_fusion": "unknown"},
    "h200-memory-16g-flashinfer0.7.2.post1/cold": {**_ONLY_MOE, **_NOT_BUILT, "moe.bf16": "works"},
    "h200-moe-flashinfer0.6.7.post3/cold": {**_ONLY_MOE, **dict.fromkeys(_NOT_BUILT, "works")},
    **{
        f"h200-moe-flashinfer{version}/{state}": {**_OF_OTHER_GPUS, **_predicted(version)}
        for version in ("0.5.3", "0.7.2.post1")
        for state in ("cold", "warm")
    },
    # The same barrier, which the plain all-reduce has too.
    **{
        f"2xh200-comm-flashinfer0.5.3/{state}": {
            **_predicted("0.5.3"),
            "comm.allreduce": "wrong-result",
            "comm.allreduce_fusion": "wrong-result",
        }
        for state in ("cold", "warm")
    },
    **{
        f"2xh200-{name}": {"comm.allreduce": "unknown", "comm.allreduce_fusion": "unknown"}
        for name in (
            "comm-flashinfer0.7.2.post1/cold",
            "comm-flashinfer0.7.2.post1/warm",
            "stopped-rank-flashinfer0.7.2.post1/after",
        )
    },
    "2xh200-stopped-rank-flashinfer0.7.2.post1/stopped": {"comm.allreduce": "unknown"},
    "h200-nvcc-says-12.6-flashinfer0.5.3/cold": {
        **_FEW_SELECTED,
        **_LATER_PROBES,
        "moe.fp8_block": "broken",
        "moe.mxfp4_bf16": "broken",
    },
    "h200-nvcc-put-right-flashinfer0.5.3/warm": {**_FEW_SELECTED, **_NOT_BUILT},
    # What is recommended was tried beside these, and is not in their rows.
    "h200-proved-nvcc-flashinfer0.5.3/cold": {
        **dict.fromkeys(("activation.silu_and_mul", "moe.fp8_block", "moe.mxfp4_bf16"), "broken"),
        **_predicted("0.5.3"),
    },
    "h200-proved-arch-list-flashinfer0.7.2.post1/cold": {
        **dict.fromkeys(("activation.silu_and_mul", "kv.append_paged", "norm.rmsnorm"), "broken"),
        "sampling.top_k_top_p": "unknown",
    },
    **{f"h200-started-{name}": _predicted("0.5.3") if "0.5.3" in name else {} for name in STARTED},
}

named = pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")


@functools.cache
def shipped():
    """The knowledge and the probes that ship, read once: both are frozen."""
    return knowledge.load(), catalog.discover()


@functools.cache
def recorded(path):
    return document.read(path.read_bytes(), path.name)


@functools.cache
def judged(path, features=()):
    return asked(path, features, Policy())


def asked(path, features, policy):
    report = recorded(path)
    # What a deployment required then is not asked again where a policy asks.
    required = () if policy.file else report.request.required
    request = msgspec.structs.replace(report.request, features=features, policy=policy, required=required)
    # Who judged differs with every release; what was judged does not.
    kb, specs = shipped()
    done = pipeline.rejudge(report, request, kb=kb, specs=specs)
    return msgspec.structs.replace(done, doctor=report.doctor)


def test_both_flashinfer_versions_are_recorded_cold_and_warm():
    versions = {(recorded(path).facts.flashinfer.version, path.stem) for path in RECORDINGS}
    assert versions >= {(version, state) for version in ("0.5.3", "0.7.2.post1") for state in ("cold", "warm")}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_raw_output_is_what_the_origin_says(folder):
    origin = (folder / "ORIGIN.md").read_text()
    said = dict(re.findall(r"`([0-9a-f]{64})`\s+`(\w+\.json)`", origin))
    found = {hashlib.sha256(path.read_bytes()).hexdigest(): path.name for path in folder.glob("*.json")}
    assert found == said
    assert re.search(r"commit [0-9a-f]{7,40}", origin)


@named
def test_a_recording_looks_as_its_golden_files_say(path, golden):
    report = judged(path)
    whole = f"{path.parent.name}/{path.name}" in WHOLE_PAGES
    for form in FORMATS:
        text = render(report, form)
        READERS.get(form, lambda text, report: None)(text, report)
        golden(f"machines/{path.parent.name}-{path.stem}.{form}", kept(text, form, whole=whole))


def reads_as_it_is(text, report):
    assert document.read(text.encode(), "").facts == report.facts


READERS = {
    "json": reads_as_it_is,
    "yaml": reads_as_it_is,
    "sarif": lambda text, report: SARIF.validate(json.loads(text)),
    "prometheus": lambda text, report: list(text_string_to_metric_families(text)),
}


def policy_for(code):
    """Of two rows that work: nothing more, a FlashInfer that nobody has, or a whole MoE module."""
    whole = Requirement(
        feature="moe.bf16",
        verdict=Verdict.WORKS,
        evidence=Evidence.VERIFIED,
        scope=Scope.FULL,
        source="fi-doctor.toml: require",
    )
    stale = Allowance(
        finding="",
        feature="norm.*",
        reason="a fix is released",
        expires="2026-10-31",
        source="fi-doctor.toml: allow[0]",
    )
    return Policy(
        file="/repo/fi-doctor.toml",
        requirements=(whole,) if code == 3 else (),
        versions={"flashinfer-python": ">=99" if code == 1 else ">=0.5", "torch": ">=2"} if code < 3 else {},
        allowed=(stale,) if code == 0 else (),
        day="2026-11-28",
    )


@functools.cache
def gated(path, code):
    """A recording of which what is asked holds (0), does not hold (1), or cannot be told (3)."""
    working = [row.feature for row in judged(path).features if row.verdict is Verdict.WORKS and row.needs_gpu]
    return asked(path, ("import.*", *working[:2], *(["moe.bf16"] if code == 3 else [])), policy_for(code))


# Of a check of one row, of which a rank was stopped, nothing holds that a policy could ask for.
@pytest.mark.parametrize(
    "path",
    [path for path in RECORDINGS if path.stem != "stopped"],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_recording_with_a_policy_looks_as_its_golden_files_say(path, code, golden):
    report = gated(path, code)
    assert report.gate.code == code
    for form in FORMATS:
        text = render(report, form)
        if form == "json":  # YAML, which is slow to read, is read without a policy
            reads_as_it_is(text, report)
        golden(f"gates/{path.parent.name}-{path.stem}-exit-{code}.{form}", kept(text, form))


@named
def test_the_verdicts_are_those_that_were_checked_by_hand(path):
    checked = VERDICTS[f"{path.parent.name}/{path.stem}"]
    rows = {row.feature: row.verdict for row in judged(path).features}
    tried = {outcome.feature for outcome in recorded(path).outcomes} | set(checked)
    said = {name: verdict.value for name, verdict in rows.items() if name in tried}
    assert said == {**dict.fromkeys(said, "works"), **checked}
    # Of a row that is younger than the recording nothing was measured.
    assert {rows[name] for name in rows.keys() - tried} <= {Verdict.UNKNOWN, Verdict.UNSUPPORTED}


@named
def test_what_works_was_run_there_on_the_gpu(path):
    run = {
        outcome.feature
        for outcome in recorded(path).outcomes
        if outcome.ending is not Ending.NOT_RUN or any(cell.ending is Ending.RETURNED for cell in outcome.cells)
    }
    works = [row for row in judged(path).features if row.verdict is Verdict.WORKS]
    assert {row.feature for row in works} <= run
    assert {row.sm for row in judged(path).features if row.needs_gpu} == {90}


def test_the_nvcc_that_says_12_6_is_named_as_the_cause_and_nothing_of_it_is_left_once_it_is_put_right():
    broken, mended = (judged(MACHINES / name) for name in (OLD_NVCC, PUT_RIGHT))
    [row] = [row for row in broken.features if row.feature == "moe.fp8_block"]
    assert (row.verdict, row.evidence) == (Verdict.BROKEN, Evidence.RAN)
    assert row.why == "NotImplementedError: FP8 block scaling not implemented for CUDA 12.6 or lower."
    causes = {finding.id: finding.cause for finding in broken.findings}
    assert (
        causes["fp8-block-moe-refused-below-cuda-12-8"]
        == causes["mxfp4-moe-left-out-below-cuda-12-8"]
        == "nvcc-too-old"
    )
    assert "unexplained-failure" not in causes
    [asked] = [one for one in broken.recommendations if "CUDA_HOME=" in one.line]
    assert (asked.line, set(asked.findings)) == (
        "export CUDA_HOME=/usr/local/cuda-13.0",
        {
            "fp8-block-moe-refused-below-cuda-12-8",
            "mxfp4-moe-left-out-below-cuda-12-8",
            "nvcc-major-differs-from-torch",
        },
    )
    changed = changes.difference(broken, mended, kb=shipped()[0], specs=shipped()[1])
    assert {row.feature for row in changed.rows} == {"moe.fp8_block", "moe.mxfp4_bf16"}
    assert {"toolkit.jit.cuda_home", "toolkit.gate_version"} <= {fact.name for fact in changed.facts}
    first = [row.causes[0] for row in changed.rows]
    assert {cause.name for cause in first} == {
        "fp8-block-moe-refused-below-cuda-12-8",
        "mxfp4-moe-left-out-below-cuda-12-8",
    }
    assert {(cause.facts[0].name, cause.facts[0].before, cause.facts[0].after) for cause in first} == {
        ("toolkit.jit.nvcc.version", "12.6", "13.0")
    }
    assert {row.causes[1].kind for row in changed.rows} == {CauseKind.NVCC}
    assert {finding.cause for finding in mended.findings} & {"nvcc-too-old"} == set()


def test_a_check_of_all_rows_with_everything_built_took_20_s_at_most_on_one_gpu():
    report = recorded(MACHINES / "h200-cuda13.0-flashinfer0.7.2.post1/warm.json")
    assert {outcome.started for outcome in report.outcomes if not outcome.feature.startswith("import.")} == {"forked"}
    assert report.seconds <= 20


@named
def test_nothing_is_left_unexplained(path):
    assert [finding.title for finding in judged(path).findings if finding.id == "unexplained-failure"] == []


@named
def test_a_warm_check_compiled_nothing(path):
    report = recorded(path)
    built = {outcome.probe: outcome.cached for outcome in report.outcomes if "built" in outcome.seconds}
    assert built or not report.builds.modules
    if path.stem == "warm":
        left = unfinished(path.with_name("cold.json"))
        modules = {name: words for name, words in report.builds.modules.items() if name not in left}
        states = {words for words in modules.values() if not words.startswith("not compiled")}
        assert states <= {"cache"}
        assert states or all(built.values())
        slow = [o.probe for o in recorded(path).outcomes if o.seconds.get("built", 0) > 2]
        assert not slow or left


def unfinished(path):
    """The modules that a first check could not build, or had no time for: a second one tries them again."""
    if not path.is_file():
        return set()
    done = ("built", "cache", "not compiled")
    return {name for name, words in recorded(path).builds.modules.items() if not words.startswith(done)}


@pytest.mark.parametrize(("name", "recording"), EXAMPLES.items(), ids=EXAMPLES)
def test_an_example_is_a_recording_byte_for_byte(name, recording):
    assert examples.data(name) == (MACHINES / recording).read_bytes()


def test_every_example_is_one_of_the_recordings():
    assert set(examples.names()) == set(EXAMPLES)


@pytest.mark.parametrize(
    ("features", "ids"),
    [
        (("import.*",), set()),
        (("activation.*",), {"act-and-mul-misaligned"}),
        (("import.*", "sampling.*"), {"sampler-repeats-random-numbers"}),
    ],
)
def test_findings_about_rows_that_were_not_selected_are_not_told(features, ids):
    path = MACHINES / "2xh200-cuda13.0-flashinfer0.5.3/warm.json"
    machine = {finding.id for finding in judged(path).findings if not finding.features}
    assert machine
    assert {finding.id for finding in judged(path, features).findings} == machine | ids


def test_a_finding_about_rows_that_the_other_report_was_not_asked_about_has_not_gone():
    whole = judged(MACHINES / "h200-cuda13.0-flashinfer0.5.3/warm.json")
    kb, specs = shipped()
    part = judged(MACHINES / "h200-cuda13.0-flashinfer0.5.3/warm.json", ("import.*",))
    for pair in ((whole, part), (part, whole)):
        found = changes.difference(*pair, kb=kb, specs=specs)
        assert (found.findings_gone, found.findings_new) == ((), ())


def test_another_request_selects_rows_of_a_recording():
    report = recorded(RECORDINGS[0])
    request = Request(depth=report.request.depth, features=("norm.*",))
    rows = pipeline.rejudge(report, request, kb=knowledge.load(), specs=catalog.discover()).features
    assert {row.feature for row in rows} >= {"norm.rmsnorm", "norm.fused_add_rmsnorm"}
    assert all(row.feature.startswith("norm.") for row in rows)
