"""Whether another user may write: by mode bits, groups, ACLs and what the file system leaves to others."""

import os
import stat
import struct

import pytest
import serving

from fi_doctor.facts.permissions import may_write, may_write_file, parse_acl
from fi_doctor.model import Missing

OTHER = serving.user(4242, groups=(77,), is_own=False)
ROOT = serving.user(0, is_own=False, overrides_modes=Missing(reason="whether root keeps CAP_DAC_OVERRIDE is not known"))
USER, GROUP, OTHERS, MASK, ONE, ONE_GROUP = 0x01, 0x04, 0x20, 0x10, 0x02, 0x08


def acl(*entries):
    """The bytes of an access control list: (tag, bits) or (tag, bits, id)."""
    packed = (struct.pack("<HHI", tag, bits, *(who or (0xFFFFFFFF,))) for tag, bits, *who in entries)
    return struct.pack("<I", 2) + b"".join(packed)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """folder(mode, uid, gid, acl): a folder as the kernel shows it, below folders that all may search."""
    real = os.stat
    shown = {}

    def fake(path, **named):
        found = real(path, **named)
        mode, uid, gid = shown.get(str(path), (0o755, 0, 0))
        return os.stat_result((stat.S_IFMT(found.st_mode) | mode, *found[1:4], uid, gid, *found[6:]))

    def make(mode, uid=0, gid=0, *, name="cache", attribute=None):
        path = tmp_path / name
        path.mkdir(exist_ok=True)
        shown[str(path)] = (mode, uid, gid)
        monkeypatch.setattr(
            os, "getxattr", lambda where, _: attribute if str(where) == str(path) and attribute else none()
        )
        return str(path)

    def none():
        raise OSError(61, "No data available")

    monkeypatch.setattr(os, "stat", fake)
    monkeypatch.setattr("fi_doctor.facts.permissions._is_mapped", lambda: False)
    return make


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "may"),
    [
        (0o755, 4242, 0, True),
        (0o755, 0, 0, False),
        (0o077, 4242, 0, False),  # the owner is bound by its own bits, and by no others
        (0o775, 0, 4242, True),
        (0o775, 0, 77, True),
        (0o707, 0, 77, False),
        (0o777, 0, 0, True),
        (0o776, 0, 0, False),  # to write a folder it must be searched
    ],
)
def test_mode_bits_decide_by_owner_then_group_then_others(folder, mode, uid, gid, may):
    assert may_write(folder(mode, uid, gid), OTHER).may is may


def test_what_decides_is_said(folder):
    path = folder(0o750, 0, 5)
    assert may_write(path, OTHER).why == f"{path} has owner 0, group 5, mode 0750"


def test_a_folder_above_that_may_not_be_searched_decides(folder, tmp_path):
    home = folder(0o700, 0, 0, name="home")
    (tmp_path / "home/cache").mkdir()
    answer = may_write(f"{home}/cache", OTHER)
    assert (answer.may, answer.why) == (False, f"{home} has owner 0, group 0, mode 0700")


@pytest.mark.parametrize(
    ("entries", "may"),
    [
        ([(USER, 7), (ONE, 7, 4242), (GROUP, 5), (MASK, 7), (OTHERS, 5)], True),
        ([(USER, 7), (ONE, 7, 4242), (GROUP, 5), (MASK, 5), (OTHERS, 5)], False),  # the mask takes it away
        ([(USER, 7), (ONE, 0, 4242), (GROUP, 7), (MASK, 7), (OTHERS, 7)], False),  # named, and given nothing
        ([(USER, 7), (GROUP, 5), (ONE_GROUP, 7, 77), (MASK, 7), (OTHERS, 0)], True),
        ([(USER, 7), (GROUP, 5), (ONE_GROUP, 5, 77), (MASK, 7), (OTHERS, 7)], False),  # a group's answer is the last
        ([(USER, 7), (ONE, 7, 1), (GROUP, 5), (MASK, 7), (OTHERS, 5)], False),
    ],
    ids=["user", "masked", "denied", "group", "group-denied", "others"],
)
def test_an_acl_decides_where_there_is_one(folder, entries, may):
    assert may_write(folder(0o775, attribute=acl(*entries)), OTHER).may is may


def test_without_a_bit_for_the_group_no_list_is_asked(folder):
    entries = acl((USER, 7), (ONE, 7, 4242), (GROUP, 5), (MASK, 0), (OTHERS, 7))
    assert may_write(folder(0o707, attribute=entries), OTHER).may is True
    assert may_write(folder(0o717, attribute=entries), OTHER).may is False


@pytest.mark.parametrize("data", [b"", b"\x01\0\0\0", acl((USER, 7))[:-1]], ids=["empty", "version 1", "cut off"])
def test_an_acl_that_cannot_be_read_is_none(data):
    assert parse_acl(data) is None


def test_of_a_root_that_does_not_run_a_refusal_is_not_known(folder):
    refused = may_write(folder(0o755, 4242), ROOT).may
    assert isinstance(refused, Missing)
    assert "CAP_DAC_OVERRIDE" in refused.reason
    assert may_write(folder(0o755), ROOT).may is True


def test_root_without_the_capability_is_bound_and_with_it_is_not(folder):
    path = folder(0o755, 4242)
    assert may_write(path, serving.user(0, is_own=False, overrides_modes=False)).may is False
    assert may_write(path, serving.user(0, is_own=False, overrides_modes=True)).may is True


@pytest.mark.parametrize(
    ("filesystem", "user", "words"),
    [
        ("nfs4", ROOT, "squashes root"),
        ("fuse.sshfs", OTHER, "fuse.sshfs decides"),
        ("9p", OTHER, "other things than mode bits"),
    ],
)
def test_what_a_server_decides_is_not_known(folder, filesystem, user, words):
    answer = may_write(folder(0o755, 5), user, filesystem=filesystem)
    assert isinstance(answer.may, Missing)
    assert words in answer.why


def test_on_nfs_mode_bits_bind_all_but_root(folder):
    assert may_write(folder(0o755, 5), OTHER, filesystem="nfs4").may is False


def test_an_owner_that_a_user_namespace_does_not_have_is_not_known(folder, monkeypatch):
    path = folder(0o755, 65534)
    assert may_write(path, OTHER).may is False
    monkeypatch.setattr("fi_doctor.facts.permissions._is_mapped", lambda: True)
    assert isinstance(may_write(path, OTHER).may, Missing)


def test_a_link_below_another_root_is_not_followed(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("/real")
    answer = may_write("/link", OTHER, root=str(tmp_path))
    assert isinstance(answer.may, Missing)
    assert "is not followed" in answer.why
    own = serving.user(tmp_path.stat().st_uid, gid=tmp_path.stat().st_gid, is_own=False)
    (tmp_path / "real").chmod(0o755)
    assert may_write("/real", own, root=str(tmp_path)).may is True


def test_links_lead_to_the_folder_that_decides(folder, tmp_path):
    path = folder(0o755)
    (tmp_path / "link").symlink_to(path)
    assert may_write(str(tmp_path / "link"), OTHER).why.startswith(path)


def test_a_file_needs_no_right_to_search(folder):
    path = folder(0o622, 0, 0)
    assert may_write_file(path, OTHER) is True
    assert may_write(path, OTHER).may is False


def test_for_this_process_the_kernel_is_asked(tmp_path):
    assert may_write(str(tmp_path), serving.user(os.geteuid())).may is os.access(tmp_path, os.W_OK | os.X_OK)
