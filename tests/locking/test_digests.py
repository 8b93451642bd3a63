"""What is in files is read once, and again when anything says that it may have changed."""

from __future__ import annotations

import base64
import hashlib
import os
import time

import pytest

from fi_doctor.facts.remembered import found_key, quick_key, scan
from fi_doctor.locking import digests as module
from fi_doctor.locking.digests import Digests

OLD_NS = 1_000_000_000_000_000_000


def sha(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def settled(monkeypatch):
    """Files count as old enough to be remembered at once."""
    monkeypatch.setattr(module, "FRESH_NS", -(10**18))
    monkeypatch.setattr("fi_doctor.facts.remembered.FRESH_NS", -(10**18))


@pytest.fixture
def reads(monkeypatch):
    """The names of the files that were read."""
    seen = []
    read = module._read
    monkeypatch.setattr(module, "_read", lambda path: seen.append(path.name) or read(path))
    return seen


def test_a_digest_is_that_of_the_content(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"content")
    assert Digests().file(path) == sha(b"content")


@pytest.mark.parametrize("kind", ["nothing", "behind-a-file", "folder", "pipe", "loop"])
def test_what_is_no_file_has_a_word_of_its_own(tmp_path, kind):
    path = tmp_path / "a"
    words = "absent"
    if kind == "behind-a-file":
        path.write_text("")
        path /= "b"
    elif kind == "folder":
        path.mkdir()
        words = "not a file"
    elif kind == "pipe":
        os.mkfifo(path)
        words = "not a file"
    elif kind == "loop":
        path.symlink_to(path)
        words = "unreadable: Too many levels of symbolic links"
    assert Digests().file(path) == words


def test_what_did_not_change_is_not_read_again(tmp_path, settled, reads):
    path = tmp_path / "a"
    path.write_bytes(b"content")
    for _ in range(2):
        digests = Digests(tmp_path / "memory")
        assert digests.file(path) == sha(b"content")
        digests.save()
    assert reads == ["a"]


def test_thorough_reads_all_the_same(tmp_path, settled, reads):
    path = tmp_path / "a"
    path.write_bytes(b"content")
    for _ in range(2):
        digests = Digests(tmp_path / "memory", thorough=True)
        assert digests.tree(tmp_path, "a") == digests.tree(tmp_path, "a")
        assert digests.file(path) == sha(b"content")
        digests.save()
    assert reads.count("a") >= 4


def test_a_file_of_the_same_size_and_mtime_is_read_again_by_its_ctime(tmp_path, settled):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    os.utime(path, ns=(OLD_NS, OLD_NS))
    digests = Digests(tmp_path / "memory")
    digests.file(path)
    digests.save()
    time.sleep(0.01)
    path.write_bytes(b"two")
    os.utime(path, ns=(OLD_NS, OLD_NS))
    assert Digests(tmp_path / "memory").file(path) == sha(b"two")


def test_a_file_that_was_written_just_now_is_not_remembered(tmp_path, reads):
    path = tmp_path / "a"
    path.write_bytes(b"content")
    for _ in range(2):
        digests = Digests(tmp_path / "memory")
        digests.file(path)
        digests.tree(tmp_path, "a")
        digests.save()
    assert len(reads) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": {"a": 1}}', "\x00"])
def test_a_damaged_memory_is_none(tmp_path, settled, text):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "digests.json").write_text(text)
    path = tmp_path / "a"
    path.write_bytes(b"content")
    digests = Digests(tmp_path / "memory")
    assert digests.file(path) == sha(b"content")
    digests.save()
    assert Digests(tmp_path / "memory")._known.files


def test_a_memory_that_cannot_be_written_is_no_failure(tmp_path, settled):
    (tmp_path / "memory").write_text("a file")
    path = tmp_path / "a"
    path.write_bytes(b"content")
    digests = Digests(tmp_path / "memory")
    assert digests.file(path) == sha(b"content")
    digests.save()
    assert (tmp_path / "memory").read_text() == "a file"


