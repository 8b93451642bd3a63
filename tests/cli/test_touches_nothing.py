"""A static check reaches for no network and writes nothing but what fi-doctor remembers, as its processes tell."""

import json
import os
import subprocess
import sys

import cli_command
import pytest

# Loaded by each Python that is started, before anything else. It tells rather than forbids: what fails may be hidden.
WATCH = """
import json, os, sys
_told = open(os.environ["TOLD"], "a", encoding="utf-8")
def _hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"):
        said = [event, repr(args[-1] if event == "socket.connect" else args)]
    elif event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        said = ["open", os.path.abspath(os.fsdecode(args[0])) if not isinstance(args[0], int) else ""]
    elif event == "open" and args[1] is None and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        said = ["open", os.path.abspath(os.fsdecode(args[0]))]
    elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.chmod"):
        said = [event, os.path.abspath(os.fsdecode(args[0]))]
    else:
        return
    _told.write(json.dumps([*said, sys.argv[:1]]) + "\\n")
    _told.flush()
sys.addaudithook(_hook)
"""
FILES = ("open", "os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.chmod")


@pytest.fixture
def watched(tmp_path):
    """Runs the command on a stand-in for the stack, and gives its exit code, output and what its processes did."""
    site = tmp_path / "site"
    for name, version in (("torch", "2.11.0"), ("flashinfer", "0.7.2"), ("vllm", "0.33.0")):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("raise SystemExit('imported')\n")
        distribution = "flashinfer_python" if name == "flashinfer" else name
        (site / f"{distribution}-{version}.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: {distribution.replace('_', '-')}\nVersion: {version}\n"
        (site / f"{distribution}-{version}.dist-info/METADATA").write_text(text)
    (site / "flashinfer/norm.py").write_text("def rmsnorm(input, weight): ...\n")
    (site / "vllm/layer.py").write_text("from flashinfer.norm import rmsnorm\n")
    (site / "vllm/_C.abi3.so").write_bytes(b"\x7fELF no more")
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch/sitecustomize.py").write_text(WATCH)
    (tmp_path / "tmp").mkdir()

    def run(*args):
        told = tmp_path / "told"
        told.write_text("")
        path = os.pathsep.join(map(str, (tmp_path / "watch", site, cli_command.ROOT)))
        environ = cli_command.environment(
            home=tmp_path / "home", PYTHONPATH=path, PYTHONDONTWRITEBYTECODE=1, TOLD=told, TMPDIR=tmp_path / "tmp"
        )
        argv = [sys.executable, "-m", "fi_doctor", *args]
        done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
        return done, [json.loads(line) for line in told.read_text().splitlines()]

    return run


@pytest.mark.parametrize(
    "args",
    [("check", "--depth", "static"), ("report", "--depth", "static", "--json"), ("features",), ("cache",)],
    ids=" ".join,
)
def test_nothing_is_asked_of_a_network_and_nothing_written_elsewhere(watched, tmp_path, args):
    for turn in ("first", "again"):
        done, told = watched(*args)
        assert done.returncode in {0, 3}, done.stderr
        assert "imported" not in done.stderr
        assert any(event == "open" for event, *_ in told) or turn == "again"  # it is watched
        home, allowed = str(tmp_path / "home"), (str(tmp_path / "home/.cache"), str(tmp_path / "tmp"), "/dev/")
        elsewhere = [one for one in told if one[0] not in FILES or not (one[1] == home or one[1].startswith(allowed))]
        assert elsewhere == []
    assert list((tmp_path / "tmp").iterdir()) == []
    kept = {path.relative_to(home).parts[:2] for path in (tmp_path / "home").rglob("*") if path.is_file()}
    assert kept <= {(".cache", "fi-doctor")}


def test_what_reaches_for_a_network_would_be_seen(watched, tmp_path):
    told = tmp_path / "told"
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "watch"), "TOLD": str(told)}
    code = "import socket; s = socket.socket(); s.settimeout(0.1); s.connect_ex(('127.0.0.1', 9)); open('x', 'w')"
    subprocess.run([sys.executable, "-c", code], env=environ, cwd=tmp_path, check=True)
    assert [json.loads(line)[0] for line in told.read_text().splitlines()] == ["socket.connect", "open"]


def test_a_command_that_asks_a_network_is_ended_in_every_test_of_commands():
    code = "import sys, zygote, socket; sys.addaudithook(zygote.refuse_network); a, b = socket.socketpair()\n"
    code += "a.close(); socket.socket().connect(('127.0.0.1', 9))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cli_command.ROOT / "tests/cli", capture_output=True, text=True
    )
    assert (done.returncode, "a network was asked: socket.connect" in done.stderr) == (86, True)
