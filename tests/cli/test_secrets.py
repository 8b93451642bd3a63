"""A secret that was seeded wherever one can stand reaches no output of any command, in no format."""

from __future__ import annotations

import contextlib
import functools
import json
import time

import cli_command
import factory as make
import pytest
from msgspec.structs import replace
from seeded_secrets import ENVIRON, INDEX, KEY, LOG, OWN_LOG, PASSWORD, SEEDS, TOKEN, leaked

from fi_doctor.explaining.diagnose import Source
from fi_doctor.model import Ending, Stage, secrets
from fi_doctor.reports import explained, explained_markdown, issue, render


@functools.cache
def _report():
    """A machine whose probes, packages, paths and variables tell secrets, as a run of this process leaves it."""
    package = make.package("vllm", "0.33.0", location=f"/opt/{TOKEN}", requires=(f"x @ {INDEX}",))
    facts = make.facts(packages={"vllm": package}, environment=dict(ENVIRON))
    done = cli_command.report(facts=facts, broken=("norm.rmsnorm",))
    outcome = make.outcome(
        "norm.rmsnorm",
        Ending.RAISED,
        Stage.BUILT,
        detail=OWN_LOG,
        error=OWN_LOG,
        output=OWN_LOG,
        reproduce=f"HF_TOKEN={TOKEN} x",
    )
    rows = tuple(replace(row, why=f"{row.why}: {OWN_LOG}") for row in done.features)
    done = replace(done, features=rows, outcomes=(outcome,), gate=replace(done.gate, reason=OWN_LOG))
    return secrets.without(done, secrets.held(ENVIRON))


@pytest.mark.parametrize("form", cli_command.FORMATS)
def test_no_format_of_a_report_holds_one(form):
    assert leaked(render(_report(), form)) == []


@pytest.mark.parametrize("project", issue.FORMS)
def test_no_bug_report_holds_one(project):
    assert leaked(issue.render(_report(), project, {})) == []


def test_they_would_be_seen_where_nothing_hides_them():
    facts = make.facts(environment={"CUDA_HOME": " ".join(SEEDS)})
    assert leaked(render(cli_command.report(facts=facts), "json")) == list(SEEDS)


@pytest.fixture
def files(tmp_path):
    env = tmp_path / "server.env"
    env.write_text("".join(f"{name}={value}\n" for name, value in ENVIRON.items()) + "VLLM_NO_SUCH=1\n")
    manifest = tmp_path / "compose.yaml"
    lines = "".join(f"      {name}: '{value}'\n" for name, value in ENVIRON.items())
    command = f"serve m --api-key {KEY} --hf-token={TOKEN} --no-such-option {PASSWORD}"
    manifest.write_text(
        f"services:\n  llm:\n    image: vllm/vllm-openai\n    environment:\n{lines}    command: {command}\n"
    )
    (tmp_path / "server.log").write_text(OWN_LOG)
    site = tmp_path / "site/vllm-0.33.0.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text(f"Name: vllm\nVersion: 0.33.0\nRequires-Dist: torch @ {INDEX}\n")
    url = f"https://build:{PASSWORD}@git.example/{TOKEN}/vllm.git"
    (site / "direct_url.json").write_text(json.dumps({"url": url, "vcs_info": {"vcs": "git", "commit_id": "ab12cd"}}))
    old = cli_command.report(facts=make.facts(environment={"NOTE": LOG, **ENVIRON}))
    (tmp_path / "old.json").write_text(render(old, "json"))
    return {"env": env, "manifest": manifest, "log": tmp_path / "server.log", "site": tmp_path / "site"}


