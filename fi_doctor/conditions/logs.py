"""What a condition of a fault can ask about: what the log tells. What no line tells is unknown, never false."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from fi_doctor.conditions import log_relations
from fi_doctor.conditions.language import Keyed, Language, Reading, Subject
from fi_doctor.conditions.leaves import Kind
from fi_doctor.model import LogFact, LogFacts, Missing
from fi_doctor.model.numbers import whole


class LogView(NamedTuple):
    """What conditions of a fault look at."""

    facts: LogFacts
    captured: Mapping[str, tuple[str, ...]] = {}  # named groups of the signs' patterns -> what they matched
    seen: frozenset[str] = frozenset()  # names of the signs that were seen
    errors: tuple[str, ...] = ()  # kinds of the errors that the log tells, which are none of other errors'


def _said(name: str, of: LogFacts, key: str = "") -> tuple[LogFact, ...] | Missing:
    return of.of(name, key) or Missing(reason=f"the log does not tell {key or name.replace('_', ' ')}")


def _first(found: tuple[LogFact, ...] | Missing) -> Reading:
    """What the first line that tells it says: later ones may speak of other releases, other machines."""
    if isinstance(found, Missing):
        return found
    first = found[0]
    return tuple(fact.value for fact in found if (fact.file, fact.line) == (first.file, first.line))


def _one(name: str) -> Callable[[LogView], Reading]:
    return lambda view: _first(_said(name, view.facts))


def _every(name: str) -> Callable[[LogView], Reading]:
    def of(view: LogView) -> Reading:
        found = _said(name, view.facts)
        return found if isinstance(found, Missing) else tuple(fact.value for fact in found)

    return of


def _numbers(name: str) -> Callable[[LogView], Reading]:
    def of(view: LogView) -> Reading:
        found = _said(name, view.facts)
        return found if isinstance(found, Missing) else tuple(int(fact.value) for fact in found)

    return of


def _keyed(name: str) -> Callable[[LogView, str], Reading]:
    return lambda view, key: _first(_said(name, view.facts, key))


def _captured(view: LogView, key: str) -> Reading:
    return view.captured.get(key) or Missing(reason=f"no line has {key}")


def _captured_number(view: LogView, key: str) -> Reading:
    reading = _captured(view, key)
    if isinstance(reading, Missing):
        return reading
    numbers = (whole(value) for value in reading if isinstance(value, str))
    return tuple(number for number in numbers if number is not None)


def _installed(view: LogView, key: str) -> Reading:
    said = view.facts.of("installed", key)
    if said:
        return (said[0].value == "yes",)
    return (True,) if view.facts.of("package", key) else Missing(reason=f"the log does not tell whether {key} is there")


def _relation(read: Callable[[LogFacts], Reading]) -> Callable[[LogView], Reading]:
    return lambda view: read(view.facts)


SUBJECTS: dict[str, Subject[LogView]] = {
    "sm": Subject(Kind.NUMBER, _numbers("sm")),  # of every GPU that is named: 90, 121
    "gpu": Subject(Kind.TEXT, _every("gpu")),  # names, "NVIDIA GB10"
    "driver": Subject(Kind.VERSION, _one("driver")),
    "driver_cuda": Subject(Kind.VERSION, lambda view: log_relations.driver_cuda(view.facts)),  # the newest that it runs
    "nvcc": Subject(Kind.VERSION, _one("nvcc")),  # the toolkit that compiles
    "torch_cuda": Subject(Kind.VERSION, _one("torch_cuda")),  # that torch was built with
    "python": Subject(Kind.VERSION, _one("python")),
    "cuda_home": Subject(Kind.TEXT, _one("cuda_home")),
    "architectures": Subject(Kind.TEXT, _every("architectures")),  # that something is compiled for: "90a", "120f"
    "engine": Subject(Kind.TEXT, _every("engine")),  # vllm, sglang, tensorrt-llm, llama.cpp, ollama, ...
    "model": Subject(Kind.TEXT, _one("model")),
    "error": Subject(Kind.TEXT, lambda view: view.errors),  # kinds of the errors that are told: compiler, linker, cuda
    "container": Subject(Kind.TEXT, _every("container")),  # images and runtimes
    **{name: Subject(Kind.FLAG, _relation(read)) for name, read in log_relations.RELATIONS.items()},
}

KEYED: dict[str, Keyed[LogView]] = {
    "package": Keyed(Kind.VERSION, "distributions", _keyed("package")),
    "installed": Keyed(Kind.FLAG, "distributions", _installed),
    "differs_from_flashinfer": Keyed(  # of another release: {flashinfer-cubin: true}
        Kind.FLAG, "companions", lambda view, name: log_relations.differs_from_flashinfer(view.facts, name)
    ),
    "env": Keyed(Kind.TEXT, "variables", _keyed("env")),
    "argument": Keyed(Kind.TEXT, "arguments of the engine, with underscores", _keyed("argument")),
    "captured": Keyed(Kind.TEXT, "named groups of the signs", _captured),
    "captured_version": Keyed(Kind.VERSION, "named groups of the signs", _captured),
    "captured_number": Keyed(Kind.NUMBER, "named groups of the signs", _captured_number),
    "seen": Keyed(Kind.FLAG, "names of the signs", lambda view, name: (name in view.seen,)),
}

LOG = Language(SUBJECTS, KEYED)
