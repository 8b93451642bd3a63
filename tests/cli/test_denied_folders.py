"""What a user who may not look everywhere is told: a reason for each part, and never a traceback."""

import pytest
from cli_command import ROOT
from permissions import obey_permissions

LONG = "x" * 300


@pytest.fixture
def denied(doctor, tmp_path):
    """denied(*words): the command as somebody whom permissions stop, on a FlashInfer below `denied.site`."""
    site = tmp_path / "site"
    for name, text in {
        "__init__.py": "from .gemm import mm_fp4\n",
        "_build_meta.py": '__version__ = "0.7.2.post1"\n',
        "gemm/__init__.py": "def mm_fp4(): ...\n",
    }.items():
        (site / "flashinfer" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "flashinfer" / name).write_text(text)
    closed = []

    def run(*words, env=None):
        environ = {"PYTHONPATH": f"{site}:{ROOT}", **(env or {})}
        return doctor(*words, env=environ, preexec_fn=obey_permissions)

    def close(path):
        path.mkdir(parents=True, exist_ok=True)
        closed.append(path)
        path.chmod(0)

    run.site, run.close = site, close
    yield run
    for path in closed:
        path.chmod(0o755)


def test_a_cache_that_may_not_be_looked_at_is_named_with_the_reason(denied, tmp_path):
    denied.close(tmp_path / "home")
    done = denied("cache", env={"HOME": tmp_path / "home", "FLASHINFER_WORKSPACE_BASE": tmp_path})
    assert done.returncode == 0, done.stderr
    assert "home/.nv/ComputeCache cannot be looked at: Permission denied" in " ".join(done.stdout.split())


def test_what_lies_in_a_closed_folder_of_a_cache_is_not_counted_as_nothing(denied, tmp_path):
    denied.close(tmp_path / ".triton/cache/a")
    done = denied("cache")
    assert "cache/a cannot be looked at: Permission denied" in " ".join(done.stdout.split())


def test_a_closed_folder_of_the_package_is_a_reason_and_not_an_end(denied):
    denied.close(denied.site / "flashinfer/gemm")
    done = denied("check", "--depth", "static", "-f", "json")
    assert done.returncode == 3, done.stderr
    assert "flashinfer/gemm/__init__.py: cannot be read: Permission denied" in done.stdout


@pytest.mark.parametrize("name", ["site/nvidia", "site", "site/flashinfer"])
def test_closed_folders_of_packages_end_no_check(denied, tmp_path, name):
    denied.close(tmp_path / name)
    done = denied("check", "--depth", "static")
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize(
    "environ",
    [
        {"FLASHINFER_CUBINS_REPOSITORY": f"https://example.org/{LONG}"},
        {"FLASHINFER_WORKSPACE_BASE": f"/{LONG}"},
        {"TRITON_CACHE_DIR": f"/{LONG}", "CUDA_HOME": f"/{LONG}"},
    ],
    ids=lambda environ: next(iter(environ)),
)
@pytest.mark.parametrize("command", ["cache", "check"])
def test_names_that_are_too_long_end_nothing(denied, environ, command):
    words = ("check", "--depth", "static") if command == "check" else ("cache",)
    assert denied(*words, env=environ).returncode == (3 if command == "check" else 0)


def test_a_loop_of_links_ends_nothing(denied, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    done = denied("cache", env={"TRITON_CACHE_DIR": tmp_path / "loop", "FLASHINFER_CUBIN_DIR": tmp_path / "loop"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["site/flashinfer/gemm", "site/vllm/config", "site/vllm", ".cache"])
def test_closed_folders_end_no_lock(denied, tmp_path, name):
    for package in ("vllm", "torch"):  # a torch that is imported in no time
        (denied.site / package).mkdir()
        (denied.site / package / "__init__.py").touch()
    denied.close(tmp_path / name)
    done = denied("lock")
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 3), done.stderr


def test_a_loop_of_links_that_pip_wrote_down_ends_nothing(denied, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    info = denied.site / "flashinfer_python-0.7.2.post1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: flashinfer-python\nVersion: 0.7.2.post1\n\n")
    (info / "direct_url.json").write_text(f'{{"url": "file://{tmp_path}/loop", "dir_info": {{"editable": true}}}}')
    assert denied("check", "--depth", "static").returncode == 3
