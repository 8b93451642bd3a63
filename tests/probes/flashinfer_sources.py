"""Whether what a probe takes from FlashInfer fits what a release has, as fi_doctor reads vLLM's calls; no import."""

import ast
import functools
from dataclasses import dataclass

from fi_doctor.facts.calls.binding import fit
from fi_doctor.facts.calls.callees import Callees
from fi_doctor.facts.calls.read_file import File
from fi_doctor.facts.calls.use import CALLED
from fi_doctor.facts.calls.uses import uses
from fi_doctor.facts.calls.values import OPTIONAL
from fi_doctor.model import Missing

MODULE_ATTRIBUTES = ("__file__", "__name__", "__path__")  # every module has them


@dataclass
class Sources:
    """The callable names of one FlashInfer."""

    version: str
    callees: Callees

    @classmethod
    def read(cls, version, package):
        """package: the folder flashinfer/ of that version."""
        return cls(version, Callees(package, f"flashinfer {version}"))

    def has(self, dotted):
        return not isinstance(self.callees.find(dotted), Missing)


@functools.cache
def uses_of(text):
    """Every use of a flashinfer name in a file, modules' own attributes aside."""
    found = uses(File(text))
    return [use for use in found if not any(name.endswith(MODULE_ATTRIBUTES) for name in use.names)]


def misfits(text, sources):
    """What does not fit, or cannot be told of a call; a name behind hasattr may be missing, but fits where it is.

    A call by a name of the probe's own, `load = module.function`, is one that only some releases are asked for.
    """
    lines, aliases = text.split("\n"), _aliases(text)
    return [
        f"line {use.line}: {said}"
        for use in uses_of(text)
        if use.how != CALLED or _is_spelled(use, lines[use.line - 1], aliases)
        if (said := _misfit(use, sources))
    ]


@functools.cache
def _aliases(text):
    """What imports call a FlashInfer name."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.asname for node in nodes for alias in node.names if alias.asname}


def _is_spelled(use, line, aliases):
    return any(f"{name.rpartition('.')[2]}(" in line for name in (*use.names, *aliases))


def called(text):
    """The names that a file calls."""
    return {name for use in uses_of(text) if use.how == CALLED for name in use.names}


def _misfit(use, sources):
    fitted = fit(use, sources.callees)
    if fitted is None or (use.lookup == OPTIONAL and fitted.is_wanting):
        return ""
    if fitted.kind is not None and "stand_in" in fitted.name:
        return ""  # what only the stand-in for FlashInfer has, which a probe asks for on the CPU
    if fitted.kind is not None:
        return f"{fitted.name}: {fitted.text}"
    # A function has to be called with its arguments written out; a method that a probe replaces hands on what it got.
    owner = sources.callees.find(fitted.name.rpartition(".")[0])
    is_function = use.how == CALLED and use.lookup != OPTIONAL and getattr(owner, "kind", "") == "module"
    return "" if fitted.is_told or not is_function else f"{fitted.name}: {fitted.text}"
