"""Who serves: this process's user, one that is named as docker run --user names it, or that of a process."""

import grp
import os
import pwd

import pytest

from fi_doctor.errors import UsageError
from fi_doctor.facts.users import named_user, overrides_modes, own_user, user_of_status
from fi_doctor.model import Missing

ROOT = pwd.getpwuid(0)
STATUS = "Name:\tpython\nUid:\t1000\t4321\t1000\t1000\nGid:\t5\t5\t5\t5\nGroups:\t5 7 9 \nCapEff:\t0000000000000000\n"


def test_our_own_user_is_that_of_the_process():
    user = own_user({"HOME": "/somewhere"})
    assert (user.uid, user.gid, user.home, user.is_own) == (os.geteuid(), os.getegid(), "/somewhere", True)
    assert user.found_by == "this process"


def test_an_empty_home_is_the_root_and_none_that_of_the_entry():
    assert own_user({"HOME": ""}).home == "/"
    assert own_user({}).home == pwd.getpwuid(os.geteuid()).pw_dir


def test_a_name_brings_the_group_the_groups_and_the_home_of_its_entry():
    user = named_user(ROOT.pw_name, {"HOME": "/ours"})
    assert (user.uid, user.gid, user.name) == (0, ROOT.pw_gid, ROOT.pw_name)
    assert set(user.groups) == {*os.getgrouplist(ROOT.pw_name, ROOT.pw_gid)} - {ROOT.pw_gid}


def test_a_number_without_an_entry_has_group_0_and_no_home_as_in_a_container():
    user = named_user("424242", {"HOME": "/ours"})
    assert (user.uid, user.gid, user.groups, user.home) == (424242, 0, (), "/")
    assert (user.is_own, user.overrides_modes) == (False, False)
    assert isinstance(user.name, Missing)


@pytest.mark.parametrize("words", ["424242:77", f"424242:{grp.getgrgid(0).gr_name}"])
def test_a_group_that_is_named_is_the_only_one(words):
    user = named_user(words, {})
    assert (user.gid, user.groups) == (77 if words.endswith("77") else 0, ())
    assert user.found_by == f"--as-user {words}"


@pytest.mark.parametrize(
    "words", ["no-such-user", "", ":5", "1000:", "1000:no-such-group", "-1", "²", str(1 << 32), "a\0b"]
)
def test_what_names_no_user_is_refused(words):
    with pytest.raises(UsageError) as refused:
        named_user(words, {})
    assert "--as-user" in str(refused.value)


def test_of_a_process_the_effective_ids_count():
    user = user_of_status(STATUS, {"HOME": "/srv"}, 12)
    assert (user.uid, user.gid, user.groups, user.home) == (4321, 5, (7, 9), "/srv")
    assert (user.is_own, user.overrides_modes, user.found_by) == (False, False, "--pid 12")


def test_a_process_without_ids_has_no_user():
    assert isinstance(user_of_status("Name:\tx\n", {}, 12), Missing)


@pytest.mark.parametrize(
    ("line", "overrides"),
    [("CapEff:\t000001ffffffffff", True), ("CapEff:\t00000000a80425fb", True), ("CapEff:\t0", False)],
)
def test_the_capability_to_pass_over_mode_bits_is_read(line, overrides):
    assert overrides_modes(f"Name:\tx\n{line}\n") is overrides


def test_capabilities_that_are_not_told_are_missing():
    assert isinstance(overrides_modes(""), Missing)


@pytest.mark.parametrize("words", ["4294967295", "4294967296", "0:4294967295"])
def test_the_number_that_stands_for_nobody_is_refused(words):
    with pytest.raises(UsageError):
        named_user(words, {})
