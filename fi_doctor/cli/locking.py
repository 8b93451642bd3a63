"""`fi-doctor lock` and `check --locked`: what was proved is written down, and compared with what is here."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable

import msgspec

from fi_doctor import locked
from fi_doctor.cli import commands, emit, installed, outputs, placing, watching
from fi_doctor.cli.asked import Asked, quick_gathering
from fi_doctor.diagnosis import symbols
from fi_doctor.errors import CannotTellError, DataError
from fi_doctor.facts import Gathering
from fi_doctor.facts.imports import read_imports
from fi_doctor.facts.remembered import memory_folder
from fi_doctor.locked import LockedCheck
from fi_doctor.locking import compare, document, judging
from fi_doctor.locking.digests import Digests
from fi_doctor.locking.inputs import Inputs
from fi_doctor.locking.model import LOCK_NAME, Lock
from fi_doctor.locking.needs import is_import
from fi_doctor.model import Depth, Facts, Report
from fi_doctor.model.phrases import NOT_LOCKED
from fi_doctor.probing import plan
from fi_doctor.reports.text import duration


def lock(asked: Asked, gathering: Gathering | None) -> int:
    """Check this machine, or take a report that was made on it, and write down what was proved; 3 where nothing was."""
    output = asked.output or LOCK_NAME
    emit.check_writable(output)
    kb, specs = installed.known()
    report = commands.judge(asked, gathering, kb, specs)
    there = asked if asked.python is not None else _examined_there(asked, report)
    quick = quick_gathering(there)
    facts = quick.finish(symbols.of(kb, specs))
    if asked.from_file is not None and (differs := judging.machine_differs(report.facts, facts)):
        raise DataError(
            f'the report "{asked.from_file}" is not of this machine as it stands', why=differs, todo="fi-doctor lock"
        )
    digests = Digests(memory_folder())
    imports = read_imports(sys.executable if there.python is None else there.python, quick.environ)
    made = locked.lock_of(
        report, kb=kb, specs=specs, facts=facts, imports=imports, environ=quick.environ, digests=digests
    )
    digests.save()
    if not made.rows:
        raise CannotTellError(
            "nothing was proved, so there is nothing to lock",
            why="; ".join(": ".join(one) for one in _telling(made)) or "no row was selected",
            todo="mend that, or run it where the GPUs are",
        )
    emit.write(document.to_json(made), output)
    for name, why in made.left_out.items():
        emit.say(f"not locked: {name}: {why}")
    emit.say(f"fi-doctor: {_amount(made)} in {output}, on {len(made.inputs)} inputs (exit 0)")
    return 0


def check(asked: Asked, path: str | None, quick: Gathering, *, is_frozen: bool, is_thorough: bool) -> int:
    """The report that the lock stands for; what it does not hold (any more) is measured, unless it is frozen."""
    held = document.read_file(pathlib.Path(path or LOCK_NAME))
    kb, specs = installed.known(asked.knowledge, is_remembered=not is_thorough)
    digests = Digests(memory_folder(), thorough=is_thorough)

    def values(gathering: Gathering) -> tuple[Facts, dict[str, str]]:
        facts = gathering.finish(symbols.of(kb, specs))
        inputs = Inputs(facts, kb, specs, digests=digests, environ=gathering.environ, loads=held.loads)
        return facts, inputs.read(compare.names(held))

    facts, now = values(quick)
    known = tuple(feature.id for feature in commands.listed_features(kb, specs))
    request = commands.request_of(asked, (*known, *(row.feature for row in held.rows)), kb)
    request = msgspec.structs.replace(request, depth=plan.deepest(facts))
    found = LockedCheck(held, request, kb=kb, specs=specs, facts=facts, now=now)
    digests.save()
    # Whoever says in a policy or a variable that nothing is to be run says it of this check too.
    is_frozen = is_frozen or asked.depth not in (None, Depth.RUN.value)
    report = _report(asked, found, lambda: values(quick_gathering(asked))[1], is_frozen=is_frozen)
    outputs.write(report, asked.targets, placing.beside(report, asked.targets, kb, path or LOCK_NAME))
    return commands.told(asked, report)


def _examined_there(asked: Asked, report: Report) -> Asked:
    """The same, of the interpreter that a report names: fi-doctor may have a Python of its own."""
    if asked.from_file is None:
        return asked
    return msgspec.structs.replace(asked, python=report.facts.interpreter.named)


def _report(asked: Asked, found: LockedCheck, again_now: Callable[[], dict[str, str]], *, is_frozen: bool) -> Report:
    """again_now: reads the inputs anew, for what changes while others are measured."""
    if differs := found.difference():
        emit.say(f"not as it was locked: {differs}")
    again, unheld = found.to_measure(), found.not_held()
    if unheld:
        emit.say(f"{NOT_LOCKED if is_frozen else 'not in the lock, measured now'}: {', '.join(map(str, unheld))}")
    if is_frozen or not (again or unheld):
        return found.report()
    if again:
        emit.say(f"measured again: {', '.join(map(str, again))}")
    emit.say(
        f"that takes {duration(found.budget_s)} at most (--budget); fi-doctor lock writes down what is measured now"
    )
    python = sys.executable if asked.python is None else asked.python
    with watching.progress(asked) as watch:
        return found.measured(lambda: Gathering(python), watch, again_now)


def _telling(made: Lock) -> list[tuple[str, str]]:
    """Why rows are left out: the imports, on which the others rest, or else the first."""
    rows = list(made.left_out.items())
    return [one for one in rows if is_import(one[0])] or rows[:1]


def _amount(made: Lock) -> str:
    number = len(made.rows)
    return f"{number} row{'' if number == 1 else 's'} locked"
