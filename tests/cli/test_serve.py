"""`fi-doctor serve` as a process, asked by real requests: one server for all, which a file tells what to serve."""

from __future__ import annotations

import contextlib
import http.client
import inspect
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import cli_command
import pytest
from waiting import wait_for
from waitress import channel

from fi_doctor.cli import app, publishing
from fi_doctor.endpoint import listening
from fi_doctor.reports import render

SERVING = re.compile(r"fi-doctor: serving .* at http://([0-9.]+):([0-9]+)/\n")


@contextlib.contextmanager
def started(folder, *words, **changes):
    environ = cli_command.environment(home=folder, THIS_TEST=folder, **changes)
    argv = [sys.executable, "-m", "fi_doctor", "serve", "--port", "0", *map(str, words)]
    child = subprocess.Popen(argv, cwd=folder, env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child, int(SERVING.fullmatch(child.stderr.readline())[2])
    finally:
        child.kill()
        child.communicate()


@pytest.fixture(scope="module")
def reports():
    made = cli_command.report(), cli_command.report(broken=[cli_command.BROKEN])
    return tuple(render(one, "json").encode() for one in made)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with started(folder, "--from", "report.json") as (child, port):
        yield folder / "report.json", port
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        out, said = child.communicate(timeout=5)
        assert (child.returncode, out) == (143, "")
        assert said.endswith("fi-doctor: terminated; no verdict\n")
        assert "Exception while serving" not in said


@pytest.fixture
def served(server, reports):
    path, port = server
    path.write_bytes(reports[0])
    return path, port


def ask(port, path="/healthz", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def talk(port, sent, *, seconds=20.0):
    """All that comes for these bytes until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        got = b""
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(1 << 16):
                got += chunk
        return got


def test_pages_health_and_other_paths(served, reports):
    path, port = served
    assert ask(port)[0] == 200
    status, headers, body = ask(port, "/report.json")
    assert (status, body) == (200, reports[0])
    assert int(headers["Fi-Doctor-Age"]) > 0
    assert ask(port, "/report.json", **{"If-None-Match": headers["ETag"]})[::2] == (304, b"")
    assert ask(port, "/report.json", "HEAD")[::2] == (200, b"")
    for page, start in (("/", b"<!"), ("/metrics", b"# HELP ")):
        status, _, body = ask(port, page)
        assert (status, body[: len(start)].lower()) == (200, start.lower())
    assert ask(port, "/report.yaml")[0] == 404
    assert ask(port, "/", "DELETE")[0] == 405
    path.write_bytes(reports[1])
    assert ask(port)[0] == 503


def test_another_host_is_refused(served):
    assert ask(served[1], Host="evil.example")[0] == 421
    assert ask(served[1], Host=f"localhost:{served[1]}")[0] == 200


@pytest.mark.parametrize("state", ["gone", "folder", "half", "newer", "closed", "pipe", "loop"])
def test_a_report_that_cannot_be_read_is_503_and_a_new_one_is_served_at_once(served, reports, state):
    path, port = served
    assert ask(port)[0] == 200
    path.unlink()
    if state == "folder":
        path.mkdir()
    elif state == "pipe":
        os.mkfifo(path)
    elif state == "loop":
        path.symlink_to(path)
    elif state != "gone":
        text = {"half": reports[0][:9000], "newer": b'{"schema": "fi-doctor.report/2.0"}', "closed": b""}[state]
        path.write_bytes(text)
    for page in ("/healthz", "/", "/metrics", "/report.json"):
        status, headers, body = ask(port, page)
        assert (status, body[:11]) == (503, b"no report: ")
        assert "Fi-Doctor-Age" not in headers
    if state == "folder":
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.write_bytes(reports[1])
    assert b"does not hold" in ask(port)[2] or cli_command.BROKEN.encode() in ask(port)[2]


def test_a_report_that_is_replaced_all_the_time_is_one_of_them_and_never_a_mixture(served, reports):
    path, port = served
    is_over = threading.Event()

    def replace():
        turn = 0
        while not is_over.is_set():
            turn += 1
            scratch = path.with_suffix(".new")
            scratch.write_bytes(reports[turn % 2])
            scratch.replace(path)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        seen = {ask(port, "/report.json")[2] for _ in range(20)}
    finally:
        is_over.set()
        writer.join()
    assert seen <= set(reports)


@pytest.mark.parametrize(
    ("sent", "codes"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", {431}),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", {431}),
        (b"\0\1\2\r\n\r\n", {400}),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\nConnection: close\r\n\r\n", {413}),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x\r\nConnection: close\r\n\r\n", {501, 400}),
        (b"GET /%2e%2e/etc/passwd HTTP/1.0\r\n\r\n", {404}),
        (b"GET /healthz HTTP/1.0\r\n\r\n", {200}),
    ],
    ids=["header", "line", "binary", "body", "encoding", "path", "old"],
)
def test_requests_that_are_too_large_or_malformed_are_refused(served, sent, codes):
    got = talk(served[1], sent)
    assert int(got.split()[1]) in codes


def test_what_the_library_cannot_take_apart_ends_that_connection_alone(served):
    assert talk(served[1], b"GET http://[ HTTP/1.1\r\n\r\n") == b""
    assert ask(served[1])[0] == 200


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHo", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=len)
def test_those_who_say_nothing_half_a_request_or_do_not_read_hold_nobody_up(served, sent):
    _, port = served
    with contextlib.ExitStack() as others:
        for _ in range(3 * listening.CONNECTIONS):
            other = others.enter_context(socket.socket())
            other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            other.connect(("127.0.0.1", port))
            other.sendall(sent)
        begun = time.monotonic()
        assert ask(port)[0] == 200
        assert time.monotonic() - begun < 5
    assert ask(port)[0] == 200


def test_a_request_in_drops_ends_as_if_nothing_came(monkeypatch):
    clock = iter(range(100, 200))
    monkeypatch.setattr(channel, "time", types.SimpleNamespace(time=lambda: next(clock)))
    with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()) as client:
        made = listening.server(lambda environ, start: [], door)
        taken, address = door.accept()
        with contextlib.closing(listening.Channel(made, taken, address, made.adj, map={})) as one:
            for drop, at in ((b"G", 101), (b"ET / HTTP/1.1\r\n", 101), (b"Host: ", 101), (b"x\r\n\r\nGET", 104)):
                client.sendall(drop)
                one.handle_read()
                assert one.last_activity == at
        made.task_dispatcher.shutdown(timeout=1)
        made.trigger.close()


@pytest.mark.parametrize(
    ("allowed", "used", "limit"), [(-1, 9, 64), (1024, 9, 64), (24, 9, 3), (23, 9, 2), (22, 9, None), (0, 9, None)]
)
def test_there_are_as_many_connections_as_descriptors_are_left(allowed, used, limit):
    if limit is None:
        with pytest.raises(OSError, match="Too many open files"):
            listening.connections(allowed, used)
    else:
        assert listening.connections(allowed, used) == limit


def test_many_ask_at_once(served):
    found = []
    threads = [threading.Thread(target=lambda: found.append(ask(served[1], "/report.json")[0])) for _ in range(30)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [200] * 30


def test_a_check_that_hangs_holds_up_neither_answers_nor_the_end(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ntouch begun\nexec sleep 600\n")
    python.chmod(0o755)
    with started(tmp_path, "--every", "10m", "--no-config", "--python", python) as (child, port):
        assert wait_for((tmp_path / "begun").exists)
        assert ask(port)[::2] == (503, b"no report: the first check is not over yet\n")
        begun = time.monotonic()
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=10) == 143
        assert time.monotonic() - begun < 4
    assert wait_for(lambda: not cli_command.processes_with(f"THIS_TEST={tmp_path}"), seconds=5)


def test_what_cannot_be_served_is_told_at_the_start(doctor, served):
    _, port = served
    wrong = {
        ("--from", "x"): f"127.0.0.1 port {port}\n  why: Address already in use",
        ("--from", "x", "--host", "192.0.2.1"): "192.0.2.1",
        ("--from", "x", "--host", "no such host"): "'no such host'",
        (): "--from or --every",
        ("--from", "-"): "--from: '-' is no file",
        ("--from", "x", "--every", "1m"): "--from or --every",
        ("--from", "x", "--feature", "norm.*"): "--feature: nothing is checked with --from",
        ("--from", "x", "--lock", "y"): "--lock: nothing is checked with --from",
        ("--every", "soon"): "'soon' is not a duration",
    }
    for words, why in wrong.items():
        done = doctor("serve", "--port", port, *words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert done.stderr.startswith("error: ")
        assert why.strip("'") in done.stderr
    done = doctor("serve", "--port", "0", "--every", "1m", "--feature", "norm.rmsnrm", "--no-config")
    assert done.returncode == 2
    assert "norm.rmsnrm" in done.stderr


def test_options_are_handed_over_as_check_takes_them():
    assert publishing._words("--feature", ["a", "b.*"]) == ("--feature", "a", "--feature", "b.*")
    assert publishing._words("--no-config", value=True) == ("--no-config",)
    assert publishing._words("--no-config", value=False) == publishing._words("--python", None) == ()
    assert publishing._words("--lock", "a.lock") == ("a.lock", "--locked")
    taken = {f"--{name.replace('_', '-')}" for name in inspect.signature(app.check).parameters}
    assert set(publishing._OF_CHECKS) <= taken
    assert {f"--{name.replace('_', '-')}" for name in inspect.signature(publishing.serve).parameters} > set(
        publishing._OF_CHECKS
    )


def test_without_waitress_it_is_said_what_to_install(doctor):
    hide = "import sys; sys.modules['waitress'] = None; from fi_doctor.cli.process import main; main(sys.argv[1:])"
    done = doctor(argv=[sys.executable, "-c", hide, "serve", "--from", "report.json"])
    assert done.returncode == 2
    assert "-I -m pip install 'waitress>=3.0.1'" in done.stderr
