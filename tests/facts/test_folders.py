"""The folders that the installed FlashInfer writes, and the file systems below them."""

import os
import struct
from pathlib import Path

import factory as make
import pytest
import serving
from msgspec.structs import replace

from fi_doctor.facts import quota
from fi_doctor.facts.folders import Surroundings, nearest_existing, read_folders
from fi_doctor.facts.mounts import Mount, mount_of, parse_mounts, read_mounts
from fi_doctor.model import Missing

MOUNTS = (
    "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "40 27 0:40 / /srv/a\\040b ro,noexec - overlay overlay rw,lowerdir=/x\n"
    "41 27 0:41 / /srv rw - nfs4 server:/srv rw,vers=4.2\n"
    "42 41 0:42 / /srv rw - tmpfs tmpfs rw,size=64k\n"
    "cut off\n"
)
NO_TVM = make.missing("tvm_ffi is not installed")
ME = serving.user(os.geteuid(), gid=os.getegid(), overrides_modes=os.geteuid() == 0)


def read(flashinfer, *, user=ME, environ=None, site=NO_TVM, cwd=""):
    around = Surroundings(user, environ or {}, read_mounts(), cwd=cwd)
    return {folder.purpose: folder for folder in read_folders(flashinfer, site, around)}


@pytest.fixture
def installed(unpacked, tmp_path):
    """installed("0.5.3"): that release, with its cache below a home of its own."""

    def at(version):
        root = unpacked(version)
        base = f"{tmp_path}/.cache/flashinfer"
        return make.flashinfer(
            version, root=str(root), cache_base=base, cache_dir=f"{base}/{version}/90a", cubin_dir=f"{base}/cubins"
        )

    return at


@pytest.mark.parametrize(("version", "in_package"), [("0.5.3", True), ("0.6.7.post3", False), ("0.7.2.post1", False)])
def test_only_old_releases_write_into_their_package(installed, version, in_package):
    flashinfer = installed(version)
    folders = read(flashinfer)
    assert ("cutlass-sources" in folders) is in_package
    if in_package:
        assert folders["cutlass-sources"].path == (
            f"{flashinfer.root}/data/csrc/nv_internal/tensorrt_llm/cutlass_instantiations/90"
        )


def test_in_the_package_the_folder_counts_that_is_not_there_yet(installed):
    flashinfer = replace(installed("0.5.3"), architectures=("90a", "121a"))
    sources = Path(flashinfer.root, "data/csrc/nv_internal/tensorrt_llm/cutlass_instantiations")
    (sources / "90").mkdir(parents=True, exist_ok=True)
    assert read(flashinfer)["cutlass-sources"].path == f"{sources}/120"
    assert read(replace(flashinfer, architectures=("90a",)))["cutlass-sources"].exists
    assert "cutlass-sources" not in read(replace(flashinfer, architectures=("80", "86")))  # refused before it writes
    unknown = replace(flashinfer, architectures=make.missing("no GPU"))
    assert read(unknown)["cutlass-sources"].path == str(sources)
    (sources / "90").rmdir()


@pytest.mark.parametrize(("version", "there"), [("0.5.3", False), ("0.6.7.post3", True), ("0.7.2.post1", False)])
def test_one_family_of_releases_makes_links_among_its_cubins(installed, version, there):
    assert ("cubin-links" in read(installed(version))) is there


def test_folders_follow_the_variables_and_the_home_of_who_serves(installed, tmp_path):
    (tmp_path / "site/tvm_ffi").mkdir(parents=True)
    (tmp_path / "site/tvm_ffi/_optional_torch_c_dlpack.py").touch()
    user = serving.user(4242, is_own=False, home="/home/nobody-here")
    folders = read(installed("0.7.2.post1"), user=user, environ={"TMPDIR": "rel"}, site=f"{tmp_path}/site", cwd="/srv")
    assert folders["tvm-ffi"].path == "/home/nobody-here/.cache/tvm-ffi"
    assert folders["temporary"].path == "/srv/rel"
    assert folders["jit-cache"].path == f"{tmp_path}/.cache/flashinfer/0.7.2.post1/90a"


def test_a_folder_that_is_not_there_is_judged_by_the_nearest(installed, tmp_path):
    cache = read(installed("0.7.2.post1"))["jit-cache"]
    assert (cache.nearest, cache.exists, cache.owner, cache.writable) == (str(tmp_path), False, os.geteuid(), True)
    assert isinstance(cache.free_mib, int)
    assert (cache.read_only, cache.noexec) == (False, False)


def test_a_folder_for_temporary_files_must_be_there(installed, tmp_path):
    gone = read(installed("0.7.2.post1"), environ={"TMPDIR": f"{tmp_path}/gone"})["temporary"]
    assert (gone.writable, gone.why) == (False, "it does not exist, and compilers make none")
    assert read(installed("0.7.2.post1"), environ={"TMPDIR": str(tmp_path)})["temporary"].writable is True


def test_a_file_in_the_way_is_no_folder(installed, tmp_path):
    (tmp_path / ".cache").write_text("")
    cache = read(installed("0.7.2.post1"))["jit-cache"]
    assert (cache.writable, cache.nearest) == (False, f"{tmp_path}/.cache")
    assert "is no folder" in cache.why


