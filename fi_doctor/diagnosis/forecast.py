"""What is known, before anything is compiled, to make compiling vain. Pure."""

from __future__ import annotations

from fi_doctor.diagnosis import advice, findings
from fi_doctor.errors import CannotTellError
from fi_doctor.model import Facts, Finding, KnowledgeBase, Missing, Severity, command


def refusal(kb: KnowledgeBase, facts: Facts) -> CannotTellError | None:
    """That whatever is compiled here comes to nothing, by the facts, and the line that mends it."""
    found = findings.find(kb, facts, ())
    stopping = stops(kb, found)
    if not stopping:
        return None
    lines = advice.advise(kb, facts, (), (), found)
    mends = [one.line for name in stopping for one in lines if name.id in one.findings]
    look = command.line(facts.interpreter, "check", "--depth", "static")
    return CannotTellError(
        f"compiling would be vain: {' and '.join(one.id for one in stopping)}",
        why=f"{' '.join(f'{one.title}. {one.why}' for one in stopping)} What compiles is "
        f"{toolkit(facts)}. `{look}` says more; --anyway compiles all the same",
        todo="; ".join(dict.fromkeys(mends)) or look,
    )


def stops(kb: KnowledgeBase, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """What was found that makes compiling vain, whichever module it is of."""
    stopping = {rule.id for rule in kb.rules if rule.stops_builds}
    return tuple(one for one in found if one.severity is Severity.ERROR and one.id in stopping)


def toolkit(facts: Facts) -> str:
    """The nvcc that compiles, by version and path."""
    jit = facts.toolkit.jit
    compiler = jit if isinstance(jit, Missing) else jit.compiler
    if isinstance(compiler, Missing):
        return f"no nvcc: {compiler.reason}"
    version = "of unknown version" if isinstance(compiler.version, Missing) else compiler.version
    return f"nvcc {version} ({compiler.path})"
