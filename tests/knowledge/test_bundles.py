"""Knowledge from elsewhere: what is taken, what is refused and how that is said, and that nothing else is touched."""

from __future__ import annotations

import hashlib
import io
import shutil
import stat
import zipfile

import pytest
from test_knowledge import folder, write

from fi_doctor import knowledge
from fi_doctor.errors import DataError
from fi_doctor.knowledge import bundles
from fi_doctor.knowledge.bundles import LIST, opened, pack

__all__ = ["folder"]
KB = 'schema: fi-doctor.knowledge/{}\nversion: "2027.01.02"\nchecked_on: [nothing]\n{}'
FAULT = """
    id: told
    cause: of-it
    family: driver
    flashinfer_at_fault: false
    title: t
    why: w
    fix: [{kind: note, line: l}]
    signs: [{text: "a long text", pattern: "%s", strength: decides, source: report}]
    fires: [{log: x}]
    silent: [{log: y}]
"""


def refusal(place):
    with pytest.raises(DataError) as caught, opened(place):
        pass
    assert caught.value.exit_code == 2
    return f"{caught.value.what}: {caught.value.why} {caught.value.todo}"


def zipped(path, members, *, listed=True):
    """A zip file of (name or ZipInfo, data) pairs."""
    names = [(getattr(name, "filename", name), data) for name, data in members]
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in dict(names).items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in [*members, *([(LIST, sums.encode())] if listed else [])]:
            archive.writestr(name, data)
    return path


@pytest.fixture
def members(folder):
    return [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in sorted(folder.rglob("*.yaml"))]


def test_a_folder_and_a_bundle_of_it_are_the_same_knowledge(folder, tmp_path_factory):
    bundle = tmp_path_factory.mktemp("out") / "k.zip"
    pack(folder, bundle)
    with opened(folder) as plain, opened(bundle) as packed:
        assert plain.digest == packed.digest
        assert plain.files == packed.files == 4
        assert packed.kb.rules == knowledge.load(folder).rules
        assert packed.kb.origin == f"k.zip, sha256 {packed.digest[:16]}"
        inside = packed.folder
    assert not inside.exists()


