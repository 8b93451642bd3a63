"""Which variants a server calls, so that their modules are what its first start compiles. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from fi_doctor.diagnosis import called
from fi_doctor.model import Facts, Feature, KnowledgeBase, PlannedProbe, selects


def with_served(kb: KnowledgeBase, facts: Facts, planned: tuple[PlannedProbe, ...]) -> tuple[PlannedProbe, ...]:
    """The plan, with the variants named that the installed vLLM calls by default, or as the environment tells it to.

    Without vLLM the newest one that is known counts. What a command line would turn on or off is not known.
    """
    by_whom = called.caller(kb, facts)

    def served(probe: PlannedProbe) -> tuple[str, ...]:
        feature = _feature(kb, probe)
        is_called = feature is not None and called.is_called(feature, probe.sm, facts, kb)
        return _deciding(kb, facts, planned, probe) if is_called else ()

    return tuple(replace(probe, served=served(probe), caller=by_whom) for probe in planned)


def only_served(kb: KnowledgeBase, facts: Facts, planned: tuple[PlannedProbe, ...]) -> tuple[PlannedProbe, ...]:
    """The plan with nothing else."""
    served = (probe for probe in with_served(kb, facts, planned) if probe.served)
    return tuple(replace(probe, variants=probe.served) for probe in served)


def only_deciding(kb: KnowledgeBase, facts: Facts, planned: tuple[PlannedProbe, ...]) -> tuple[PlannedProbe, ...]:
    """The plan with those variants that decide their rows, whether or not a server calls them by default."""
    return tuple(replace(probe, variants=_deciding(kb, facts, planned, probe)) for probe in planned)


def _deciding(
    kb: KnowledgeBase, facts: Facts, planned: tuple[PlannedProbe, ...], probe: PlannedProbe
) -> tuple[str, ...]:
    """Of a probe the variants that decide its row, as matrix.deciding_cells has it for cells."""
    feature = _feature(kb, probe)
    use = called.use_of(feature, probe.sm, facts) if feature is not None else None
    globs = use.variants if use is not None else ()
    row = [one for one in planned if (one.spec.feature, one.sm) == (probe.spec.feature, probe.sm)]
    if not any(selects(globs, name) for one in row for name in one.variants):
        return probe.variants
    return tuple(name for name in probe.variants if selects(globs, name))


def _feature(kb: KnowledgeBase, probe: PlannedProbe) -> Feature | None:
    return kb.feature(probe.spec.feature)
