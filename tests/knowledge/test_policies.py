"""Policies: decoded strictly, all errors of a file at once."""

from __future__ import annotations

import datetime as dt
import pathlib

import pytest

from fi_doctor import reports
from fi_doctor.errors import DataError
from fi_doctor.inside import survey
from fi_doctor.knowledge import policies
from fi_doctor.knowledge.policy_keys import PREFIXES, VERSIONED
from fi_doctor.knowledge.policy_schema import FORMATS
from fi_doctor.model import Evidence, PolicyFile, RequireTable, Scope, Verdict

FEATURES = ("norm.rmsnorm", "moe.fp8_block")
FINDINGS = ("nvcc-too-old-for-gpu",)
WHOLE = """
budget = "5m"
jobs = 4
memory = "16g"
depth = "run"
feature = "norm.*"
format = ["console", "junit:out.xml"]
fail-on = ["broken", "error"]
[require]
"norm.*" = "works"
"moe.fp8_block" = { evidence = "verified", scope = "subset" }
[versions]
torch = ">=2.9"
driver = ">=570"
[[allow]]
finding = "nvcc-too-old-for-gpu"
reason = "the image of next week has it"
expires = 2027-01-31
"""


def written(folder, text, name="fi-doctor.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return policies.read(path)


def test_a_whole_policy_is_read(tmp_path):
    found = written(tmp_path, WHOLE)
    assert found.errors == []
    assert policies.wrong_names(found, FEATURES, FINDINGS) == []
    assert (found.file.budget, found.file.jobs, found.file.feature) == ("5m", 4, ("norm.*",))
    assert found.file.allow[0].expires == dt.date(2027, 1, 31)
    policy = policies.resolve(found, "2026-12-01", {})
    assert [(one.feature, one.evidence, one.scope) for one in policy.requirements] == [
        ("moe.fp8_block", Evidence.VERIFIED, Scope.SUBSET),
        ("norm.*", Evidence.RAN, Scope.SUBSET),
    ]
    assert (policy.file, policy.day) == (str(tmp_path / "fi-doctor.toml"), "2026-12-01")
    assert policy.fail_on == ("broken", "error")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"works"', (Verdict.WORKS, Evidence.RAN, Scope.SUBSET)),
        ('"ran"', (Verdict.WORKS, Evidence.RAN, Scope.SUBSET)),
        ('"verified"', (Verdict.WORKS, Evidence.VERIFIED, Scope.FULL)),
        ('"unsupported"', (Verdict.UNSUPPORTED, Evidence.DECLARED, Scope.SUBSET)),
        ('"built"', (Verdict.UNKNOWN, Evidence.BUILT, Scope.SUBSET)),
        ('{ evidence = "built", scope = "full" }', (Verdict.UNKNOWN, Evidence.BUILT, Scope.FULL)),
        ('{ scope = "full" }', (Verdict.WORKS, Evidence.RAN, Scope.FULL)),
        ('{ evidence = "verified", scope = "subset" }', (Verdict.WORKS, Evidence.VERIFIED, Scope.SUBSET)),
    ],
)
def test_what_a_required_row_must_give(tmp_path, text, expected):
    found = written(tmp_path, f'require = {{ "norm.*" = {text} }}')
    [one] = policies.resolve(found, "", {}).requirements
    assert (found.errors, (one.verdict, one.evidence, one.scope)) == ([], expected)


