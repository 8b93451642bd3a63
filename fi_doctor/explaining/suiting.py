"""Which remedies are for the engine and the releases of a log."""

from __future__ import annotations

import re

from fi_doctor.conditions import Truth
from fi_doctor.conditions.logs import LOG, LogView
from fi_doctor.explaining.telling import ENGINES
from fi_doctor.model import Mend, Setting

_OURS = frozenset(("vllm", "sglang"))  # whose flags and variables remedies name
# What runs vLLM or SGLang within, and takes their arguments in ways of its own.
_AROUND = frozenset(("xinference", "tritonserver"))
_NAMED = re.compile(r"\b(?:vLLM|SGLang|sglang)\b|\bvllm\b(?! download)|\b(?:VLLM|SGLANG|SGL)_[A-Z]")
_FLAG = re.compile(r"(?<![\w-])--[a-z]")
# Whose flags a line may have beside those of the engines: of tools, and of engines that it names itself.
_TOOL = re.compile(
    r"\b(?:pip|uv|conda|apt(?:-get)?|git|docker|Docker|kubectl|Kubernetes|systemctl|nvidia-(?:smi|ctk)|py-spy|nvcc|cmake|gdb"
    r"|compute-sanitizer|ldd|wsl|WSL|ldconfig|fi-doctor|python -m|mlc_llm|trtllm-\w+|trtexec|lmdeploy|llama\.cpp|ollama"
    r"|text-generation-\w+|TGI|LMDeploy|Slurm|make|ninja|huggingface-cli|hf|ray|mpirun|torchrun|ulimit)\b"
)


def suits(
    mend: Mend, view: LogView, settings: tuple[Setting, ...], *, is_anothers: bool = False, is_beside: bool = False
) -> bool:
    """Whether it is for these: not known to be for others, and its setting, if any, read by them.

    is_anothers: nothing says that it is FlashInfer's, whose packages and variables do nothing for others. is_beside: it
    is of a container in which no engine runs.
    """
    if is_anothers and "flashinfer" in mend.line.lower():
        return False
    if mend.when and LOG.holds(mend.when, view) is Truth.NO:
        return False
    engines = {fact.value for fact in view.facts.of("engine")}
    if (engines or is_beside) and not _is_theirs(mend, engines):
        return False
    if not mend.setting:
        return True
    readers = [setting for setting in settings if setting.name == mend.setting and setting.read_by]
    if engines:
        readers = [reader for reader in readers if reader.owner not in ENGINES or reader.owner in engines]
    return any(LOG.holds({"package": {reader.owner: reader.read_by}}, view) is not Truth.NO for reader in readers)


def _is_theirs(mend: Mend, engines: set[str]) -> bool:
    """Whether a line has no flags or variables of vLLM and SGLang, or an engine of the log takes them."""
    has_flag = _FLAG.search(mend.line) is not None and _TOOL.search(mend.line) is None
    if engines & _OURS:
        return not (engines & _AROUND and has_flag)
    return not has_flag and _NAMED.search(mend.line) is None
