"""Children that are started as another user: what they are, what is theirs, and that they are ended like others."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import acting_user
import pytest

from fi_doctor import acting, sandbox

real = pytest.mark.skipif(bool(acting_user.lack()), reason=acting_user.lack() or "-")
RIGHTS = ("CapInh", "CapPrm", "CapEff", "CapAmb")
ALL_RIGHTS = (1 << 41) - 1
ACCOUNT = acting_user.ACCOUNT


def child(code, **options):
    argv = [acting_user.python(), "-I", "-c", code]
    return sandbox.run(argv, **{"timeout_s": 20, "env": acting_user.environ(), **options})


@real
def test_a_child_is_that_user_with_its_groups_and_no_rights():
    done = child("import os; print(open('/proc/self/status').read(), os.environ)")
    told = dict(line.split(":", 1) for line in done.stdout.decode().splitlines() if ":" in line)
    assert told["Uid"].split() == [str(ACCOUNT.uid)] * 4
    assert told["Gid"].split() == [str(ACCOUNT.gid)] * 4
    assert told["Groups"].split() == [str(ACCOUNT.groups[0])]
    assert [int(told[name], 16) for name in RIGHTS] == [0] * 4
    assert acting.VARIABLE not in done.stdout.decode()


@real
def test_it_cannot_become_root_again():
    assert child("import os; os.setuid(0)").stderr.endswith(b"Operation not permitted\n")


@pytest.mark.parametrize("word", [None, "", "0:0", "f" * 32], ids=["none", "empty", "ids", "random"])
def test_a_word_that_was_not_given_here_means_this_user(word):
    variables = {**os.environ, **({} if word is None else {acting.VARIABLE: word})}
    done = sandbox.run(["sh", "-c", f"id -u; echo ${acting.VARIABLE}"], timeout_s=5, env=variables)
    assert done.stdout.decode().split() == [str(os.geteuid())]


def test_each_account_has_its_own_word():
    words = [acting.word_for(one) for one in (ACCOUNT, ACCOUNT._replace(uid=7))]
    assert [acting.account_of({acting.VARIABLE: word}).uid for word in words] == [ACCOUNT.uid, 7]


LEAVES = (
    "import os, signal, subprocess, sys, time\n"
    "deaf = 'trap \"\" TERM INT HUP; sleep 300'\n"
    "for env in ({}, None):\n"
    "    print(subprocess.Popen(['/bin/sh', '-c', deaf], start_new_session=True, env=env).pid, flush=True)\n"
)


@real
@pytest.mark.parametrize("rest", ["", "time.sleep(300)"], ids=["ends", "hangs"])
def test_nothing_that_it_started_is_left(children, rest):
    done = child(LEAVES + rest, timeout_s=0.7)
    assert done.timed_out is bool(rest)
    assert len(done.stdout.split()) == 2
    assert [pid for pid in done.stdout.split() if Path("/proc", pid.decode()).exists()] == []
    assert children() == []


@real
def test_what_cannot_be_started_as_that_user_is_told_in_words(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o700)
    assert sandbox.run([str(tool)], timeout_s=5, env=acting_user.environ()).error == f"{tool}: Permission denied"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets so far")
def test_a_user_that_the_kernel_refuses_is_told_in_words():
    variables = {acting.VARIABLE: acting.word_for(acting.Account(5, 5, tuple(range(70000))))}
    error = sandbox.run(["true"], timeout_s=5, env=variables).error
    assert error.startswith("no process can be started as user 5: ") or "too many" in error


@real
def test_its_folder_is_its_own_and_ours_around_it_is_not():
    with acting.folder("fi-doctor-t-", ACCOUNT, files={"asked": b"x"}, folders=("tmp",)) as (ours, theirs):
        found = {path.name: path.lstat() for path in (ours, theirs, theirs / "asked", theirs / "tmp")}
        code = (
            f"import pathlib; p = pathlib.Path({str(theirs)!r}); (p / 'tmp/new').write_text((p / 'asked').read_text())"
        )
        assert child(code).stderr == b""
        assert (theirs / "tmp/new").stat().st_uid == ACCOUNT.uid
        assert b"denied" in child(f"import os; os.rename({str(theirs)!r}, {str(ours / 'other')!r})").stderr
        stranger = acting.word_for(acting.Account(ACCOUNT.uid + 9, ACCOUNT.gid))
        look = child(f"import os; os.listdir({str(theirs)!r})", env={acting.VARIABLE: stranger})
        assert b"Permission denied" in look.stderr
    owners = {name: (state.st_uid, stat.S_IMODE(state.st_mode)) for name, state in found.items()}
    assert owners.pop(ours.name) == (0, 0o711)
    assert {uid for uid, _ in owners.values()} == {ACCOUNT.uid}
    assert owners["own"] == (ACCOUNT.uid, 0o700)
    assert not ours.exists()


def test_without_another_user_it_is_one_private_folder():
    with acting.folder("fi-doctor-t-", None, files={"asked": b"x"}, folders=("tmp",)) as (ours, theirs):
        assert ours == theirs
        assert stat.S_IMODE(ours.stat().st_mode) == 0o700
        assert (theirs / "asked").read_bytes() == b"x"
        assert (theirs / "tmp").is_dir()
    assert not ours.exists()


@real
def test_removing_it_follows_no_link(tmp_path):
    (tmp_path / "kept").touch()
    with acting.folder("fi-doctor-t-", ACCOUNT) as (ours, theirs):
        (theirs / "link").symlink_to(tmp_path)
    assert not ours.exists()
    assert (tmp_path / "kept").exists()


def test_an_answer_is_read_through_no_link(tmp_path):
    answer = tmp_path / "answer.json"
    answer.write_bytes(b"{}")
    assert acting.read_answer(answer) == b"{}"
    (tmp_path / "link").symlink_to(answer)
    os.link(answer, tmp_path / "hard")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "hard", "pipe", "none"):
        with pytest.raises(OSError, match=r"."):
            acting.read_answer(tmp_path / name)


@pytest.fixture
def proc(tmp_path):
    """proc(file=text, ...): what /proc/self of a root with all rights says, but for these."""

    def write(**changes):
        whole = "         0          0 4294967295\n"
        usual = {"status": f"CapEff:\t{ALL_RIGHTS:016x}\n", "setgroups": "allow\n", "uid_map": whole, "gid_map": whole}
        for name, text in {**usual, **changes}.items():
            (tmp_path / name).write_text(text)
        return tmp_path

    return write


FEW = "         0       1000          1\n"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"uid_map": FEW + "         1     100000      65536\n"}, ""),
        ({"status": f"CapEff:\t{ALL_RIGHTS & ~(1 << 7):016x}\n"}, "root has no CAP_SETUID here"),
        ({"status": f"CapEff:\t{1 << 7:016x}\n"}, "root has no CAP_CHOWN and no CAP_KILL and no CAP_SETGID here"),
        ({"setgroups": "deny\n"}, "no groups can be set in this user namespace"),
        ({"uid_map": FEW}, f"this user namespace has no user {ACCOUNT.uid}"),
        ({"gid_map": FEW}, f"this user namespace has no group {ACCOUNT.gid}"),
        ({"status": "\n"}, "does not tell what root may do here"),
    ],
    ids=["nothing", "mapped", "no-setuid", "few-rights", "no-groups", "no-user", "no-group", "silent"],
)
def test_why_root_cannot_become_that_user(changes, words, proc, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert acting.obstacle(ACCOUNT, proc(**changes)).endswith(words)
    assert bool(acting.obstacle(ACCOUNT, proc(**changes))) is bool(words)


def test_only_root_becomes_another_user(monkeypatch, proc):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert acting.obstacle(ACCOUNT, proc()) == "this is user 1000, and only root can become another one"


@pytest.fixture
def left(tmp_path):
    """A folder as a killed command leaves it."""
    path = tmp_path / "fi-doctor-x-abc"
    (path / "deep").mkdir(parents=True)
    (path / "held").touch()
    return path


def test_what_a_killed_command_left_is_removed_by_the_next(left, tmp_path):
    with acting.folder("fi-doctor-x-", None, place=str(tmp_path)) as (ours, _):
        assert not left.exists()
        assert ours.is_dir()


def test_what_is_held_is_young_or_is_another_thing_stays(left, tmp_path):
    young, other, link = (tmp_path / f"fi-doctor-{name}" for name in ("x-young", "y-abc", "x-link"))
    young.mkdir()
    other.mkdir()
    link.symlink_to(other)
    (other / "held").touch()
    with (left / "held").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        acting.remove_left("fi-doctor-x-", tmp_path)
    assert all(path.is_dir() for path in (left, young, other, link))


def test_a_folder_in_use_is_held(left, tmp_path):
    with acting.folder("fi-doctor-x-", None, place=str(tmp_path)) as (ours, _):
        acting.remove_left("fi-doctor-x-", tmp_path)
        assert ours.is_dir()
    assert not ours.exists()
