"""The first lines of the console: the answer, what the exit code means, and what was judged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from fi_doctor.model import Facts, FeatureRow, Gpu, Machine, Missing, Package, Report, Server, Verdict, as_predicted
from fi_doctor.model.phrases import NOT_LOCKED
from fi_doctor.reports.text import amount, clean, names

EXIT_MEANINGS = {
    0: "what was asked for holds",
    1: "measured, and does not hold",
    2: "usage or configuration",
    3: "could not tell",
    4: "a fault in fi-doctor",
}
_ALWAYS_NAMED = ("flashinfer-python", "torch", "vllm")
_NAMED_IF_INSTALLED = ("flashinfer-cubin", "flashinfer-jit-cache", "sglang")
# The counts with which the gate's reason begins: "2 rows work, 5 unknown; ".
_COUNT = r"[a-z ]+(?: \(\d*(?: of them )?predicted\))?"
_COUNTS = re.compile(rf"^\d+ rows? {_COUNT}(?:, \d+ {_COUNT})*(?:[;:] |$|(?= \())")


def meanings(report: Report) -> dict[int, str]:
    """What exit codes mean: of a target nothing was measured."""
    return {**EXIT_MEANINGS, 1: "foretold, and does not hold"} if report.target else EXIT_MEANINGS


def headline(report: Report) -> str:
    """One sentence: how many rows work, how many do not, and where; or that there is nothing to check."""
    absent = not_installed(report)
    if absent and not _anything_measured(report):
        are = "is" if len(absent) == 1 else "are"
        python = clean(report.facts.interpreter.executable)
        return f"Nothing to check: {' and '.join(absent)} {are} not installed in {python}"
    if not report.features:
        return f"Nothing was selected{_selection(report)}; fi-doctor features lists what there is"
    where = machine(report.facts, sms_of(report.features))
    return f"{tally(report.features)}{_unlocked(report)} on {where}{_elsewhere(report)}"


def _elsewhere(report: Report) -> str:
    if report.target is None:
        return ""
    return f", which {'are' if report.target.gpus > 1 else 'is'} not here"


def not_installed(report: Report) -> list[str]:
    """Of the two packages without which there is no kernel to check, those that the examined interpreter lacks."""
    facts = report.facts
    # A checkout on PYTHONPATH is importable and has no metadata.
    only_torch = {row.feature for row in report.features} == {"import.torch"}
    found = {"flashinfer-python": only_torch or not isinstance(facts.flashinfer, Missing)}
    found["torch"] = any(row.feature == "import.torch" and row.verdict is Verdict.WORKS for row in report.features)
    return [name for name, is_there in found.items() if isinstance(facts.packages.get(name), Missing) and not is_there]


def _anything_measured(report: Report) -> bool:
    """Whether some row beside those of imports is known, as one of a package with kernels of its own."""
    rows = (row for row in report.features if not row.feature.startswith("import."))
    return any(row.verdict not in (Verdict.UNKNOWN, Verdict.UNSUPPORTED) for row in rows)


def by_sm(report: Report) -> list[str]:
    """With several kinds of GPU, the same count for each; else nothing."""
    sms = sms_of(report.features)
    if len(sms) < 2:
        return []
    lines = []
    for sm in sms:
        rows = [row for row in report.features if row.sm == sm]
        named = sorted({clean(gpu.name, 60) for gpu in visible_gpus(report.facts) if gpu.sm == sm})
        lines.append(f"SM{sm}{f' ({names(named)})' if named else ''}: {tally(rows)}")
    anywhere = [row for row in report.features if isinstance(row.sm, Missing)]
    return [*lines, f"of no SM: {tally(anywhere)}"] if anywhere else lines


def exit_line(report: Report) -> str:
    """The exit code, its meaning and what decided it, without the counts: the headline has them."""
    meaning = meanings(report).get(report.gate.code, "no meaning that this version knows")
    reason = _COUNTS.sub("", clean(report.gate.reason), count=1).lstrip()
    return f"Exit {report.gate.code} ({meaning}){f': {reason}' if reason else ''}"


def basis(report: Report) -> tuple[list[str], list[str]]:
    """What was judged, and which of it is not known with the reasons, each item in words."""
    known: list[str] = []
    unknown: dict[str, list[str]] = {}
    if report.target:
        known.append(f"--target {clean(report.target.words, 300)}, and of what it does not name what is here")
    for name, value in _basis(report.facts):
        if isinstance(value, Missing):
            unknown.setdefault(_short(value.reason, report.facts), []).append(name)
        else:
            known.append(value)
    if days := sorted({row.locked for row in report.features if row.locked}):
        number = sum(bool(row.locked) for row in report.features)
        known.append(f"{amount(number, 'row')} locked {names(days)}")
    known.append(f"depth {report.request.depth}")
    known.append(f"fi-doctor {clean(report.doctor.version, 40)}")
    known.append(f"knowledge {clean(told_knowledge(report), 140)}")
    return known, [f"{', '.join(who)} ({reason})" for reason, who in unknown.items()]


def told_knowledge(report: Report) -> str:
    """The version of the knowledge that judged, and where it is from when it is not that which ships."""
    doctor = report.doctor
    return f"{doctor.knowledge} ({doctor.knowledge_from})" if doctor.knowledge_from else doctor.knowledge


def tally(rows: list[FeatureRow] | tuple[FeatureRow, ...]) -> str:
    """Counts in words, in the gate's order; works, broken and unknown always, so that a zero is seen."""
    counts = Counter(row.verdict for row in rows)
    works, wrong = counts[Verdict.WORKS], counts[Verdict.WRONG_RESULT]
    predicted = as_predicted([row for row in rows if row.verdict is Verdict.WORKS])
    parts = [f"{amount(works, 'row')} {'works' if works == 1 else 'work'}{predicted}"]
    if wrong:
        predicted = as_predicted([row for row in rows if row.verdict is Verdict.WRONG_RESULT])
        parts.append(f"{wrong} {'gives wrong results' if wrong == 1 else 'give wrong results'}{predicted}")
    predicted = as_predicted([row for row in rows if row.verdict is Verdict.BROKEN])
    parts.append(f"{_are(counts[Verdict.BROKEN], 'broken')}{predicted}")
    parts.append(_are(counts[Verdict.UNKNOWN], "unknown"))
    if counts[Verdict.UNSUPPORTED]:
        parts.append(_are(counts[Verdict.UNSUPPORTED], "unsupported"))
    return ", ".join(parts)


