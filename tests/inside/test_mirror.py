"""Ninja files that were written elsewhere, read as if they stood in the cache."""

import pytest

from fi_doctor.inside import mirror


@pytest.fixture
def folders(tmp_path):
    place, cache = (tmp_path / name / ".cache/flashinfer/0.5.3/90a" for name in ("scratch", "home"))
    for folder in (place, cache):
        (folder / "generated").mkdir(parents=True)
        (folder / "generated/same.cu").write_text("int same;\n")
        (folder / "generated/other.cu").write_text(f"// {folder}\n")
    (place / "generated/new.cu").write_text("int added;\n")
    return place, cache


def test_names_are_those_in_the_cache_but_for_sources_that_it_does_not_hold_as_they_are_now(folders):
    place, cache = folders
    text = "".join(
        f"build {place}/cached_ops/a/{name}.o: cuda_compile {place}/generated/{name}.cu\n"
        for name in ("same", "other", "new")
    )
    assert mirror.as_in(text, place, cache).splitlines() == [
        f"build {cache}/cached_ops/a/same.o: cuda_compile {cache}/generated/same.cu",
        f"build {cache}/cached_ops/a/other.o: cuda_compile {place}/generated/other.cu",
        f"build {cache}/cached_ops/a/new.o: cuda_compile {place}/generated/new.cu",
    ]


def test_what_only_begins_like_the_folder_is_left_alone(folders):
    place, cache = folders
    text = f"cflags = -I{place}-2/include -I/usr/include\n"
    assert mirror.as_in(text, place, cache) == text
