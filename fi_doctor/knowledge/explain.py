"""The text behind an id: a rule, a feature, a setting, a probe, a variant, a verdict or an evidence word."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable
from pathlib import Path

from fi_doctor.errors import UsageError
from fi_doctor.knowledge import explained_faults, explained_registered, faults
from fi_doctor.knowledge.explained_settings import EXPLAINED, setting_text
from fi_doctor.knowledge.plain import indented, plain, wrapped
from fi_doctor.model import (
    OWN,
    Evidence,
    Feature,
    KnowledgeBase,
    MisfitKind,
    Operator,
    ProbeSpec,
    Requires,
    Rule,
    Scope,
    Use,
    Verdict,
)

WORDS = {
    Verdict.WORKS.value: (
        "It was run here and did what it should; the evidence says how far that was checked. "
        "A row works only if every variant that decides it works."
    ),
    Verdict.WRONG_RESULT.value: (
        "It ran here and its numbers disagree with the reference: worse than a crash, since nothing else tells."
    ),
    Verdict.BROKEN.value: (
        "It should work here by what the installed packages say, and it does not: "
        "it fails to import, to compile or to run."
    ),
    Verdict.UNSUPPORTED.value: (
        "The installed packages say that it is not for this machine: a missing function, a compute capability that "
        "they exclude, a call that they refuse, or a package that is not there. Where they say so is cited, or what. "
        "It fails a check only where it is required."
    ),
    Verdict.UNKNOWN.value: (
        "It could not be told, and why is said. It is never counted as works; where it is required the exit code is 3."
    ),
    Evidence.NONE.value: "Nothing was found out.",
    Evidence.DECLARED.value: (
        "The installed packages say so, in their source or by refusing the call. For which GPUs FlashInfer has a "
        "function is read from its source, which is not run: the lists that it is declared with, the majors that "
        "its module is compiled for, the check in a kernel's C++ runner, and refusals that hang on nothing but the "
        "compute capability. What hangs on more than that is not known."
    ),
    Evidence.PREDICTED.value: (
        "A known problem applies here; this row was not tried. What is measured beats what is predicted."
    ),
    Evidence.BUILT.value: (
        "It was compiled and loaded here and not run. For a failure: compiling or loading it failed here."
    ),
    Evidence.RAN.value: "It ran here, and its numbers were not compared. For a failure: it failed while it ran.",
    Evidence.VERIFIED.value: (
        "It ran here, and its numbers, which the probe counts, were compared with a reference of higher precision. "
        "Of a row: so it was for every variant that decides it; the others, which vLLM does not call, may not have "
        "run."
    ),
    "locked": (
        "It was measured on the day that is named, and every input that it rests on is what it was then: "
        "`check --locked` took it from fi-doctor.lock. Nothing of it was measured now."
    ),
    Scope.FULL.value: "The verdict is on the module as FlashInfer compiles it, or as its packages declare it.",
    Scope.SUBSET.value: (
        "Only a part of a large module was compiled: what one tactic of the kernel needs, from the installed sources "
        "with the installed flags. The rest is stubs that say their name and abort. Other tactics were not tried, and "
        "a server compiles the whole module: `fi-doctor warm` does so beforehand."
    ),
    "scope": (
        "Of how much of a module the evidence is: `full`, or `subset` where only a part of it was compiled. "
        "A requirement without a scope is content with both, but for `verified`, which asks for the whole: "
        "of what the deciding variants call. Variants that do not decide the row are named where they did not run."
    ),
    "gate": (
        "What makes the exit code: the rows that were selected, what is required of them by --require and the policy, "
        "and what fails by --fail-on. 0 it holds, 1 something was measured that does not, 3 it cannot be told. "
        "`--explain-gate` lists what was asked, whether it holds and what decided."
    ),
    "allow": (
        "An entry [[allow]] of a policy: a feature or a finding that may fail until a day, for a reason that is given. "
        "It is shown as it is and does not count for the exit code; afterwards it counts again."
    ),
    "server-environment-differs": (
        "With --pid: a variable that matters, or a tool on PATH, is not the same for the process that serves and for "
        "the shell in which fi-doctor was started. What was tried in that shell need not hold for the server. The "
        "variables are those with which the process was started (/proc/PID/environ); what it set itself since is not "
        "seen."
    ),
    **EXPLAINED,
    "frozen": (
        "`check --locked --frozen` measures nothing: rows that do not hold any more, or are not in the lock, are "
        "unknown. The exit code is 3 where such a row is required, or worked when it was locked and is one that vLLM "
        "calls."
    ),
    "knowledge-older-than-packages": (
        "The installed vLLM, FlashInfer or SGLang is newer than every release that the knowledge was checked on. The "
        "days are from the knowledge's version to the day of the build, where the version has it, or else of the "
        "installation; a wheel does not say when it was built. Rules and rows may not fit that version; what is "
        "measured counts as ever, and no verdict and no exit code changes. --knowledge takes newer knowledge."
    ),
    "measured-beats-known": (
        "A rule predicts a failure, and the row works here. The measurement decides; the rule, or what it was told "
        "about this machine, is wrong, so this is worth a report to fi-doctor."
    ),
    "unexplained-failure": (
        "A row fails here and no known problem explains it. `fi-doctor probes show ID` prints the script that fails; "
        "it needs nothing of fi-doctor and can be pasted into an upstream issue."
    ),
    "works-only-outside-cuda-graphs": (
        "A kernel gives right numbers when it is called, and fails or gives wrong ones once the call is captured in a "
        "CUDA graph and replayed with other inputs in the same memory, which is how vLLM decodes. Captured cells are "
        "called graph or graph_*. The recommendation keeps the kernel out of vLLM's graphs: "
        "cudagraph_mode=PIECEWISE does so for attention, cudagraph_mode=NONE and --enforce-eager for everything. "
        "It costs time in each decoding step."
    ),
    MisfitKind.MISSING_NAME.value: (
        "The installed vLLM imports or reads a name that the installed FlashInfer has not, by the sources of both: "
        "ImportError or AttributeError where vLLM comes to it. `fi-doctor features --calls` lists all places."
    ),
    MisfitKind.MISSING_LAZILY.value: (
        "The installed vLLM looks for a name only when it is called, and the installed FlashInfer has none: the call "
        "then says that FlashInfer is not available. `fi-doctor features --calls` lists all places."
    ),
    MisfitKind.UNKNOWN_KEYWORD.value: (
        "The installed vLLM passes a keyword that the installed FlashInfer's function does not take, by the sources of "
        "both: TypeError where vLLM comes to it. `fi-doctor features --calls` lists all places."
    ),
    MisfitKind.TOO_MANY.value: (
        "The installed vLLM passes more arguments by position than the installed FlashInfer's function takes, or one "
        "of them twice: TypeError where vLLM comes to it, and worse where the order has changed and the number has not."
    ),
    MisfitKind.MISSING_ARGUMENT.value: (
        "The installed vLLM does not pass an argument that the installed FlashInfer's function cannot do without: "
        "TypeError where vLLM comes to it. `fi-doctor features --calls` lists all places."
    ),
}

_UNPROBED = (
    "No probe runs it: the row says whether the installed FlashInfer has it for this GPU, and which line says so."
)
FINDINGS = (  # of these words
    "measured-beats-known",
    "unexplained-failure",
    "knowledge-older-than-packages",
    "works-only-outside-cuda-graphs",
    "server-environment-differs",
    *EXPLAINED,
    *(kind.value for kind in MisfitKind),
)


def explain(kb: KnowledgeBase, name: str, specs: tuple[ProbeSpec, ...] = (), *, folder: Path = faults.FOLDER) -> str:
    """What is known under an id, as plain text of at most 80 columns: of a row and its probe of one name, both.

    folder: the faults. Errors: UsageError with the nearest ids when there is none.
    """
    found = [rule_text(rule) for rule in kb.rules if name in (rule.id, rule.cause, *rule.aliases)]
    found += [feature_text(feature) for feature in kb.features if feature.id == name]
    found += [operator_text(one) for one in kb.operators if one.id == name]
    found += [setting_text(kb, setting) for setting in kb.settings if setting.name == name]
    found += explained_registered.texts(name)
    found += [word_text(name)] if name in WORDS else []
    found += [probe_text(spec) for spec in specs if spec.id == name]
    if having := [spec for spec in specs if name in spec.variants]:
        found.append(_variant(name, having))
    found += explained_faults.texts(name, folder)
    if found:
        return "\n".join(found)
    raise UsageError(f"there is nothing to explain under {name!r}", todo=_hint(kb, name, folder))


def ids(kb: KnowledgeBase, specs: tuple[ProbeSpec, ...] = (), *, folder: Path = faults.FOLDER) -> tuple[str, ...]:
    """Everything that can be explained but the settings that are only registered, sorted."""
    rules = {word for rule in kb.rules for word in (rule.id, rule.cause, *rule.aliases)}
    rows, settings = {feature.id for feature in kb.features}, {setting.name for setting in kb.settings}
    operators = {operator.id for operator in kb.operators}
    probes = {name for spec in specs for name in (spec.id, *spec.variants)}
    logged = faults.ids(folder).keys() | faults.causes(folder).keys() | faults.families(folder).keys()
    return tuple(sorted(rules | rows | operators | settings | probes | set(WORDS) | logged))


def _hint(kb: KnowledgeBase, name: str, folder: Path) -> str:
    small = {word.lower(): word for word in ids(kb, folder=folder)}
    near = [small[word] for word in difflib.get_close_matches(name.lower(), small, n=3, cutoff=0.4)]
    return "fi-doctor explain " + (" | ".join(near) if near else "works; `fi-doctor features` lists the rows")


def word_text(name: str) -> str:
    """What a word of reports means."""
    return f"{name}\n\n{wrapped(WORDS[name])}\n"


def rule_text(rule: Rule) -> str:
    """All of a rule, as plain text."""
    parts = [f"{rule.id} ({rule.severity}, {rule.status})", wrapped(plain(rule.title)), wrapped(plain(rule.why))]
    parts.append("What helps, the best first:\n" + "\n".join(_action(action.line, action.why) for action in rule.fix))
    if rule.features:
        parts.append(f"Concerns: {', '.join(rule.features)}")
    if rule.predicts is not None:
        parts.append(f"Rows that were not measured become: {rule.predicts}")
    for one in rule.foretells:
        named = f" ({', '.join(one.variants)})" if one.variants else ""
        said = f"With --target cells that were not tried{named} become {one.verdict}, where release and GPU decide it."
        parts.append(wrapped(said))
    parts += [f"Cause: {rule.cause}"] if rule.cause != rule.id else []
    parts.append(f"Known from: {rule.source}")
    return "\n\n".join(parts) + "\n"


def _action(line: str, why: str) -> str:
    # A command stays on its line, however long: it is there to be copied.
    return f"  {plain(line)}" + (f"\n      {plain(why)}" if why else "")


def feature_text(feature: Feature) -> str:
    """All of a row, as plain text."""
    parts = [f"{feature.id}: {feature.title}"]
    if feature.entry:
        parts.append("Enters FlashInfer by:\n" + "\n".join(f"  {name}" for name in feature.entry))
    if feature.vllm:
        parts.append("What vLLM does with it:\n" + "\n".join(_use(use) for use in feature.vllm))
    if feature.sglang:
        parts.append("What SGLang does with it:\n" + "\n".join(_use(use) for use in feature.sglang))
    decided = "Decided by the probes: " + ", ".join(feature.probes)
    parts.append(decided if feature.probes else wrapped(_UNPROBED))
    if feature.fallback:
        parts.append(wrapped(f"Where it does not work: {feature.fallback}"))
    return "\n\n".join(parts) + "\n"


def probe_text(spec: ProbeSpec) -> str:
    """All of a probe, as plain text."""
    parts = [wrapped(f"Probe {spec.id}: {spec.question}"), f"Decides the row: {spec.feature}"]
    if spec.origin != OWN:
        parts.append(wrapped(f"Brought by: {spec.origin}"))
    if spec.module:
        parts.append(wrapped(f"Builds FlashInfer's module: {spec.module}"))
    if needs := _needs(spec.requires):
        parts.append(wrapped(f"Needs: {needs}"))
    if spec.variants:
        parts.append("Variants:\n" + indented(", ".join(spec.variants)))
    return "\n\n".join([*parts, f"Its script: fi-doctor probes show {spec.id}"]) + "\n"


def _variant(name: str, having: Iterable[ProbeSpec]) -> str:
    lines = []
    for spec in having:
        needs = _needs(spec.variants[name])
        lines.append(indented(f"{spec.id}, row {spec.feature}" + (f"; needs {needs}" if needs else "")))
    head = f"{name}, a variant of these probes (what it calls is said in the script: fi-doctor probes show PROBE):"
    return "\n".join([wrapped(head), *lines]) + "\n"


def _needs(requires: Requires) -> str:
    ranges = {"compute capability": requires.sm, "FlashInfer": requires.flashinfer, "nvcc": requires.nvcc}
    named = [f"{name} {wanted}" for name, wanted in ranges.items() if wanted]
    packages = [f"{name} {wanted}".rstrip() for name, wanted in requires.packages.items()]
    return ", ".join([*named, *packages, *requires.symbols])


def _use(use: Use) -> str:
    where = f", SM {use.sm}" if use.sm else ""
    return textwrap.fill(f"{use.releases}{where}: {use.use}", 80, initial_indent="  ", subsequent_indent="    ")


def operator_text(operator: Operator) -> str:
    """All of an operator, as plain text."""
    parts = [wrapped(f"{operator.id}: {operator.title}, an operator of a complete backend ({operator.group})")]
    if operator.entry:
        parts.append("FlashInfer has it as any of:\n" + "\n".join(f"  {name}" for name in operator.entry))
    if operator.patterns:
        parts.append(wrapped(f"FlashInfer has it where a public name is like: {', '.join(operator.patterns)}"))
    if operator.rows:
        parts.append(wrapped(f"Rows that say whether it works: {', '.join(operator.rows)}"))
    if operator.instead:
        parts.append(wrapped(f"What serves without FlashInfer: {operator.instead}"))
    return "\n\n".join(parts) + "\n"