def machine(facts: Facts, sms: list[int]) -> str:
    """The GPUs in words: "NVIDIA H200 (SM90)", "8 x NVIDIA H200 (SM90)", or that there is none to see."""
    gpus = facts.gpus.gpus
    judged = f", judged for {' and '.join(f'SM{sm}' for sm in sms)}" if sms else ""
    if isinstance(gpus, Missing):
        # CUDA may see what NVML cannot list.
        return f"a machine {'whose GPUs are not known' if facts.gpus.cuda_sees_any else 'where no GPU is seen'}{judged}"
    if not gpus:
        return f"a machine without a GPU{judged}"
    visible = visible_gpus(facts)
    if not visible:
        return f"a machine whose {amount(len(gpus), 'GPU')} CUDA_VISIBLE_DEVICES hides{judged}"
    kinds = Counter((clean(gpu.name, 60), _sm(gpu)) for gpu in visible)
    return " and ".join(f"{f'{n} x ' if n > 1 else ''}{name} ({sm})" for (name, sm), n in kinds.items())


def visible_gpus(facts: Facts) -> list[Gpu]:
    """The GPUs that CUDA may use; all of them when CUDA's own order could not be read."""
    gpus = facts.gpus.gpus
    if isinstance(gpus, Missing):
        return []
    if isinstance(facts.gpus.cuda_order, Missing):
        return list(gpus)
    return [gpu for gpu in gpus if not isinstance(gpu.cuda_index, Missing)]


def sms_of(rows: tuple[FeatureRow, ...]) -> list[int]:
    """The SMs that the rows speak of, ascending."""
    return sorted({row.sm for row in rows if not isinstance(row.sm, Missing)})


def _unlocked(report: Report) -> str:
    """How many rows the lock that this is from does not hold, and nobody measured."""
    reasons = [(row.why, *(cell.why for cell in row.cells)) for row in report.features]
    number = sum(any(NOT_LOCKED in why for why in of_row) for of_row in reasons)
    return f" ({_are(number, NOT_LOCKED)})" if number else ""


