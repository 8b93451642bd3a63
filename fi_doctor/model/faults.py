"""Faults as data: which lines of a log tell them, on which conditions, why, and what mends them."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Strict
from fi_doctor.model.knowledge import Action, Condition

FAMILIES = (
    "arch-list-or-detection",
    "autotune",
    "bystander-not-flashinfer",
    "collectives",
    "driver",
    "feature-not-in-kernel",
    "filesystem-and-network",
    "flashinfer-packaging-bug",
    "jit-cache-state",
    "kernel-not-for-this-gpu",
    "package-versions",
    "runtime-kernel-fault",
    "toolchain-missing-or-misfound",
    "toolkit-too-old",
)
REPORT = "report"  # the `source` of a sign that was seen in a report alone, and in no source


class Strength(Closed):
    """What a sign is worth, weakest first."""

    FOLLOWS_ON = "follows-on"  # this fault brings such lines about, and so do others: never a diagnosis by itself
    SUPPORTS = "supports"  # it fits this fault, and others too
    DECIDES = "decides"  # nothing else brings this line about, once `when` holds


class Sign(Strict, frozen=True):
    """Something that stands in one line of the log, once prefixes, colours and time stamps are taken away."""

    text: str  # stands in the line as it is, capitals and all: the literal that is looked for
    strength: Strength
    source: str  # where the message comes from, "vllm 0.33.0: vllm/utils/flashinfer.py:62", or "report"
    # RE2, searched in the line: when it does not match, the sign is not there. Its named groups are captured.
    pattern: str = ""
    without: str = ""  # RE2: a line that it matches is no such sign
    # RE2: the last frame of the traceback before the line, 'File "/v/flashinfer/mla.py", line 600, in run', has it.
    frame: str = ""
    near: str = ""  # a literal that must stand in the same log near it, of no other rank where ranks are told
    info: bool = False  # its message is logged at INFO or DEBUG; in such a line other signs decide and support nothing
    within: int = 200  # lines that are near: of a traceback the last frame alone raised it
    # FlashInfer's only where the line, or a frame of the traceback that ends in it, names FlashInfer: other packages
    # say the same. A fault of which all that decides is of others is not FlashInfer's, and as sure as it would be.
    named: bool = False
    name: str = ""  # for {seen: {name: true}} in conditions


class Mend(Action, frozen=True):
    """An action for those logs of which `when` is not known to be false. Its setting is checked against versions."""

    when: Condition = {}


class Sample(Strict, frozen=True):
    """A log, with the reporter's environment where it counts."""

    log: str
    environment: str = ""


class Fault(Strict, frozen=True):
    """A cause with the lines that tell it. The file is faults/<family>/<id>.yaml."""

    id: str  # names the problem, "nvcc-too-old-to-know-sm12x"
    cause: str  # slug; several faults may have one cause
    family: str  # one of FAMILIES: the folder of the file
    flashinfer_at_fault: bool  # whether it lies with FlashInfer, its packages or how it is used; else a bystander
    signs: tuple[Sign, ...]
    fires: tuple[Sample, ...]  # each is diagnosed as this cause, first
    silent: tuple[Sample, ...]  # close neighbours, in which this fault is not seen
    title: str = ""  # may hold {subject} placeholders, as `why` and the lines of `fix`
    otherwise: str = ""  # the title where the error is another's, or nothing says whose: it does not name FlashInfer
    when: Condition = {}  # over what the log tells (fi_doctor.conditions.logs); empty: always
    why: str = ""
    fix: tuple[Mend, ...] = ()
    rule: str = ""  # the rule of `check` about the same problem: its title, why and fix stand for those that are empty
    beats: tuple[str, ...] = ()  # ids of faults that are no cause of their own where this one is seen
    # Where an error was raised is all that it goes by: no cause of its own where any other fault is seen in an error.
    general: bool = False
    fixed_in: dict[str, str] = {}  # distribution -> the first release without it: {vllm: "0.16.0"}
    confirm: tuple[str, ...] = ()  # commands that settle it on the machine
    source: str = ""  # URL or file:line where the fault, not the message, is known from
    learnt_from: tuple[str, ...] = ()  # ids of the public reports without which this file would not be
