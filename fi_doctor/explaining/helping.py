"""What would make an answer surer, or tell more where there is nothing to mend."""

from __future__ import annotations

from fi_doctor.explaining.usage import ROWS, is_other
from fi_doctor.model import Event, Used

# What tells that something ended -> where it is told why.
_BEFORE = (
    (("Back-off restarting", "CrashLoopBackOff", "Exit Code: "), "kubectl logs POD -c CONTAINER --previous"),
    (("Main process exited",), "journalctl -b -u UNIT"),
    (("exited with code ", "Exited ("), "docker logs CONTAINER"),
)


def elsewhere(used: tuple[Used, ...]) -> tuple[str, ...]:
    """What says whether FlashInfer would do where a server that works uses something else."""
    others = [one for one in used if is_other(one)]
    if not others:
        return ()
    said = " and ".join(dict.fromkeys(f"{one.choice} for {one.part}" for one in others))
    globs = " ".join(dict.fromkeys(f"--feature '{ROWS[one.part]}*'" for one in others))
    return (f"the server is on {said}: on that machine, fi-doctor check {globs} says whether FlashInfer would work",)


def silent(names: tuple[str, ...]) -> tuple[str, ...]:
    """Which files of environments told nothing, and what such files hold."""
    wanted = "what is read is a collect-env, nvidia-smi, nvcc --version, pip list or NAME=value lines"
    return tuple(f"{name} tells nothing of versions, GPU, toolkit, driver or settings: {wanted}" for name in names)


def before(errors: tuple[Event, ...]) -> tuple[str, ...]:
    """Where the log is of what only its runner says that it ended."""
    return tuple(
        f"{command} has what it said before it ended"
        for words, command in _BEFORE
        if any(error.kind == "ended" and any(word in error.text for word in words) for error in errors)
    )


def how(part: str) -> str:
    """Where a fact is read."""
    word = part.split(maxsplit=1)[0]
    commands = {
        "sm": "nvidia-smi --query-gpu=name,compute_cap --format=csv",
        "gpu": "nvidia-smi -L",
        "nvcc": "nvcc --version",
        "driver": "nvidia-smi",
        "driver_cuda": "nvidia-smi",
        "package": "pip list",
        "installed": "pip list",
        "torch_cuda": "python -c 'import torch; print(torch.version.cuda)'",
        "env": "env",
        "argument": "the command line of the server",
    }
    return commands.get(word, "nvidia-smi, nvcc --version and pip list")