COMMANDS = {
    "check": (
        "check",
        "--no-config",
        "--example",
        "h200",
        "--env-file",
        "{env}",
        "--manifest",
        "{manifest}",
        "-f",
        "console",
    ),
    "report": ("report", "--json", "--env-file", "{env}", "--manifest", "{manifest}"),
    "words": ("report", "--example", "h200", "--vllm-args", "serve m --api-key '" + KEY),
    "env": ("env", "--example", "h200", "--env-file", "{env}", "-f", "json"),
    "old-report": ("check", "--no-config", "--as-recorded", "--from", "old.json", "-f", "yaml"),
    "diff": ("diff", "old.json", "h200", "-f", "json"),
    "explain": ("explain", "{log}", "--env-file", "{env}"),
    "explain-markdown": ("explain", "{log}", "-f", "markdown"),
    "lint": ("lint", "{manifest}", "{env}", "--vllm", "0.33.0"),
    "plan": ("plan", "--from", "old.json", "--to", "vllm=0.33.0", "-f", "json"),
    "plan-no-such": ("plan", "--from", f"https://build:{PASSWORD}@x.example/{TOKEN}.json", "--to", f"vllm={TOKEN}"),
    "plan-no-such-file": ("plan", "--from", f"https://build:{PASSWORD}@x.example/{TOKEN}.json", "--to", "b200"),
    "fleet": ("fleet", "--no-config", "--reports", "old.json", "-f", "json"),
    "features": ("features", "--from", "old.json", "-f", "json"),
    "no-such-file": ("check", "--from", f"https://build:{PASSWORD}@x.example/report.json"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_tells_one(doctor, files, name):
    words = [word.format(**files) if "{" in word else word for word in COMMANDS[name]]
    done = doctor(
        *words, env={**ENVIRON, "PYTHONPATH": f"{files['site']}:{cli_command.ROOT}"} if name == "report" else ENVIRON
    )
    assert done.returncode in (0, 1, 2, 3), done.stderr
    assert leaked(done.stdout + done.stderr) == []


@pytest.mark.parametrize("form", [explained.render, explained.to_json, explained_markdown.render])
def test_what_a_log_of_another_machine_tells_is_without_them(form):
    import io

    from fi_doctor.explaining.diagnose import diagnose

    found = secrets.without(diagnose([Source("log", io.BytesIO(LOG.encode()))]))
    assert leaked(form(found)) == []


@pytest.mark.parametrize(
    "text",
    [
        "unexpected token: 'foo'",
        "max_num_batched_tokens: 8192",
        "MAX_TOKEN=4096",
        "no HF_TOKEN was given",
        "a secret key of a pod",
        "ssh://git@github.com/x/y.git",
        "hf_quant_config.json, gh_pages, sk-learn",
        "error: expected primary-expression before ')' token",
        "https://example.org/a?page=2&sort=key",
        "LD_LIBRARY_PATH=/usr/lib:/spack-with-a-long-name@1.2/lib PYTHONPATH=/a:/b@1",
        "HF_TOKEN_PATH=/root/.token PWD=/work/tree SSH_AUTH_SOCK='/tmp/agent' VLLM_MAX_TOKENS_X=many MONKEY=banana",
        "vllm serve m --enable-auth --allow-credentials --ssl-keyfile /k",
        "AUTH_FAILED: no such user; KEY: value",
        "{'enable_auth': True, 'first_pass': 12, 'tokens': ['a', 'b']}",
    ],
)
def test_what_is_none_stays(text):
    assert secrets.hidden(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/w/http:/user:seeded9@proxy.example:3128/x", "/w/http:/<hidden>@proxy.example:3128/x"),
        ("redis:/user:seeded9@host/0", "redis:/<hidden>@host/0"),
        ("https:/seeded9seeded9seeded9@host", "https:/<hidden>@host"),
        ("export VLLM_DB_PWD=seeded9 A=1", "export VLLM_DB_PWD=<hidden> A=1"),
        ("NCCL_COOKIE='seeded9'", "NCCL_COOKIE='<hidden>'"),
        ("VLLM_CREDS_OLD=seeded9", "VLLM_CREDS_OLD=<hidden>"),
        ("vllm serve m --redis-pwd seeded9 --tp 2", "vllm serve m --redis-pwd <hidden> --tp 2"),
        ("FLASHINFER_AUTH: seeded9", "FLASHINFER_AUTH: <hidden>"),
        ("{'db_pwd': 'seeded9', 'tp': 2}", "{'db_pwd': '<hidden>', 'tp': 2}"),
        ("{'api_key': ['seeded9', 'seeded8'], 'tp': 2}", "{'api_key': ['<hidden>'], 'tp': 2}"),
    ],
)
def test_what_is_one_goes_and_the_rest_stays(text, left):
    assert secrets.hidden(text) == left


@pytest.mark.parametrize(
    "part",
    [
        "A_KEY_",
        "KEY=['a','",
        "http:/a:",
        "--key",
        "://a:",
        "eyJ",
        "api_key ",
        "token=",
        "-----BEGIN PRIVATE KEY-----",
        "--a-",
        "?key=",
    ],
)
def test_no_text_takes_long(part):
    began = time.perf_counter()
    secrets.hidden(part * (100_000 // len(part)))
    assert time.perf_counter() - began < 2


def test_paths_and_numbers_of_variables_are_none():
    environ = {"HF_TOKEN_PATH": "/root/.token", "VLLM_MAX_TOKEN": "1234567", "PWD": "/work/tree", "X_KEY": "short"}
    assert secrets.held(environ) == frozenset()


def test_a_fault_of_ours_does_not_tell_what_was_typed(capfd):
    from fi_doctor.cli import process

    with contextlib.suppress(ValueError):
        try:
            int(TOKEN)
        finally:
            process._report_fault(["check", "--vllm-args", f"--api-key {KEY}"])
    assert leaked(capfd.readouterr().err) == []
