"""`fi-doctor fleet --reports`: one exit code for all nodes, formats as for one machine, and what to do without any."""

from __future__ import annotations

import json
import os

import cli_command
import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.model import Missing
from fi_doctor.reports import render


def put(folder, name, *, broken=(), cuda="13.0.2", **options):
    """A report of a machine of its own."""
    uuid = f"GPU-7f7c6807-4d0a-46a4-e695-{sum(name.encode()):012x}"
    facts = make.facts(gpus=make.gpu_facts(make.gpu(uuid=uuid)), environment={"CUDA_VERSION": cuda})
    done = cli_command.report(facts=facts, broken=broken, **options)
    (folder / f"{name}.json").write_text(render(done, "json"))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "reports"
    made.mkdir()
    for name in ("node-1", "node-2", "node-3"):
        put(made, name)
    return made


def test_the_odd_node_is_told_in_a_line_and_all_is_well(doctor, folder):
    put(folder, "node-4", cuda="12.8.1")
    done = doctor("fleet", "--no-config", "--reports", folder)
    assert done.stdout.splitlines()[0] == "4 nodes: 4 hold, 1 odd"
    assert "node-4: CUDA_VERSION=12.8.1, the others 13.0.2" in done.stdout
    assert done.stderr.splitlines()[-1] == "fi-doctor: 4 nodes: 4 hold, 1 odd (exit 0)"
    assert done.returncode == 0


def test_a_node_that_fails_fails_the_fleet_and_a_broken_report_hides_nothing(doctor, folder):
    put(folder, "node-4", broken=("norm.rmsnorm",))
    (folder / "node-5.json").write_text('{"schema": ')
    out = folder / "fleet.out"
    done = doctor("fleet", "--no-config", "--reports", folder, "-f", f"json:{out}", "-f", f"junit:{folder / 'j.xml'}")
    told = json.loads(out.read_text())
    assert done.returncode == told["gate"]["code"] == 1
    assert {one["name"]: one["code"] for one in told["nodes"]} == {
        "node-1": 0,
        "node-2": 0,
        "node-3": 0,
        "node-4": 1,
    }
    assert [one["name"] for one in told["unread"]] == ["node-5"]
    assert (folder / "j.xml").read_text().count("<testsuite ") == 5


def test_what_is_required_is_asked_of_every_node(doctor, folder):
    done = doctor("fleet", "--no-config", "--reports", folder, "--require", "norm.rmsnorm")
    assert done.returncode == 0
    done = doctor("fleet", "--no-config", "--reports", folder, "--require", "norm.rmsnorm=unsupported")
    assert done.returncode == 1


def test_a_file_that_is_cut_off_leaves_the_rest_untold_and_not_well(doctor, folder):
    (folder / "node-5.json").write_text("")
    assert doctor("fleet", "--no-config", "--reports", folder).returncode == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--reports", "{folder}", "--address", "auto"), 2, "files or a cluster"),
        (("--tp", "2"), 2, "--tp and --pp: of what"),
        (("warm", "--share", "caches"), 2, "each node has another current folder"),
        (("--address", "nowhere", "--collectives"), 2, "one rank has nobody to talk to"),
        (("--runtime-env", "{folder}/none.yaml"), 2, "none.yaml: No such file"),
        (("--nccl-log", "{folder}/none.log"), 2, "none.log: No such file"),
        (("--runtime-env", "{folder}/pipe"), 2, "pipe: it is not a file"),
        (("--collectives", "--nccl-log", "{folder}/pipe"), 2, "pipe: it is not a file"),
        (("--reports", "{folder}", "--depth", "run"), 2, "--depth: it says nothing here"),
        (("--reports", "{folder}", "--jobs", "2", "--all-nodes"), 2, "--all-nodes, --jobs: they say nothing here"),
        (("--reports", "{folder}", "--collectives", "--tp", "2"), 2, "--tp, --collectives: they say nothing here"),
        (("--collectives", "--tp", "2", "--require", "norm.*"), 2, "--require: it says nothing here"),
        (("--nccl-log", "{folder}/none.log", "--wait", "1m"), 2, "--wait: it says nothing here"),
        (("--address", "head:6379", "warm"), 2, "options of fi-doctor fleet warm come behind its name"),
        (("--reports", "/nowhere"), 2, "there is no '/nowhere'"),
        (("--reports", "{empty}"), 3, "no report in"),
        (("--reports", "{folder}", "-f", "sarif"), 2, "sarif"),
        (("--reports", "{folder}", "-o", "{folder}/node-1.json"), 2, "is one of the reports"),
        (("--reports", "{folder}", "--driver", "node-9"), 2, "there is no node 'node-9'"),
    ],
)
def test_mistakes_say_what_to_do(doctor, folder, words, code, said):
    empty = folder / "empty"
    empty.mkdir()
    os.mkfifo(folder / "pipe")
    settings = () if words[0] == "warm" else ("--no-config",)
    done = doctor("fleet", *settings, *(word.format(folder=folder, empty=empty) for word in words))
    assert done.returncode == code
    assert said in done.stderr
    assert "try: " in done.stderr


