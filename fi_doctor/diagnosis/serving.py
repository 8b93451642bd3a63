"""Which variants a server calls, so that their modules are what its first start compiles. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from fi_doctor.diagnosis.matrix import newest_use, vllm_use
from fi_doctor.diagnosis.reads import is_read
from fi_doctor.diagnosis.uses import is_on
from fi_doctor.model import Facts, KnowledgeBase, PlannedProbe, VllmUse, selects


def with_served(kb: KnowledgeBase, facts: Facts, planned: tuple[PlannedProbe, ...]) -> tuple[PlannedProbe, ...]:
    """The plan, with the variants named that the installed vLLM calls by default, or as the environment tells it to.

    Without vLLM the newest one that is known counts. What a command line would turn on or off is not known.
    """

    def is_called(probe: PlannedProbe) -> bool:
        use = _use(kb, facts, probe)
        if use is None or not use.called:
            return False
        return is_on(use, facts, lambda name: is_read(name, facts, kb.settings))

    return tuple(
        replace(probe, served=_deciding(kb, facts, planned, probe) if is_called(probe) else ()) for probe in planned
    )


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
    use = _use(kb, facts, probe)
    globs = use.variants if use is not None else ()
    row = [one for one in planned if (one.spec.feature, one.sm) == (probe.spec.feature, probe.sm)]
    if not any(selects(globs, name) for one in row for name in one.variants):
        return probe.variants
    return tuple(name for name in probe.variants if selects(globs, name))


def _use(kb: KnowledgeBase, facts: Facts, probe: PlannedProbe) -> VllmUse | None:
    """What vLLM does with the row of a probe; None where nothing is known of it."""
    feature = next((one for one in kb.features if one.id == probe.spec.feature), None)
    if feature is None:
        return None
    if facts.vllm_version:
        return vllm_use(feature, probe.sm, facts)
    return newest_use(feature, probe.sm)
