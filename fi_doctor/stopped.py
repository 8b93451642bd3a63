"""Rows and cells whose modules are not there and cannot be compiled: what is found makes compiling vain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fi_doctor.diagnosis.foretelling import Word
from fi_doctor.knowledge import modules
from fi_doctor.model import Facts, Finding, KnowledgeBase, Missing, PlannedProbe, Verdict
from fi_doctor.probing import image, plan


def cells(
    would: Sequence[PlannedProbe], stopping: tuple[Finding, ...], facts: Facts
) -> Iterator[tuple[str, str, Word]]:
    """Row, variant and what is foretold of it, for what could be tried there; however many GPUs it takes."""
    for probe in would if stopping else ():
        module = probe.spec.module
        if not module or "cute-dsl" in probe.spec.compiles or image.has(image.as_family(module), probe.sm, facts):
            continue
        for variant in probe.variants if probe.is_tried else ():
            yield probe.spec.feature, variant, _vain(probe.spec.feature, stopping, (variant,))


def rows(
    kb: KnowledgeBase, would: Sequence[PlannedProbe], stopping: tuple[Finding, ...], facts: Facts
) -> Iterator[Word]:
    """The same of the rows that no probe is for on these GPUs, where it is known which module they ask for."""
    sms = {probe.sm for probe in would if not isinstance(probe.sm, Missing)}
    if not stopping or len(sms) != 1:
        return
    [sm] = sms
    for feature in kb.features:
        ours = [probe for probe in would if probe.spec.feature == feature.id]
        module = modules.of(feature.entry, sm)
        if module and not image.has(module, sm, facts) and all(plan.OTHER_GPUS in probe.skip for probe in ours):
            yield _vain(feature.id, stopping)


def _vain(row: str, stopping: tuple[Finding, ...], variants: tuple[str, ...] = ()) -> Word:
    by = tuple(one.id for one in stopping)
    return Word(Verdict.BROKEN, f"predicted by {', '.join(by)}", (row,), variants, by)