READ = (
    "read are apache-tvm-ffi, cuda-bindings, cuda-python, cuda-tile, flashinfer-cubin, flashinfer-python, ninja, "
    "nvidia-cudnn-frontend, nvidia-cutlass-dsl, nvidia-ml-py, pynvml, sglang, torch, triton, vllm, cuda, driver, nvcc, "
    "python, flashinfer-jit-cache-*, nvidia-*"
)
ERRORS = {  # text -> what is said of it, after the name of the file
    'budgt = "5m"': "budgt: no such key; the nearest is budget",
    'fail-on = ["brokn"]': "fail-on[0]: 'brokn' is no verdict that fails and no severity; the nearest is broken",
    'fail-on = "works"': "fail-on[0]: 'works' is no verdict that fails and no severity",
    "fail-on = []": 'fail-on: it is empty; with "none" no verdict of a row fails',
    'fail-on = ["none", "broken"]': 'fail-on: "none" lets no verdict fail, and "broken" is one',
    'rows = "caled"': "rows: 'caled' is not one of all, called; the nearest is called",
    "rows = 1": "rows: expected str, got int",
    "jobs = -1": "jobs: expected int >= 0",
    "jobs = true": "jobs: expected int, got bool",
    "depth = 3": "depth: expected str, got int",
    "format = [1]": "format[0]: expected str, got int",
    "require = 3": "require: expected a table, got int",
    'require = {"norm.*" = 3}': 'require."norm.*": expected one of works, unsupported, built, ran, verified,'
    " or a table, got int",
    'require = {"norm.*" = {verdict = 3, evidence = "declared"}}': 'require."norm.*".verdict: expected str, got int',
    'require = {"norm.*" = "verifed"}': "require.\"norm.*\": 'verifed' is not one of works, unsupported, built, ran,"
    " verified; the nearest is verified",
    'require = {"norm.*" = {verdict = "works", evidence = "built"}}': "require.\"norm.*\".evidence: 'built'"
    " is not one of ran, verified",
    'require = {"norm.*" = {scop = "full"}}': 'require."norm.*".scop: no such key; the nearest is scope',
    'require = {"norm.*" = {scope = "ful"}}': "require.\"norm.*\".scope: 'ful' is not one of subset, full;"
    " the nearest is full",
    'require = {"norm.*" = {verdict = "unknown"}}': "require.\"norm.*\".verdict: 'unknown'"
    " is not one of works, unsupported",
    'require = {"norm.*" = {evidence = "declared"}}': "require.\"norm.*\".evidence: 'declared'"
    " is not one of built, ran, verified; the nearest is verified",
    'require = {"norm.rmsnrm" = "works"}': "require.\"norm.rmsnrm\": no feature is called 'norm.rmsnrm';"
    " the nearest is norm.rmsnorm",
    'feature = "nrom.*"': "feature[0]: no feature is called 'nrom.*'; the nearest is norm.*",
    'versions = {torch = "2.9"}': "versions.torch: '2.9' is not a range of versions; a range is written \">=2.9\"",
    'feature = "moe.*x"': "feature[0]: no feature is called 'moe.*x'",
    'versions = {flashinfer = ">=0.6"}': "versions.flashinfer: no version of that is read"
    f"; the nearest is flashinfer-python; {READ}",
    'versions = {foo = ">=0.6"}': f"versions.foo: no version of that is read; {READ}",
    'versions = {torch = "2.9 or so"}': "versions.torch: '2.9 or so' is not a range of versions",
    "versions = {torch = 2.9}": 'versions.torch: expected a range such as ">=0.6,<0.8", got float',
    'versions = {Torch = ">=2", torch = ">=2.9"}': "versions.torch: the same as torch, which has a range already",
    'allow = ["a"]': "allow[0]: expected a table, got str",
    'allow = [{finding = 3, reason = "x", expires = 2027-01-01}]': "allow[0].finding: expected str, got int",
    'allow = [{feature = "norm.*", reason = "x", expires = 2027-01-01},'
    ' {feature = "norm.*", reason = "y", expires = 2027-02-01}]': "allow[1]: it allows what allow[0] allows already",
    "jobs = 1000000": "jobs: expected int <= 999999",
    "allow = 3": "allow: expected an array of tables, got int",
    'allow = [{feature = "norm.*", reason = "x"}]': "allow[0].expires: missing",
    'allow = [{feature = "norm.*", expires = 2027-01-01}]': "allow[0].reason: missing",
    'allow = [{feature = "norm.*", reason = " ", expires = 2027-01-01}]': "allow[0].reason: it is empty",
    'allow = [{reason = "x", expires = 2027-01-01}]': "allow[0]: a finding or a feature, one of the two",
    'allow = [{feature = "norm.*", reason = "x", expires = "soon"}]': "allow[0].expires: invalid RFC3339 encoded date",
    'allow = [{feature = "norm.*", reason = "x", expires = 2027-01-01T00:00:00}]': "allow[0].expires: expected date,"
    " got datetime",
    'allow = [{feature = "norm.*", reason = "x", expires = 2027-01-01, verdict = "brokn"}]': "allow[0].verdict: 'brokn'"
    " is not one of unknown, unsupported, broken, wrong-result, works; the nearest is broken",
    'allow = [{feature = "norm.*", reason = "x", expires = 2027-01-01, verdict = []}]': "allow[0].verdict: it is empty",
    'allow = [{finding = "nvcc-too-old-for-gpu", reason = "x", expires = 2027-01-01, verdict = "broken"}]': (
        "allow[0].verdict: a finding has none"
    ),
    'allow = [{finding = "nvcc-to-old", reason = "x", expires = 2027-01-01}]': "allow[0].finding: no finding is called"
    " 'nvcc-to-old'; the nearest is nvcc-too-old-for-gpu",
}


def test_names_of_packages_are_compared_as_packaging_does(tmp_path):
    text = 'versions = {Torch = ">=2", flashinfer_python = ">=0.6", "NVIDIA.cudnn_cu13" = ">=9", CUDA = ">=13"}'
    found = written(tmp_path, text)
    assert (found.errors, sorted(found.file.versions)) == (
        [],
        ["cuda", "flashinfer-python", "nvidia-cudnn-cu13", "torch"],
    )


