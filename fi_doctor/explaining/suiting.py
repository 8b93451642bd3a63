"""Which remedies are for the engine and the releases of a log."""

from __future__ import annotations

import re

from fi_doctor.conditions import Truth
from fi_doctor.conditions.logs import LOG, LogView
from fi_doctor.explaining import naming
from fi_doctor.explaining.telling import ENGINES
from fi_doctor.model import Mend, Setting

# What runs vLLM or SGLang within, and takes their arguments in ways of its own.
_AROUND = frozenset(("xinference", "tritonserver"))
_NAMED = re.compile(r"\b(?:vLLM|SGLang|sglang)\b|\bvllm\b(?! download)|\b(?:VLLM|SGLANG|SGL)_[A-Z]")
# How lines name one of the two.
_WORDS = {
    "vllm": re.compile(r"\b(?:vLLM|VLLM_\w+)\b|(?<![\w.-])vllm\b"),
    "sglang": re.compile(r"\b(?:SGLang|sglang|SGL(?:ANG)?_\w+)\b"),
}
_FLAG = re.compile(r"(?<![\w-])--[a-z]")
# Whose flags a line may have beside those of the engines: of tools, and of engines that it names itself.
_TOOL = re.compile(
    r"\b(?:pip|uv|conda|apt(?:-get)?|git|docker|Docker|kubectl|Kubernetes|systemctl|nvidia-(?:smi|ctk)|py-spy|nvcc|cmake|gdb"
    r"|compute-sanitizer|ldd|wsl|WSL|ldconfig|fi-doctor|python -m|mlc_llm|trtllm-\w+|trtexec|lmdeploy|llama\.cpp|ollama"
    r"|text-generation-\w+|TGI|LMDeploy|Slurm|make|ninja|huggingface-cli|hf|ray|mpirun|torchrun|ulimit)\b"
)


def suited(
    mend: Mend, view: LogView, settings: tuple[Setting, ...], *, is_anothers: bool = False, is_beside: bool = False
) -> str:
    """What is left of its line for these; "" where it is known to be for others, or they do not read its settings.

    is_anothers: nothing says that it is FlashInfer's, whose packages and variables do nothing for others. is_beside: it
    is of a container in which no engine runs.
    """
    if is_anothers and "flashinfer" in mend.line.lower():
        return ""
    if mend.when and LOG.holds(mend.when, view) is Truth.NO:
        return ""
    engines = {fact.value for fact in view.facts.of("engine")}
    line = naming.left(mend.line, view, settings)
    if (engines or is_beside) and not _is_theirs(line, engines):
        return ""
    return line if line != mend.line or _is_read(mend.setting, engines, view, settings) else ""


def _is_read(name: str, engines: set[str], view: LogView, settings: tuple[Setting, ...]) -> bool:
    """Whether one of them may read what is no variable and no flag, a key, or what a log tells no engine for."""
    if not name:
        return True
    readers = [setting for setting in settings if setting.name == name and setting.read_by]
    if engines:
        readers = [reader for reader in readers if reader.owner not in ENGINES or reader.owner in engines]
    return any(LOG.holds({"package": {reader.owner: reader.read_by}}, view) is not Truth.NO for reader in readers)


def _is_theirs(line: str, engines: set[str]) -> bool:
    """Whether a line has no flags or variables of vLLM and SGLang, or an engine of the log takes them."""
    has_flag = _FLAG.search(line) is not None and _TOOL.search(line) is None
    if ours := engines & naming.ENGINES:
        others = any(word.search(line) for engine, word in _WORDS.items() if engine not in ours)
        is_others = others and not any(_WORDS[engine].search(line) for engine in ours)
        return not is_others and not (engines & _AROUND and has_flag)
    return not has_flag and _NAMED.search(line) is None
