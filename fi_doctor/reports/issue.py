"""A report as the text of a bug report, in the form of the project that is to read it, without whose machine it was."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fi_doctor.model import Facts, FeatureRow, Missing, Outcome, Package, Report, Severity, Verdict
from fi_doctor.reports import failures
from fi_doctor.reports.answer import headline, machine, sms_of, told_knowledge
from fi_doctor.reports.document import in_order
from fi_doctor.reports.markdown import words
from fi_doctor.reports.redaction import names_host, redacted
from fi_doctor.reports.text import amount, clean, clean_lines

_LONGEST = 60_000  # GitHub takes 65,536 characters
_PACKAGES = re.compile(r"flashinfer|vllm|sglang|torch|tvm-ffi|cutlass|cudnn|cuda|triton|nccl|nvshmem|numpy|ninja")
_COUNTED = {"error": Severity.ERROR, "warning": Severity.WARNING}
_BAD = (Verdict.WRONG_RESULT, Verdict.BROKEN)


class Form(NamedTuple):
    """The headings of a project's bug form, in its order, as they stand in its .github/ISSUE_TEMPLATE."""

    new: str
    before: str  # a box that only the reporter can tick
    is_first: bool  # whether that box comes first
    environment: str
    description: str
    reproduction: str  # "" where it belongs to the description
    context: str  # ""  as above


FORMS = {
    "flashinfer": Form(
        new="https://github.com/flashinfer-ai/flashinfer/issues/new?template=bug_report.yml",
        before="Before submitting",
        is_first=True,
        environment="Environment",
        description="Bug description",
        reproduction="Minimal reproduction",
        context="Additional context",
    ),
    "vllm": Form(
        new="https://github.com/vllm-project/vllm/issues/new?template=400-bug-report.yml",
        before="Before submitting a new issue...",
        is_first=False,
        environment="Your current environment",
        description="🐛 Describe the bug",
        reproduction="",
        context="",
    ),
}


def render(report: Report, project: str, scripts: Mapping[str, str]) -> str:
    """The bug report as Markdown, of at most 60,000 characters.

    project: one of FORMS. scripts: the source of probes by id, which reproduces what failed.
    """
    report, form = in_order(report), FORMS[project]
    failed = failures.failed(report)
    wide = _text(report, form, failed, scripts)
    return wide if len(wide) <= _LONGEST else _text(report, form, failed, {})


def _text(report: Report, form: Form, failed: list[Outcome], scripts: Mapping[str, str]) -> str:
    box = [f"### {form.before}", "", "- [ ] I have searched the existing issues.", ""]
    title = re.sub(r"[<>]|-(?=-)", "", redacted(_title(report, failed)))  # nothing in it ends the comment
    lines = [f"<!-- {form.new} -->", f"<!-- title: {title} -->", "", *(box if form.is_first else [])]
    lines += [f"### {form.environment}", "", "<details>", "<summary>Read by fi-doctor report</summary>", ""]
    lines += [*_block("text", _environment(report)), "", "</details>", "", f"### {form.description}", ""]
    lines += [*_described(report, failed), ""]
    lines += [*([f"### {form.reproduction}", ""] if form.reproduction else []), *_reproduced(failed, scripts), ""]
    lines += [*([f"### {form.context}", ""] if form.context else []), *_found(report)]
    return "\n".join([*lines, *([] if form.is_first else ["", *box])]).rstrip() + "\n"


def _title(report: Report, failed: list[Outcome]) -> str:
    bad = [row for row in report.features if row.verdict in _BAD]
    told = [f"{clean(row.feature, 60)} {row.verdict}" for row in bad] or [clean(one.probe, 60) for one in failed]
    what = ", ".join(told[:2]) or "TODO"
    with_ = ", ".join(f"{name} {_version(report.facts, name)}" for name in ("flashinfer-python", "vllm"))
    return f"[Bug]: {what} on {machine(report.facts, sms_of(report.features))} with {with_}"


def _version(facts: Facts, name: str) -> str:
    package = facts.packages.get(name)
    if not isinstance(package, Package):
        return "not installed"
    return "of no version" if isinstance(package.version, Missing) else clean(package.version, 60)


