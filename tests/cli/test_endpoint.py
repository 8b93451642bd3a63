"""What is answered to a request, without a server: states, headers, names, ages."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
import sys
import threading

import cli_command
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from fi_doctor.endpoint import sources
from fi_doctor.endpoint.answers import AGE, Endpoint
from fi_doctor.endpoint.pages import Pages
from fi_doctor.model import Missing
from fi_doctor.reports import render

MADE = dt.datetime.fromisoformat(cli_command.CREATED).timestamp()
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Given:
    def __init__(self, found):
        self.found = found

    def now(self):
        return self.found


def ask(found, path="/healthz", method="GET", *, after=12.9, hosts=None, max_age_s=None, **headers):
    """Status, headers and body of an answer, so many seconds after the report was made."""
    endpoint = Endpoint(Given(found), hosts=hosts, max_age_s=max_age_s, clock=lambda: MADE + after)
    said = []
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, **{f"HTTP_{name}": text for name, text in headers.items()}}
    body = b"".join(endpoint(environ, lambda status, given: said.append((status, dict(given)))))
    [(status, given)] = said
    return int(status.split()[0]), given, body.decode()


@pytest.fixture(scope="module")
def good():
    return Pages(cli_command.report())


@pytest.fixture(scope="module")
def bad():
    return Pages(cli_command.report(broken=[cli_command.BROKEN]))


def test_health_is_the_gates_and_says_why_and_since_when(good, bad):
    code, headers, text = ask(good)
    assert (code, headers[AGE]) == (200, "12")
    assert text == f"{good.report.gate.reason} (exit 0)\nchecked 12 s ago\n"
    code, _, text = ask(bad)
    assert code == 503
    assert cli_command.BROKEN in text
    untold = replace(good.report, gate=replace(good.report.gate, code=3))
    assert ask(Pages(untold))[0] == 503


def test_without_a_report_everything_is_503_and_says_so():
    for path in ("/", "/healthz", "/metrics", "/report.json"):
        code, headers, text = ask(Missing(reason="it is\x1b[2J a folder"), path)
        assert (code, text) == (503, "no report: it is [2J a folder\n")
        assert AGE not in headers


@pytest.mark.parametrize(("after", "is_well"), [(60, True), (61, False), (-61, False), (-59, True)])
def test_an_old_check_and_one_of_an_unknown_age_are_no_good_health(good, after, is_well):
    code, _, text = ask(good, after=after, max_age_s=60)
    assert (code == 200) == is_well
    assert ("too old" in text) != is_well
    assert ask(good, after=after)[0] == 200


def test_a_report_that_tells_no_time_has_no_age(good):
    untold = Pages(replace(good.report, created="yesterday"))
    assert AGE not in ask(untold)[1]
    assert "does not tell" in ask(untold)[2]
    assert ask(untold, max_age_s=1e6)[0] == 503
    assert "fi_doctor_report_age_seconds NaN\n" in ask(untold, "/metrics")[2]


def test_pages_are_the_formats(good):
    kinds = {"/": ("html", "text/html"), "/report.json": ("json", "application/json")}
    for path, (form, kind) in kinds.items():
        code, headers, text = ask(good, path)
        assert (code, text) == (200, render(good.report, form))
        assert headers["Content-Type"].startswith(kind)
        assert headers[AGE] == "12"
    code, headers, text = ask(good, "/metrics")
    rest = text.removeprefix(render(good.report, "prometheus"))
    assert (code, rest.splitlines()[-1]) == (200, "fi_doctor_report_age_seconds 12")
    metrics = {one.name: one for one in text_string_to_metric_families(text)}
    assert metrics["fi_doctor_report_age_seconds"].samples[0].value == 12
    assert metrics["fi_doctor_gate_exit_code"].samples[0].value == 0
    assert "frame-ancestors 'none'" in ask(good, "/")[1]["Content-Security-Policy"]


def test_a_known_page_is_not_sent_again(good, bad):
    tag = ask(good, "/report.json")[1]["ETag"]
    for known in (tag, f'"x", W/{tag}'):
        code, headers, text = ask(good, "/report.json", IF_NONE_MATCH=known)
        assert (code, text, headers["ETag"]) == (304, "", tag)
        assert "Content-Length" not in headers
    assert ask(bad, "/report.json", IF_NONE_MATCH=tag)[0] == 200
    assert "ETag" not in ask(good, "/metrics")[1]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"])
def test_it_can_only_be_read(good, method):
    code, headers, _ = ask(good, "/report.json", method)
    assert (code, headers["Allow"]) == (405, "GET, HEAD")


def test_head_has_the_headers_and_no_body(good):
    _, headers, text = ask(good, "/report.json")
    assert ask(good, "/report.json", "HEAD") == (200, headers, "")
    assert headers["Content-Length"] == str(len(text.encode()))


@pytest.mark.parametrize("path", ["", "/report.json/", "//", "/../etc/passwd", "/healthz\0", "/REPORT.JSON"])
def test_other_paths_are_404(good, path):
    assert ask(good, path)[0] == 404


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        *((name, True) for name in ("localhost", "LOCALHOST:80", "127.0.0.1:8474", "[::1]:1", "localhost.", None)),
        *(
            (name, False)
            for name in ("evil.example", "127.0.0.1.evil.example", "", "localhost:x", "[::1", "a b", "::1")
        ),
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(good, host, is_ours):
    headers = {} if host is None else {"HOST": host}
    assert (ask(good, hosts=LOOPBACK, **headers)[0] == 200) == is_ours
    assert ask(good, hosts=LOOPBACK, **headers)[0] in (200, 421)
    assert ask(good, **headers)[0] == 200


def test_every_answer_forbids_guessing_and_framing(good):
    for path, method in (("/", "GET"), ("/none", "GET"), ("/", "POST")):
        headers = ask(good, path, method)[1]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"


def test_a_file_is_read_again_when_it_is_another(tmp_path, good, bad):
    path = tmp_path / "report.json"
    source = sources.File(path)
    assert "cannot read the report" in source.now().reason
    path.write_text(render(good.report, "json"))
    first = source.now()
    assert first.report == good.report
    assert source.now() is first
    path.write_text(render(bad.report, "json"))
    assert source.now().report == bad.report
    path.write_text(render(bad.report, "json")[:5000])
    assert "cannot be read as JSON" in source.now().reason
    path.write_text(json.dumps({"schema": "fi-doctor.report/2.0"}))
    assert "newer fi-doctor" in source.now().reason
    path.unlink()
    assert "No such file" in source.now().reason
    path.mkdir()
    assert "directory" in source.now().reason


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path, good, bad, monkeypatch):
    path = tmp_path / "report.json"
    path.write_text(render(good.report, "json"))
    read = sources.document.read_file

    def slowly(of):
        found = read(of)
        path.write_text(render(bad.report, "json"))
        return found

    source = sources.File(path)
    monkeypatch.setattr(sources.document, "read_file", slowly)
    source.now()
    monkeypatch.setattr(sources.document, "read_file", read)
    assert source.now().report == bad.report


@pytest.fixture
def python(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)  # away from any policy
    path = tmp_path / "python"

    def write(text):
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_a_check_gives_a_report_or_why_there_is_none(python):
    asked = ("--python", python(f'exec "{sys.executable}" -S "$@"'), "--feature", "import.torch")
    code, found = sources.check(asked)
    assert code == found.report.gate.code == 3
    assert [row.feature for row in found.report.features] == ["import.torch"]
    code, found = sources.check(("--feature", "norm.rmsnrm"))
    assert code == 2
    assert "norm.rmsnrm" in found.reason
    code, found = sources.check(("--python", python("sleep 600")), timeout_s=1.5)
    assert (code, found) == (None, Missing(reason="the check did not end within 1.5 s"))


def test_where_no_check_can_be_made_nothing_of_an_earlier_one_is_served(good, monkeypatch):
    source = sources.Checks((), 0.001, pytest.fail)
    answers = [lambda: (0, good), pathlib.Path("/nowhere/at/all").stat, lambda: (0, good)]
    seen, is_over = [], threading.Event()

    def check(words):
        seen.append(source.now())
        if not answers:
            is_over.set()
            threading.Event().wait()
        return answers.pop(0)()

    monkeypatch.setattr(sources, "check", check)
    source.begin()
    assert is_over.wait(10)
    assert [seen[1], seen[3]] == [good, good]
    assert "no check can be made: [Errno 2]" in seen[2].reason
