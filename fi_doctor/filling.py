"""What `fi-doctor warm` does: the rows are chosen, their modules compiled, and what came of them is told."""

from __future__ import annotations

import os

from msgspec.structs import replace

from fi_doctor.diagnosis import called, forecast, matrix, serving, symbols
from fi_doctor.facts import Gathering
from fi_doctor.model import KnowledgeBase, ProbeSpec, Request, Warming, Watch, secrets, selects
from fi_doctor.probing import budget, memory, refusals
from fi_doctor.probing import plan as planning
from fi_doctor.probing import warm as warming


def warm(  # noqa: PLR0913 - as diagnose
    asked: Request,
    *,
    is_all: bool,
    is_dry: bool,
    is_forced: bool,
    kb: KnowledgeBase,
    specs: tuple[ProbeSpec, ...],
    gathering: Gathering,
    watch: Watch,
) -> Warming:
    """Fill the JIT cache of the interpreter whose facts are being gathered, or say what that would take (is_dry).

    Of the rows that are asked for what decides them, is_all: everything, neither: what a server calls by default.
    is_forced: also where it is known that it comes to nothing.
    Errors: TargetError when the interpreter cannot be used, CannotTellError where nothing can be compiled.
    """
    facts = gathering.finish(symbols.of(kb, specs))
    refusals.refuse(facts)
    planned = planning.to_look_at(planning.plan(specs, facts, asked), facts)
    if asked.features:
        planned = serving.only_deciding(kb, facts, planned)
    elif not is_all:
        planned = serving.only_served(kb, facts, planned)
    if planned and not any(probe.is_tried for probe in planned):
        raise refusals.not_tried(facts, planned)
    known = None if is_forced else forecast.refusal(kb, facts)
    done = warming.fill(
        matrix.with_deciding(kb, facts, planned),
        facts=facts,
        request=asked,
        watch=watch,
        environ=gathering.environ,
        is_dry=is_dry,
        again=budget.warm(facts, asked, is_all=is_all, is_forced=is_forced),
        obstacle=refusals.obstacle(facts, known),
    )
    probed = {spec.feature for spec in specs}
    named = [one.id for one in kb.features if asked.features and selects(asked.features, one.id)]
    unprobed = {name: "fi-doctor has no probe for this row" for name in named if name not in probed}
    done = replace(
        done,
        caller="" if is_all else called.caller(kb, facts),
        toolkit=forecast.toolkit(facts),
        bounds=memory.held_back(facts, asked),
        unasked={**done.unasked, **unprobed},
        code=1 if unprobed else done.code,
    )
    return secrets.without(done, secrets.held(gathering.environ, os.environ))
