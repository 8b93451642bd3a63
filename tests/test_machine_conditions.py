"""What conditions make of the machine: memory for compilers, folders, the way out, GPUs in use."""

import factory as make
import pytest
import serving
from msgspec.structs import replace

from fi_doctor import conditions, knowledge
from fi_doctor.conditions import View, machine
from fi_doctor.diagnosis import findings
from fi_doctor.model import Missing, Network
from fi_doctor.probing import measured, surroundings

KB = knowledge.load()


def facts(environment=None, *, cpus=16, available=120_000, left=None, **changes):
    base = make.facts(environment=environment or {}, **changes)
    limit = make.missing("no control group limits the memory") if left is None else left
    system = replace(base.system, cpus=cpus, memory_available_mib=available, memory_left_mib=limit)
    return replace(base, system=system)


def test_what_compilers_take_is_what_was_measured():
    unmeasured = {"fused_moe_trtllm"}
    moe = [mib for name, mib in measured.PEAK_MIB.items() if name.startswith("fused_moe") and name not in unmeasured]
    assert (min(moe), max(moe)) == (machine.MOST_TAKE_MIB, machine.MOST_MIB)


@pytest.mark.parametrize(
    ("environment", "cpus", "jobs"),
    [
        ({}, 1, 2),
        ({}, 2, 3),
        ({}, 16, 18),
        ({"MAX_JOBS": "4"}, 16, 4),
        ({"MAX_JOBS": "many"}, 16, 18),  # what is no number is not passed on
        ({"MAX_JOBS": "0"}, 16, 242),  # ninja -j 0 has no limit
        ({"MAX_JOBS": "4", "FLASHINFER_NVCC_THREADS": "8"}, 16, 4),  # one architecture has no use for more
    ],
)
def test_as_many_compilers_run_as_ninja_starts(environment, cpus, jobs):
    assert machine.ninja_jobs(facts(environment, cpus=cpus)) == jobs


def test_threads_count_for_as_many_architectures_as_there_are():
    two = make.flashinfer(architectures=("90a", "100a"))
    environment = {"MAX_JOBS": "4", "FLASHINFER_NVCC_THREADS": "8"}
    assert machine.ninja_jobs(facts(environment, flashinfer=two)) == 8
    assert machine.max_jobs(facts(environment, flashinfer=two, available=23_000)) == (2,)


def test_more_is_reckoned_for_sm120_where_more_was_seen():
    sm120 = make.flashinfer(architectures=("120f",))
    assert machine.jobs_beyond_memory(facts(cpus=64, available=250 << 10)) == ()
    [said] = machine.jobs_beyond_memory(facts(cpus=64, available=250 << 10, flashinfer=sm120))
    assert said == "66 compilers at once take about 380 GiB, and 250 GiB are left"


def test_the_tighter_of_machine_and_control_group_counts():
    assert machine.jobs_beyond_memory(facts()) == ()
    [said] = machine.jobs_beyond_memory(facts(left=32_000))
    assert said == "18 compilers at once take about 63 GiB, and 31 GiB are left"
    assert machine.max_jobs(facts(left=32_000)) == (5,)
    assert machine.max_jobs(facts(left=3_000)) == (1,)


@pytest.mark.parametrize(
    "changes",
    [
        {"flashinfer": make.flashinfer(cached_modules=("fused_moe_90", "norm"))},
        {"flashinfer": make.flashinfer(jit_cache_modules=("fused_moe_90",))},
        {"toolkit": make.without_nvcc()},
    ],
    ids=["in the cache", "prebuilt", "no nvcc"],
)
def test_nothing_is_said_where_fused_moe_is_not_compiled(changes):
    assert machine.jobs_beyond_memory(facts(left=8_000, **changes)) == ()


def test_what_is_not_known_fires_nothing():
    unknown = make.missing("not told")
    assert isinstance(machine.jobs_beyond_memory(facts(available=unknown)), Missing)
    assert isinstance(machine.jobs_beyond_memory(facts(flashinfer=make.missing("not installed"))), Missing)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "there is no default route and no proxy is set"),
        ({"no_download": "FLASHINFER_NO_DOWNLOAD is set", "default_route": True}, "FLASHINFER_NO_DOWNLOAD is set"),
        ({"default_route": True}, ""),
        ({"proxies": ("https_proxy",)}, ""),
        ({"repository_is_local": True}, ""),
    ],
)
def test_downloads_are_impossible_only_by_certain_signs(changes, said):
    base = Network(default_route=False, proxies=(), no_download="", repository_is_local=False)
    got = machine.downloads_impossible(replace(serving.machine(), network=replace(base, **changes)))
    assert got == ((said,) if said else ())


def test_cubins_are_wanted_on_sm100_and_its_family_only():
    offline = replace(
        serving.machine(), network=Network(default_route=False, proxies=(), no_download="", repository_is_local=False)
    )
    fired = {}
    for sm in (90, 100, 103, 120):
        there = make.facts(gpus=make.gpu_facts(make.gpu(sm=sm)), machine=offline)
        fired[sm] = any(one.id == "cubins-absent-and-offline" for one in findings.find(KB, there, ()))
    assert fired == {90: False, 100: True, 103: True, 120: False}


def test_memory_and_gpus_that_the_process_of_pid_holds_are_its_own():
    gpus = make.gpu_facts(make.gpu(memory_free_mib=1000, compute_mode="exclusive-process", compute_processes=1))
    assert machine.memory_taken(make.facts(gpus=gpus)) == ("GPU 0 (1000 of 143771 MiB free)",)
    assert machine.exclusive_in_use(make.facts(gpus=gpus)) == ("GPU 0",)
    served = replace(serving.served(), gpus=gpus)
    assert (machine.memory_taken(served), machine.exclusive_in_use(served)) == ((), ())


def test_a_file_that_cannot_be_written_counts_all_that_are_like_it():
    there = serving.with_folders(serving.folder(blocked=("/c/a", "/c/b"), blocked_count=40))
    [finding] = [one for one in findings.find(KB, there, ()) if one.id == "flashinfer-cache-holds-files-of-other-user"]
    assert (
        finding.title
        == "user 1000 (user) cannot write what lies in FlashInfer's cache already: /c/a, /c/b, and 38 more"
    )


def test_the_user_who_serves_is_the_one_whose_cache_it_is():
    other = replace(serving.machine(), user=serving.user(4242, is_own=False))
    there = make.facts(machine=other, flashinfer=make.flashinfer(cache_owner=4242))
    assert conditions.fill("{uid}", View(there)) == "4242"
    assert not [one for one in findings.find(KB, there, ()) if one.cause == "cache"]
    assert "user 4242 serves and this is user 1000" in surroundings.foreign_cache(there)


def test_nothing_is_said_of_a_machine_that_was_not_read():
    old = make.facts()
    asked = [
        read(old) for name, (_, read) in machine.SUBJECTS.items() if name.startswith(("folders", "libcuda", "cache_"))
    ]
    assert all(isinstance(one, Missing) for one in asked)


def test_how_many_modules_a_closed_folder_has_is_not_known():
    closed = make.flashinfer(cached_modules=(), cached_unread="/c/cached_ops: Permission denied")
    count = conditions.subjects.SUBJECTS["cached_module_count"]
    assert count.read(View(make.facts(flashinfer=closed))) == Missing(reason="/c/cached_ops: Permission denied")
    assert count.read(View(make.facts(flashinfer=make.flashinfer()))) == (0,)
