"""What variables and GPUs mean to the installed vLLM: which are not meant for it, where sinks can run."""

from __future__ import annotations

import re
from collections.abc import Callable

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.relations import Relation, visible_gpus
from fi_doctor.conditions.toolkits import fit_cuda_home
from fi_doctor.model import Facts, Missing, Nvcc, Package

# Set for others than the engine: by images, for setup.py, and for the Rust front end, which is no Python file.
_FOR_OTHERS = re.compile(
    r"VLLM_(?:BUILD_|IMAGE_|DOCKER_|CI_|RS_|USE_PRECOMPILED|SKIP_|MAIN_CUDA_VERSION$|TARGET_DEVICE$|VERSION_OVERRIDE$)"
)
# Kubernetes sets these for a service that is called vllm or vllm-something.
_OF_A_SERVICE = re.compile(r"VLLM_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP)(?:_\w+)?)")
_SERVICE_PORT = re.compile(r"(?:tcp|udp)://")


def is_for_others(name: str, value: str) -> bool:
    """Whether a VLLM_ variable is none of the engine's: of an image, of the build, or of a service in Kubernetes."""
    return bool(_FOR_OTHERS.match(name) or _OF_A_SERVICE.fullmatch(name) or _SERVICE_PORT.match(value))


def sinks_backend(facts: Facts) -> Relation:
    """The attention backend that serves sinks on the GPUs here in every release; FlashAttention 3 is for SM90 only."""
    gpus = visible_gpus(facts)
    if isinstance(gpus, Missing):
        return gpus
    sms = {gpu.sm for gpu in gpus}
    if not sms or any(isinstance(sm, Missing) for sm in sms):
        return Missing(reason="it is not known which GPUs are there")
    return ("FLASH_ATTN" if sms == {90} else "TRITON_ATTN",)


def flashinfer_lacks(facts: Facts) -> Relation:
    """What has_flashinfer() of vLLM 0.33 does not find, each with why: "ninja (there is no ninja on PATH)".

    The program is enough for it; an nvcc that does not answer is told by FlashInfer's own rules.
    """
    absent = {"nvcc": _nvcc_of_jit(facts), "ninja": facts.toolkit.ninja}
    return tuple(f"{name} ({why.reason})" for name, why in absent.items() if isinstance(why, Missing))


def cuda_home_for_vllm(facts: Facts) -> Relation:
    """The toolkit to name in CUDA_HOME, where it is nvcc that vLLM does not find."""
    if isinstance(_nvcc_of_jit(facts), Missing):
        return fit_cuda_home(facts)
    return Missing(reason="nvcc is found")


def toolkit_for_vllm(facts: Facts) -> Relation:
    """The CUDA of the toolkit to install, where no other one is here."""
    home = cuda_home_for_vllm(facts)
    if isinstance(_nvcc_of_jit(facts), Missing) and isinstance(home, Missing):
        cuda = facts.toolkit.torch_cuda
        return cuda if isinstance(cuda, Missing) else (cuda,)
    return Missing(reason="a toolkit is here")


def ninja_to_install(facts: Facts) -> Relation:
    """The package ninja, where no ninja is found and it is not installed."""
    if isinstance(facts.toolkit.ninja, Missing) and not isinstance(facts.packages.get("ninja"), Package):
        return ("ninja",)
    return Missing(reason="it is there")


def bin_of_ninja(facts: Facts) -> Relation:
    """The folder of the installed ninja, where that is not on PATH: an environment that is not activated."""
    if isinstance(facts.toolkit.ninja, Missing) and isinstance(facts.packages.get("ninja"), Package):
        return (f"{facts.interpreter.prefix}/bin",)
    return Missing(reason="ninja is on PATH or not installed")


def _nvcc_of_jit(facts: Facts) -> Nvcc | Missing:
    jit = facts.toolkit.jit
    return jit if isinstance(jit, Missing) else jit.nvcc


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "vllm_flashinfer_lacks": (Kind.TEXT, flashinfer_lacks),
    "vllm_cuda_home": (Kind.TEXT, cuda_home_for_vllm),
    "vllm_toolkit": (Kind.TEXT, toolkit_for_vllm),
    "ninja_to_install": (Kind.TEXT, ninja_to_install),
    "bin_of_ninja": (Kind.TEXT, bin_of_ninja),
    "sinks_backend": (Kind.TEXT, sinks_backend),
}