def test_the_same_folder_gives_the_same_bytes_and_a_list_for_sha256sum(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    digest = pack(folder, out / "a.zip").digest
    pack(folder, out / "b.zip")
    assert (out / "a.zip").read_bytes() == (out / "b.zip").read_bytes()
    sums = zipfile.ZipFile(out / "a.zip").read(LIST)
    assert hashlib.sha256(sums).hexdigest() == digest
    assert f"{hashlib.sha256((folder / 'kb.yaml').read_bytes()).hexdigest()}  kb.yaml" in sums.decode().splitlines()


def test_the_shipped_knowledge_can_be_packed(tmp_path):
    found = pack(knowledge.SHIPPED, tmp_path / "k.zip")
    names = {path.relative_to(knowledge.SHIPPED).as_posix() for path in knowledge.SHIPPED.rglob("*.yaml")}
    assert set(zipfile.ZipFile(tmp_path / "k.zip").namelist()) == names - {"architectures.yaml", "models.yaml"} | {LIST}
    assert found.kb.newest.keys() == {"vllm", "flashinfer-python"}
    assert all(any(version in one for one in found.kb.checked_on) for version in found.kb.newest.values())


def test_every_file_that_is_not_as_it_is_listed_is_named(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    pack(folder, out / "k.zip")
    unpacked = out / "unpacked"
    zipfile.ZipFile(out / "k.zip").extractall(unpacked)
    with opened(unpacked):
        pass
    (unpacked / "kb.yaml").write_text("other")
    (unpacked / "features.yaml").unlink()
    write(unpacked, "settings/more.yaml", "[]")
    said = refusal(unpacked)
    for line in ("settings/more.yaml: not in SHA256SUMS", "features.yaml: missing", "kb.yaml: its SHA-256 is d9298a10"):
        assert line in said
    shutil.copy(folder / "kb.yaml", unpacked / "run.sh")
    assert "'run.sh' is no name of a file of knowledge" in refusal(unpacked)


def info(name, mode):
    one = zipfile.ZipInfo(name)
    one.external_attr = mode << 16
    return one


@pytest.mark.parametrize(
    ("name", "said"),
    {
        "absolute": ("/etc/kb.yaml", "is no name"),
        "above": ("../kb.yaml", "is no name"),
        "above-in-a-part": ("rules/../../x.yaml", "is no name"),
        "code": ("rules/a/x.py", "is no name"),
        "folder": ("rules/", "is no name"),
        "backslash": ("rules\\a\\x.yaml", "is no name"),
        "newline": ("rules/a/x.yaml\n", "is no name"),
        "link": (info("rules/a/x.yaml", stat.S_IFLNK | 0o777), "is a link"),
        "device": (info("rules/a/x.yaml", stat.S_IFCHR | 0o666), "is a link, a device"),
    }.values(),
    ids=["absolute", "above", "above-in-a-part", "code", "folder", "backslash", "newline", "link", "device"],
)
def test_a_bundle_with_something_else_in_it_is_refused(name, said, members, tmp_path):
    path = zipped(tmp_path / "k.zip", [*members, (name, b"/etc/passwd")])
    assert said in refusal(path)


def test_a_bundle_with_two_files_of_one_name_is_refused(members, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = zipped(tmp_path / "k.zip", [*members, ("kb.yaml", b"x")])
    assert "'kb.yaml' is there twice" in refusal(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"0" * (bundles.LARGEST_FILE + 1), "1048577 bytes; 1048576 are allowed"), (b"x", "kb.yaml")],
    ids=["large", "broken"],
)
def test_what_is_in_a_file_is_bounded_and_read_strictly(data, said, members, tmp_path):
    rest = [one for one in members if one[0] != "kb.yaml"]
    assert said in refusal(zipped(tmp_path / "k.zip", [*rest, ("kb.yaml", data)]))


def test_too_many_files_and_bytes_are_refused_before_they_are_unpacked(members, tmp_path, monkeypatch):
    path = zipped(tmp_path / "k.zip", members)
    monkeypatch.setattr(bundles, "LARGEST", 10)
    assert "bytes unpacked; 10 are allowed" in refusal(path)
    monkeypatch.setattr(bundles, "MOST_FILES", 2)
    assert "5 files; 2 are allowed" in refusal(path)
    monkeypatch.setattr(bundles, "LARGEST_BUNDLE", 2)
    assert "bytes; 2 are allowed" in refusal(path)


def test_a_bundle_without_a_list_or_with_one_that_is_none_is_refused(members, tmp_path):
    assert "SHA256SUMS: missing" in refusal(zipped(tmp_path / "a.zip", members, listed=False))
    assert "line 1: expected a SHA-256" in refusal(
        zipped(tmp_path / "b.zip", [*members, (LIST, b"none\n")], listed=False)
    )


def test_what_is_no_bundle_is_said_to_be_none(tmp_path, members):
    whole = io.BytesIO()
    zipped(whole, members)
    (tmp_path / "cut.zip").write_bytes(whole.getvalue()[:-40])
    assert "not a zip file" in refusal(tmp_path / "cut.zip")
    damaged = bytearray(whole.getvalue())
    damaged[damaged.index(b"RMSNorm")] = 0
    (tmp_path / "bad.zip").write_bytes(damaged)
    assert "Bad CRC-32" in refusal(tmp_path / "bad.zip")
    assert "neither a folder nor a file" in refusal(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    assert "no kb.yaml" in refusal(tmp_path / "empty")


@pytest.mark.parametrize(
    ("head", "said"),
    {
        "major": (KB.format("2", ""), "of another schema"),
        "newer-minor-with-fields": (KB.format("1.9", "mood: fine\n"), "take a newer fi-doctor"),
        "same-with-fields": (KB.format("1.1", "mood: fine\n"), "mend the files"),
    }.values(),
    ids=["major", "newer-minor-with-fields", "same-with-fields"],
)
def test_a_schema_that_is_not_read_is_told_from_a_mistake(head, said, folder):
    write(folder, "kb.yaml", head)
    assert said in refusal(folder)


def test_a_newer_minor_version_without_anything_new_is_read(folder):
    write(folder, "kb.yaml", KB.format("1.9", ""))
    with opened(folder) as found:
        assert found.kb.version == "2027.01.02"


def test_a_fault_with_a_field_of_a_newer_minor_version_says_so(folder):
    write(folder, "kb.yaml", KB.format("1.9", ""))
    write(folder, "faults/driver/told.yaml", FAULT % "a" + "    mood: fine\n")
    assert "mood: no such key" in (said := refusal(folder))
    assert "take a newer fi-doctor" in said


@pytest.mark.parametrize("pattern", ["(?!a)", "(", r"(a)\\1"], ids=["look-ahead", "open", "back-reference"])
def test_a_pattern_that_is_not_linear_is_refused(pattern, folder):
    write(folder, "faults/driver/told.yaml", FAULT % pattern)
    assert "no regular expression of RE2" in refusal(folder)
    (folder / "faults/driver/told.yaml").unlink()
    text = (folder / "rules/toolkit/too-old.yaml").read_text()
    write(folder, "rules/toolkit/too-old.yaml", text + f'explains: "{pattern}"\n')
    assert "no regular expression of RE2" in refusal(folder)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 900 + "]" * 900,
        "- {id: 2026-99-99}",
        "- {id: " + "9" * 5000 + "}",
        "? [a]\n: b",
        "- !!python/object:os.x {}",
    ],
    ids=["deep", "date", "number", "key", "tag"],
)
def test_yaml_that_was_made_to_harm_is_an_error_like_any_other(text, folder):
    write(folder, "features.yaml", text)
    assert "features.yaml" in refusal(folder)


def test_conditions_in_conditions_without_end_are_an_error_like_any_other(folder):
    text = (folder / "rules/toolkit/too-old.yaml").read_text()
    deep = "{not: " * 300 + "{nvcc: '<1'}" + "}" * 300
    write(folder, "rules/toolkit/too-old.yaml", text.replace('{nvcc: "<12.8"}', deep))
    assert "rules/toolkit/too-old.yaml: line 6: nested more than 50 deep" in refusal(folder)
