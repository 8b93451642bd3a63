"""Links and files that others have laid where we write or remember are neither followed nor believed."""

from __future__ import annotations

import os
import zipfile

import pytest

from fi_doctor.cli import emit
from fi_doctor.errors import UsageError
from fi_doctor.facts import remembered
from fi_doctor.knowledge import SHIPPED, bundles
from fi_doctor.probing import parts

OTHER = 424242
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def open_to_all(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@ROOT_ONLY
def test_a_report_does_not_go_through_a_link_that_another_user_made_in_tmp(open_to_all):
    victim = open_to_all.parent / "victim"
    victim.write_text("as it was")
    link = open_to_all / "report.yaml"
    link.symlink_to(victim)
    os.lchown(link, OTHER, OTHER)
    with pytest.raises(UsageError, match="cannot be written"):
        emit.check_writable(str(link))
    with pytest.raises(UsageError, match="cannot be written"):
        emit.write("x", str(link))
    assert victim.read_text() == "as it was"


def test_it_goes_through_a_link_of_our_own(open_to_all):
    target = open_to_all.parent / "kept"
    (open_to_all / "report.yaml").symlink_to(target)
    emit.write("x", str(open_to_all / "report.yaml"))
    assert target.read_text() == "x"
    assert (open_to_all / "report.yaml").is_symlink()


def test_a_memory_takes_the_place_of_a_link_and_leaves_what_it_led_to(tmp_path):
    victim, place = tmp_path / "victim", tmp_path / "memory.json"
    victim.write_text("as it was")
    place.symlink_to(victim)
    remembered.keep(place, b'["key", 1]')
    assert (victim.read_text(), place.is_symlink()) == ("as it was", False)
    assert remembered.recall(place, "key", int) == 1
    assert place.stat().st_mode & 0o077 == 0  # nobody else reads it


@ROOT_ONLY
def test_root_neither_writes_into_the_home_of_another_user_nor_believes_what_lies_there(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    place = home / ".cache/fi-doctor/memory.json"
    os.chown(home, OTHER, OTHER)
    remembered.keep(place, b'["key", 1]')
    assert not place.exists()
    place.parent.mkdir(parents=True)
    place.write_bytes(b'["key", 1]')
    os.chown(place, OTHER, OTHER)
    assert remembered.recall(place, "key", int) is None
    os.chown(place, 0, 0)
    assert remembered.recall(place, "key", int) == 1


def test_a_bundle_is_not_written_through_names_that_can_be_guessed(tmp_path):
    victim, bundle = tmp_path / "victim", tmp_path / "k.zip"
    victim.write_text("as it was")
    (tmp_path / ".k.zip.part").symlink_to(victim)
    bundles.pack(SHIPPED, bundle)
    assert zipfile.is_zipfile(bundle)
    assert victim.read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".k.zip.part", "k.zip", "victim"]


@ROOT_ONLY
def test_a_memory_is_not_kept_where_a_link_of_another_user_leads(tmp_path):
    kept = tmp_path / "ours"
    kept.mkdir()
    link = tmp_path / "home"
    link.symlink_to(kept)
    remembered.keep(link / "fi-doctor/memory.json", b'["key", 1]')
    assert (kept / "fi-doctor/memory.json").exists()  # our own link
    os.lchown(link, OTHER, OTHER)
    assert remembered.recall(link / "fi-doctor/memory.json", "key", int) is None
    remembered.keep(link / "other/memory.json", b'["key", 1]')
    assert not (kept / "other").exists()


@ROOT_ONLY
@pytest.mark.parametrize(("owner", "is_kept"), [(0, True), (OTHER, False)], ids=["ours", "another-user's"])
def test_parts_are_not_kept_where_a_link_of_another_user_leads(tmp_path, monkeypatch, owner, is_kept):
    (tmp_path / "ours").mkdir()
    link = tmp_path / "home"
    link.symlink_to(tmp_path / "ours")
    os.lchown(link, owner, owner)
    monkeypatch.setattr(parts.platformdirs, "user_cache_dir", lambda name: str(link / name))
    assert (parts._own() is not None) is is_kept


@pytest.fixture
def report(tmp_path):
    """What would be written, and a file of somebody that is not to be touched."""
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    victim.chmod(0o600)
    return tmp_path / "report.yaml", victim


def test_permissions_are_not_given_through_a_link_that_was_laid_meanwhile(report, monkeypatch):
    target, victim = report
    write = os.fsync

    def lay(descriptor):
        write(descriptor)
        [scratch] = target.parent.glob(".fi-doctor-*")
        scratch.unlink()
        scratch.symlink_to(victim)

    monkeypatch.setattr(os, "fsync", lay)
    emit.write("x", str(target))
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("as it was", 0o600)


@pytest.mark.parametrize("how", ["mounted", "added"])
def test_a_file_that_is_written_in_its_place_is_not_a_link_that_was_laid_meanwhile(report, monkeypatch, how):
    target, victim = report
    target.symlink_to(victim)
    monkeypatch.setattr(emit, "_target", lambda _: target)  # as it was looked at
    monkeypatch.setattr(emit, "_is_mounted", lambda _: True)
    with pytest.raises(UsageError, match="cannot be written"):
        emit.write("x", str(target)) if how == "mounted" else emit.append("x", str(target), "-o")
    assert victim.read_text() == "as it was"


def test_a_report_takes_no_more_than_permissions_from_what_was_there(report):
    target, _ = report
    target.touch()
    target.chmod(0o4750)
    emit.write("x", str(target))
    assert target.stat().st_mode & 0o7777 == 0o750
