from __future__ import annotations

import functools
import pathlib
import subprocess
import sys
import textwrap

import pytest

from fi_doctor import knowledge
from fi_doctor.diagnosis import called
from fi_doctor.errors import DataError, UsageError
from fi_doctor.knowledge import faults
from fi_doctor.knowledge.explain import WORDS, explain, ids
from fi_doctor.model import Evidence, Severity, Verdict
from fi_doctor.probing import catalog

KB, SPECS = knowledge.load(), catalog.discover()
HEAD = 'schema: fi-doctor.knowledge/1\nversion: "2026.01.02"\nchecked_on: [nothing]\n'
FEATURES = """
- id: norm.rmsnorm
  title: RMSNorm
  entry: [flashinfer.norm.rmsnorm]
  probes: [norm.rmsnorm]
  vllm: [{vllm: ">=0.11", use: none}]
"""
SETTINGS = "- {name: CUDA_HOME, owner: flashinfer-python, kind: env, read_by: '>=0.5', what: the toolkit, source: x}\n"
FIX = 'fix: [{kind: set, line: "export CUDA_HOME={cuda_home}", setting: CUDA_HOME}]'
RULE = f"""
id: too-old
cause: old
severity: error
title: nvcc {{nvcc}} is too old
when: {{nvcc: "<12.8"}}
why: It is.
{FIX}
source: somewhere
status: confirmed
features: ["norm.*"]
"""


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, "kb.yaml", HEAD)
    write(tmp_path, "features.yaml", FEATURES)
    write(tmp_path, "settings/all.yaml", SETTINGS)
    write(tmp_path, "rules/toolkit/too-old.yaml", RULE)
    return tmp_path


