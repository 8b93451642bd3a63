"""What the YAML and the scripts call exists: options, inputs, variables, files; shell that shellcheck takes."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from pieces import DEPLOY, GITHUB, ROOT

SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
ACTION = yaml.safe_load((DEPLOY / "github" / "action.yml").read_text())
JOB = yaml.safe_load((DEPLOY / "gitlab" / "fi-doctor.yml").read_text())["fi-doctor"]
PATCH = DEPLOY / "kubernetes" / "init-container.yaml"
POD = yaml.safe_load(PATCH.read_text())["spec"]["template"]["spec"]
CHECK = (DEPLOY / "check.sh").read_text()
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm}
spec:
  selector: {matchLabels: {app: vllm}}
  template:
    metadata: {labels: {app: vllm}}
    spec:
      containers: [{name: vllm, image: server, args: [serve], env: [{name: HF_HOME, value: /models}]}]
"""


def help_of(command):
    words = [sys.executable, "-m", "fi_doctor", command, "--help"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def variables_read():
    """The variables that check.sh says it reads."""
    head = CHECK.partition("set -eu")[0]
    return {name for line in head.splitlines() for name in re.findall(r"\bCHECK_[A-Z]+\b", line)}


def given():
    """The variables that each piece of YAML hands over."""
    return {
        "github": dict(ACTION["runs"]["steps"][0]["env"]),
        "gitlab": dict(JOB["variables"]),
        "kubernetes": {one["name"]: one["value"] for one in POD["initContainers"][0]["env"]},
    }


def test_every_option_in_the_scripts_and_the_yaml_is_one_of_the_command():
    passed = {
        "warm": set(re.findall(r"--[a-z-]+", re.search(r"check_doctor\" warm (.*)", CHECK)[1])),
        "check": set(re.findall(r"--[a-z-]+", CHECK.partition("set -- check")[2])),
    }
    comments = (DEPLOY / "github" / "action.yml").read_text().partition("name: fi-doctor\n")[0]
    passed["check"] |= set(re.findall(r"--[a-z-]+", comments))
    for values in given().values():
        passed["check"] |= set(re.findall(r"--[a-z-]+", values["CHECK_ARGS"]))
    assert passed["warm"] == {"--budget", "--python"}
    of_check = ("--budget", "--config", "--explain-gate", "--format", "--frozen", "--locked", "--python")
    assert passed["check"] == set(of_check)
    for command, options in passed.items():
        listed = set(re.findall(r"--[a-z-]+", help_of(command)))
        assert options <= listed


def test_every_variable_that_is_handed_over_is_read_and_what_is_read_is_said():
    used = set(re.findall(r"\bCHECK_[A-Z]+\b", CHECK.partition("set -eu")[2]))
    assert used == variables_read()
    for name, values in given().items():
        unread = {one for one in values if one.startswith("CHECK_")} - used
        # The job itself fetches by these.
        assert unread == ({"CHECK_SOURCE", "CHECK_REF"} if name == "gitlab" else set())
    script = "\n".join(JOB["script"])
    assert set(re.findall(r"\bCHECK_[A-Z]+\b", script)) <= set(JOB["variables"])


def test_inputs_are_never_part_of_the_script_and_each_is_handed_over_once():
    [step] = ACTION["runs"]["steps"]
    assert "${{" not in step["run"]
    named = [re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value)[1] for value in step["env"].values()]
    assert sorted(named) == sorted(ACTION["inputs"])
    outputs = {re.search(r"steps\.check\.outputs\.(\w+)", one["value"])[1] for one in ACTION["outputs"].values()}
    assert step["id"] == "check"
    written = re.search(r"printf '(code=%s)\\n(report=%s)\\n' ", GITHUB.read_text()).groups()
    assert outputs == {text.partition("=")[0] for text in written} == set(ACTION["outputs"])


def test_the_files_that_are_named_are_there():
    [run] = [step["run"] for step in ACTION["runs"]["steps"]]
    assert (DEPLOY / "github" / re.search(r'"\$GITHUB_ACTION_PATH/(\S+)"', run)[1]).is_file()
    sourced = re.search(r'^\. "\$GITHUB_ACTION_PATH/(\S+)"', GITHUB.read_text(), re.MULTILINE)[1]
    assert (DEPLOY / "github" / sourced).is_file()
    assert (ROOT / re.search(r'sh "\$CHECK_INSTALL/(\S+)"', JOB["script"][-1])[1]).is_file()
    for path in re.findall(r"\bdeploy/[\w./-]+", "".join(one.read_text() for one in DEPLOY.rglob("*.y*ml"))):
        assert (ROOT / path).exists(), path


def test_the_config_map_holds_what_the_container_starts_and_reads():
    made = {pathlib.Path(path).name for path in re.findall(r"--from-file=(\S+)", PATCH.read_text())}
    [container] = POD["initContainers"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    sourced = re.search(r'^\. "\$here/(\S+)"', (DEPLOY / "kubernetes" / "init.sh").read_text(), re.MULTILINE)[1]
    policy = given()["kubernetes"]["CHECK_CONFIG"]
    wanted = [container["command"][1], f"{mounts['fi-doctor']}/{sourced}", policy]
    assert {str(pathlib.Path(path).parent) for path in wanted} == {mounts["fi-doctor"]}
    assert {pathlib.Path(path).name for path in wanted} == made


def test_both_containers_share_the_cache_and_the_image():
    [check], [server] = POD["initContainers"], POD["containers"]
    assert check["image"] == server["image"]
    for container in (check, server):
        base = {one["name"]: one["value"] for one in container["env"]}["FLASHINFER_WORKSPACE_BASE"]
        assert {"name": "jit-cache", "mountPath": base} in container["volumeMounts"]
    assert {one["name"] for one in POD["volumes"]} == {"jit-cache", "fi-doctor"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_takes_the_patch_and_leaves_the_server_as_it_was(tmp_path):
    deployment = tmp_path / "deployment.yaml"
    deployment.write_text(DEPLOYMENT)
    words = ["patch", "--local", "-f", deployment, "--patch-file", PATCH, "-o", "yaml"]
    done = subprocess.run(
        ["kubectl", *words], env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    pod = yaml.safe_load(done.stdout)["spec"]["template"]["spec"]
    [server], [check] = pod["containers"], pod["initContainers"]
    assert server["args"] == ["serve"]
    assert {one["name"] for one in server["env"]} == {"HF_HOME", "FLASHINFER_WORKSPACE_BASE"}
    assert check == POD["initContainers"][0]
    assert {one["name"] for one in pod["volumes"]} == {"jit-cache", "fi-doctor"}


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(path):
    done = subprocess.run(["shellcheck", "-x", path], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_there_are_scripts_to_check():
    names = ["check.sh", "stage.sh", "action.sh", "init.sh", "node.sh", "health.sh"]
    assert [path.name for path in SCRIPTS] == names
