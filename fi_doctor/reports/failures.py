"""What the console says of probes that failed and of rows that stay open: the deciding lines and what to do."""

from __future__ import annotations

import re
import shlex

from fi_doctor.model import CellOutcome, Depth, Ending, Facts, Missing, Outcome, Report, Verdict
from fi_doctor.model.phrases import UNPROBED
from fi_doctor.model.targets import Target
from fi_doctor.reports.answer import not_installed, visible_gpus
from fi_doctor.reports.text import clean, clean_lines, names

# Lines of a compiler, a linker, a loader or Python that say what went wrong, as against where.
_TELLING = re.compile(
    r"\berror\b|Error\b|\bundefined (reference|symbol)|cannot (find|open)|No such file|not found|FAILED",
)
_LATER = re.compile(r"CalledProcessError: Command |Error\(retcode, process\.args")
_LINES = 5


def failed(report: Report) -> list[Outcome]:
    """Outcomes of which something was tried and did not end well, in the order given.

    Where a package is not installed, that its import fails has been said by the first line.
    """
    absent = tuple(f"No module named '{name.partition('-')[0]}'" for name in not_installed(report))
    tried = [out for out in report.outcomes if out.ending.is_bad or _bad_cells(out)]
    return [out for out in tried if not out.detail.endswith(absent)]


def summary(outcome: Outcome, report: Report) -> str:
    """One line: which probe and variants, how it ended, how far it had come, where its module came from.

    Of what was taken from a lock also the day.
    """
    bad = _bad_cells(outcome)
    alike = [cell for cell in bad if cell.detail in ("", bad[0].detail)]
    otherwise = [cell for cell in bad if cell not in alike]  # each wrong number is another one
    variants = names(clean(cell.variant, 60) for cell in alike if cell.variant)
    stage, ending = (bad[0].stage, bad[0].ending) if bad else (outcome.stage, outcome.ending)
    detail = clean((bad[0].detail if bad else "") or outcome.detail, 300)
    source = clean(bad[0].module_from, 60) if bad else ""
    reached = f"stage reached: {stage}{f'; module from: {source}' if source else ''}"
    day = _locked(outcome, report)
    how = f"{f'locked {clean(day, 40)}: ' if day else ''}{ending}: {detail} ({reached})"
    others = [
        f"{clean(cell.variant, 60)}: {'' if cell in bad else f'{cell.ending}: '}{clean(cell.detail, 120)}"
        for cell in (*otherwise, *_other_cells(outcome))
    ]
    return "; ".join([f"{title(outcome)}{f', {variants}' if variants else ''}: {how}", *others])


def title(outcome: Outcome) -> str:
    """The probe and where it ran: "norm.rmsnorm on SM90"."""
    return clean(outcome.probe, 100) + ("" if isinstance(outcome.sm, Missing) else f" on SM{outcome.sm}")


def deciding_lines(outcome: Outcome) -> list[str]:
    """The few lines of output and traceback that tell the cause: error lines if there are any, else the last ones."""
    bad = _bad_cells(outcome)
    traceback = clean_lines(bad[0].traceback) if bad else []
    output = clean_lines(outcome.output)
    # In a traceback only the lines of the exception itself are not indented.
    raised = [line for line in traceback if not line.startswith((" ", "Traceback"))]
    told = list(dict.fromkeys(line.strip() for line in (*output, *raised) if _TELLING.search(line)))
    # That some command failed is the end of a story, not its cause.
    told = [line for line in told if not _LATER.search(line)] or told
    if not told:
        return (traceback or output)[-_LINES:]
    # The first error is the cause, the last is what Python made of it.
    return told if len(told) <= _LINES else [*told[: _LINES - 1], told[-1]]


def again(outcome: Outcome, report: Report) -> str:
    """The command that runs the probe of an outcome once more, with all that fi-doctor puts around it."""
    return f"{_check(report, selected=False)} --feature {shlex.quote(clean(outcome.feature, 100))}"


