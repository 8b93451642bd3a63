"""check.sh by itself: what it writes over, and when 0 is the code of a check."""

from __future__ import annotations

import os

import pytest
from pieces import ASKED, CHECK


@pytest.mark.parametrize("variable", ["CHECK_REPORT", "CHECK_JUNIT", "CHECK_CONSOLE"])
@pytest.mark.parametrize("what", ["pipe", "link", "folder", "policy", "input", "near", "option"])
def test_only_a_plain_file_that_nothing_reads_is_written_anew(place, variable, what):
    path = place.folder / "given"
    kept = place.folder / "fi-doctor.toml"
    kept.write_text("")
    (place.folder / "report.json").write_text("{}")
    args, name = ASKED[0], path
    if what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(kept)
    elif what == "folder":
        path.mkdir()
    elif what == "option":
        name = "-x.xml"
    else:
        name = {"policy": "policy.toml", "input": "report.json", "near": "./fi-doctor.toml"}[what]
        args = "--from=report.json" if what == "input" else args
    (place.folder / "policy.toml").write_text("")
    before = sorted(place.folder.rglob("*"))
    done = place.run("sh", CHECK, CHECK_ARGS=args, CHECK_CONFIG="policy.toml", **{variable: name})
    assert done.returncode == 2
    assert str(name) in done.stderr
    assert sorted(place.folder.rglob("*")) == before


def left(place):
    """What lies there, fi-doctor's own memory aside."""
    return sorted(path for path in place.folder.rglob("*") if ".cache" not in path.relative_to(place.folder).parts)


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(("words", "code"), [("--help", 3), (ASKED[0], 0), (ASKED[1], 1), (ASKED[2], 2)])
def test_0_is_the_code_of_a_check_that_wrote_its_report_and_nothing_is_left(place, shell, words, code):
    before = left(place)
    done = place.run(shell, CHECK, CHECK_ARGS=words, TMPDIR=place.folder)
    assert done.returncode == code, done.stderr
    assert left(place) == before
