"""fi-doctor schema: what is printed is published, and real documents are what it says."""

from __future__ import annotations

import datetime as dt
import functools
import importlib.util
import itertools
import json
import re

import jsonschema
import pytest
from cli_command import ROOT, in_three_parts, shipped

from fi_doctor import pipeline
from fi_doctor.cli import policy, schemas
from fi_doctor.diagnosis import changes
from fi_doctor.errors import DataError
from fi_doctor.reports import changes as written
from fi_doctor.reports import document, render

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

PUBLISHED = ROOT / "fi_doctor" / "schemas"
RECORDINGS = sorted((ROOT / "tests" / "machines").glob("*/*.json"))
GATING = (ROOT / "docs" / "gating.md").read_text(encoding="utf-8")


@functools.cache
def validator(name):
    """What a schema was resolved to is kept with it."""
    made = jsonschema.Draft202012Validator
    return made(json.loads(schemas.text(name)), format_checker=made.FORMAT_CHECKER)


def validate(plain, name):
    validator(name).validate(plain)


def from_toml(text):
    """A policy's table as JSON has it: dates are text."""
    return json.loads(json.dumps(tomllib.loads(text), default=dt.date.isoformat))


def test_locks_have_a_schema_where_there_are_locks():
    has_locks = importlib.util.find_spec("fi_doctor.locking") is not None
    assert schemas.offered() == (
        "report",
        "difference",
        "policy",
        *(["lock"] if has_locks else []),
        "coverage",
        "cache",
        "explain",
        "plan",
        "fleet",
    )


@pytest.mark.parametrize("name", schemas.offered())
def test_the_published_copy_is_what_is_generated(name, request):
    path = PUBLISHED / f"{name}.json"
    if request.config.getoption("--update-golden"):
        path.write_text(schemas.text(name), encoding="utf-8")
    assert path.is_file(), f"no published schema {path}: pytest --update-golden writes it"
    assert path.read_text(encoding="utf-8") == schemas.text(name)


def test_nothing_is_published_that_is_not_generated():
    assert {path.stem for path in PUBLISHED.iterdir()} == set(schemas.offered())


