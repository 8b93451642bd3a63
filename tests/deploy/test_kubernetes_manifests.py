"""Kubernetes' manifests: what it takes, that each starts and mounts what is there, and an overlay of them."""

from __future__ import annotations

import shutil
import subprocess

import jsonschema
import pytest
import yaml
from pieces import DEPLOY, KINDS, validator

FOLDER = DEPLOY / "kubernetes"


def documents(path):
    return list(yaml.safe_load_all(path.read_text()))


MANIFESTS = [*sorted(FOLDER.glob("*.yaml")), FOLDER / "job" / "job.yaml"]
MANIFESTS.remove(FOLDER / "init-container.yaml")  # a patch, and no object


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_what_kubernetes_takes(path):
    for document in documents(path):
        validator(KINDS[document["kind"]]).validate(document)


def test_the_schemas_refuse_what_kubernetes_does_not_know():
    [daemon] = documents(FOLDER / "daemonset.yaml")
    daemon["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(jsonschema.ValidationError, match="volumeMount"):
        validator(KINDS["DaemonSet"]).validate(daemon)


def pod(name):
    [found] = documents(FOLDER / name)
    return found["spec"]["template"]["spec"]


@pytest.mark.parametrize(("name", "start"), [("daemonset.yaml", "node.sh"), ("job/job.yaml", "init.sh")])
def test_pods_start_and_mount_what_is_there_and_their_variables_are_read(name, start):
    [container] = pod(name)["containers"]
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    [generated] = kustomization["configMapGenerator"]
    files = {path.rpartition("/")[2] for path in generated["files"]} | {"fi-doctor.toml"}
    assert all((DEPLOY / path).is_file() for path in generated["files"])
    assert container["command"] == ["sh", f"/etc/fi-doctor/{start}"]
    assert {start, "check.sh", "fi-doctor.toml"} <= files
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod(name)["volumes"]}
    read = (DEPLOY / "check.sh").read_text() + (FOLDER / start).read_text()
    for one in container["env"]:
        assert one["name"] in read or one["name"].startswith(("NVIDIA_", "XDG_", "FLASHINFER_"))


def test_the_account_may_do_what_the_script_does_and_no_more():
    account, role, binding = documents(FOLDER / "rbac.yaml")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["get", "patch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == account["metadata"]["name"] == pod("daemonset.yaml")["serviceAccountName"]
    assert pod("job/job.yaml")["automountServiceAccountToken"] is False


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_an_overlay_names_the_image_and_brings_the_policy(tmp_path):
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "fi-doctor.toml").write_text('budget = "5m"\n')
    (overlay / "kustomization.yaml").write_text(
        "resources: [../deploy]\ncomponents: [../deploy/kubernetes/job]\nnamespace: fi-doctor\n"
        "images: [{name: SERVING-IMAGE, newName: registry/server, newTag: '1'}]\n"
        "configMapGenerator: [{name: fi-doctor, namespace: fi-doctor, behavior: merge, files: [fi-doctor.toml]}]\n"
    )
    done = subprocess.run(["kubectl", "kustomize", overlay], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    for kind, document in made.items():
        validator(KINDS[kind]).validate(document)
    assert made["ConfigMap"]["data"]["fi-doctor.toml"] == 'budget = "5m"\n'
    assert made["ConfigMap"]["data"]["node.sh"] == (FOLDER / "node.sh").read_text()
    for kind in ("DaemonSet", "Job"):
        spec = made[kind]["spec"]["template"]["spec"]
        assert spec["containers"][0]["image"] == "registry/server:1"
        volumes = {one["name"]: one for one in spec["volumes"]}
        assert volumes["scripts"]["configMap"]["name"] == made["ConfigMap"]["metadata"]["name"]
        assert made[kind]["metadata"]["namespace"] == "fi-doctor"
