"""Any number of formats in one run: each in its place, whole or not at all, all with the same answer."""

from __future__ import annotations

import os
import pathlib
import resource
import stat

import junitparser
import pytest
from cli_command import BROKEN, FORMATS, code_of, in_three_parts, script
from permissions import obey_permissions

ALL = {name: f"out.{name}" for name in FORMATS}


def everywhere(doctor, path, **options):
    """One run that writes every format to a file: what it wrote, and how it ended."""
    words = [word for name, file in ALL.items() for word in ("--format", f"{name}:{file}")]
    done = doctor("check", "--from", path, "-q", *words, **options)
    return {name: (doctor.folder / file).read_text(encoding="utf-8") for name, file in ALL.items()}, done


def test_one_verdict_that_changes_changes_every_format_and_the_exit_code(doctor):
    good, before = everywhere(doctor, doctor.report())
    bad, after = everywhere(doctor, doctor.report(broken=(BROKEN,)))
    assert (before.returncode, after.returncode) == (0, 1)
    assert (before.stdout, after.stdout) == ("", "")
    assert {name: code_of(text, name) for name, text in good.items()} == dict.fromkeys(FORMATS, 0)
    assert {name: code_of(text, name) for name, text in bad.items()} == dict.fromkeys(FORMATS, 1)
    for name in FORMATS:
        assert BROKEN in bad[name].replace("\\", "")
        assert good[name] != bad[name]


def test_a_file_holds_what_stdout_would(doctor):
    path = doctor.report(broken=(BROKEN,))
    written, _ = everywhere(doctor, path)
    for name in FORMATS:
        assert doctor("check", "--from", path, "-f", name).stdout == written[name], name


def test_console_on_stdout_and_files_beside_it(doctor):
    done = doctor("check", "--from", doctor.report(), "-f", "console", "-f", "junit:out.xml", "-f", "json:r.json")
    assert done.returncode == 0, done.stderr
    assert "rows work" in done.stdout
    suites = junitparser.JUnitXml.fromfile(str(doctor.folder / "out.xml"))
    assert (suites.failures, suites.errors) == (0, 0)
    assert {suite.name for suite in suites} >= {"gate", "norm", "moe"}
    assert code_of((doctor.folder / "r.json").read_text(encoding="utf-8"), "json") == 0