def test_the_same_may_be_allowed_for_other_verdicts(tmp_path):
    one = 'feature = "norm.*", reason = "x", expires = 2027-01-01'
    assert written(tmp_path, f'allow = [{{{one}, verdict = "works"}}, {{{one}, verdict = "broken"}}]').errors == []


def wrong(found):
    return [*found.errors, *policies.wrong_names(found, FEATURES, FINDINGS)]


@pytest.mark.parametrize("text", ERRORS)
def test_an_error_names_the_file_the_place_and_the_nearest_word(tmp_path, text):
    assert wrong(written(tmp_path, text)) == [f"fi-doctor.toml: {ERRORS[text]}"]


def test_all_errors_of_a_file_are_told_at_once(tmp_path):
    text = (
        'budgt = 1\njobs = -1\n[require]\n"norm.rmsnrm" = "works"\n"moe.*" = "no"\n[[allow]]\nfinding = "nvcc-to-old"\n'
    )
    assert len(wrong(written(tmp_path, text))) == 7


def test_a_wrong_value_does_not_hide_behind_a_wrong_key_of_the_same_table(tmp_path):
    text = (
        '[require]\n"norm.*" = { evidense = "ran", verdict = "fine", scope = "half" }\n'
        '[[allow]]\nfeature = "norm.*"\nreason = ""\nexpires = "soon"\nverdict = "bad"\n'
    )
    assert [line.removeprefix("fi-doctor.toml: ").partition(":")[0] for line in wrong(written(tmp_path, text))] == [
        'require."norm.*".evidense',
        'require."norm.*".verdict',
        'require."norm.*".scope',
        "allow[0].expires",
        "allow[0].reason",
        "allow[0].verdict",
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a = [", "fi-doctor.toml: "),
        (b"a = 1\na = 2", "fi-doctor.toml: "),
        (b"a = '\xff'", "utf-8"),
        (b"a = " + b"[" * 100_000, "cannot be read"),
        (b"a = " + b"9" * 5000, "cannot be read"),
        (b"#" * (2 << 20), "over 1 MiB"),
    ],
    ids=["syntax", "twice", "encoding", "deep", "digits", "large"],
)
def test_what_is_no_toml_says_why(tmp_path, data, why):
    path = tmp_path / "fi-doctor.toml"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        policies.read(path)
    assert str(path) in caught.value.what
    assert why in caught.value.why


def test_a_project_that_is_named_needs_the_table(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'")
    with pytest.raises(DataError) as caught:
        policies.read(tmp_path / "pyproject.toml")
    assert caught.value.why == "it has no [tool.fi-doctor]"


def test_the_versions_that_can_be_asked_for_are_those_that_are_read():
    assert set(VERSIONED) - {"cuda", "driver", "nvcc", "python"} == survey.WATCHED
    assert survey.WATCHED_PREFIXES == PREFIXES


def test_the_formats_of_a_policy_are_those_that_there_are():
    assert FORMATS == reports.FORMATS


def test_severities_alone_leave_the_verdicts_that_fail():
    assert policies.failing(("warning",)) == ("broken", "wrong-result", "warning")
    assert policies.failing(("wrong-result",)) == ("wrong-result",)
    assert policies.failing(()) == ("broken", "wrong-result")
    assert policies.failing(("none", "error")) == ("error",)


def test_a_former_id_of_a_finding_is_resolved(tmp_path):
    text = 'allow = [{finding = "old-name", reason = "x", expires = 2027-01-01}]'
    policy = policies.resolve(written(tmp_path, text), "2026-12-01", {"old-name": "new-name"})
    assert policy.allowed[0].finding == "new-name"


@pytest.mark.parametrize(
    ("text", "verdicts"), [("", ()), ('verdict = "works",', ("works",)), ('verdict = ["broken"],', ("broken",))]
)
def test_an_allowance_may_name_one_verdict_or_several(tmp_path, text, verdicts):
    found = written(tmp_path, f'allow = [{{feature = "norm.*", {text} reason = "x", expires = 2027-01-01}}]')
    assert (found.errors, policies.resolve(found, "", {}).allowed[0].verdicts) == ([], verdicts)


def test_wrong_values_are_left_out_of_what_is_read(tmp_path):
    found = written(tmp_path, 'jobs = -1\nbudget = "5m"\nrequire = {"norm.*" = "no"}')
    assert found.file == PolicyFile(budget="5m", require={"norm.*": RequireTable()})
    assert pathlib.Path(found.name).is_absolute()
