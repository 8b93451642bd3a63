"""Labels by the rules of node-feature-discovery's local source and of Kubernetes, for every machine that we have."""

from __future__ import annotations

import datetime as dt
import pathlib
import re

import pytest
from hostile_reports import everywhere
from msgspec.structs import replace
from report_samples import SAMPLES, all_good, broken_toolkit, row, two_sms

from fi_doctor.model import Evidence, Verdict
from fi_doctor.model.targets import Target
from fi_doctor.reports import document, nfd, render

MACHINES = sorted((pathlib.Path(__file__).parents[1] / "machines").glob("*/*.json"))
# apimachinery/pkg/util/validation: IsQualifiedName and IsValidLabelValue; the prefix is a DNS subdomain.
QUALIFIED = re.compile(r"fi-doctor\.io/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


def labels(report):
    """As nfd-worker parses the file, each line held against the rules."""
    text = render(report, "nfd")
    assert len(text.encode()) <= 64 * 1024
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert not line.startswith("# +") or re.fullmatch(r"# \+expiry-time=\d{4}(-\d\d){2}T(\d\d:){2}\d\dZ", line)
            continue
        key, equals, value = line.partition("=")
        assert equals
        assert QUALIFIED.fullmatch(key), key
        assert VALUE.fullmatch(value), value
        assert key not in found
        found[key.partition("/")[2]] = value
    return found


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recorded_machine_gives_a_label_for_each_row(path):
    report = document.read_file(path)
    found = labels(report)
    assert {row.feature: row.verdict.value for row in report.features}.items() <= found.items()
    assert found["gate"] == {0: "holds", 1: "fails", 3: "cannot-tell"}[report.gate.code]


@pytest.mark.parametrize("name", SAMPLES)
def test_hostile_text_keeps_to_the_rules(name):
    assert labels(everywhere(name))["gate"] in ("holds", "fails", "cannot-tell")


def test_what_works_says_how_that_is_known_and_what_does_not_only_that():
    found = labels(replace(all_good(), features=(row("norm.rmsnorm"), row("kv.x", Verdict.BROKEN, Evidence.RAN))))
    assert (found["norm.rmsnorm"], found["norm.rmsnorm.evidence"]) == ("works", "verified")
    assert found["kv.x"] == "broken"
    assert "kv.x.evidence" not in found
    assert (found["rows.works"], found["rows.broken"], found["rows.unknown"]) == ("1", "1", "0")


def test_kinds_of_gpu_have_labels_of_their_own_where_there_are_several():
    assert {"quant.fp4.sm90", "quant.fp4.sm121"} <= labels(two_sms()).keys()
    assert labels(two_sms())["import.torch"] == "works"
    assert [name for name in labels(all_good()) if ".sm" in name] == []


def test_long_names_stay_apart_and_rows_of_one_name_are_as_good_as_the_worst():
    long = [row("a." + "b" * 90 + end) for end in "xy"]
    assert len([name for name in labels(replace(all_good(), features=tuple(long))) if name.startswith("a.b")]) == 4
    same = (row("a.b c"), row("a.b/c", Verdict.UNKNOWN))
    assert labels(replace(all_good(), features=same))["a.b-c"] == "unknown"


def test_labels_expire_a_week_after_the_check_and_not_at_all_where_its_day_is_not_known():
    [line] = [one for one in render(broken_toolkit(), "nfd").splitlines() if one.startswith("# +")]
    until = dt.datetime.fromisoformat(line.partition("=")[2].replace("Z", "+00:00"))
    assert until - dt.datetime.fromisoformat(broken_toolkit().created) == dt.timedelta(days=7)
    for created in ("", "yesterday", "9999-12-31T00:00:00+00:00", "0001-01-01T00:00:00+14:00"):
        assert "expiry" not in render(replace(broken_toolkit(), created=created), "nfd")


def test_what_would_make_the_file_too_large_is_left_out_and_that_is_said():
    rows = tuple(row(f"family.name{number:05}") for number in range(2000))
    text = render(replace(all_good(), features=rows), "nfd")
    assert len(text.encode()) <= nfd.MAX_BYTES
    assert text.splitlines()[-1].startswith("# the rest is left out")
    assert "fi-doctor.io/family.name00000=works\n" in text


def test_what_is_foretold_for_another_machine_says_for_which():
    aimed = replace(all_good(), target=Target(words="b200,driver=580", sm=100))
    assert labels(aimed)["target"] == "b200-driver-580"
    assert "target" not in labels(all_good())