@pytest.mark.parametrize(("words", "address"), [((), "auto"), (("--address", ""), "")])
def test_an_address_that_is_empty_is_not_auto(monkeypatch, words, address):
    from typer.testing import CliRunner

    from fi_doctor.cli import fleet

    asked = []
    monkeypatch.setattr(fleet, "check", lambda one: asked.append(one.ray.address) or 0)
    CliRunner().invoke(fleet.app, words)
    assert asked == [address]


def test_the_name_of_a_host_is_taken_out_of_a_redacted_report():
    from fi_doctor.reports import redaction

    facts = make.facts()
    named = replace(facts, system=replace(facts.system, hostname="gpu17.rack4"))
    text = render(redaction.redact(cli_command.report(facts=named), {}), "json")
    assert "gpu17" not in text
    assert isinstance(facts.system.hostname, Missing)


def test_nodes_look_at_what_is_named_and_at_what_must_work_there():
    from fi_doctor.cli.fleet import _looked_at, _words

    assert _looked_at(["norm.*"], ["rope.apply=verified"]) == ("norm.*", "rope.apply")
    assert _looked_at(None, ["rope.apply"]) == ()
    assert _words({"--jobs": 2, "--budget": None}, ("norm.*",)) == ("--jobs", "2", "--feature", "norm.*")


@pytest.fixture
def odd(folder):
    put(folder, "node-4", cuda="12.8.1")
    return folder


def test_nodes_that_differ_fail_where_that_is_asked_for(doctor, odd):
    done = doctor("fleet", "--no-config", "--reports", odd, "--fail-on", "drift", "-f", "json")
    gate = json.loads(done.stdout)["gate"]
    why = "node-4: CUDA_VERSION=12.8.1, the others 13.0.2"
    assert done.returncode == gate["code"] == 1
    assert gate["reason"] == f"4 nodes: 4 hold, 1 odd; they differ, which fails (--fail-on drift): {why}"
    assert gate["requirements"] == [
        {
            "requirement": "no node differs from another",
            "source": "--fail-on drift",
            "holds": "no",
            "why": why,
            "rows": [],
            "findings": [],
            "decides": True,
        }
    ]


def test_a_policy_asks_for_it_too_and_of_one_machine_it_says_nothing(doctor, odd):
    policy = odd.parent / "fi-doctor.toml"
    policy.write_text('fail-on = ["broken", "drift"]')
    assert doctor("fleet", "--config", policy, "--reports", odd).returncode == 1
    (odd / "node-4.json").unlink()
    assert doctor("fleet", "--config", policy, "--reports", odd).returncode == 0
    assert doctor("check", "--config", policy, "--from", odd / "node-1.json").returncode == 0


def test_a_node_that_was_not_read_may_differ_and_one_that_fails_is_named_first(doctor, folder):
    (folder / "node-5.json").write_text("")
    done = doctor("fleet", "--no-config", "--reports", folder, "--fail-on", "drift", "-f", "json")
    (ruling,) = json.loads(done.stdout)["gate"]["requirements"]
    assert (done.returncode, ruling["holds"], ruling["why"]) == (3, "cannot tell", "node-5 not read")
    put(folder, "node-5", broken=("norm.rmsnorm",))
    done = doctor("fleet", "--no-config", "--reports", folder, "--fail-on", "drift", "-f", "json")
    (ruling,) = json.loads(done.stdout)["gate"]["requirements"]
    assert (done.returncode, ruling["holds"], ruling["decides"]) == (1, "no", False)


def test_one_machine_is_not_asked_whether_it_differs(doctor):
    done = doctor("check", "--no-config", "--example", "h200", "--fail-on", "drift")
    assert done.returncode == 2
    assert "one machine differs from no other" in done.stderr
    assert "fi-doctor fleet --fail-on drift" in done.stderr
