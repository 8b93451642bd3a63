"""A report of another version: what this one does not know is ignored or unknown, and never works."""

from __future__ import annotations

import json

import jsonschema
import pytest
from cli_command import code_of, in_three_parts, verdicts

from fi_doctor.cli import schemas
from fi_doctor.model import Ending, Evidence, Scope, Stage, Verdict
from fi_doctor.reports import document

LATER = "fi-doctor.report/1.99"


def with_new_words(plain):
    """Each verdict, evidence, scope, stage and ending is a word of a later version."""
    for row in plain["features"]:
        for judged in (row, *row["cells"]):
            judged |= {"verdict": "brilliant", "evidence": "sworn", "scope": "beyond"}
    for outcome in plain["outcomes"]:
        for ended in (outcome, *outcome["cells"]):
            ended |= {"ending": "?", "stage": "admired"}
    return plain


@pytest.fixture
def written(doctor):
    """What a healthy machine's report holds, and a function that writes it as of another schema."""
    plain = json.loads(doctor.report().read_text(encoding="utf-8"))

    def write(schema, **changes):
        path = doctor.folder / "later.json"
        path.write_text(json.dumps({**plain, **changes, "schema": schema}), encoding="utf-8")
        return path

    return plain, write


def test_new_words_of_a_later_minor_read_as_the_weakest(written):
    plain, write = written
    with_new_words(plain)
    report = document.read_file(write(LATER))
    judged = [one for row in report.features for one in (row, *row.cells)]
    assert {(one.verdict, one.evidence, one.scope) for one in judged} == {
        (Verdict.UNKNOWN, Evidence.NONE, Scope.SUBSET)
    }
    ended = [one for outcome in report.outcomes for one in (outcome, *outcome.cells)]
    assert {(one.ending, one.stage) for one in ended} == {(Ending.NOT_RUN, Stage.NONE)}


@pytest.mark.parametrize("options", [(), ("--as-recorded",)], ids=["judged", "as-recorded"])
@pytest.mark.parametrize("fmt", ["console", "json", "markdown", "junit"])
def test_new_words_never_pass_for_working(fmt, options, written, doctor):
    plain, write = written
    assert set(verdicts(json.dumps(plain)).values()) & {"works"}
    with_new_words(plain)
    path = write(LATER)
    done = doctor("check", "--from", path, "--format", fmt, "--no-config", *options)
    assert (done.returncode, code_of(done.stdout, fmt)) == (3, 3)
    if fmt == "json":
        assert "works" not in verdicts(done.stdout).values()
    required = doctor("check", "--from", path, "--require", "norm.rmsnorm", "--no-config", *options)
    assert required.returncode == 3


def test_a_difference_tells_new_words_as_unknown(written, doctor):
    plain, write = written
    known = doctor.report("known.json")
    with_new_words(plain)
    later = write(LATER)
    done = doctor("diff", known, later, "--format", "json", "--exit-code")
    after = {row["verdicts"][1] for row in json.loads(done.stdout)["rows"]}
    assert done.returncode == 1
    assert "works" not in after
    assert "brilliant" not in done.stdout


def test_fields_of_a_later_minor_are_ignored_and_admitted_by_the_schema(written, doctor):
    plain, write = written
    plain["features"][0]["mood"] = "fine"
    plain["facts"]["gpus"]["weather"] = {"kind": "sunny"}
    later = write(LATER, colour=["green"])
    jsonschema.validate(json.loads(later.read_text()), json.loads(schemas.text("report")))
    done = doctor("check", "--from", later, "--format", "json", "--no-config")
    assert done.returncode == 0
    assert verdicts(done.stdout) == verdicts(doctor.report("known.json").read_text())
    assert "colour" not in done.stdout


def test_the_schema_of_this_version_admits_no_word_of_a_later_one(written):
    plain, _ = written
    with pytest.raises(jsonschema.ValidationError, match=r"brilliant|sworn|beyond|admired"):
        jsonschema.validate(with_new_words(plain), json.loads(schemas.text("report")))


@pytest.mark.parametrize(
    ("schema", "said"), [("fi-doctor.report/2.0", "newer"), ("fi-doctor.report/0.9", "older")], ids=["2.0", "0.9"]
)
@pytest.mark.parametrize("command", ["check", "diff"])
def test_another_major_is_refused_whatever_it_says(command, schema, said, written, doctor):
    plain, write = written
    with_new_words(plain)
    path = write(schema)
    words = ("check", "--from", path, "--no-config") if command == "check" else ("diff", path, path)
    done = doctor(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"a{'n' if said == 'older' else ''} {said} fi-doctor" in in_three_parts(done.stderr)["error"]
    assert schema in in_three_parts(done.stderr)["why"]
