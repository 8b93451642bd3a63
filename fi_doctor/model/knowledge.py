"""Knowledge as data: rules, features, settings. Written by people, so decoded strictly."""

from __future__ import annotations

from typing import Any

from fi_doctor.model.base import Strict
from fi_doctor.model.report import ActionKind
from fi_doctor.model.words import Severity, Verdict

# A condition as YAML gives it: {"all": [...]}, {"any": [...]}, {"not": ...} or {subject: test}.
# fi_doctor.conditions owns its grammar and checks it when knowledge is loaded.
Condition = dict[str, Any]


class Action(Strict, frozen=True):
    """One way to mend. `line` and `why` may hold {subject} placeholders that conditions.py can fill."""

    kind: ActionKind
    line: str
    why: str = ""
    setting: str = ""  # name of the setting that `line` sets; must be in settings/


class Foretold(Strict, frozen=True):
    """What a rule says of cells that nobody tried, by releases and GPUs alone."""

    when: Condition  # of facts; what was measured does not count
    verdict: Verdict
    variants: tuple[str, ...] = ()  # globs of the cells; empty: all
    features: tuple[str, ...] = ()  # globs of the rows; empty: those of the rule


class Rule(Strict, frozen=True):
    """A known problem. The file is rules/<family>/<id>.yaml."""

    id: str
    cause: str  # slug
    severity: Severity
    title: str  # may hold {subject} placeholders
    when: Condition
    why: str
    fix: tuple[Action, ...]
    source: str  # URL or file:line of the package that shows it
    status: str  # "confirmed" (measured or read in source) or "suspected"
    features: tuple[str, ...] = ()  # globs of the rows that it concerns; empty: none in particular
    explains: str = ""  # regular expression on "variant: why"; only failures that match are laid to it. Empty: any
    explains_not: str = ""  # regular expression: of those that match `explains`, failures that this is not laid to
    # Whether it matters only where vLLM calls one of its rows as the environment stands; elsewhere it is an info.
    when_called: bool = False
    # Whether it is vain to compile where it holds: modules do not compile, do not link, or not with the toolkit that is
    # set. True of every module, those too that no row of ours needs.
    stops_builds: bool = False
    predicts: Verdict | None = None  # what rows that were not measured become, with evidence `predicted`
    # The same of single cells, though the rule is found only where it was measured: each with what makes it certain.
    foretells: tuple[Foretold, ...] = ()
    aliases: tuple[str, ...] = ()


class Use(Strict, frozen=True, kw_only=True):
    """What a range of releases of a server does with a feature."""

    use: str  # in words: "not called", "sampler, off by default"
    entry: str = ""  # dotted name that it calls
    sm: str = ""  # range of compute capability that this holds for; "": any
    variants: tuple[str, ...] = ()  # globs of the cells that decide the row; empty: all
    called: bool = True  # False: these releases never call it
    # What these releases would run and no probe checks, in words. A row whose cells work is then unknown all the same.
    unchecked: str = ""
    default: bool = True  # whether they call it without being told to
    enable: tuple[Action, ...] = ()  # what turns it on where it is off; the first whose setting is read is given
    avoid: tuple[Action, ...] = ()  # what takes the fallback instead

    @property
    def releases(self) -> str:
        """The version range."""
        raise NotImplementedError


class VllmUse(Use, frozen=True, kw_only=True):
    """What a range of vLLM releases does with a feature."""

    vllm: str  # version range

    @property
    def releases(self) -> str:
        """The version range."""
        return self.vllm


class SglangUse(Use, frozen=True, kw_only=True):
    """What a range of SGLang releases does with a feature."""

    sglang: str  # version range

    @property
    def releases(self) -> str:
        """The version range."""
        return self.sglang


class Feature(Strict, frozen=True):
    """One row of the matrix."""

    id: str
    title: str
    entry: tuple[str, ...]  # dotted FlashInfer names; the first one decides whether the package has it
    probes: tuple[str, ...]
    vllm: tuple[VllmUse, ...]
    sglang: tuple[SglangUse, ...] = ()  # of releases that are not named nothing is known, and nothing recommended
    fallback: str = ""  # what serves instead when it does not work
    needs_gpu: bool = True
    # The call whose source says for which GPUs it is, where arguments decide that, with literals by name:
    # "flashinfer.bmm_fp8(backend='cublas')". Empty: the first entry, whatever it is given.
    call: str = ""
    # What keeps it out of vLLM's CUDA graphs, where only captured cells fail; the first whose setting is read is given.
    uncaptured: tuple[Action, ...] = ()
    generator: str = ""  # FlashInfer's function whose supported_major_versions say for which GPUs it is compiled
    # The C++ file, below FlashInfer's folder, whose check turns GPUs away when a kernel of its is called, though it was
    # compiled for them: "data/include/flashinfer/trtllm/fmha/fmhaRunner.cuh".
    runner: str = ""


class Operator(Strict, frozen=True):
    """Something that a complete FlashInfer backend of vLLM needs."""

    id: str
    group: str
    title: str
    entry: tuple[str, ...] = ()  # dotted FlashInfer names, any of which will do
    patterns: tuple[str, ...] = ()  # of public names, in small letters, "*awq*", where no name is known
    rows: tuple[str, ...] = ()  # globs of the rows that say whether it works here
    instead: str = ""  # what serves where FlashInfer does not


class Setting(Strict, frozen=True):
    """A variable or flag that may be recommended."""

    name: str
    owner: str  # distribution that reads it: flashinfer-python, vllm
    kind: str  # "env" or "flag"
    read_by: str  # version range of the owner; "" for a name that no release reads (a fork's)
    what: str
    source: str


class KnowledgeBase(Strict, frozen=True):
    """Everything known."""

    version: str  # calendar version, 2026.11.27
    checked_on: tuple[str, ...]  # what it was checked on, in words
    rules: tuple[Rule, ...]
    features: tuple[Feature, ...]
    settings: tuple[Setting, ...]
    operators: tuple[Operator, ...] = ()
    newest: dict[str, str] = {}  # distribution -> the newest release that it was checked on
    origin: str = ""  # where it is from, in words; "" for that which ships with fi-doctor

    def feature(self, name: str) -> Feature | None:
        """The row of that id."""
        return next((one for one in self.features if one.id == name), None)