@pytest.mark.parametrize(
    ("words", "files", "stdout"),
    [
        (["-f", "json", "-o", "a.txt"], {"a.txt": "json"}, ""),
        (["-o", "a.md"], {"a.md": "markdown"}, ""),
        (["-o", "a.xml"], {"a.xml": "junit"}, ""),
        (["-f", "junit:b.xml", "-o", "a.yaml"], {"a.yaml": "yaml", "b.xml": "junit"}, ""),
        (["-f", "junit:b.xml", "-f", "markdown", "-o", "a.json"], {"a.json": "markdown", "b.xml": "junit"}, ""),
        (["-f", "junit:b.xml", "-f", "yaml"], {"b.xml": "junit"}, "yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_o_is_the_file_of_the_format_that_has_none(doctor, words, files, stdout):
    done = doctor("check", "--from", doctor.report(), *words)
    assert done.returncode == 0, done.stderr
    for file, name in files.items():
        assert code_of((doctor.folder / file).read_text(encoding="utf-8"), name) == 0
    assert code_of(done.stdout, stdout) == 0 if stdout else done.stdout == ""


SAME = {
    "one name": ["-f", "json:a", "-f", "yaml:a"],
    "two names": ["-f", "json:a", "-f", "yaml:./x/../a"],
    "a link": ["-f", "json:there", "-f", "yaml:link"],
    "one file": ["-f", "json:there", "-f", "yaml:there"],
    "-o": ["-f", "json:a", "-o", "a"],
    "two for stdout": ["-f", "json", "-f", "yaml"],
    "two for stdout and -o": ["-f", "json", "-f", "yaml", "-o", "a"],
    "stdout by name": ["-f", "json", "-f", "yaml:/dev/stdout"],
    "stdout by number": ["-f", "json", "-f", "yaml:/dev/fd/1"],
    "a folder": ["-f", "json:a", "-f", "yaml:x"],
    "no folder": ["-f", "json:a", "-f", "yaml:none/a"],
    "no name": ["-f", "json:"],
    "no format": ["-f", "json:a", "-f", "jnit:b"],
}


@pytest.mark.parametrize("name", SAME)
def test_what_cannot_be_written_is_2_before_any_work_and_nothing_is_touched(doctor, name):
    (doctor.folder / "x").mkdir()
    (doctor.folder / "there").write_text("old", encoding="utf-8")
    (doctor.folder / "link").symlink_to("there")
    started = script(doctor.folder / "python", "#!/bin/sh\ntouch started\n")
    done = doctor("check", "--python", started, *SAME[name])
    assert (done.returncode, done.stdout) == (2, "")
    assert in_three_parts(done.stderr)["try"]
    assert {path.name for path in doctor.folder.iterdir()} == {"x", "there", "link", "python"}
    assert (doctor.folder / "there").read_text(encoding="utf-8") == "old"


def test_stdout_that_is_sent_to_the_file_of_a_format_is_2(doctor):
    command = [*doctor.argv("check", "--from", doctor.report(), "-f", "console", "-f", "json:a")]
    done = doctor(argv=["sh", "-c", 'exec "$@" > a', "sh", *command])
    assert done.returncode == 2
    assert "console and json both go to" in done.stderr


def test_stderr_and_stdout_may_be_the_same(doctor):
    command = doctor.argv("check", "--from", doctor.report(), "-q", "-f", "console", "-f", "github:/dev/stderr")
    done = doctor(argv=["sh", "-c", 'exec "$@" 2>&1', "sh", *command])
    assert done.returncode == 0, done.stdout
    assert "::notice title=fi-doctor%3A exit 0" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("(exit 0)")


def test_stderr_and_stdout_may_be_one_file(doctor):
    command = doctor.argv("check", "--from", doctor.report(), "-q", "-f", "console", "-f", "github:/dev/stderr")
    assert doctor(argv=["sh", "-c", 'exec "$@" > both 2>&1', "sh", *command]).returncode == 0
    both = (doctor.folder / "both").read_text(encoding="utf-8")
    assert "::notice title=fi-doctor%3A exit 0" in both
    assert "\nExit 0 (" in both
    assert both.splitlines()[-1].endswith("(exit 0)")
    command = doctor.argv("check", "--from", doctor.report(), "-f", "json:both", "-f", "github:/dev/stderr")
    assert doctor(argv=["sh", "-c", 'exec "$@" > both 2>&1', "sh", *command]).returncode == 2


def test_what_is_added_to_a_stream_that_is_a_file_stays_there(doctor):
    words = ("-f", "github:/dev/stderr", "-f", "markdown:/dev/fd/1")
    command = doctor.argv("check", "--from", doctor.report(), *words)
    assert doctor(argv=["sh", "-c", 'exec "$@" > out 2> err', "sh", *command]).returncode == 0
    err = (doctor.folder / "err").read_text(encoding="utf-8")
    assert code_of(err, "github") == 0
    assert err.splitlines()[-1].endswith("(exit 0)")
    assert code_of((doctor.folder / "out").read_text(encoding="utf-8"), "markdown") == 0


def test_a_folder_that_is_not_ours_is_2(doctor):
    (doctor.folder / "closed").mkdir(mode=0o555)
    words = ("-f", "json:a", "-f", "junit:closed/b")
    done = doctor("check", "--from", doctor.report(), *words, preexec_fn=obey_permissions)
    assert done.returncode == 2
    assert "not writable" in in_three_parts(done.stderr)["why"]
    assert not (doctor.folder / "a").exists()


def test_a_file_that_is_there_keeps_its_permissions_and_a_link_its_target(doctor):
    target = doctor.folder / "real"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o604)
    (doctor.folder / "link").symlink_to("real")
    assert doctor("check", "--from", doctor.report(), "-f", "json:link").returncode == 0
    assert (doctor.folder / "link").is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o604
    assert code_of(target.read_text(encoding="utf-8"), "json") == 0


def test_where_one_cannot_be_written_in_the_end_the_others_are_and_the_old_file_stays(doctor):
    (doctor.folder / "big.json").write_text("old", encoding="utf-8")
    words = ("-f", "json:big.json", "-f", "github:small.txt")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # noqa: E731
    done = doctor("check", "--from", doctor.report(), *words, preexec_fn=limit)
    assert done.returncode == 2
    assert "--format json: " in in_three_parts(done.stderr)["error"]
    assert (doctor.folder / "big.json").read_text(encoding="utf-8") == "old"
    assert code_of((doctor.folder / "small.txt").read_text(encoding="utf-8"), "github") == 0
    assert [path.name for path in doctor.folder.iterdir() if path.name.startswith(".fi-doctor")] == []


def test_github_adds_to_the_summary_of_the_step(doctor):
    summary = doctor.folder / "summary.md"
    summary.write_text("of another step\n", encoding="utf-8")
    path = doctor.report(broken=(BROKEN,))
    done = doctor("check", "--from", path, "-f", "github", env={"GITHUB_STEP_SUMMARY": summary})
    assert done.returncode == 1
    assert done.stdout.startswith("::error title=fi-doctor%3A exit 1%2C")
    assert summary.read_text(encoding="utf-8").startswith("of another step\n# fi-doctor: exit 1, ")
    before = summary.read_text(encoding="utf-8")
    doctor("check", "--from", path, "-f", "console", env={"GITHUB_STEP_SUMMARY": summary})
    assert summary.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("summary", ["none/summary.md", "out.md"])
def test_a_summary_that_cannot_be_added_to_is_2(doctor, summary):
    words = ("-f", "github", "-f", "markdown:out.md")
    done = doctor("check", "--from", doctor.report(), *words, env={"GITHUB_STEP_SUMMARY": doctor.folder / summary})
    assert (done.returncode, done.stdout) == (2, "")
    assert "GITHUB_STEP_SUMMARY" in done.stderr


def test_a_file_takes_the_permissions_that_the_user_gives_new_files(doctor):
    doctor("check", "--from", doctor.report(), "-f", "junit:out.xml", preexec_fn=lambda: os.umask(0o027))
    assert stat.S_IMODE(pathlib.Path(doctor.folder / "out.xml").stat().st_mode) == 0o640