def _environment(report: Report) -> Iterator[str]:
    facts = report.facts
    driver, jit, tools = facts.gpus.driver, facts.toolkit.jit, facts.toolkit
    yield f"GPUs: {machine(facts, sms_of(report.features))}"
    yield _line("driver", driver if isinstance(driver, Missing) else driver.version)
    yield _line("CUDA of the driver", driver if isinstance(driver, Missing) else driver.cuda)
    yield _line("CUDA_HOME of the JIT", jit if isinstance(jit, Missing) else f"{jit.cuda_home} ({jit.found_by})")
    nvcc = jit if isinstance(jit, Missing) else jit.compiler
    yield _line("nvcc", nvcc if isinstance(nvcc, Missing) else f"{nvcc.version} ({nvcc.path})")
    yield _line("CUDA of torch", tools.torch_cuda)
    yield _line("host compiler", tools.host_compiler_version)
    yield _line("ninja", tools.ninja)
    yield f"Python: {facts.interpreter.version} ({facts.interpreter.executable})"
    yield f"system: {facts.system.os}, {facts.system.kernel}, {facts.system.machine}, {facts.system.libc}"
    yield _line("container", facts.system.container)
    flashinfer = facts.flashinfer
    if not isinstance(flashinfer, Missing):
        yield _line("FlashInfer builds for", _several(flashinfer.architectures))
        yield _line("cubins", flashinfer.cubins)
        yield _line("architectures of jit-cache", _several(flashinfer.jit_cache_architectures))
    for name, package in sorted(facts.packages.items()):
        if isinstance(package, Package) and _PACKAGES.search(name):
            yield _line(name, package.version) + (" (editable)" if package.editable else "")
    for name, value in sorted(facts.environment.items()):
        yield f"{name}={'<hidden>' if names_host(name) else value}"
    yield f"fi-doctor {report.doctor.version}, knowledge {told_knowledge(report)}, depth {report.request.depth}"


def _line(name: str, value: object) -> str:
    return f"{name}: {f'not known ({value.reason})' if isinstance(value, Missing) else value}"


def _several(values: tuple[str, ...] | Missing) -> str | Missing:
    return values if isinstance(values, Missing) else ", ".join(values) or "none"


def _described(report: Report, failed: list[Outcome]) -> Iterator[str]:
    yield words(redacted(headline(report))) + "."
    bad = [row for row in report.features if row.verdict in _BAD]
    if not bad and not failed:
        yield ""
        yield f"TODO: {_nothing_failed(report)} What did you see, and what did you expect instead?"
    for row in bad:
        yield f"- {_row(row)}"
    for outcome in failed:
        yield ""
        yield words(redacted(failures.summary(outcome, report)), 2000)
        yield from _block("text", failures.deciding_lines(outcome))


def _nothing_failed(report: Report) -> str:
    """What was found all the same: findings are about the machine, failures about kernels."""
    counts = {noun: sum(one.severity is kind for one in report.findings) for noun, kind in _COUNTED.items()}
    told = [amount(count, noun) for noun, count in counts.items() if count]
    if not told:
        return "fi-doctor found nothing that fails."
    return f"fi-doctor saw no kernel fail, and finds {' and '.join(told)} of this machine (see below)."


def _row(row: FeatureRow) -> str:
    return f"**{words(row.name)}**: {row.verdict} ({row.evidence}): {words(redacted(row.why), 600)}"


def _reproduced(failed: list[Outcome], scripts: Mapping[str, str]) -> Iterator[str]:
    """The commands, and the first probe as a script: it imports nothing of fi-doctor."""
    if not failed:
        yield "TODO: the smallest script or command that shows it."
        return
    commands = dict.fromkeys(outcome.reproduce for outcome in failed if outcome.reproduce)
    yield from _block("sh", commands)
    named = next((outcome for outcome in failed if outcome.probe in scripts), None)
    if named is not None:
        yield ""
        yield f"The probe {words(named.probe)}, which needs torch and flashinfer alone:"
        yield ""
        yield from ("<details>", f"<summary>{html.escape(clean(named.probe, 100))}</summary>", "")
        yield from _fenced("python", [_shown(line) for line in scripts[named.probe].splitlines()])
        yield from ("", "</details>")


def _found(report: Report) -> Iterator[str]:
    """What is known about it already, so that nobody reports it twice."""
    if not report.findings:
        yield "fi-doctor knows no problem that would explain it."
        return
    yield "What fi-doctor finds on this machine:"
    yield ""
    for finding in report.findings:
        yield f"- {finding.severity}: {words(redacted(finding.title))} (`{clean(finding.id, 100)}`)"


def _block(language: str, lines: Iterable[str]) -> list[str]:
    """The lines as a block of code, which no line of them can end."""
    return _fenced(language, clean_lines(redacted("\n".join(lines))))


def _shown(line: str) -> str:
    """A line of a script with its blanks, and without what an editor may obey."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line.expandtabs(4).rstrip())


def _fenced(language: str, written: list[str]) -> list[str]:
    fence = "`" * (1 + max((len(run) for line in written for run in re.findall(r"`+", line)), default=2))
    return [f"{fence}{language}", *written, fence]