def write(folder: pathlib.Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def errors_of(folder: pathlib.Path) -> list[str]:
    with pytest.raises(DataError) as caught:
        knowledge.load(folder)
    return [line.strip() for line in caught.value.why.splitlines()]


def test_a_sound_folder_is_read(folder):
    kb = knowledge.load(folder)
    assert (kb.version, len(kb.rules), len(kb.features), len(kb.settings)) == ("2026.01.02", 1, 1, 1)
    assert kb.rules[0].severity is Severity.ERROR


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("id: too-old", "id: older-one", "id: expected the file's name, got 'older-one'"),
        ("severity: error", "severity: eror", "severity: expected one of info, warning, error, got 'eror'"),
        ("status: confirmed", "status: sure", "status: expected one of confirmed, suspected, got 'sure'"),
        ("source: somewhere", "", "source: missing"),
        ("cause: old", "cause: old\ncolour: red", "colour: no such key; they are id, cause"),
        ("cause: old", "cause: old\ncause: new", "line 4: key 'cause' is given twice"),
        ("cause: old", "cause: 12", "cause: expected str, got int"),
        ("kind: set", "kind: sett", "fix[0].kind: expected one of note, set, flag"),
        (", setting: CUDA_HOME", ", settings: CUDA_HOME", "fix[0]: object contains unknown field settings"),
        (", setting: CUDA_HOME", "", "fix[0].setting: missing; an action of kind set names the setting"),
        (", setting: CUDA_HOME", ", setting: CUDA", "fix[0].setting: 'CUDA' is not in settings/"),
        ("{cuda_home}", "{cuda_hom}", "fix[0].line: {cuda_hom} names no subject; the nearest is 'cuda_home'"),
        ("norm.*", "nrm.*", "features: 'nrm.*' matches no feature"),
        ("<12.8", "old", "when.nvcc: expected a range of versions"),
        ("status: confirmed", "status: confirmed\npredicts: works", "predicts: a rule is about a problem"),
        ("status: confirmed", "status: confirmed\npredicts: brokn", "predicts: expected one of unknown, unsupported"),
        (FIX, "fix: []", "fix: empty"),
        ("why: It is.", "why: [", "line "),
        ("status: confirmed", "status: confirmed\naliases: [too-old]", "rules: 'too-old' is given 2 times"),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_wrong_rule_is_refused_with_its_place(folder, old, new, error):
    assert old in RULE
    write(folder, "rules/toolkit/too-old.yaml", RULE.replace(old, new))
    [told] = errors_of(folder)
    assert told.removeprefix("rules/toolkit/too-old.yaml: ").startswith(error)


ON = "{kind: set, line: 'export CUDA_HOME=/x', setting: CUDA_HOME}"


@pytest.mark.parametrize(
    ("uses", "error"),
    [
        ('[{vllm: ">=0.12", use: none}]', "vllm: nothing is said of 0.11.0 on SM80, SM89, SM90, SM100, SM103, SM120"),
        ('[{vllm: "<0.28", use: a}, {vllm: ">=0.28", sm: "<120", use: b}]', "vllm: nothing is said of 0.28.0 on SM120"),
        ('[{vllm: ">=0.11", sm: Hopper, use: none}]', "vllm[0].sm: 'Hopper' is not a range of numbers"),
        ("[{vllm: new, use: none}]", "vllm[0].vllm: 'new' is not a range of versions"),
        (
            f'[{{vllm: ">=0.11", use: a, enable: [{ON.replace("CUDA_HOME}", "CUDA}")}]}}]',
            "vllm[0].enable[0].setting: 'C",
        ),
        (
            f'[{{vllm: ">=0.11", use: a, avoid: [{ON.replace(", setting: CUDA_HOME", "")}]}}]',
            "vllm[0].avoid[0].setting: ",
        ),
        ('[{vllm: ">=0.11", use: a, avoid: [{kind: note, line: x}]}]', "vllm[0].avoid[0].setting: missing; what turns"),
        (
            f'[{{vllm: ">=0.11", use: a, avoid: [{ON.replace("/x", "{hom}")}]}}]',
            "vllm[0].avoid[0].line: {hom} names no",
        ),
    ],
    ids=["release", "gpu", "sm", "range", "unknown", "unnamed", "note", "placeholder"],
)
def test_a_wrong_use_of_a_feature_is_refused_with_its_place(folder, uses, error):
    write(folder, "features.yaml", FEATURES.replace('[{vllm: ">=0.11", use: none}]', uses))
    told = errors_of(folder)
    assert told[0].startswith(f"features.yaml: norm.rmsnorm: {error}")


@pytest.mark.parametrize(
    "call",
    [
        "flashinfer.norm.rmsnorm",
        "flashinfer.norm.other(eps=1)",
        "flashinfer.norm.rmsnorm(1)",
        "flashinfer.norm.rmsnorm(**x)",
        "flashinfer.norm.rmsnorm(eps=y)",
        "flashinfer.norm.rmsnorm(",
    ],
)
def test_a_call_that_is_none_of_an_entry_with_literals_is_refused(folder, call):
    write(folder, "features.yaml", FEATURES.replace("  probes:", f'  call: "{call}"\n  probes:'))
    assert errors_of(folder) == [
        f"features.yaml: norm.rmsnorm: call: expected one of entry with literals by name, got {call!r}"
    ]


@pytest.mark.parametrize("path", ["include/a.cuh", "data/a.cu", "/data/a.cuh", "data/../a.cuh"])
def test_a_runner_that_is_no_file_below_the_sources_is_refused(folder, path):
    write(folder, "features.yaml", FEATURES.replace("  probes:", f"  runner: {path}\n  probes:"))
    said = f"features.yaml: norm.rmsnorm: runner: expected a path below FlashInfer's data/ to a .cuh, got {path!r}"
    assert errors_of(folder) == [said]


def test_a_call_of_an_entry_is_read(folder):
    call = "flashinfer.norm.rmsnorm(backend='cuda', eps=1, out=None)"
    write(folder, "features.yaml", FEATURES.replace("  probes:", f'  call: "{call}"\n  probes:'))
    assert knowledge.load(folder).features[0].call == call


def test_what_turns_a_feature_on_and_off_may_be_a_variable_a_flag_or_a_key(folder):
    uses = f'[{{vllm: ">=0.11,<0.20", use: a, enable: [{ON}]}}, {{vllm: ">=0.20", use: b, avoid: [{ON}]}}]'
    write(folder, "features.yaml", FEATURES.replace('[{vllm: ">=0.11", use: none}]', uses))
    write(folder, "settings/all.yaml", SETTINGS.replace("kind: env", "kind: key"))
    assert [len(use.enable) + len(use.avoid) for use in knowledge.load(folder).features[0].vllm] == [1, 1]


def test_all_errors_of_all_files_are_told_at_once(folder):
    write(folder, "kb.yaml", HEAD.replace("/1", "/one"))
    write(folder, "features.yaml", FEATURES.replace(">=0.11", "new"))
    write(folder, "settings/all.yaml", SETTINGS.replace("kind: env", "kind: kee"))
    write(
        folder,
        "rules/toolkit/too-old.yaml",
        RULE.replace("cause: old", "cause: 1").replace("status: confirmed", "status: 2"),
    )
    places = [line.split(": ")[0] for line in errors_of(folder)]
    assert places == [
        "kb.yaml",
        "rules/toolkit/too-old.yaml",
        "rules/toolkit/too-old.yaml",
        "features.yaml",
        "settings",
    ]


def test_aliases_are_refused_since_a_few_can_stand_for_gigabytes(folder):
    write(folder, "rules/toolkit/too-old.yaml", "a: &a [x, x]\nb: [*a, *a]\n")
    assert errors_of(folder)[0] == "rules/toolkit/too-old.yaml: line 1: aliases are not allowed"


def test_a_file_of_more_than_a_mebibyte_is_refused(folder):
    write(folder, "rules/toolkit/too-old.yaml", RULE + "#" * (1 << 20))
    assert "bytes; 1048576 are allowed" in errors_of(folder)[0]


def test_yaml_cannot_make_objects(folder):
    write(folder, "rules/toolkit/too-old.yaml", RULE.replace("why: It is.", "why: !!python/object/apply:os.getcwd []"))
    assert "could not determine a constructor" in errors_of(folder)[0]


def test_a_folder_without_knowledge_says_which_files_are_missing(tmp_path):
    assert errors_of(tmp_path)[:2] == [
        "kb.yaml: cannot be read: No such file or directory",
        "features.yaml: cannot be read: No such file or directory",
    ]


def test_the_shipped_knowledge_names_only_entry_points_of_flashinfer():
    assert all(name.split(".")[0] == "flashinfer" for feature in KB.features for name in feature.entry)


@pytest.mark.parametrize(
    ("version", "sm", "use"),
    [
        ("0.11.0", 90, "on by default"),
        ("0.14.1", 90, "only with"),
        ("0.20.2", 75, "only with"),
        ("0.25.1", 90, "on by default"),
        ("0.33.0", 80, "on by default"),
        ("0.33.0", 75, "takes SM80 and newer"),
    ],
)
def test_the_sampler_is_said_to_be_what_each_vllm_makes_of_it(version, sm, use):
    sampler = KB.feature("sampling.top_k_top_p")
    found = called.Server("vllm", version).use_of(sampler, sm)
    assert use in found.use


def test_importing_the_loader_does_not_import_yaml():
    code = "import fi_doctor.knowledge, sys; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture(scope="module")
def _faults_are_listed_once():
    """One `explain` lists them once; these tests explain a thousand names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "ids", functools.cache(faults.ids))
        yield


@pytest.mark.usefixtures("_faults_are_listed_once")
def test_every_id_is_explained_in_80_columns():
    texts = {name: explain(KB, name) for name in ids(KB)}
    assert [name for name, text in texts.items() if name not in text] == []
    lines = [line for text in texts.values() for line in text.splitlines() if len(line) > 80]
    assert [
        line for line in lines if not line.startswith(("  ", "Concerns", "Known from", "The same on a machine"))
    ] == []


def test_everything_that_is_known_has_an_id():
    assert {one.id for one in (*KB.rules, *KB.features, *KB.operators)} <= set(ids(KB))
    assert {rule.cause for rule in KB.rules} | {setting.name for setting in KB.settings} <= set(ids(KB))
    assert {name for spec in SPECS for name in (spec.id, *spec.variants)} <= set(ids(KB, SPECS))


def test_a_cause_is_explained_by_all_that_have_it():
    rules = [rule for rule in KB.rules if rule.cause == "no-toolkit"]
    text = explain(KB, "no-toolkit")
    assert len(rules) > 1
    assert [rule.id for rule in rules if f"{rule.id} ({rule.severity}" not in text] == []
    assert "no-nvcc-for-jit (cause nvcc-not-found" in explain(KB, "nvcc-not-found")


def test_an_operator_is_explained_with_its_rows():
    assert "Rows that say whether it works: moe.*bf16\n" in explain(KB, "moe_bf16")


def test_a_probe_and_a_variant_are_explained_with_the_row_and_the_script():
    text = explain(KB, "attention.decode_xqa", SPECS)
    assert text.startswith("Probe attention.decode_xqa: Does XQA give the right attention")
    assert "Decides the row: attention.decode\n" in text
    assert text.endswith("Its script: fi-doctor probes show attention.decode_xqa\n")
    both = explain(KB, "norm.rmsnorm", SPECS)
    assert both.startswith("norm.rmsnorm: RMSNorm\n")
    assert "\n\nProbe norm.rmsnorm: " in both
    having = [spec.id for spec in SPECS if "bf16" in spec.variants]
    lines = [line for line in explain(KB, "bf16", SPECS).splitlines() if line.startswith("  ") and ", row " in line]
    assert [line.split(",")[0].strip() for line in lines] == having
    assert "  attention.xqa, row attention.xqa; needs FlashInfer >=0.6.7\n" in explain(KB, "graph_spec_d128", SPECS)


@pytest.mark.usefixtures("_faults_are_listed_once")
@pytest.mark.parametrize("name", sorted(set(ids(KB, SPECS)) - set(ids(KB))))
def test_what_probes_have_is_explained_in_80_columns(name):
    text = explain(KB, name, SPECS)
    assert name in text
    assert max(len(line) for line in text.splitlines() if len(line.split()) > 1) <= 80  # a path is not broken


def test_the_nearest_id_is_found_whatever_the_case():
    with pytest.raises(UsageError) as caught:
        explain(KB, "NORM.RMSNORM", SPECS)
    assert caught.value.todo.startswith("fi-doctor explain norm.rmsnorm |")


def test_every_verdict_and_evidence_word_is_explained():
    assert {word.value for word in (*Verdict, *Evidence)} <= set(WORDS)


def test_an_unknown_id_is_refused_with_the_nearest_ones():
    with pytest.raises(UsageError) as caught:
        explain(KB, "nvcc-too-old-for-gpus")
    assert "nvcc-too-old-for-gpu" in caught.value.todo


def test_a_command_in_an_explanation_stays_on_one_line():
    said = explain(KB, "ninja-not-found")
    assert "  <pip install> ninja  # and have this Python's bin folder on PATH\n" in said
