"""What is installed in the examined interpreter: the survey that runs there, and the packages made of it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fi_doctor import sandbox
from fi_doctor.errors import TargetError
from fi_doctor.facts.files import is_file
from fi_doctor.facts.own_versions import commit_in, constants, differs, version_in, words_of_files
from fi_doctor.model import Data, Missing, Package

SURVEY_TIMEOUT_S = 20.0
_LIMITS = (("Too many open files", "ulimit -n 1024"), ("Resource temporarily unavailable", "ulimit -u 256"))
SURVEY_SCRIPT = Path(__file__).resolve().parent.parent / "inside" / "survey.py"
NAMES = (
    "torch",
    "flashinfer-python",
    "flashinfer-cubin",
    "flashinfer-jit-cache",
    "vllm",
    "sglang",
    "apache-tvm-ffi",
    "nvidia-cutlass-dsl",
    "nvidia-cudnn-frontend",
    "nvidia-ml-py",
    "pynvml",
    "triton",
    "ninja",
    "cuda-python",
    "cuda-bindings",
    "cuda-tile",
)
PROVIDER_PREFIX = "flashinfer-jit-cache-"  # one wheel for each GPU architecture, from FlashInfer 0.7 on
MODULES = {
    "torch": "torch",
    "flashinfer-python": "flashinfer",
    "flashinfer-cubin": "flashinfer_cubin",
    "flashinfer-jit-cache": "flashinfer_jit_cache",
    "vllm": "vllm",
    "sglang": "sglang",
    "triton": "triton",
    "apache-tvm-ffi": "tvm_ffi",
}

_MAX_ANSWER = 4 << 20  # bytes; a survey of a full vLLM environment is about 40 KiB

# Whose files name their own version, as a release that is built from a repository does.
_NAMING_THEMSELVES = ("torch", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "vllm")


class Distribution(Data, frozen=True):
    """One copy of one watched distribution on the examined sys.path."""

    name: str  # canonical, "flashinfer-python"
    version: str | Missing
    location: str  # the entry of sys.path
    metadata: str  # its .dist-info folder or .egg-info
    editable: bool
    source: str | Missing  # the folder that it was installed from, where pip recorded one
    commit: str | Missing  # where pip installed it from a repository
    requires: tuple[str, ...]


class Survey(Data, frozen=True):
    """The examined interpreter as inside/survey.py saw it."""

    executable: str
    version: str
    implementation: str
    prefix: str
    base_prefix: str
    sys_path: tuple[str, ...]
    distributions: tuple[Distribution, ...]  # in the order of sys.path: of one name the first is the installed one
    modules: dict[str, str | Missing]  # the file that `import NAME` would run, found without importing
    problems: tuple[str, ...]  # entries of sys.path that could not be read
    environ: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it; names and values byte for byte, as latin-1


def survey(python: str, environ: Mapping[str, str]) -> Survey:
    """Run the survey in the interpreter `python` (a path, or a name to look up on PATH).

    The examined PYTHONPATH holds, the current directory is not on sys.path.
    Raises TargetError when there is no such interpreter or it gives no answer.
    """
    path = find_interpreter(python, environ)
    word = os.urandom(8).hex()
    result = sandbox.run(
        [path, str(SURVEY_SCRIPT), word],
        timeout_s=SURVEY_TIMEOUT_S,
        env={**environ, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        max_output=_MAX_ANSWER,
    )
    # A wrapper may have said the word too, when it tells what it runs: the last survey between two of them counts.
    answers = result.stdout.split(word.encode())[1:-1]
    for text in reversed(answers):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=Survey)
    raise _unusable(path, "it answered with something else than a survey" if answers else _why_no_answer(result))


def find_interpreter(python: str, environ: Mapping[str, str]) -> str:
    """The absolute path of the interpreter; symlinks stay, because a virtual environment is one."""
    if os.sep not in python:
        found = shutil.which(python, path=environ.get("PATH", os.defpath))
        if found is None:
            raise _unusable(python, f"there is no {python!r} on PATH")
        return str(_absolute(found))
    path = _absolute(python)
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError as error:
        gone = f"it is a link to {os.path.realpath(path)}, which does not exist" if path.is_symlink() else ""
        raise _unusable(path, gone or "there is no such file") from error
    except OSError as error:  # a loop of links, a name that is too long
        raise _unusable(path, error.strerror or str(error)) from error
    if is_folder:
        inner = path / "bin" / "python"
        todo = f"fi-doctor check --python {shlex.quote(str(inner))}" if is_file(inner) else ""
        raise _unusable(path, "it is a directory", todo)
    if not os.access(path, os.X_OK):
        raise _unusable(path, "it is not executable")
    return str(path)


def packages(survey: Survey) -> dict[str, Package | Missing]:
    """The packages that matter to FlashInfer, by distribution name; Missing says that one is not installed."""
    providers = sorted({d.name for d in survey.distributions if d.name.startswith(PROVIDER_PREFIX)})
    return {name: package(survey, name) for name in (*NAMES, *providers)}


def package(survey: Survey, name: str) -> Package | Missing:
    """The copy of a distribution that an import gets; every other copy on sys.path is `shadowed`.

    Of several whose metadata lie in one folder, as an interrupted upgrade leaves them, it is the one whose version the
    files themselves name. Where none does, the files are believed and not the metadata, which `claims` then has.

    A source tree on PYTHONPATH that is imported in place of the installed distribution counts as the package: its
    version is what its own files say.
    """
    copies = [d for d in survey.distributions if d.name == name]
    origin = survey.modules.get(MODULES.get(name, ""), Missing(reason=""))
    if isinstance(origin, str):
        holding = [d for d in copies if _holds(d, origin)]
        if not holding:
            return _without_metadata(name, origin, copies)
        words = words_of_files(origin)
        own = version_in(words, origin) if name in _NAMING_THEMSELVES else Missing(reason="it was not looked for")
        imported = next((d for d in holding if not differs(own, d.version)), holding[0])
        found = _from_metadata(imported, copies, words)
        if not differs(own, imported.version):
            return found
        claims = imported.version if isinstance(imported.version, str) else f"none ({imported.version.reason})"
        return msgspec.structs.replace(found, version=own, claims=claims)
    if copies:
        found = _from_metadata(copies[0], copies, [])
        return msgspec.structs.replace(found, lost=origin.reason) if name in _NAMING_THEMSELVES else found
    return Missing(reason=f"not installed in {survey.executable}")


def torch_cuda(survey: Survey) -> str | Missing:
    """The CUDA that torch was built with, "13.0". Source: torch/version.py."""
    origin = survey.modules.get("torch", Missing(reason="torch was not looked for"))
    if isinstance(origin, Missing):
        return Missing(reason=f"torch is not installed in {survey.executable}")
    path = Path(origin).parent / "version.py"
    values = constants(path)
    if isinstance(values, Missing):
        return values
    cuda = values.get("cuda")
    if isinstance(cuda, str) and cuda:
        return cuda
    if "cuda" not in values:
        return Missing(reason=f"{path} does not say which CUDA torch was built with")
    kind = f"for ROCm {values['hip']}" if values.get("hip") else "without CUDA"
    return Missing(reason=f"torch {values.get('__version__', 'of unknown version')} is built {kind}")


def jit_cache_cuda(survey: Survey) -> str | Missing:
    """The CUDA of flashinfer-jit-cache, "12.9", from the tag in its version, 0.5.3+cu129."""
    found = package(survey, "flashinfer-jit-cache")
    if isinstance(found, Missing):
        return Missing(reason=f"flashinfer-jit-cache is {found.reason}")
    if isinstance(found.version, Missing):
        return found.version
    match = re.search(r"\+(?:.*\.)?cu(\d+)(\d)(?:\.|$)", found.version)
    if match is None:
        return Missing(reason=f"the version {found.version} of flashinfer-jit-cache has no +cuXYZ tag")
    return f"{match[1]}.{match[2]}"


def _unusable(path: str | Path, why: str, todo: str = "") -> TargetError:
    usual = next((limit for word, limit in _LIMITS if word in why), 'fi-doctor check --python "$(command -v python3)"')
    return TargetError(f"{path} cannot be used as the target interpreter", why=why, todo=todo or usual)


def _absolute(python: str) -> Path:
    try:
        return Path(python).expanduser().absolute()
    except (OSError, RuntimeError) as error:  # the current folder was deleted; ~name of nobody
        raise _unusable(python, f"its place cannot be told: {error}") from error


def _why_no_answer(result: sandbox.Result) -> str:
    if result.error:
        return f"it could not be started: {result.error}"
    lines = [line for line in result.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    said = f": {lines[-1].strip()[:300]}" if lines else ""
    if result.timed_out:
        return f"it gave no answer within {SURVEY_TIMEOUT_S:.0f} s{said}"
    if result.signal is not None:
        return f"signal {result.signal} ended it after {result.seconds:.1f} s{said}"
    if result.returncode:
        old = " (Python 3.8 or newer can be examined)" if "SyntaxError" in said else ""
        return f"it exited with code {result.returncode} after {result.seconds:.1f} s{said}{old}"
    return f"it ran our survey without answering it: it is not a Python{said}"


def _holds(copy: Distribution, origin: str) -> bool:
    """Whether the module at `origin` belongs to this copy."""
    folder = Path(origin).parent
    if copy.editable and isinstance(copy.source, str):
        return Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(copy.source))
    # The folder itself may be a link to elsewhere.
    return os.path.realpath(folder.parent) == os.path.realpath(copy.location)


def _from_metadata(copy: Distribution, copies: list[Distribution], words: list[dict[str, object]]) -> Package:
    tree = copy.source if copy.editable and isinstance(copy.source, str) else copy.location
    commit = commit_in(words, copy.version) if isinstance(copy.commit, Missing) else copy.commit
    return Package(
        name=copy.name,
        version=copy.version,
        location=tree,
        editable=copy.editable,
        commit=commit,
        requires=copy.requires,
        shadowed=tuple(_in_words(d) for d in copies if d.location != copy.location),
        leftovers=tuple(d.metadata for d in copies if d.location == copy.location and d is not copy),
    )


def _without_metadata(name: str, origin: str, copies: list[Distribution]) -> Package:
    """The package that is imported from a folder which no distribution owns."""
    words = words_of_files(origin)
    version = version_in(words, origin)
    return Package(
        name=name,
        version=version,
        location=str(Path(origin).parent.parent),
        editable=False,
        commit=commit_in(words, version),
        requires=(),
        shadowed=tuple(_in_words(d) for d in copies),
    )


def _in_words(copy: Distribution) -> str:
    version = copy.version if isinstance(copy.version, str) else "a copy without version"
    return f"{version} in {copy.location}"
