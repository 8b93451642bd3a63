"""The settings of releases that are shipped, what stands for those that are gone, and the curated settings."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fi_doctor import knowledge
from fi_doctor.conditions.ranges import version_in
from fi_doctor.errors import BrokenDoctorError
from fi_doctor.facts.registry import read_registry
from fi_doctor.knowledge import registry, successors
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse, refuses

OWNERS = ("vllm", "flashinfer-python", "sglang")
SETTINGS = knowledge.load().settings
KNOWN = [one for one in SETTINGS if one.owner in OWNERS]
SUCCESSORS = successors.load()
ROOT = Path(__file__).parents[2]
UNPACKED = Path(os.environ.get("FI_DOCTOR_UNPACKED", "/nowhere"))  # folders such as vllm-0.33.0
at = functools.cache(registry.at)  # which keeps only a few releases


def named(one):
    return f"{one.name} {one.range if hasattr(one, 'range') else one.owner}"


@pytest.mark.parametrize("owner", OWNERS)
def test_every_release_has_settings_with_places_and_readers(owner):
    for release in registry.releases(owner):
        found = at(owner, release)
        assert found.release == found.version == release
        assert len(found.settings) > 20
        assert all(one.source.rpartition(":")[2].isdigit() for one in found.settings.values())
        assert not any(isinstance(one.read_in, Missing) for one in found.settings.values())


def test_the_shipped_data_stays_small():
    assert sum(path.stat().st_size for path in registry.FOLDER.iterdir()) < 300_000


def test_the_data_is_read_when_it_is_asked_for_and_not_before():
    script = "import sys; from fi_doctor.knowledge import registry; print(registry._shipped.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "0\n"


@pytest.mark.parametrize(
    ("owner", "version", "release"),
    [
        ("vllm", "0.33.0", "0.33.0"),
        ("vllm", "0.33.0+cu130", "0.33.0"),
        ("vllm", "0.25.2", "0.25.1"),
        ("vllm", "0.33.0.dev7", "0.32.0"),
        ("flashinfer-python", "0.6.16.post2", "0.6.15.post1"),
        ("sglang", "0.5.19", "0.5.18"),
    ],
)
def test_a_version_between_two_is_answered_with_the_older_one_which_is_said(owner, version, release):
    found = registry.at(owner, version)
    assert (found.version, found.release) == (version, release)


@pytest.mark.parametrize(
    ("owner", "version"), [("vllm", "0.10.2"), ("vllm", "0.34.0"), ("vllm", "main"), ("tensorrt-llm", "1.0")]
)
def test_a_version_outside_is_missing(owner, version):
    assert isinstance(registry.at(owner, version), Missing)


def test_the_history_of_a_variable_that_is_registered_for_nothing():
    found = registry.history("VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB")
    assert found.read == ("0.11.0",)
    assert (found.dead[0], found.dead[-1]) == ("0.11.1", "0.25.1")


def test_the_history_of_a_flag_by_its_short_name_and_its_opposite():
    assert registry.history("-cc").known[0] == "0.12.0"
    assert registry.history("--compilation-config").known[0] == "0.11.0"
    assert registry.history("--no-enable-flashinfer-autotune").known[0] == "0.16.0"
    assert registry.history("--disable-flashinfer-autotune").known == ("0.33.0",)


@pytest.mark.parametrize("name", ["VLLM_USE_FLASHINFER", "--mxfp4-backend"])
def test_a_name_from_a_fork_has_no_history(name):
    assert registry.history(name) == registry.History(known=(), read=())


@pytest.mark.parametrize(
    ("release", "name", "parse", "default"),
    [
        ("0.11.0", "VLLM_USE_FLASHINFER_SAMPLER", Parse.BOOL_INT, None),
        ("0.11.0", "VLLM_HAS_FLASHINFER_CUBIN", Parse.TRUTHY, False),
        ("0.11.0", "VLLM_ATTENTION_BACKEND", Parse.CHOICE, None),
        ("0.14.1", "VLLM_BATCH_INVARIANT", Parse.BOOL_INT, False),
        ("0.23.0", "VLLM_USE_FLASHINFER_MOE_FP8", Parse.BOOL_INT, False),
        ("0.33.0", "VLLM_USE_FLASHINFER_SAMPLER", Parse.BOOL_INT, True),
        ("0.33.0", "VLLM_SKIP_P2P_CHECK", Parse.EQUALS, True),
        ("0.33.0", "--moe-backend", Parse.CHOICE_DASHES, "auto"),
        ("0.33.0", "--attention-backend", Parse.CHOICE_ANY_CASE, None),
        ("0.33.0", "AttentionConfig.use_trtllm_attention", Parse.BOOL_LAX, None),
    ],
)
def test_what_releases_make_of_a_setting(release, name, parse, default):
    one = registry.at("vllm", release).settings[name]
    assert (one.parse, one.default) == (parse, default)


def test_what_a_release_says_of_a_variable_that_it_will_end():
    one = registry.at("vllm", "0.23.0").settings["VLLM_MXFP4_USE_MARLIN"]
    assert one.deprecated == "v0.23: Use --moe-backend marlin or --linear-backend marlin."


# The curated settings.


@pytest.mark.parametrize("one", KNOWN, ids=named)
def test_a_curated_setting_is_read_by_the_releases_in_its_range_and_by_no_other(one):
    said = tuple(
        release for release in registry.releases(one.owner) if one.read_by and version_in(release, one.read_by)
    )
    assert said == registry.history(one.name, one.owner).read


# What stands for settings that are gone.


def releases_of(one):
    return [release for release in registry.releases(one.owner) if version_in(release, one.range)]


@pytest.mark.parametrize("one", SUCCESSORS, ids=named)
def test_a_setting_has_no_effect_where_something_stands_for_it(one):
    assert releases_of(one)
    assert not set(releases_of(one)) & set(registry.history(one.name, one.owner).read)


@pytest.mark.parametrize("one", [one for one in SUCCESSORS if one.setting], ids=named)
def test_what_stands_for_a_setting_is_read_there_and_takes_the_values(one):
    for release in releases_of(one):
        found = at(one.owner, release).find(one.setting)
        assert found is not None, release
        assert not found.is_dead, release
        for value in (value for several in one.values.values() for value in several):
            assert refuses(found, value) is None, (release, value)


@pytest.mark.parametrize("one", SUCCESSORS, ids=named)
def test_the_values_that_are_translated_were_taken_by_the_last_release_that_read_the_setting(one):
    read = registry.history(one.name, one.owner).read
    if not read:
        return  # a fork's
    found = at(one.owner, read[-1]).find(one.name)
    assert not [value for value in one.values if isinstance(refuses(found, value), str)]


def test_every_setting_from_a_fork_has_an_entry():
    forks = {one.name for one in SETTINGS if not one.read_by}
    assert forks <= {one.name for one in SUCCESSORS}


def test_every_curated_setting_that_ended_has_a_successor():
    ended = {
        one.name
        for one in KNOWN
        if one.owner == "vllm" and one.read_by and not version_in(registry.releases("vllm")[-1], one.read_by)
    }
    assert ended <= {one.name for one in SUCCESSORS}


def test_successors_are_found_by_version():
    [one] = successors.successors("VLLM_ATTENTION_BACKEND", "vllm", "0.20.2")
    assert one.setting == "--attention-backend"
    assert successors.successors("VLLM_ATTENTION_BACKEND", "vllm", "0.14.1") == ()
    assert {one.setting for one in successors.successors("VLLM_MXFP4_USE_MARLIN", "vllm", "0.33.0")} == {
        "--moe-backend",
        "--linear-backend",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- name: X\n", "missing"),
        ('- {name: X, owner: vllm, range: "new", setting: "", what: w, source: s}\n', "not a range of versions"),
        (
            '- {name: X, owner: vllm, range: ">=1", setting: "", what: w, source: s, values: {"1": ["2"]}}\n',
            "no setting that takes them",
        ),
        (
            '- {name: X, owner: vllm, range: ">=1", setting: Y, what: w, source: s, values: {"1": []}}\n',
            "an empty list",
        ),
        ("", "empty"),
    ],
)
def test_a_wrong_entry_is_told(tmp_path, text, why):
    (tmp_path / "successors.yaml").write_text(text)
    with pytest.raises(BrokenDoctorError) as told:
        successors.load(tmp_path)
    assert why in told.value.why


def test_broken_data_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    (tmp_path / "vllm.json.xz").write_bytes(b"")
    registry._shipped.cache_clear()
    try:
        with pytest.raises(BrokenDoctorError):
            registry.releases("vllm")
    finally:
        registry._shipped.cache_clear()


# Against the wheels.


@pytest.mark.parametrize("version", ["0.5.2", "0.5.3", "0.6.7.post3", "0.7.2.post1"])
def test_what_is_shipped_of_flashinfer_is_what_its_wheel_holds(version, unpacked):
    root = unpacked(version)
    found = read_registry(root, "flashinfer-python", version)
    shipped = registry.at("flashinfer-python", version)
    cut = {
        name: msgspec.structs.replace(one, read_in=one.read_in[: registry.MOST_READERS])
        for name, one in found.settings.items()
    }
    assert found.unreadable == {}
    assert cut == shipped.settings


@pytest.mark.skipif(not UNPACKED.is_dir(), reason="FI_DOCTOR_UNPACKED names no folder of unpacked releases")
@pytest.mark.parametrize("one", [one for one in SUCCESSORS if " (" in one.source], ids=named)
def test_the_line_that_an_entry_cites_is_about_it(one):
    path, line, version = re.fullmatch(r"(\S+):(\d+) \((\S+)\)", one.source).groups()
    lines = (UNPACKED / f"{one.owner}-{version}" / path).read_text().split("\n")
    near = "\n".join(lines[int(line) - 6 : int(line) + 8])
    words = [re.sub("^(no|disable|enable)_", "", plain(name)) for name in (one.name, one.setting) if name]
    assert any(word in plain(near) for word in words)


def plain(text):
    """A name as a field is called: without the dashes of a flag and the class of a key."""
    return text.rpartition(".")[2].lstrip("-").replace("-", "_") if "\n" not in text else text.replace("-", "_")


@pytest.mark.parametrize("owner", ["vllm", "sglang", "flashinfer-python"])
def test_the_names_alone_are_those_of_all(owner):
    found = registry._shipped(owner)
    spans = [span for one in found.settings.values() for span in one.spans]
    assert set(registry.names(owner)) == {
        *found.settings,
        *(word for one in spans for word in registry._words(one.record)),
    }
