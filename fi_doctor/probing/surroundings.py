"""What a probe's process finds around it: its variables, its caches, and the shell line that does the same by hand."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from fi_doctor import acting, sandbox
from fi_doctor.errors import UsageError
from fi_doctor.model import Depth, Facts, FlashInfer, Missing, PlannedProbe, Request

HARNESS = Path(__file__).resolve().parents[1] / "inside" / "harness.py"
TEMPLATE = HARNESS.with_name("template.py")
# No multicast objects (NVLink SHARP): a probe may be killed at any moment, and these are a resource of the whole host.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
# Variable -> folder below the scratch folder. FLASHINFER_WORKSPACE_BASE takes the place of $HOME.
CACHES = {
    "FLASHINFER_WORKSPACE_BASE": "",
    "FLASHINFER_AUTOTUNE_CACHE_DIR": "autotune",
    "TRTLLM_DG_CACHE_DIR": "deep_gemm",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "CUTE_DSL_CACHE_DIR": "cute_dsl",
    "CUDA_CACHE_PATH": "cuda",
    "TMPDIR": "tmp",  # must exist
}
OWN_FOLDER = "FI_DOCTOR_SCRATCH"
_RUN = "fi-doctor-run-"
_RECORD_BYTES = 64 << 10  # what a record may take
_REPRODUCED = ("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH")


@contextlib.contextmanager
def scratch(facts: Facts, request: Request, environ: Mapping[str, str]) -> Iterator[Path | None]:
    """A folder for every cache and for temporary files, removed afterwards; None when the machine's own are used.

    It belongs to whom children with these variables run as.

    Some caches (the CuTe DSL's) lie in TMPDIR: where caches are to stay warm, it stays as it is.
    """
    if not (request.fresh_cache or foreign_cache(facts)):
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(_folder(environ, CACHES["TMPDIR"]))
        except OSError as exc:
            raise _no_folder(exc, foreign_cache(facts)) from exc
        yield folder


@contextlib.contextmanager
def own_folder(environ: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The variables with a folder of this run in OWN_FOLDER, for what children would leave when they are killed.

    Compilers write there before the probes run, and a probe may; the machine's caches stay where they are. It is
    removed afterwards. Where none can be made, children use the usual places.
    """
    with contextlib.ExitStack() as stack:
        variables = environ
        with contextlib.suppress(OSError):
            variables = {**environ, OWN_FOLDER: str(stack.enter_context(_folder(environ)))}
        yield variables


@contextlib.contextmanager
def _folder(environ: Mapping[str, str], *folders: str) -> Iterator[Path]:
    """A folder of this run, removed afterwards, as are those of runs that were killed. Raises OSError."""
    with acting.folder(_RUN, acting.account_of(environ), folders=folders) as (ours, theirs):
        sandbox.remove_when_killed(str(ours))
        yield theirs


def record_file() -> IO[bytes]:
    """A file without a name; in memory, since no folder may be writable, where the system has that.

    Raises OSError where files may not be as large as a record, those in memory included.
    """
    if (most := resource.getrlimit(resource.RLIMIT_FSIZE)[0]) != resource.RLIM_INFINITY and most < _RECORD_BYTES:
        raise OSError(
            errno.EFBIG, f"a file may hold {most} bytes at most (ulimit -f), which is too little for a record"
        )
    try:
        return os.fdopen(os.memfd_create("fi-doctor-record"), "r+b", buffering=0)
    except (OSError, AttributeError):
        return tempfile.TemporaryFile()


def for_compilers(child: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process that only compiles: a compiler that is killed leaves its temporary files."""
    return {**child, "TMPDIR": child[OWN_FOLDER]} if OWN_FOLDER in child else dict(child)


def _no_folder(exc: OSError, foreign: str) -> UsageError:
    return UsageError(
        "there is no folder for the fresh caches" if foreign else "there is no folder for --fresh-cache",
        why=f"{exc}; {foreign}" if foreign else str(exc),
        todo="set TMPDIR to a folder that is writable and has some GiB free",
    )


def foreign_cache(facts: Facts) -> str:
    """Why the machine's cache must not be written to, as a sentence; "" when it may."""
    if facts.serving_uid != facts.running_uid:
        return (
            f"user {facts.serving_uid} serves and this is user {facts.running_uid}: everything is built in a scratch "
            "folder, since files of ours would break that user's cache"
        )
    if isinstance(facts.flashinfer, Missing) or isinstance(facts.flashinfer.cache_owner, Missing):
        return ""
    owner = facts.flashinfer.cache_owner
    if owner == facts.running_uid:
        return ""
    who = "this is" if facts.running_uid == facts.system.uid else "everything runs as"
    return (
        f"FlashInfer's cache below {facts.flashinfer.cache_base} belongs to user {owner} and {who} user "
        f"{facts.running_uid}: everything is built in a scratch folder, since files of ours would break its server"
    )


def used_cache(facts: Facts, request: Request) -> tuple[str, ...]:
    """Where that was built which root started as another user, in sentences."""
    machine = facts.machine
    if isinstance(machine, Missing) or not isinstance(machine.started_as, int) or isinstance(facts.flashinfer, Missing):
        return ()
    if request.fresh_cache or foreign_cache(facts):
        return (f"Everything was built by user {machine.started_as}, in a scratch folder of that user",)
    base = facts.flashinfer.cache_base
    where = f"below {base}" if isinstance(base, str) else "in the usual place"
    return (f"Everything was built by user {machine.started_as}, in the cache of that user's server {where}",)


def environment(
    planned: PlannedProbe, facts: Facts, environ: Mapping[str, str], base: Path | None, jobs: int
) -> dict[str, str]:
    """The child's variables. jobs is handed to ninja unless the user has set MAX_JOBS."""
    child = {"MAX_JOBS": str(jobs), **shared_environment(facts, environ, base)}
    if planned.gpu_uuids:
        child["CUDA_VISIBLE_DEVICES"] = ",".join(planned.gpu_uuids)
    return child


def shared_environment(facts: Facts, environ: Mapping[str, str], base: Path | None) -> dict[str, str]:
    """The variables that all children have alike."""
    child = {
        **environ,
        **NO_MULTICAST,
        "PYTHONSAFEPATH": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    if base is not None:
        child.update({name: str(base / folder) for name, folder in CACHES.items()})
        child.update(_kept_cubins(facts, environ))
        if facts.serving_uid != facts.running_uid:  # HOME is then that user's, where we leave nothing
            child["TVM_FFI_CACHE_DIR"] = str(base / "tvm_ffi")
    return child


def reproduce(  # noqa: PLR0913 - the whole of what a process was started with, and how far it came
    planned: PlannedProbe,
    facts: Facts,
    child: Mapping[str, str],
    base: Path | None,
    *,
    failed: str | None = None,
    in_build: bool = False,
) -> str:
    """A shell line that does the same by hand; values that facts hide are left out.

    failed: the variant that it is about, None for all that were tried. in_build: whether it failed in its build().
    The line runs the probe's own file where that does the same, else the harness, which prints its record. Where a
    part of a module was loaded it compiles the whole one: the part is in a cache of ours, and nobody else's.
    """
    words = [*_shown_variables(planned, facts, child, base), shlex.quote(facts.interpreter.executable)]
    names = planned.variants if failed is None else (failed,)
    only_build = in_build or planned.depth is Depth.BUILD
    if only_build or not planned.spec.runs_by_hand:
        depth = Depth.BUILD if only_build else planned.depth
        options = ["--record-fd=1", f"--depth={depth}", *(f"--variant={name}" for name in names)]
        return _as_whom(facts, [*words, *map(shlex.quote, [str(HARNESS), *options, planned.spec.path])])
    named = () if names == tuple(planned.spec.variants) else filter(None, names)  # without names all are run
    return _as_whom(facts, [*words, *map(shlex.quote, [planned.spec.path, *named])])


def _as_whom(facts: Facts, words: list[str]) -> str:
    """The words as a line of a shell, which does it as the user as whom it was done."""
    line = " ".join(words)
    if isinstance(facts.machine, Missing) or not isinstance(facts.machine.started_as, int):
        return line
    user = facts.machine.user
    return f"sudo -H -u '#{user.uid}' -g '#{user.gid}' sh -c {shlex.quote(line)}"


def _shown_variables(planned: PlannedProbe, facts: Facts, child: Mapping[str, str], base: Path | None) -> list[str]:
    words = []
    for name in sorted(child):
        if name in CACHES and base is not None:
            if name == "FLASHINFER_WORKSPACE_BASE":
                words.append(f'{name}="$(mktemp -d)"')
        elif (name in _REPRODUCED or name.startswith("FLASHINFER_")) and _may_be_shown(
            name, child[name], facts, planned
        ):
            words.append(f"{name}={shlex.quote(child[name])}")
    return words


def _may_be_shown(name: str, value: str, facts: Facts, planned: PlannedProbe) -> bool:
    """Facts keep variables by allow-list and hide secrets: what differs there is not ours to show."""
    if name == "CUDA_VISIBLE_DEVICES" and planned.gpu_uuids:
        return True
    return facts.environment.get(name) == value


def _kept_cubins(facts: Facts, environ: Mapping[str, str]) -> dict[str, str]:
    """Cubins downloaded below the old base stay in use: they are no build product, and irreplaceable offline."""
    flashinfer = facts.flashinfer
    if "FLASHINFER_CUBIN_DIR" in environ or not isinstance(flashinfer, FlashInfer):
        return {}
    if isinstance(flashinfer.cubin_dir, Missing) or isinstance(flashinfer.cubins, Missing) or not flashinfer.cubins:
        return {}
    inside = Path(flashinfer.cubin_dir).is_relative_to(flashinfer.cache_base)
    return {"FLASHINFER_CUBIN_DIR": flashinfer.cubin_dir} if inside else {}
