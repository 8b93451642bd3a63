"""What is installed and newer than the knowledge: told with days where a day is known, and never more than told."""

from __future__ import annotations

import os

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.diagnosis import aging
from fi_doctor.facts.installed_on import read_installed_on
from fi_doctor.facts.packages import Distribution
from fi_doctor.model import Depth, Missing, Request, Severity

KB = replace(knowledge.load(), version="2026.11.28", newest={"vllm": "0.33.0", "flashinfer-python": "0.7.2.post1"})


def facts(version, installed=""):
    whole = make.facts()
    packages = {**whole.packages, "vllm": replace(make.package("vllm", "0.1"), version=version)}
    return replace(whole, packages=packages, installed_on={"vllm": installed} if installed else {})


@pytest.mark.parametrize(
    ("version", "installed", "days"),
    [
        ("0.34.0", "2027-01-15", "; that is 48 days older than the day of its installation here, 2027-01-15"),
        ("0.34.0", "2026-11-29", "; that is 1 day older than the day of its installation here, 2026-11-29"),
        ("0.34.0", "1980-01-01", ""),
        ("0.34.0", "", ""),
        (
            "0.33.1.dev7+g12ab34c.d20261208",
            "2027-01-15",
            "; that is 10 days older than the day of its build, 2026-12-08",
        ),
    ],
    ids=["48 days", "a day", "a day of nobody", "no day", "built"],
)
def test_a_newer_vllm_is_an_info_with_the_days_that_are_known(version, installed, days):
    [one] = aging.find(KB, facts(version, installed))
    newest = "newer than 0.33.0, the newest release that knowledge 2026.11.28 was checked on"
    assert one.title == f"vLLM {version} is {newest}{days}"
    assert (one.severity, one.id) == (Severity.INFO, "knowledge-older-than-packages")


@pytest.mark.parametrize(
    "version", ["0.33.0", "0.33.0+cu130", "0.11.0", "0.33.0rc1", Missing(reason="x"), "none"], ids=str
)
def test_nothing_is_said_of_a_release_that_was_checked_on_or_is_older_or_not_known(version):
    assert aging.find(KB, facts(version, "2027-01-15")) == ()


def test_knowledge_that_does_not_say_what_it_was_checked_on_says_nothing():
    assert aging.find(replace(KB, newest={}), facts("0.34.0")) == ()


def test_it_is_a_finding_of_a_report_and_changes_no_verdict_and_no_code():
    def report(version):
        return pipeline.conclude(
            Request(depth=Depth.STATIC), kb=KB, facts=facts(version), planned=(), outcomes=(), created=""
        )

    old, new = report("0.33.0"), report("0.34.0")
    assert [one.id for one in new.findings if one not in old.findings].count(aging.OLDER) == 1
    assert new.gate.code == old.gate.code


def test_a_log_gets_a_line_for_each_version_without_days():
    said = aging.lines(
        "2026.11.28", KB.newest, [("vllm", "0.34.0"), ("vllm", "0.34.0"), ("flashinfer-python", "0.7.2")]
    )
    assert len(said) == 1
    assert said[0].startswith("vLLM 0.34.0 is newer than 0.33.0")
    assert "days" not in said[0]


def test_the_day_is_that_of_the_files_of_the_metadata(tmp_path):
    def distribution(name, *files):
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        for file, seconds in files:
            (folder / file).touch()
            os.utime(folder / file, (seconds, seconds))
        return Distribution(
            name=name, version="1", location=str(tmp_path), metadata=str(folder), editable=False,
            source=Missing(reason=""), commit=Missing(reason=""), requires=(),
        )  # fmt: skip

    several = (
        distribution("vllm", ("METADATA", 0), ("RECORD", 1_800_000_000)),
        distribution("sglang", ("METADATA", 1_700_000_000)),
        distribution("flashinfer-python"),
        distribution("torch", ("RECORD", 1)),
    )
    survey = replace(make.survey(), distributions=several)
    assert read_installed_on(survey) == {"vllm": "2027-01-15", "sglang": "2023-11-14"}
