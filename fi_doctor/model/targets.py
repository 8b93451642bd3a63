"""A machine that is not here, for which verdicts are wanted."""

from __future__ import annotations

from collections.abc import Iterable

from fi_doctor.model.base import Data, Missing

ARCH_LIST = "FLASHINFER_CUDA_ARCH_LIST"
# The architectures of a flashinfer-jit-cache that is not here: neither are its modules known.
JIT_CACHE_UNREAD = Missing(reason="what that flashinfer-jit-cache brings was not read")


class Measured(Data, frozen=True):
    """What was measured elsewhere, as near to a target as anything that is known."""

    outcome: str  # "verified", "wrong-result", "compiles", "does not compile", ...
    subject: str  # variant of a probe, or module of FlashInfer
    place: str  # with what and on what: "FlashInfer 0.7.2.post1, nvcc 13.0, sm_90a, NVIDIA H200"
    detail: str = ""  # what it took, or the line that says why not
    is_run: bool = False  # on a GPU; else it was compiled
    differs: tuple[str, ...] = ()  # from the target, in words; empty: it was measured exactly so


class Target(Data, frozen=True):
    """What --target names; what it leaves empty is as in the environment that is examined."""

    words: str  # as typed: "h200", "sm=90,driver=580"
    sm: int  # compute capability without the dot
    name: str = ""  # of the GPU, "NVIDIA H200"; "" where an SM alone was named
    gpus: int = 1
    driver: str = ""  # "580", "580.159.04"
    cuda: str = ""  # release of the toolkit, "12.8"
    versions: dict[str, str] = {}  # distribution -> version
    nearest: dict[str, tuple[Measured, ...]] = {}  # feature -> what was run and built nearest to it

    @property
    def told(self) -> str:
        """What was named, in words: "NVIDIA H200 (SM90), driver 580"."""
        gpu = f"{self.name} (SM{self.sm})" if self.name else f"SM{self.sm}"
        parts = [f"{self.gpus} x {gpu}" if self.gpus > 1 else gpu]
        parts += [f"driver {self.driver}"] if self.driver else []
        parts += [f"CUDA toolkit {self.cuda}"] if self.cuda else []
        return ", ".join((*parts, *(f"{name} {version}" for name, version in self.versions.items())))


def arch_list(tags: Iterable[str]) -> str:
    """What that variable is given for these architectures: of "90a" "9.0a"."""
    return " ".join(_dotted(tag) for tag in tags)


def _dotted(tag: str) -> str:
    digits = tag.rstrip("af")
    return f"{digits[:-1]}.{digits[-1]}{tag[len(digits) :]}"
