"""The ranges in which settings of vLLM are said to be read, against what seven releases of vLLM hold."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import vllm_names
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.conditions.ranges import version_in
from fi_doctor.knowledge.consistency import check_whole
from fi_doctor.knowledge.successors import successors

KB = knowledge.load()
SETTINGS = {setting.name: setting for setting in KB.settings if setting.owner == "vllm"}
TABLE = json.loads(vllm_names.TABLE.read_text())
UNPACKED = Path(os.environ.get("FI_DOCTOR_VLLM", "/nowhere"))


def test_the_table_holds_the_releases_and_no_setting_that_is_gone():
    assert tuple(TABLE) == vllm_names.RELEASES
    assert {name for names in TABLE.values() for name in names} <= set(SETTINGS)


@pytest.mark.parametrize("release", vllm_names.RELEASES)
def test_a_setting_is_said_to_be_read_by_a_release_if_and_only_if_it_is(release):
    said = {name for name, one in SETTINGS.items() if one.read_by and version_in(release, one.read_by)}
    read = {name for name, places in TABLE[release].items() if places["read"]}
    assert said == read


@pytest.mark.parametrize("name", [name for name, one in SETTINGS.items() if one.read_by])
def test_a_setting_cites_the_newest_release_that_reads_it(name):
    newest = [release for release in vllm_names.RELEASES if TABLE[release].get(name, {}).get("read")][-1]
    places = TABLE[newest][name]
    assert SETTINGS[name].source == f"vllm/{places['said'] or places['read']} ({newest})"


@pytest.mark.parametrize("name", [name for name, one in SETTINGS.items() if not one.read_by])
def test_a_name_from_a_fork_is_in_no_release(name):
    assert not any(name in names for names in TABLE.values())


def test_a_name_that_is_registered_for_nothing_is_not_read():
    dead = "VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB"
    assert {release for release in TABLE if TABLE[release].get(dead, {}).get("said")} == {
        "0.11.0",
        "0.14.1",
        "0.17.1",
        "0.20.2",
        "0.25.1",
    }
    assert [release for release in TABLE if TABLE[release].get(dead, {}).get("read")] == ["0.11.0"]


@pytest.mark.parametrize("name", [name for name, one in SETTINGS.items() if not one.read_by and one.kind == "env"])
def test_a_fork_variable_has_its_successor_where_it_is_set(name):
    assert successors(name, "vllm", "0.33.0") or "use " not in SETTINGS[name].what


def test_a_name_that_no_release_reads_cannot_be_recommended():
    [rule] = [rule for rule in KB.rules if rule.id == "has-flashinfer-false-without-nvcc"]
    wrong = replace(rule, fix=(replace(rule.fix[0], setting="VLLM_USE_FLASHINFER"),))
    place = "rules/vllm/has-flashinfer-false-without-nvcc.yaml"
    assert [error for error in check_whole({place: wrong}, KB.features, KB.settings) if "no release" in error] == [
        f"{place}: {wrong.fix[0].line!r}: no release reads VLLM_USE_FLASHINFER, so that nobody may be told to set it"
    ]


@pytest.mark.skipif(not UNPACKED.is_dir(), reason="FI_DOCTOR_VLLM names no folder of unpacked vLLM releases")
@pytest.mark.parametrize("release", vllm_names.RELEASES)
def test_the_table_is_what_the_release_holds(release):
    found = vllm_names.names_in(UNPACKED / release / "vllm", tuple(SETTINGS.values()))
    assert found == TABLE[release]
