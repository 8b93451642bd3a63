"""The CUDA compiler: what an nvcc says of itself and where it looks for its own headers and libraries.

Every nvcc is asked, because a wrapper script in front of one cannot be told by its path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fi_doctor import acting, sandbox
from fi_doctor.facts import asking
from fi_doctor.facts.commandline import option_values, split_words, which
from fi_doctor.model import Missing, Nvcc
from fi_doctor.workers import Workers

# FlashInfer's own expression (jit/cpp_ext.py get_cuda_version): what it does not match, FlashInfer cannot read either.
_RELEASE = re.compile(r"release (\d{1,4}\.\d{1,4}),")
_BUILD = re.compile(r"\bV(\d+\.\d+\.\d+)")
_CODES = "--list-gpu-code"
_GPU_CODE = re.compile(r"^sm_\d+[a-z]?$", re.MULTILINE)


class Folders(NamedTuple):
    """Where an nvcc looks by itself, in its order: -I, -isystem and -L of its profile and of NVCC_PREPEND_FLAGS."""

    includes: tuple[str, ...]
    system_includes: tuple[str, ...]
    libraries: tuple[str, ...]


class Command(NamedTuple):
    """An nvcc to be asked."""

    words: tuple[str, ...]  # what starts it; more than one word when a launcher stands in front
    path: str  # as found
    found_by: str


class Answer(NamedTuple):
    """An nvcc that was asked."""

    nvcc: Nvcc
    stuck: str  # why it could not be started, or that it does not end; "" when it ran to an end


def parse_nvcc_version(text: str) -> tuple[str | Missing, str | Missing]:
    """Release ("13.0") and build ("13.0.88") from `nvcc --version`."""
    release, build = _RELEASE.search(text), _BUILD.search(text)
    return (
        release.group(1) if release else Missing(reason=f'no "release X.Y," in what --version prints: {_last(text)}'),
        build.group(1) if build else Missing(reason=f"no build number in what --version prints: {_last(text)}"),
    )


def parse_gpu_code(text: str) -> tuple[str, ...] | Missing:
    """Architectures ("sm_90") from `nvcc --list-gpu-code`, in nvcc's order; nvcc 13 lists none with a suffix."""
    found = tuple(_GPU_CODE.findall(text))
    return found or Missing(reason=f"--list-gpu-code names no architecture: {_last(text)}")


def parse_dryrun(text: str) -> Folders | Missing:
    """The folders that `nvcc --dryrun -x cu -E /dev/null` names.

    Includes are taken from the preprocessor's command line, which also has what NVCC_PREPEND_FLAGS adds;
    Missing when there is none: without a host compiler nvcc ends before it.
    """
    lines = [line[3:] for line in text.splitlines() if line.startswith("#$ ")]
    commands = [line for line in lines if " -E " in line]
    if not commands:
        return Missing(reason=f"nvcc cannot preprocess: {_last(text)}")
    used = split_words(commands[-1])
    libraries = [line.partition("=")[2] for line in lines if line.startswith("LIBRARIES=")]
    return Folders(
        includes=option_values("-I", used),
        system_includes=option_values("-isystem", used),
        libraries=option_values("-L", split_words(libraries[-1])) if libraries else (),
    )


def ask(command: Command, environ: Mapping[str, str]) -> Answer | Missing:
    """An nvcc with its version and architectures; Missing when there is no such file."""
    with Workers() as pool:
        asked = [pool.submit(asking.ask, command.words, word, environ=environ) for word in ("--version", _CODES)]
    said, listed = (job.result() for job in asked)
    found = which(command.words[-1], environ) or command.words[-1]
    if is_absent(said.error) and not os.path.lexists(found):
        return Missing(reason=f"{command.path} does not exist")
    failure, unlisted = _failure(command.words, said), _failure(command.words, listed)
    version, build = parse_nvcc_version(said.stdout.decode(errors="replace"))  # FlashInfer does not read stderr
    nvcc = Nvcc(
        path=command.path,
        resolved=os.path.realpath(found),
        found_by=command.found_by,
        version=Missing(reason=failure) if failure else version,
        build=Missing(reason=failure) if failure else build,
        architectures=Missing(reason=unlisted) if unlisted else parse_gpu_code(_text(listed)),
    )
    return Answer(nvcc, failure if said.error or said.timed_out else "")


def is_absent(error: str) -> bool:
    """Whether a program could not be started because it, or its interpreter, is not there."""
    return error.endswith(os.strerror(errno.ENOENT))


def read_folders(words: Sequence[str], environ: Mapping[str, str]) -> Folders | Missing:
    """Where this nvcc looks, with the host compiler that FlashInfer gives it (CC); nothing is compiled.

    An nvcc that is not there has no folders of its own: headers are then looked for without it.
    """
    host = ["-ccbin", environ["CC"]] if "CC" in environ else []
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # what it leaves when it is ended; where none can be made, it will say so
            account = acting.account_of(environ)
            # Not in a place of another user, whose paths may lead elsewhere in the next moment.
            place = None if account else environ.get("TMPDIR")
            _, own = stack.enter_context(acting.folder("fi-doctor-nvcc-", account, place=place))
            environ = {**environ, "TMPDIR": str(own)}
        said = asking.ask(words, *host, "--dryrun", "-x", "cu", "-E", os.devnull, environ=environ)
    if is_absent(said.error):
        return Folders((), (), ())
    if said.error or said.timed_out:
        return Missing(reason=_failure(words, said))
    return parse_dryrun(_text(said))


def _failure(words: Sequence[str], result: sandbox.Result) -> str:
    """Why a call gave no answer, as a sentence; "" when it did."""
    shown = shlex.join(result.argv)
    if result.error:
        return f"{shown} does not start: {result.error}"
    if result.timed_out:
        return asking.silence(words, result)
    if result.signal is not None:
        return f"{shown} was killed by signal {result.signal}"
    if result.returncode:
        return f"{shown} exits with code {result.returncode}: {_last(_text(result))}"
    return ""


def _text(result: sandbox.Result) -> str:
    return (result.stdout + b"\n" + result.stderr).decode(errors="replace")


def _last(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it prints nothing"
