"""No secret reaches what `cache` and `warm` say, an answer over HTTP, or stderr where a command fails."""

from __future__ import annotations

import shutil

import cli_command
import factory as make
import pytest
from cli_command import ROOT
from jit_stack import Stack
from seeded_secrets import ENVIRON, INDEX, LOG, OWN_LOG, PASSWORD, SEEDS, TOKEN, leaked

from fi_doctor.endpoint.answers import Endpoint
from fi_doctor.endpoint.sources import File
from fi_doctor.reports import render

NINJA = "ninja_required_version = 1.3\nname = x\ncuda_home = {}\ncflags = -DURL={} -DHF_TOKEN={}\n\nrule compile\n"


@pytest.fixture
def seeded(doctor, tmp_path):
    """seeded(*words): `cache` on one whose folders and files tell secrets, with a module that is empty."""
    site, base = tmp_path / "site", tmp_path / f"ws-{PASSWORD}" / TOKEN
    (site / "flashinfer").mkdir(parents=True)
    (site / "flashinfer" / "__init__.py").touch()
    (site / "flashinfer" / "_build_meta.py").write_text('__version__ = "0.7.2.post1"\n')
    for name in ("page", TOKEN, f"norm_{PASSWORD}"):
        folder = base / ".cache/flashinfer/0.7.2.post1/90a/cached_ops" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.so").touch()
        (folder / "build.ninja").write_text(NINJA.format(f"/opt/{TOKEN}", INDEX, TOKEN))
    more = {"PYTHONPATH": f"{site}:{ROOT}", "FLASHINFER_WORKSPACE_BASE": str(base)}
    return lambda *words: doctor("cache", *words, env={**ENVIRON, **more}, of_examined=True)


@pytest.mark.parametrize(
    "words", [("--all",), ("--json",), ("--yaml",), ("--prune", "--dry-run"), ("--prune",)], ids=lambda words: words[-1]
)
def test_what_cache_says_holds_none(seeded, words):
    done = seeded(*words)
    assert done.returncode in (1, 2), done.stderr
    assert "page" in done.stdout + done.stderr
    assert leaked(done.stdout + done.stderr) == []


def test_what_cache_removes_it_still_finds(seeded, tmp_path):
    done = seeded("--prune", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert leaked(done.stdout + done.stderr) == []
    assert list(tmp_path.rglob("*.so")) == []


@pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja on PATH")
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["console", "json"])
def test_what_warm_says_of_a_compiler_that_tells_some_holds_none(tmp_path, doctor, form):
    stack = Stack(tmp_path / TOKEN, doctor)
    log = tmp_path / "said"
    log.write_text(OWN_LOG)
    stack.module("a", f"cat {log} >&2; exit 1")
    done = stack("--feature", "fake.*", *form, **ENVIRON)
    assert done.returncode == 1, done.stderr
    assert "<hidden>" in done.stdout + done.stderr
    assert leaked(done.stdout + done.stderr) == []


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """asked(page, name="report.json"): status line, headers and body that `serve` gives of a report in a file."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    told = cli_command.report(facts=make.facts(environment={"NOTE": OWN_LOG}), broken=(cli_command.BROKEN,))
    (tmp_path / "report.json").write_text(render(told, "json"))

    def ask(page, name="report.json"):
        endpoint = Endpoint(File(tmp_path / name), hosts=None)
        said = []
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": page, "HTTP_HOST": "localhost"}
        body = b"".join(endpoint(environ, lambda status, headers, *_: said.append(f"{status} {headers}")))
        return said[0] + body.decode()

    return ask


PAGES = ("/healthz", "/report.json", "/metrics", "/", "/no-such")


@pytest.mark.parametrize("page", PAGES)
def test_no_answer_over_http_holds_one(asked, page):
    assert leaked(asked(page)) == []


@pytest.mark.parametrize("page", PAGES[:1])
def test_nor_why_there_is_none(asked, page):
    said = asked(page, f"{TOKEN}-{PASSWORD}.json")
    assert said.startswith("503")
    assert leaked(said) == []


URL = f"https://build:{PASSWORD}@x.example/{TOKEN}?token={SEEDS[3]}"
FAILING = {
    "check": ("check", "--no-config", "--python", URL),
    "check-user": ("check", "--no-config", "--as-user", URL),
    "check-output": ("check", "--no-config", "--example", "h200", "-f", f"json:/no-such/{URL}"),
    "check-policy": ("check", "--config", "policy.toml", "--example", "h200"),
    "check-model": ("check", "--no-config", "--model", URL),
    "check-target": ("check", "--no-config", "--target", URL),
    "check-locked": ("check", "--locked", URL, "--frozen"),
    "report": ("report", "--python", URL),
    "report-env": ("report", "--env-file", URL),
    "warm": ("warm", "--python", URL),
    "warm-budget": ("warm", "--budget", URL),
    "env": ("env", "--python", URL),
    "cache": ("cache", "--python", URL),
    "lock": ("lock", "--from", URL),
    "diff": ("diff", URL, f"{TOKEN}.json"),
    "serve": ("serve", "--from", "report.json", "--host", URL),
    "lint": ("lint", URL, "policy.toml"),
    "explain": ("explain", URL),
    "features": ("features", "--from", URL),
    "schema": ("schema", URL),
    "probes": ("probes", "show", URL),
    "knowledge": ("knowledge", "show", URL),
    "option": ("check", f"--{URL}", TOKEN),
    "command": (URL,),
}


@pytest.mark.parametrize("name", FAILING)
def test_no_command_that_fails_tells_one(doctor, tmp_path, name):
    (tmp_path / "policy.toml").write_text(f'require = ["{TOKEN}", "{INDEX}"]\n[{PASSWORD}]\n"{SEEDS[3]}" = 1\n{LOG}')
    done = doctor(*FAILING[name], env=ENVIRON)
    assert done.returncode in (1, 2, 3), done.stderr
    assert leaked(done.stdout + done.stderr) == []


TYPED = "http://user:hunter2pass@proxy.example:3128/x"
WHERE_PATHS_ARE = {
    "from": ("check", "--no-config", "--from", TYPED),
    "diff": ("diff", TYPED, "h200"),
    "knowledge": ("check", "--no-config", "--example", "h200", "--knowledge", TYPED),
    "python": ("check", "--no-config", "--python", TYPED),
    "output": ("check", "--no-config", "--example", "h200", "-o", TYPED),
}


@pytest.mark.parametrize("name", WHERE_PATHS_ARE)
def test_a_password_that_no_variable_holds_is_not_told_of_a_path(doctor, name):
    done = doctor(*WHERE_PATHS_ARE[name])
    assert done.returncode in (2, 3), done.stderr
    assert "<hidden>@proxy.example" in done.stderr
    assert "hunter2pass" not in done.stdout + done.stderr