@pytest.mark.parametrize("name", schemas.offered())
def test_a_schema_is_one_and_says_what_it_is_of(name):
    schema = json.loads(schemas.text(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert re.fullmatch(rf"fi-doctor\.{name}/1\.\d+", schema["$id"])
    assert schema["title"].startswith("fi-doctor")


def test_the_command_prints_it_and_nothing_else(doctor):
    done = doctor("schema", "report")
    assert (done.returncode, done.stdout, done.stderr) == (0, schemas.text("report"), "")


def test_a_name_that_has_none_is_refused_with_the_nearest(doctor):
    done = doctor("schema", "reprot")
    assert (done.returncode, done.stdout) == (2, "")
    said = in_three_parts(done.stderr)
    assert "reprot" in said["error"]
    assert said["why"] == f"the choices are {', '.join(schemas.offered())}"
    assert said["try"] == "fi-doctor schema report"
    assert doctor("schema").returncode == 2


@functools.cache
def judged(path):
    kb, specs = shipped()
    recorded = document.read_file(path)
    return pipeline.rejudge(recorded, recorded.request, kb=kb, specs=specs)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_is_written_of_a_recorded_machine_is_a_report(path):
    validate(json.loads(render(judged(path), "json")), "report")


def test_what_check_writes_of_one_is_a_report(doctor):
    done = doctor("check", "--from", RECORDINGS[0], "--format", "json", "--no-config")
    assert done.returncode in (0, 1, 3)
    validate(json.loads(done.stdout), "report")


def test_what_is_found_on_this_machine_is_a_report(doctor):
    done = doctor("report", "--json")
    assert (done.returncode, json.loads(done.stdout)["request"]["depth"]) == (0, "static")
    validate(json.loads(done.stdout), "report")


def difference(before, after):
    kb, specs = shipped()
    return written.to_json(changes.difference(judged(before), judged(after), kb=kb, specs=specs))


@pytest.mark.parametrize(
    ("before", "after"),
    list(itertools.pairwise(RECORDINGS)),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_a_difference_between_recorded_machines_is_one(before, after):
    """Of one and the next, which differ in little: all that can stand in one is there, and few facts are swapped."""
    validate(json.loads(difference(before, after)), "difference")


def test_what_diff_writes_is_such_a_difference(doctor):
    done = doctor("diff", *RECORDINGS[:2], "--format", "json")
    assert (done.returncode, done.stdout) == (0, difference(*RECORDINGS[:2]))


def test_the_policy_of_the_page_is_one():
    [text] = re.findall(r"```toml\n(.*?)```", GATING, re.DOTALL)
    plain = from_toml(text)
    validate(plain, "policy")
    for place in range(len(text.splitlines())):  # the samples that are a part of it
        part = "\n".join(text.splitlines()[: place + 1])
        if re.search(r"^\[\[allow", part, re.MULTILINE) is None:
            validate(from_toml(part), "policy")


@pytest.mark.parametrize(
    "text",
    [
        "",
        'fail-on = "unsupported"',
        'feature = ["norm.*", "moe.*"]\nformat = "json:out.json"',
        "jobs = 0",
        '[require]\n"norm.*" = {}',
        '[require]\n"norm.*" = { verdict = "unsupported", evidence = "declared" }',
        '[[allow]]\nfinding = "nvcc-too-old-for-gpu"\nreason = "x"\nexpires = 2027-01-31',
        'depth = "deep"',
        'depth = "build"',
        'budget = "banana"',
        'budget = "0s"',
        'budget = "1h30m"',
        'budget = "600"',
        'memory = "16 apples"',
        'memory = "16GiB"',
        'memory = "auto"',
        'format = ["xml"]',
        'format = ["json:"]',
        'format = ["console", "junit:out.xml"]',
        '[versions]\nfoo = ">=2.9"',
        '[versions]\ntorch = "2.9"',
        '[versions]\ntorch = ">=2.9,<3"\nnvidia-cudnn-cu13 = "~=9.1"\ndriver = ">=570"',
        '[versions]\nTorch = ">=2.9"\nflashinfer_python = ">=0.6"\n"NVIDIA.cudnn_cu13" = "~=9.1"',
        '[versions]\ntorchvision = ">=2.9"',
        "jobs = 999999",
        "jobs = 1000000",
        '[require]\n"norm.*" = 3',
        'allow = ["norm.*"]',
        '[[allow]]\nfeature = "norm.*"\nreason = " "\nexpires = 2027-01-31',
        '[[allow]]\nfeature = "norm.*"\nreason = "x"\nexpires = 20270131',
        '[[allow]]\nfeature = "norm.*"\nreason = "x"\nexpires = "soon"',
        '[[allow]]\nfeature = "norm.*"\nverdict = "works"\nreason = "x"\nexpires = 2027-01-31',
        '[[allow]]\nfeature = "norm.*"\nverdict = ["works", "broken"]\nreason = "x"\nexpires = 2027-01-31',
        '[[allow]]\nfeature = "norm.*"\nverdict = "fine"\nreason = "x"\nexpires = 2027-01-31',
        '[[allow]]\nfinding = "nvcc-too-old-for-gpu"\nverdict = "works"\nreason = "x"\nexpires = 2027-01-31',
        "jobs = -1",
        "jobs = 1.5",
        "budget = 10",
        'fail-on = ["works"]',
        'fail-on = "sometimes"',
        'fail-on = "none"',
        "fail-on = []",
        'fail-on = ["none", "broken"]',
        'fail-on = ["none", "error"]',
        'rows = "called"',
        'rows = "some"',
        'fail_on = "broken"',
        "[require]\nnorm = 1",
        '[require]\n"norm.*" = "built"',
        '[require]\n"norm.*" = { evidence = "built", scope = "full" }',
        '[require]\n"norm.*" = { verdict = "works", evidence = "built" }',
        '[require]\n"norm.*" = { verdict = "unsupported", evidence = "ran" }',
        '[require]\n"norm.*" = { scope = "half" }',
        '[require]\n"norm.*" = { evidence = "none" }',
        '[require]\n"norm.*" = { verdict = "broken" }',
        '[require]\n"norm.*" = { least = "ran" }',
        "[versions]\ntorch = 2",
        'allow = "norm.*"',
        '[[allow]]\nfeature = "norm.*"\nreason = "x"',
        '[[allow]]\nfeature = "norm.*"\nfinding = "nvcc-too-old-for-gpu"\nreason = "x"\nexpires = 2027-01-31',
        '[[allow]]\nreason = "x"\nexpires = 2027-01-31',
    ],
)
def test_the_schema_takes_a_policy_where_the_reader_does(text, tmp_path):
    path = tmp_path / "fi-doctor.toml"
    path.write_text(text, encoding="utf-8")
    try:
        policy.load(path)
    except DataError:
        assert not validator("policy").is_valid(from_toml(text))  # at the first error, not the best of all
        return
    validate(from_toml(text), "policy")
    # As tomllib gives it, dates among it.
    validate(tomllib.loads(text), "policy")


def test_the_policy_of_the_page_is_one_as_tomllib_reads_it():
    [text] = re.findall(r"```toml\n(.*?)```", GATING, re.DOTALL)
    validate(tomllib.loads(text), "policy")
