"""Operating system, limits, variables: pure parsers on real text, readers on files laid out as the kernel does."""

import os
import resource

import msgspec
import pytest

from fi_doctor.facts import cgroups
from fi_doctor.facts.cgroups import Mount, Quota
from fi_doctor.facts.container import read_container
from fi_doctor.facts.environment import neutralise, read_image
from fi_doctor.facts.system import (
    parse_meminfo,
    parse_os_release,
    read_environment,
    read_system,
    unbounded,
    usable_cpus,
)
from fi_doctor.model import Missing, SystemFacts
from fi_doctor.model.secrets import HIDDEN, looks_secret, names_secret

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "34 31 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    "35 31 0:32 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
)


@pytest.fixture
def machine(tmp_path):
    """A root folder into which files are written by their path."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_this_machine_is_read_and_survives_the_wire():
    facts = read_system({})
    assert facts.kernel == os.uname().release
    assert facts.uid == os.getuid()
    assert facts.cpus >= 1
    assert isinstance(facts.memory_total_mib, int)
    assert msgspec.json.decode(msgspec.json.encode(facts), type=SystemFacts) == facts


@pytest.mark.parametrize(
    ("ipc", "pid", "own"),
    [
        ("ipc:[4026531839]", "pid:[4026531836]", (False, False)),
        ("ipc:[4026532811]", "pid:[4026531836]", (True, False)),
        ("ipc:[4026532811]", "pid:[4026532813]", (True, True)),
    ],
    ids=["host", "--pid=host", "container"],
)
def test_namespaces_of_the_host_are_told_by_their_numbers(tmp_path, ipc, pid, own):
    folder = tmp_path / "proc/self/ns"
    folder.mkdir(parents=True)
    for name, target in (("ipc", ipc), ("pid", pid)):
        (folder / name).symlink_to(target)
    facts = read_system({}, tmp_path)
    assert (facts.own_ipc_namespace, facts.own_pid_namespace) == own


def test_a_machine_without_readable_files_gives_reasons(tmp_path):
    facts = read_system({}, tmp_path)
    assert "os-release" in facts.os
    for fact in (
        facts.memory_total_mib,
        facts.memory_available_mib,
        facts.shm_mib,
        facts.container,
        facts.own_ipc_namespace,
        facts.own_pid_namespace,
    ):
        assert isinstance(fact, Missing)
        assert "cannot be read" in fact.reason
    assert isinstance(facts.memory_limit_mib, Missing)


def test_the_system_is_named_as_its_os_release_says(machine):
    root = machine({"usr/lib/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n'})
    assert read_system({}, root).os == "Ubuntu 24.04.3 LTS"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n', "Debian GNU/Linux 12 (bookworm)"),
        ("# a comment\n\nPRETTY_NAME='Rocky Linux 9.6'\n", "Rocky Linux 9.6"),
        ("PRETTY_NAME=Alpine\n", "Alpine"),
        (r'PRETTY_NAME="A \"quoted\" name"', 'A "quoted" name'),
        ('PRETTY_NAME="never closed\n', "never closed"),
    ],
)
def test_os_release_is_read_as_a_shell_would(text, value):
    assert parse_os_release(text)["PRETTY_NAME"] == value


def test_meminfo_is_given_in_mib_and_odd_lines_are_left_out():
    text = "MemTotal:       24684084 kB\nMemAvailable:   1024 kB\nHugePages_Total:       0\nodd\nDirectMap4k:  x kB\n"
    assert parse_meminfo(text) == {"MemTotal": 24105, "MemAvailable": 1}


def test_meminfo_of_an_old_kernel_lacks_what_is_available(machine):
    facts = read_system({}, machine({"proc/meminfo": "MemTotal: 2048 kB\n"}))
    assert facts.memory_total_mib == 2
    assert isinstance(facts.memory_available_mib, Missing)
    assert "MemAvailable" in facts.memory_available_mib.reason


@pytest.mark.parametrize(
    ("environ", "files", "kind"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {".dockerenv": ""}, "kubernetes"),
        ({}, {".dockerenv": ""}, "docker"),
        ({"container": "podman"}, {"run/.containerenv": ""}, "podman"),
        ({"container": "systemd-nspawn"}, {}, "systemd-nspawn"),
        ({"APPTAINER_CONTAINER": "/images/x.sif"}, {}, "apptainer"),
        ({}, {"proc/1/cgroup": "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n"}, "kubernetes"),
        ({}, {"proc/1/cgroup": "12:memory:/docker/0123456789\n"}, "docker"),
        ({}, {"proc/1/cgroup": "1:name=systemd:/machine.slice/libpod-0123.scope\n"}, "podman"),
    ],
)
def test_a_container_is_known_by_its_most_telling_sign(machine, environ, files, kind):
    assert read_container(environ, machine(files)) == kind


def test_a_plain_machine_is_no_container(machine):
    assert read_container({}, machine({"proc/1/cgroup": "0::/init.scope\n"})) == Missing(
        reason="no sign of a container"
    )


def test_the_tightest_limit_above_a_version_2_group_counts(machine):
    root = machine(
        {
            "proc/self/cgroup": "0::/user.slice/job/step\n",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/user.slice/job/step/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/job/memory.max": "8589934592\n",
            "sys/fs/cgroup/user.slice/memory.max": "17179869184\n",
            "sys/fs/cgroup/user.slice/job/step/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user.slice/job/cpu.max": "350000 100000\n",
        }
    )
    assert cgroups.read_memory_limit(root) == 8192
    assert cgroups.read_cpu_quota(root) == Quota(cpus=3.5)


def test_a_container_with_version_1_finds_its_own_group_at_the_mount(machine):
    root = machine(
        {
            "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
            "proc/self/mountinfo": V1_MOUNTS,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "4294967296\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        }
    )
    assert cgroups.read_memory_limit(root) == 4096
    assert cgroups.read_cpu_quota(root) == Quota(cpus=1.5)


def test_no_limit_is_a_reason_and_not_a_huge_number(machine):
    root = machine(
        {
            "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
            "proc/self/mountinfo": V1_MOUNTS,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        }
    )
    assert cgroups.read_memory_limit(root) == Missing(reason="no control group limits the memory")
    assert cgroups.read_cpu_quota(root) == Missing(reason="no control group limits the CPU time")


@pytest.mark.parametrize(
    ("mount_root", "group", "expected"),
    [
        ("/", "/a/b", ["/cg/a/b", "/cg/a", "/cg"]),
        ("/", "/", ["/cg"]),
        ("/docker/x", "/docker/x", ["/cg"]),
        ("/docker/x", "/docker/x/inner", ["/cg/inner", "/cg"]),
        ("/docker/x", "/other", ["/cg"]),
        ("/", "/../../system.slice", ["/cg"]),
    ],
)
def test_groups_are_walked_from_the_inside_out_within_the_mount(mount_root, group, expected):
    assert list(cgroups.folders(Mount(2, frozenset(), mount_root, "/cg"), group)) == expected


@pytest.mark.parametrize(
    ("text", "quota"),
    [("150000 100000", 1.5), ("max 100000", None), ("-1 100000", None), ("", None), ("5 0", None), ("0 100000", None)],
)
def test_a_quota_is_read_only_where_there_is_one(text, quota):
    assert cgroups.parse_quota(text) == quota


@pytest.mark.parametrize(
    ("allowed", "quota", "cpus"),
    [
        (8, Missing(reason="none"), 8),
        (8, Quota(cpus=3.9), 3),
        (2, Quota(cpus=16.0), 2),
        (8, Quota(cpus=0.5), 1),
    ],
)
def test_usable_cpus_are_the_fewer_of_affinity_and_quota(allowed, quota, cpus):
    assert usable_cpus(allowed, quota) == cpus


def test_the_image_is_told_by_its_own_variables():
    environ = {
        "NVIDIA_PYTORCH_VERSION": "25.09",
        "NVIDIA_PRODUCT_NAME": "PyTorch",
        "CUDA_VERSION": "13.0.1.012",
        "VLLM_BUILD_COMMIT": "0961bbae2894d574be790d219651824eb199318e",
        "VLLM_BUILD_URL": "https://ci:hunter22@host/build/1",
        "VLLM_USE_V1": "1",
        "NVIDIA_BUILD_ID": "",
    }
    assert read_image(environ) == {
        "CUDA_VERSION": "13.0.1.012",
        "NVIDIA_PRODUCT_NAME": "PyTorch",
        "NVIDIA_PYTORCH_VERSION": "25.09",
        "VLLM_BUILD_COMMIT": "0961bbae2894d574be790d219651824eb199318e",
        "VLLM_BUILD_URL": HIDDEN,
    }


# A ~ keeps scanners of this repository from taking the examples for real; the test drops it.
SECRETS = [
    ("VLLM_API_KEY", "token-abc123"),
    ("VLLM_API_KEY", "1234"),
    ("HF_TOKEN", "hf_x"),
    ("HF_HUB_TOKEN", "1234567"),
    ("VLLM_API_KEYS", "one,two"),
    ("SGLANG_ADMIN_PASSWORD", "hunter2"),
    ("NVIDIA_SECRET", "x"),
    ("VLLM_S3_SECRET_ACCESS_KEY", "x"),
    ("VLLM_S3_ACCESSKEY_ID", "x"),
    ("VLLM_AUTH", "user"),
    ("VLLM_TOKEN_FILE", "/run/secrets/hf"),
    ("vllm_api_key", "lower"),
    ("VLLM_DEFAULT", "hf~_abcdefghijklmnopqrstuvwxyz012345"),
    ("VLLM_DEFAULT", "sk~-proj-abcdefghij0123456789"),
    ("VLLM_DEFAULT", "ghp~_abcdefghijklmnopqrstuvwxyz0123456789"),
    ("VLLM_DEFAULT", "github~_pat_11ABCDEFG0abcdefghijkl_mnopqrstuv"),
    ("VLLM_DEFAULT", "glpat~-abcdefghijklmnopqrst"),
    ("VLLM_DEFAULT", "nvapi~-abcdefghijklmnopqrstuvwxyz0123456789-_"),
    ("VLLM_DEFAULT", "xo~xb-123456789012-abcdefghijkl"),
    ("VLLM_DEFAULT", "AKI~AIOSFODNN7EXAMPLE"),
    ("VLLM_DEFAULT", "wJ4lrX/tn9EMi/K7mD3Ng/bPxR5iCy8Xa~mP2eKe1"),
    ("VLLM_DEFAULT", "ey~JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"),
    ("VLLM_DEFAULT", "https://user:password@registry.example/v2"),
    ("VLLM_DEFAULT", "https://0123456789abcdef0123@github.com/x/y"),
    ("VLLM_DEFAULT", "https://bucket.example/x?X-Amz-Signature=0123456789abcdef"),
    ("VLLM_DEFAULT", "Authorization: Bearer abcdefgh12345678"),
    ("VLLM_DEFAULT", "--model x --api-key letmein99"),
    ("VLLM_DEFAULT", '{"url": "x", "token": "letmein99"}'),
    ("VLLM_DEFAULT", "password=letmein99"),
    ("VLLM_DEFAULT", "-----BEG~IN PRIVATE KEY-----"),
    ("VLLM_DEFAULT", "Zk3Vb9qLx7Tn2Rw8Yc5Hd1Mf6Gs4Pj0Ka"),
    ("VLLM_DEFAULT", "q8Zr-T3vX_k1Lm9Pw2Bn7Yc5Hd4Gf6Js0Ka8"),
]

INNOCENTS = [
    ("VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE", "163840"),
    ("VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD", "1024"),
    ("CUDA_VISIBLE_DEVICES", "GPU-8f3a1c2D-11ab-4cde-9f01-23456789abCD,GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"),
    ("CUDA_VISIBLE_DEVICES", "MIG-77777777-7777-7777-7777-777777777777"),
    ("VLLM_BUILD_COMMIT", "0961bbae2894d574be790d219651824eb199318e"),
    ("VLLM_DEFAULT", "models--Qwen--Qwen3-Next-80B-A3B-Instruct-FP8"),
    ("VLLM_DEFAULT", "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5-NVFP4-KV-FP8"),
    ("PATH", "/root/.pyenv/shims:/usr/local/cuda-12.8/bin:/home/User1/miniconda3/envs/py312_Torch29/bin"),
    ("LD_LIBRARY_PATH", "/opt/venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib:/usr/lib/x86_64-linux-gnu"),
    ("PYTHONPATH", "/nix/store/0c1p5z6hcr9w2mv4gqv1x5ja6cdyl5hb-python3-3.12.11/lib"),
    ("FLASHINFER_WORKSPACE_BASE", "/mnt/Data2/Team_A/Caches/FlashInfer_0_7_2_Builds"),
    ("NVIDIA_REQUIRE_CUDA", "cuda>=12.8 brand=unknown,driver>=470,driver<471 brand=grid,driver>=535,driver<536"),
    ("NVCC_APPEND_FLAGS", "-gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_120f,code=sm_120f -O3"),
    ("TORCH_CUDA_ARCH_LIST", "8.0;9.0a;10.0f+PTX"),
    ("VLLM_ATTENTION_BACKEND", "FLASHINFER_MLA_SPARSE_SM120"),
    ("VLLM_CONFIG", '{"max_tokens": 163840, "backend_per_kind": {"prefill": "trtllm-gen"}}'),
    ("NCCL_IB_HCA", "mlx5_0:1,mlx5_1:1,mlx5_2:1"),
    ("PIP_REMOTE", "ssh://git@github.com/x/y"),
    ("VLLM_RPC_BASE_PATH", "/tmp"),
    ("VLLM_EMPTY_TOKEN", ""),
]


@pytest.mark.parametrize(("name", "value"), SECRETS)
def test_a_secret_is_never_kept(name, value):
    value = value.replace("~", "")
    assert names_secret(name, value) or looks_secret(value)
    if name.isupper():
        assert read_environment({name: value}) == {name: HIDDEN}


@pytest.mark.parametrize(("name", "value"), [pair for pair in INNOCENTS if pair[0] != "PIP_REMOTE"])
def test_an_innocent_value_is_kept_as_it_is(name, value):
    assert read_environment({name: value}) == {name: value}


def test_a_user_name_in_a_url_is_not_a_secret():
    assert not looks_secret("ssh://git@github.com/x/y")


def test_only_variables_of_the_allow_list_are_kept_sorted():
    environ = {"VLLM_USE_V1": "1", "CC": "gcc", "MYSQL_HOST": "db", "PASSWORD": "x", "USER": "me", "CUDAHOSTCXX": "g++"}
    assert list(read_environment(environ).items()) == [("CC", "gcc"), ("CUDAHOSTCXX", "g++"), ("VLLM_USE_V1", "1")]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain ä 中", "plain ä 中"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\nb\tc\x9b31m", r"a\nb\tc\x9b31m"),
        ("left\u202eright", r"left\u202eright"),
        (os.fsdecode(b"\xff/lib"), r"\udcff/lib"),
    ],
)
def test_what_a_terminal_or_an_encoder_stumbles_over_is_made_visible(raw, shown):
    assert neutralise(raw) == shown
    assert msgspec.json.decode(msgspec.json.encode(read_environment({"CUDA_X": raw}))) == {"CUDA_X": shown}


def test_an_endless_value_is_cut_and_says_so():
    assert neutralise("x" * 5000).endswith("x... (904 more characters)")


@pytest.mark.parametrize(("most", "is_bound"), [("4096\n", True), ("max\n", False)])
def test_a_group_bounds_processes_or_nothing_does(machine, monkeypatch, most, is_bound):
    root = machine(
        {
            "proc/self/cgroup": "0::/job\n",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/job/pids.max": most,
        }
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cgroups.limits_processes(root) == is_bound
    assert bool(unbounded(root)) != is_bound


@pytest.mark.parametrize(("limit", "is_bound"), [(1000, True), (resource.RLIM_INFINITY, False)])
def test_a_user_may_have_a_limit_of_processes(machine, monkeypatch, limit, is_bound):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert bool(unbounded(machine({}))) != is_bound
    assert bool(unbounded(machine({}), uid=1001)) != is_bound
    assert unbounded(machine({}), uid=0)  # root has no limit, whoever asks