def how_to_settle(report: Report) -> list[tuple[str, str]]:
    """What would turn open rows into verdicts: a sentence, and a command or "" for each.

    What mends the cause of an open row comes before what would measure it; nothing is said twice.
    """
    rows = [row for row in report.features if row.verdict is Verdict.UNKNOWN and UNPROBED not in row.why]
    if not rows or not_installed(report):
        return []
    if report.target is not None:
        return _elsewhere(report, report.target)
    if report.request.depth is Depth.STATIC:
        return [("check without --depth static", _check(report))]
    hints = []
    if any(row.needs_gpu for row in rows) and not visible_gpus(report.facts):
        hints.append(_gpu_hint(report))
    elif report.request.depth is not Depth.RUN:
        hints.append(("run the probes too", _check(report)))
    late = sorted({out.feature for out in report.outcomes if _ran_out(out)} & {row.feature for row in rows})
    if late:
        only = " ".join(f"--feature {shlex.quote(clean(feature, 100))}" for feature in late)
        minutes = max(1, round(2 * report.request.budget_s / 60))
        hints.append(("give it more time", f"{_check(report, selected=False)} --budget {minutes}m {only}"))
    return hints


def _elsewhere(report: Report, target: Target) -> list[tuple[str, str]]:
    """The same for a machine that is not here: nobody asked for a static check, and this machine has no such GPU."""
    gpu = clean(target.name or f"SM{target.sm}", 60)
    named = ", and what else --target names" if target.versions or target.cuda or target.driver else ""
    hints = [(f"check on a machine with {gpu}{named}", _check(report))]
    if report.request.depth is Depth.STATIC:
        words = shlex.quote(clean(target.words, 300))
        line = f"{_check(report)} --target {words} --depth build"
        installed = " where what --target names is installed" if target.versions or target.cuda else ""
        hints.append((f"as far as compiling does, and without a GPU, compile{installed}", line))
    return hints


def _locked(outcome: Outcome, report: Report) -> str:
    """The day of the measurement where its rows are those of a lock, else ""."""
    rows = [row for row in report.features if row.locked and row.feature == outcome.feature]
    return next((row.locked for row in rows if isinstance(outcome.sm, Missing) or row.sm == outcome.sm), "")


def _bad_cells(outcome: Outcome) -> list[CellOutcome]:
    """The variants that ended as the first bad one did."""
    bad = [cell for cell in outcome.cells if cell.ending.is_bad]
    return [cell for cell in bad if (cell.ending, cell.stage) == (bad[0].ending, bad[0].stage)]


def _other_cells(outcome: Outcome) -> list[CellOutcome]:
    """The variants that ended badly in another manner."""
    shown = _bad_cells(outcome)
    return [cell for cell in outcome.cells if cell.ending.is_bad and cell not in shown]


def _ran_out(outcome: Outcome) -> bool:
    return outcome.ending is Ending.TIMED_OUT or any(cell.ending is Ending.TIMED_OUT for cell in outcome.cells)


def _check(report: Report, *, selected: bool = True) -> str:
    """The command that examines the same interpreter again, as deep as this machine allows."""
    interpreter = report.facts.interpreter
    words = ["fi-doctor check"]
    if not interpreter.is_own:
        words.append(f"--python {shlex.quote(clean(interpreter.named))}")
    words += [shlex.quote(clean(word, 100)) for word in interpreter.serving]
    if selected:
        words += [f"--feature {shlex.quote(clean(glob, 100))}" for glob in report.request.features]
    return " ".join(words)


def _gpu_hint(report: Report) -> tuple[str, str]:
    """What an open row needs on a machine where CUDA has no GPU to run on."""
    facts = report.facts
    if not isinstance(facts.gpus.gpus, Missing) and facts.gpus.gpus:
        return "let CUDA see a GPU, then check again", "unset CUDA_VISIBLE_DEVICES"
    if not isinstance(facts.flashinfer, Missing) and isinstance(facts.flashinfer.architectures, Missing):
        return "compile for a GPU that is not here, though nothing runs then", "export FLASHINFER_CUDA_ARCH_LIST=9.0a"
    if isinstance(facts.toolkit.torch_cuda, Missing):
        return f"install a torch for CUDA, and check where a GPU can be used: {_torch(facts)}", ""
    return "check where a GPU can be used (a container needs one too: docker run --gpus all)", ""


def _torch(facts: Facts) -> str:
    """Why the installed torch can use no GPU."""
    cuda = facts.toolkit.torch_cuda
    return clean(cuda.reason, 200) if isinstance(cuda, Missing) else ""
