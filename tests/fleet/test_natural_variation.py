"""What differs by nature on every node is no drift, and of one that brings others along the cause is told."""

import copy
import json

import pytest
import simulated
from test_grouping import BASE, nodes

from fi_doctor.fleet.reading import NodeReport


def number_of(facts):
    return facts["system"]["hostname"].rpartition("-")[2]


def variable(name, value):
    def change(facts):
        facts["environment"][name] = value.format(host=facts["system"]["hostname"], n=number_of(facts))

    return change


def moved(old, new):
    """Everything that lies in one folder lies in another."""

    def change(facts):
        text = json.dumps(facts).replace(old, new.format(host=facts["system"]["hostname"]))
        facts.clear()
        facts.update(json.loads(text))

    return change


def other_user(facts):
    facts["machine"]["user"].update(uid=1000, gid=1000, name="bob", home="/home/bob", overrides_modes=False)
    facts["environment"].update(HOME="/home/bob", XDG_RUNTIME_DIR="/run/user/1000")
    facts["system"]["uid"] = 1000
    for folder in facts["machine"]["folders"]:
        folder.update({key: folder[key].replace("/root", "/home/bob") for key in ("path", "nearest")}, owner=1000)


def without_driver(facts):
    lost = {"kind": "missing", "reason": "NVML could not be loaded"}
    facts["gpus"].update(driver=lost, gpus=lost, cuda_order=lost, links=[])
    facts["libraries"]["cuda"] = facts["flashinfer"]["architectures"] = lost


def other_image(facts):
    for table in (facts["environment"], facts["system"]["image"]):
        table.update({name: value.replace("13.0", "12.8") for name, value in table.items()})


def other_release(facts):
    moved("0.7.2.post1", "0.7.1")(facts)


OTHER_PYTHON = moved("/opt/torch/.venv", "/opt/other/venv")


@pytest.mark.parametrize(
    "change",
    [
        variable("HF_HOME", "/local/{host}/hf"),
        variable("VLLM_INSTANCE_ID", "vllm-7f9c-{n}"),
        variable("VLLM_DP_MASTER_PORT", "290{n}"),
        variable("NCCL_TOPO_FILE", "/etc/topo-{host}.xml"),
        moved("/tmp/ws72", "/scratch/{host}/ws"),
        variable("HF_HOME", "/net/node-1/hf"),
    ],
    ids=["folder-of-a-node", "instance", "port", "file-of-a-node", "cache-of-a-node", "a-node-serves-files"],
)
def test_what_each_node_calls_its_own_is_no_drift(merged, change):
    found = merged(nodes(*[change] * 4)).document
    assert [group.is_odd for group in found.groups] == [False]
    assert found.splits == ()


def test_a_folder_that_is_another_beside_the_name_of_the_node_is_a_drift(merged):
    own, other = variable("HF_HOME", "/local/{host}/hf"), variable("HF_HOME", "/other/{host}/hf")
    (group,) = (one for one in merged(nodes(own, own, own, other)).document.groups if one.is_odd)
    assert group.said == ("node-3: HF_HOME=/other/<host>/hf, the others /local/<host>/hf",)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (OTHER_PYTHON, ["interpreter.executable"]),
        (other_user, ["environment.HOME"]),
        (without_driver, ["gpus.driver.version"]),
        (other_image, ["environment.CUDA_VERSION"]),
        (other_release, [f"packages.flashinfer-{one}.version" for one in ("python", "cubin", "jit-cache")]),
    ],
    ids=["python", "user", "driver", "image", "release"],
)
def test_the_cause_is_told_and_what_follows_is_not(merged, change, facts):
    (group,) = (one for one in merged(nodes(None, None, None, change)).document.groups if one.is_odd)
    assert [drift.fact for drift in group.drifts] == facts
    assert len(group.said) <= 2


def test_in_another_python_a_package_of_another_release_is_told_too(merged):
    def both(facts):
        OTHER_PYTHON(facts)
        simulated.libc(facts)

    (group,) = (one for one in merged(nodes(None, None, None, both)).document.groups if one.is_odd)
    assert [drift.fact for drift in group.drifts] == ["interpreter.executable", "system.libc"]


def test_a_node_that_lost_a_gpu_since_its_last_report_is_one_node(merged):
    one, two, three = nodes(None, None, None)
    later = json.loads(two.found)
    later["created"] = "2026-01-01T00:00:00+00:00"
    simulated.missing_gpu(later["facts"])
    found = merged([one, two, three, NodeReport("node-1-again", json.dumps(later).encode())]).document
    assert [node.name for node in found.nodes] == ["node-0", "node-1-again", "node-2"]
    assert [drift.fact for group in found.groups for drift in group.drifts] == ["gpus.count"]


def test_machines_of_one_name_with_other_gpus_are_two(merged):
    one, two = nodes(None, None, names=["gpu-1", "gpu-1"])
    assert len(merged([one._replace(source="a"), two._replace(source="b")]).document.nodes) == 2


def test_names_that_are_shown_alike_are_told_apart(merged):
    one, two, three = nodes(None, None, None)
    long, key = "rack/" * 50, "hf_aB3dE5gH7jK9mN1pQ3sT5vW"
    found = merged([one._replace(name=f"{long}a"), two._replace(name=f"{long}b"), three._replace(name=f"{key}1")])
    other = copy.deepcopy(BASE)
    other["facts"]["system"]["hostname"] = "elsewhere"
    again = merged([three._replace(name=f"{key}1"), NodeReport(f"{key}2", json.dumps(other).encode())])
    for fleet in (found, again):
        shown = {node.name[:170] for node in fleet.document.nodes}
        assert len(shown) == len(fleet.document.nodes)


def test_what_differs_in_a_name_is_not_cut_away(merged):
    def many(facts):
        for drift in (simulated.libc, simulated.kernel, simulated.cached_module, simulated.memory_limit):
            drift(facts)
        for gpu in facts["gpus"]["gpus"]:
            gpu["name"] = "NVIDIA H100"

    (group,) = (one for one in merged(nodes(None, None, None, many)).document.groups if one.is_odd)
    said = " ".join(line.strip() for line in group.said)
    assert "cached sampling.so links libcudart.so.12, the others .13" in said
    assert "GPU ...H100, the others ...H200" in said


def test_of_two_that_differ_in_a_cached_module_it_is_told_by_its_name(merged):
    (split,) = merged(nodes(None, simulated.cached_module)).document.splits
    assert split.said.startswith("cached sampling.so links libcudart.so.13, libc.so.6 on node-0")