@pytest.mark.parametrize(
    ("flags", "writable", "fields"),
    [(os.ST_RDONLY, False, (True, False)), (os.ST_NOEXEC, True, (False, True))],
    ids=["read-only", "noexec"],
)
def test_flags_of_the_file_system_are_the_kernels(installed, monkeypatch, flags, writable, fields):
    real = os.statvfs("/")
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*real[:8], flags, *real[9:])))
    cache = read(installed("0.7.2.post1"))["jit-cache"]
    assert (cache.writable, (cache.read_only, cache.noexec)) == (writable, fields)
    assert ("read-only" in cache.why) is not writable


def test_space_is_what_that_user_may_take(installed, monkeypatch):
    # f_bsize f_frsize f_blocks f_bfree f_bavail f_files f_ffree f_favail f_flag f_namemax
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 100000, 51200, 25600, 0, 0, 0, 0, 255)))
    plain, root = (serving.user(os.geteuid(), overrides_modes=of) for of in (False, True))
    one, other = (read(installed("0.7.2.post1"), user=user)["jit-cache"] for user in (plain, root))
    assert (one.free_mib, other.free_mib) == (100, 200)
    assert "counts no inodes" in one.free_inodes.reason


def test_a_loop_of_links_has_a_reason_and_harms_no_other(installed, tmp_path):
    (tmp_path / ".cache").symlink_to(".cache")
    folders = read(installed("0.7.2.post1"))
    assert "cannot be looked at" in folders["jit-cache"].why
    assert isinstance(folders["jit-cache"].writable, Missing)
    assert folders["temporary"].writable is not None


def test_files_of_another_user_in_the_cache_are_named(installed, tmp_path):
    flashinfer = installed("0.7.2.post1")
    cache = tmp_path / ".cache/flashinfer/0.7.2.post1/90a"
    (cache / "cached_ops/tmp").mkdir(parents=True)
    (cache / "cached_ops/norm").mkdir()
    for name in ("flashinfer_jit.log", "cached_ops/tmp/norm.lock", "cached_ops/tmp/other.txt"):
        (cache / name).touch()
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o644)
    (cache / "cached_ops/norm").chmod(0o755)
    other = serving.user(4242, is_own=False)
    blocked = read(flashinfer, user=other)["jit-cache"].blocked
    assert [path.removeprefix(f"{cache}/") for path in blocked] == [
        "flashinfer_jit.log",
        "cached_ops/tmp/norm.lock",
        "cached_ops/norm",
    ]
    assert read(flashinfer)["jit-cache"].blocked == ()


def test_what_cannot_be_shown_as_text_is_made_visible(installed, tmp_path):
    folders = read(make.flashinfer(root=str(tmp_path), cache_dir="/x\x1b[2J\udcff", cubin_dir=make.missing()))
    assert folders["jit-cache"].path == r"/x\x1b[2J\udcff"


def test_without_flashinfer_there_are_no_folders():
    assert read(make.missing("not installed")) == {}


def test_the_last_mount_that_holds_a_path_is_its_own():
    mounts = parse_mounts(MOUNTS)
    assert mount_of("/srv/x", mounts) == Mount("/srv", "tmpfs", "tmpfs")
    assert mount_of("/srvx", mounts) == Mount("/", "ext4", "/dev/vda")
    assert mount_of("/srv/a b", mounts) == Mount("/srv/a b", "overlay", "overlay")
    assert mount_of("/srv", []) is None


def test_nearest_goes_up_to_the_root():
    assert nearest_existing("/no/such/folder") == "/"


def test_a_quota_is_told_in_words():
    limits = struct.pack("=8QI4x", 2048 << 10, 1024 << 10, 1500 << 20, 100, 0, 90, 0, 0, 0)
    assert quota.parse_quota(limits) == ("548 of 2048 MiB left, 10 of 100 files left", 548, 10)
    assert quota.parse_quota(struct.pack("=8QI4x", *[0] * 9)) == ("no limit for this user", None, None)


def test_a_quota_bounds_what_all_but_root_may_take(installed, monkeypatch):
    monkeypatch.setattr(quota, "read_quota", lambda *_: quota.Left("3 of 9 MiB left, 2 of 5 files left", 3, 2))
    plain, root = (serving.user(os.geteuid(), overrides_modes=of) for of in (False, True))
    one, other = (read(installed("0.7.2.post1"), user=user)["jit-cache"] for user in (plain, root))
    assert (one.free_mib, one.free_inodes, one.quota) == (3, 2, "3 of 9 MiB left, 2 of 5 files left")
    assert other.free_mib > 3


def test_what_cannot_be_told_of_quotas_is_said():
    told = quota.read_quota(Mount("/srv", "nfs4", "server:/srv"), 0).words
    assert told == Missing(reason="quotas of a file system of type nfs4 cannot be asked for here")
    told = quota.read_quota(Mount("/", "ext4", "/dev/no-such-device"), 0).words
    assert isinstance(told, Missing)
    assert told.reason in quota._WHY.values() or told.reason.startswith("quotactl")
