"""What the lines of a log tell: facts, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from fi_doctor.explaining.gpus import sm_of
from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.patterns import every, search
from fi_doctor.explaining.readers import READERS, Reader
from fi_doctor.model import LogFact, secrets

_SHOWN = ("argument", "env", "model")  # told without their value, where that is a secret
ENGINES = ("vllm", "sglang", "tensorrt-llm")
# How the engines call their processes, in what stands before a line.
_PROCESSES = (
    ("vllm", re.compile(r"EngineCore|APIServer|VllmWorker|Worker_(?:TP|DP|PP|EP)|RayWorkerWrapper|RayWorkerProc")),
    ("sglang", re.compile(r"(?:(?:DP|PP)\d+ )*TP\d+(?: EP\d+)?$")),
)


def literals() -> frozenset[bytes]:
    """What stands in the lines that tell something."""
    return frozenset(literal.encode() for reader in READERS for literal in reader.literals)


def told(line: Line, found: tuple[bytes, ...]) -> Iterator[LogFact]:
    """What a line tells in which these literals stand, with what follows from it; no value that is a secret."""
    standing = {literal.decode() for literal in found}
    shown: str | None = None
    for engine, named in _PROCESSES if line.rank else ():
        if named.match(line.rank) is not None:
            yield LogFact(name="engine", value=engine, file=line.file, line=line.number)
    for reader in READERS:
        if standing.isdisjoint(reader.literals):
            continue
        if reader.without and search(reader.without, line.text) is not None:
            continue
        for groups in every(reader.pattern, line.text):
            if fact := _fact(reader, groups, line):
                shown = secrets.hidden(line.text) if shown is None else shown
                if secrets.is_secret(fact.key, fact.value) or groups["value"] not in shown:
                    if fact.name not in _SHOWN:
                        continue  # a release or a number in what is hidden tells nothing
                    fact = replace(fact, value=secrets.HIDDEN)
                yield fact
                yield from _following(fact)


def _fact(reader: Reader, groups: dict[str, str], line: Line) -> LogFact | None:
    if groups.get("advice") or groups.get("more"):
        return None
    value, key = groups["value"].strip().rstrip(".,;"), reader.key or groups.get("key", "")
    if reader.name == "sm":
        value = _capability(value)
    elif reader.name == "torch_cuda" and "." not in value:
        value = f"{value[:-1]}.{value[-1]}"
    elif reader.name == "engine" and key:
        key, value = "", key
    elif reader.name == "engine":
        value = "tensorrt-llm" if value.lower().startswith(("tensorrt", "trt")) else value.lower()
        value = "sglang" if value.startswith("server") else value
    elif reader.name == "argument":
        key = key.replace("-", "_")
    elif reader.name == "installed":
        key, value = line.text.partition(":")[0].strip(), "no"
    return LogFact(name=reader.name, key=key, value=value, file=line.file, line=line.number) if value else None


def _capability(text: str) -> str:
    """9.0, (12, 0) and 120 alike; a number of one digit is none."""
    digits = "".join(char for char in text if char.isdigit())
    return digits if len(digits) > 1 else ""


def _following(fact: LogFact) -> Iterator[LogFact]:
    """The compute capability of a GPU that is named, the engine of a package."""
    if fact.name == "package" and fact.key in ENGINES:
        yield LogFact(name="engine", value=fact.key, file=fact.file, line=fact.line)
    if fact.name == "gpu" and (sm := sm_of(fact.value)) is not None:
        yield LogFact(name="sm", value=str(sm), file=fact.file, line=fact.line)
