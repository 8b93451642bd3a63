import os

import pytest

from fi_doctor.inside import share

NS = 1_700_000_000_123_456_789  # no float holds it


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "cache"
    for name in ("norm", "sampling"):
        path = folder / "cached_ops" / name / f"{name}.so"
        path.parent.mkdir(parents=True)
        path.write_bytes(name.encode() * 1000)
        os.utime(path, ns=(NS, NS))
    (folder / "cached_ops" / ".ninja_log").write_text("# ninja log v7\n")
    return folder


def test_a_cache_is_the_same_on_another_node_to_the_nanosecond(cache, tmp_path):
    place = str(tmp_path / "share" / "key.tar")
    packed = share.pack(cache, place)
    added = share.unpack(tmp_path / "other", place, packed["digest"])
    assert added == {"added": ["cached_ops/.ninja_log", "cached_ops/norm", "cached_ops/sampling"]}
    found = tmp_path / "other" / "cached_ops" / "norm" / "norm.so"
    assert found.read_bytes() == b"norm" * 1000
    assert found.stat().st_mtime_ns == NS
    assert [path.name for path in (tmp_path / "share").iterdir()] == ["key.tar"]


def test_a_module_that_is_there_stays(cache, tmp_path):
    place = str(tmp_path / "key.tar")
    packed = share.pack(cache, place)
    own = tmp_path / "other" / "cached_ops" / "norm" / "norm.so"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine")
    added = share.unpack(tmp_path / "other", place, packed["digest"])
    assert own.read_bytes() == b"mine"
    assert added == {"added": ["cached_ops/.ninja_log", "cached_ops/sampling"]}


def test_a_file_that_is_not_the_one_that_was_packed_is_not_used(cache, tmp_path, capsys):
    place = tmp_path / "key.tar"
    packed = share.pack(cache, str(place))
    place.write_bytes(place.read_bytes().replace(b"norm", b"evil"))
    assert share.main(["unpack", str(tmp_path / "other"), str(place), packed["digest"]]) == 1
    assert "nothing of it was used" in capsys.readouterr().err
    assert not list((tmp_path / "other").rglob("*"))


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    """Where a file lies for fsspec, and what changes it there."""
    fsspec = pytest.importorskip("fsspec")
    place = f"{request.param}://{tmp_path}/share/key.tar"

    def change(old, new):
        with fsspec.open(place, "rb") as file:
            data = file.read()
        with fsspec.open(place, "wb") as file:
            file.write(data.replace(old, new))

    return place, change


def test_a_cache_is_shared_by_a_url(cache, tmp_path, url):
    place, _ = url
    packed = share.pack(cache, place)
    added = share.unpack(tmp_path / "other", place, packed["digest"])
    assert added == {"added": ["cached_ops/.ninja_log", "cached_ops/norm", "cached_ops/sampling"]}
    found = tmp_path / "other" / "cached_ops" / "norm" / "norm.so"
    assert (found.read_bytes(), found.stat().st_mtime_ns) == (b"norm" * 1000, NS)


def test_what_lies_at_a_url_and_is_not_what_was_packed_is_not_used(cache, tmp_path, url, capsys):
    place, change = url
    packed = share.pack(cache, place)
    change(b"norm", b"evil")
    assert share.main(["unpack", str(tmp_path / "other"), place, packed["digest"]]) == 1
    assert "nothing of it was used" in capsys.readouterr().err
    assert not list((tmp_path / "other").rglob("*"))


def test_what_opens_urls_tells_its_own_errors(cache, monkeypatch, capsys):
    class Broken:
        def open(self, place, mode):
            raise RuntimeError("no credentials")

    monkeypatch.setattr(share.importlib, "import_module", lambda name: {"fsspec": Broken()}[name])
    assert share.main(["pack", str(cache), "s3://bucket/key.tar"]) == 1
    assert capsys.readouterr().err == "RuntimeError: no credentials\n"


def test_a_place_that_cannot_be_read_is_told(tmp_path, capsys):
    assert share.main(["unpack", str(tmp_path / "other"), str(tmp_path / "none"), "0"]) == 1
    assert "No such file" in capsys.readouterr().err