def test_a_word_that_leads_to_nothing_counts_in_memory_too(tmp_path, settled):
    (tmp_path / "one.py").write_text("1")
    one = ("one", str(tmp_path / "one.py"))
    digests = Digests(tmp_path / "memory")
    alone = digests.files("torch", [one])
    digests.save()
    both = Digests().files("torch", [one, ("two", "")])
    assert both != alone
    assert Digests(tmp_path / "memory").files("torch", [one, ("two", "")]) == both


CHANGES = {
    "content": lambda folder: (folder / "b/two.h").write_text("2!"),
    "a-name": lambda folder: (folder / "b/two.h").rename(folder / "b/three.h"),
    "one-more": lambda folder: (folder / "b/three.h").write_text(""),
    "one-less": lambda folder: (folder / "one.h").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_folder_is_another_by_names_and_content(tmp_path, settled, change):
    folder = tree(tmp_path)
    before = remembered(folder, tmp_path)
    assert remembered(folder, tmp_path) == before
    change(folder)
    assert remembered(folder, tmp_path) != before


def test_a_folder_is_the_same_elsewhere_and_with_compiled_python(tmp_path, settled):
    folder = tree(tmp_path)
    before = Digests().tree(folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/one.pyc").write_text("compiled")
    folder.rename(tmp_path / "elsewhere")
    assert Digests().tree(tmp_path / "elsewhere") == before


def test_a_folder_without_such_files_is_absent(tmp_path):
    assert Digests().tree(tree(tmp_path), ".py") == "absent"
    assert Digests().tree(tmp_path / "nothing") == "absent"
    assert Digests().listing(tmp_path / "nothing", ".cubin") == "absent"


def test_a_listing_reads_no_file(tmp_path, reads):
    folder = tree(tmp_path)
    before = Digests().listing(folder, ".h")
    (folder / "one.h").write_text("!")
    assert Digests().listing(folder, ".h") == before
    (folder / "one.h").write_text("longer")
    assert Digests().listing(folder, ".h") != before
    assert reads == []


def test_of_a_large_file_pip_is_believed_while_the_size_agrees(tmp_path, monkeypatch, reads):
    monkeypatch.setattr(module, "_LARGE", 4)
    site = tmp_path / "site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch-2.dist-info").mkdir()
    path = site / "torch" / "lib.so"
    path.write_bytes(b"content")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"content").digest()).rstrip(b"=").decode()
    (site / "torch-2.dist-info" / "RECORD").write_text(f"torch/lib.so,sha256={digest},7\ntorch/other,,\n")
    assert Digests().file(path) == sha(b"content")
    assert reads == []
    path.write_bytes(b"changed")  # of the same size: what is not seen without --thorough
    assert Digests().file(path) == sha(b"content")
    assert Digests(thorough=True).file(path) == sha(b"changed")
    path.write_bytes(b"longer content")
    assert Digests().file(path) == sha(b"longer content")


def test_a_quick_key_knows_names_sizes_and_times(tmp_path, settled):
    folder = tree(tmp_path)
    before = quick_key(scan(folder))
    assert quick_key(scan(folder)) == before
    os.utime(folder / "one.h", ns=(OLD_NS, OLD_NS))
    assert quick_key(scan(folder)) != before


def test_a_key_of_found_files_knows_names_sizes_and_times(tmp_path, settled):
    folder = tree(tmp_path)
    before = found_key(folder, (".h",))
    assert before == found_key(folder, (".h",)) != found_key(folder, (".h",), without="b")
    os.utime(folder / "one.h", ns=(OLD_NS, OLD_NS))
    assert found_key(folder, (".h",)) != before
    (folder / "link.h").symlink_to(folder / "one.h")
    assert found_key(folder, (".h",)) is None  # the target may change: scan looks at it
    assert found_key(tmp_path / "absent", (".h",)) is None


def test_files_that_can_change_unseen_have_no_key(tmp_path):
    folder = tree(tmp_path)
    assert (found_key(folder, (".h",)), quick_key(scan(folder))) == ("", "")


def tree(tmp_path):
    folder = tmp_path / "folder"
    (folder / "b").mkdir(parents=True)
    (folder / "one.h").write_text("1")
    (folder / "b" / "two.h").write_text("2")
    return folder


def remembered(folder, tmp_path):
    digests = Digests(tmp_path / "memory")
    found = digests.tree(folder)
    digests.save()
    return found