def _selection(report: Report) -> str:
    return f" by {names(clean(glob, 60) for glob in report.request.features)}" if report.request.features else ""


def _are(count: int, what: str) -> str:
    return f"{count} {'is' if count == 1 else 'are'} {what}"


def _sm(gpu: Gpu) -> str:
    return "SM not known" if isinstance(gpu.sm, Missing) else f"SM{gpu.sm}"


def _basis(facts: Facts) -> Iterator[tuple[str, str | Missing]]:
    """Name and words of each thing that a verdict rests on, most important first."""
    for name in _ALWAYS_NAMED:
        yield name, _package(name, facts.packages.get(name, Missing(reason="not looked for")))
    for name in _NAMED_IF_INSTALLED:
        package = facts.packages.get(name)
        if isinstance(package, Package):
            yield name, _package(name, package)
    yield "nvcc", _nvcc(facts)
    yield "driver", _driver(facts)
    if isinstance(facts.gpus.gpus, Missing):
        yield "GPUs", facts.gpus.gpus
    python = facts.interpreter
    how = ", fi-doctor's own" if python.is_own else f", started by {clean(python.wrapper)}" if python.wrapper else ""
    yield "Python", f"Python {clean(python.version, 40)} ({clean(python.executable)}{how})"
    if python.serving and not isinstance(facts.machine, Missing):
        yield "who serves", _serving(facts.machine, facts.server)


def _serving(machine: Machine, server: Server | Missing) -> str:
    """The process of --pid or the user of --as-user, and how many of the folders it can write."""
    user = machine.user
    name = f"user {user.uid}" + ("" if isinstance(user.name, Missing) else f" ({clean(user.name, 40)})")
    who = name if isinstance(server, Missing) else f"process {server.pid} of {name} with its variables"
    total = len(machine.folders)
    refused = sum(folder.writable is False for folder in machine.folders)
    unknown = sum(isinstance(folder.writable, Missing) for folder in machine.folders)
    said = [f"cannot write {refused} of {amount(total, 'folder')}"] if refused else []
    said += [f"{unknown} of {amount(total, 'folder')} not known"] if unknown else []
    told = "; ".join(said) or (f"can write all {amount(total, 'folder')}" if total else "")
    return ", ".join(filter(None, (who, told, _started_as(machine))))


def _started_as(machine: Machine) -> str:
    """Whether everything was started as the user who serves, and why not; "" where that is this one."""
    if isinstance(machine.started_as, Missing):
        return f"who starts nothing here: {clean(machine.started_as.reason, 200)}"
    return "" if machine.started_as is None else "as whom everything was started"


def _short(reason: str, facts: Facts) -> str:
    """The reason without what to do, which a finding says, without its details, and without the interpreter's name."""
    said = clean(reason, 200).partition(": ")[0].rstrip(".")
    for place in (facts.interpreter.executable, facts.interpreter.prefix):
        said = said.removesuffix(f" in {clean(place)}")
    return said.partition(" (")[0] or said


def _package(name: str, package: Package | Missing) -> str | Missing:
    if isinstance(package, Missing):
        return package
    marks = ["editable"] if package.editable else []
    if not isinstance(package.commit, Missing) and package.editable:
        marks.append(f"commit {clean(package.commit, 12)}")
    version = "of unknown version" if isinstance(package.version, Missing) else clean(package.version, 60)
    return f"{name} {version}{f' ({names(marks)})' if marks else ''}"


def _nvcc(facts: Facts) -> str | Missing:
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return jit
    if isinstance(jit.nvcc, Missing):
        return Missing(reason=f"CUDA_HOME is {jit.cuda_home} by {jit.found_by}; {jit.nvcc.reason}")
    version = jit.nvcc.version
    said = "of unknown version" if isinstance(version, Missing) else clean(version, 20)
    place = f" in {clean(jit.cuda_home)}" if jit.cuda_home else ""
    return f"nvcc {said}{place} (by {clean(jit.found_by, 60)})"


def _driver(facts: Facts) -> str | Missing:
    driver = facts.gpus.driver
    if isinstance(driver, Missing):
        return driver
    cuda = "" if isinstance(driver.cuda, Missing) else f" (CUDA {clean(driver.cuda, 20)})"
    return f"driver {clean(driver.version, 40)}{cuda}"
