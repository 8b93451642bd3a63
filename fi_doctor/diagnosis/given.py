"""Settings that somebody wrote down, against what the installed versions make of them; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor.conditions.ranges import version_in
from fi_doctor.conditions.vllm import is_for_others
from fi_doctor.diagnosis import mends, unheld
from fi_doctor.model import Finding, Missing, Severity
from fi_doctor.model.given import Stated
from fi_doctor.model.registry import Parse, Registered, Registry, Successor, equals_default, means, refuses

UNKNOWN = "setting-unknown"
NEVER_READ = "setting-never-read"
REFUSED = "setting-value-refused"
MEANS_OTHERWISE = "setting-means-otherwise"
CONTRADICT = "settings-contradict"
OF_A_MODIFIED_BUILD = "setting-of-a-modified-build"
NOT_JUDGED = "settings-not-judged"
IDS = (UNKNOWN, NEVER_READ, REFUSED, MEANS_OTHERWISE, CONTRADICT, OF_A_MODIFIED_BUILD, NOT_JUDGED)
# What rules said in older versions; policies may name them.
FORMER_IDS = ("vllm-variable-not-read", "vllm-variable-from-a-fork")

OWNERS = {"VLLM_": "vllm", "FLASHINFER_": "flashinfer-python", "SGLANG_": "sglang"}  # prefix -> distribution
CALLED = {"vllm": "vLLM", "flashinfer-python": "FlashInfer", "sglang": "SGLang"}
_ON, _OFF = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}
# FlashInfer's C++ sources, its build and images read these (0.6.4 to 0.7.2.post1), and no Python file does.
_BESIDE_PYTHON = re.compile(
    r"FLASHINFER_(?:ROUTING_|SSU_|TOPK_ALGO$|TRTLLM_MOE_OVERLAP|LOG_LEVEL$|BUILD_|DEV_|LOCAL_|VERSION|AOT|ENABLE_|SRC|COMMIT|IMAGE|CI_|\w*SERVICE|\w*PORT)"
    r"|SGLANG_(?:TEST_|CI_|BUILD_|IMAGE|VERSION|COMMIT|\w*SERVICE|\w*PORT)|SGLANG_VERSION$"
)


class Source(NamedTuple):
    """What is known of the settings of one installed package."""

    owner: str
    version: str
    # Missing: neither the release itself nor its installed files were read. Nothing is said of values then.
    registry: Registry | Missing
    releases: tuple[str, ...]  # those whose settings are known
    history: Callable[[str], tuple[str, ...]]  # the releases that know a name
    successors: Callable[[str], tuple[Successor, ...]]  # what stands for a name in this version
    mapped: Callable[[str], tuple[Successor, ...]]  # what stands for it in any version
    named: frozenset[str] | None = None  # variables that the installed files name; None: that is not known
    unread: frozenset[str] = frozenset()  # of those the ones that nothing reads
    # What the release of this version has, where the installed files are others; None: they are not, or none is known.
    released: frozenset[str] | None = None
    is_damaged: bool = False  # whether its files could not all be read

    @property
    def called(self) -> str:
        """Its name and version, "vLLM 0.17.1"."""
        return f"{CALLED[self.owner]} {self.version}"

    def variable(self, name: str) -> Registered | None:
        """The variable of this name."""
        one = None if isinstance(self.registry, Missing) else self.registry.settings.get(name)
        return one if one is not None and one.kind == "env" else None


def find(stated: Iterable[Stated], sources: dict[str, Source]) -> tuple[Finding, ...]:
    """One finding for each id and setting, which names all places where it stands."""
    found: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    for one in stated:
        judged = _variable(one, sources) if one.kind == "env" else _flag(one, sources)
        for finding in judged:
            _, places = found.setdefault((finding.id, one.written), (finding, []))
            places += [one.place] if one.place and one.place not in places else []
    return tuple(_placed(finding, places) for finding, places in found.values())


def owner_of(name: str) -> str | None:
    """Whose a variable is, by its prefix."""
    return next((owner for prefix, owner in OWNERS.items() if name.startswith(prefix)), None)


def value_of(setting: Registered, stated: Stated) -> str | None:
    """The text that is meant for it; None where that cannot be told."""
    if stated.kind == "env" or stated.value is None:
        return stated.value
    if setting.parse is Parse.FLAG:  # what follows may be the model
        return stated.value if stated.value.lower() in _ON | _OFF else ""
    if not stated.value:
        return None
    return " ".join((stated.value, *stated.more)) if setting.several else stated.value


def _variable(stated: Stated, sources: dict[str, Source]) -> Iterator[Finding]:
    owner = owner_of(stated.name)
    if owner is None or (stated.server and {owner, stated.server} == {"vllm", "sglang"}):
        return
    source = sources.get(owner)
    # FlashInfer reads a few names of vLLM's and SGLang's, and the other way round.
    named = [one for one in sources.values() if one.variable(stated.name) is not None]
    if source is None or source.is_damaged:
        return
    if named:
        reader = source if source in named else named[0]
        setting = reader.variable(stated.name)
        if setting is not None:
            yield from _known(stated, setting, reader)
    elif stated.name in source.unread and not is_for_others(stated.name, stated.value or ""):
        yield _never_read(stated, source, "")
    elif stated.name not in (source.named or ()) and (source.named is not None or _is_read(source)):
        yield from _unknown_variable(stated, source)


def _is_read(source: Source) -> bool:
    return not isinstance(source.registry, Missing) and "variables" not in source.registry.unreadable


def _unknown_variable(stated: Stated, source: Source) -> Iterator[Finding]:
    if is_for_others(stated.name, stated.value or "") or _BESIDE_PYTHON.match(stated.name):
        return
    why = f"{_history(stated.name, source)} Whatever its value, it has no effect."
    if source.owner == "vllm" and version_in(source.version, ">=0.17"):
        why += (
            " vLLM warns of an unknown variable when it starts, and does not start with --fail-on-environ-validation."
        )
    fix = mends.in_its_place(stated, source.successors(stated.name), source.registry)
    close = () if fix else unheld.asked(stated.name, source.registry)
    yield _finding(
        UNKNOWN,
        Severity.WARNING,
        f"{source.called} does not know {stated.name}",
        why,
        (*fix, *close, mends.taken_out(stated)),
        _proof(stated, source, ""),
    )


def _never_read(stated: Stated, source: Source, place: str) -> Finding:
    where = f" at {place}" if place else ""
    return _finding(
        NEVER_READ,
        Severity.WARNING,
        f"{source.called} registers {stated.name} and never reads it",
        f"It is registered{where}, and no other file of the package reads it: it has no effect.",
        (*mends.in_its_place(stated, source.successors(stated.name), source.registry), mends.taken_out(stated)),
        _proof(stated, source, place),
    )


def _known(stated: Stated, setting: Registered, source: Source) -> Iterator[Finding]:
    """Of a variable that is registered: whether it is read, and what its value comes to."""
    if setting.is_dead:
        if not is_for_others(stated.name, stated.value or ""):
            yield _never_read(stated, source, setting.source)
        return
    if source.released is not None and stated.name not in source.released:
        yield _finding(
            OF_A_MODIFIED_BUILD,
            Severity.INFO,
            f"{stated.name} is of a modified build, not of {source.called}",
            f"The installed files read it at {setting.source}; the release of that version has no such setting.",
            (),
            _proof(stated, source, setting.source),
        )
    yield from _of_value(stated, setting, source)


def _of_value(stated: Stated, setting: Registered, source: Source) -> Iterator[Finding]:
    value = value_of(setting, stated)
    if value is None:
        return
    refused = refuses(setting, value)
    place = setting.source
    if isinstance(refused, str):
        # SGLang warns and takes the default; what other files than vLLM's table do, a try around it may undo.
        is_table = source.owner == "vllm" and place.startswith("envs.py")
        is_silent = setting.parse is Parse.BOOL_WORDS or (setting.kind == "env" and not is_table)
        what = "fails where it reads it" if setting.kind == "env" else "does not start with it"
        yield _finding(
            REFUSED,
            Severity.WARNING if is_silent else Severity.ERROR,
            f"{source.called} cannot read {stated.written}",
            f"{refused}. {'' if is_silent else f'{CALLED[source.owner]} {what}; '}it is read at {place}.",
            mends.another_value(stated, setting),
            _proof(stated, source, place),
        )
    elif said := _meaning(setting, value):
        title, why = said
        yield _finding(
            MEANS_OTHERWISE,
            Severity.INFO,
            f"{source.called}: {stated.written} {title}",
            f"{why}; it is read at {place}.",
            (mends.taken_out(stated),),
            _proof(stated, source, place),
        )


def _meaning(setting: Registered, value: str) -> tuple[str, str] | None:
    """What a value means that people take for something else; None where it means what it says.

    Only compared with what "1" and "0" give: the source may ask for the opposite of what the name says.
    """
    found, one, zero = (means(setting, text) for text in (value, "1", "0"))
    word = value.strip().lower()
    if not isinstance(found, bool) or setting.parse is Parse.IS_SET:  # which may be followed by a look at the value
        return None
    if word in _OFF and found == one and (found != zero or setting.parse is Parse.TRUTHY):
        return "is the same as 1", f"{_counts(setting)}, and {value!r} counts as 1 does"
    if word in _ON and found == zero and found != one:
        return "is the same as 0", f"{_counts(setting)}, and {value!r} counts as 0 does"
    if setting.asks_if_set and equals_default(setting, value):
        why = "The value is the default one, and the source also asks whether the variable is set at all"
        return "is not the same as leaving it unset", why
    return None


def _counts(setting: Registered) -> str:
    if setting.parse is Parse.TRUTHY:
        return "Any text but the empty one counts"
    return f"The text is compared with {' and '.join(map(repr, setting.choices))} alone"


def _flag(stated: Stated, sources: dict[str, Source]) -> Iterator[Finding]:
    source = sources.get(stated.server or "vllm")
    if source is None or isinstance(source.registry, Missing) or "flags" in source.registry.unreadable:
        return
    setting = mends.registered(stated.name, source.registry)
    if setting is not None:
        if not (stated.name in setting.negations and not stated.value):
            yield from _of_value(stated, setting, source)
        return
    name = mends.key_name(stated.name, source.registry) or stated.name
    fix = mends.in_its_place(replace(stated, name=name), source.successors(name), source.registry)
    if unheld.is_passed_over(stated.name, source.registry):
        return
    if source.history(name) or source.successors(name):
        yield _finding(
            UNKNOWN,
            Severity.ERROR,
            f"{source.called} has no {stated.name}",
            f"{_history(name, source)} {CALLED[source.owner]} does not start with it.",
            (*fix, mends.taken_out(stated)),
            _proof(replace(stated, name=name), source, ""),
        )
    elif stated.name.startswith("--") and "." not in stated.name:
        yield _unknown_flag(stated, source, unheld.asked(stated.name, source.registry))


def _unknown_flag(stated: Stated, source: Source, asked: tuple[str, ...]) -> Finding:
    """Of one that no release had: misspelt, or of vLLM's HTTP server, whose flags are not known of each release."""
    may_be = source.owner == "vllm" and not asked
    rest = " The HTTP server's own flags of this release were not looked up: it may be one of those." if may_be else ""
    what = f"{CALLED[source.owner]} does not start with a flag that it does not know."
    return _finding(
        UNKNOWN,
        Severity.INFO if may_be else Severity.WARNING,
        f"{source.called} {'may have' if may_be else 'has'} no {stated.name}",
        f"{_history(stated.name, source)} {what}{rest}",
        () if may_be else (*asked, mends.taken_out(stated)),
        _proof(stated, source, ""),
    )


def _history(name: str, source: Source) -> str:
    """Which releases have it: "In vLLM 0.11.0 to 0.14.1, not in 0.17.1."."""
    called = CALLED[source.owner]
    known = source.history(name)
    first, last = source.releases[0], source.releases[-1]
    if not known:
        return f"None of the releases of {called} from {first} to {last} that were read has it."
    told = known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}"
    return f"In {called} {told}, not in {source.version}."


def _proof(stated: Stated, source: Source, place: str) -> str:
    """Where it is known from."""
    if place:
        return f"{CALLED[source.owner].lower()}/{place} ({source.version})"
    named = source.successors(stated.name)
    if named:
        return named[0].source
    return f"in none of the files of {source.called}"


def _finding(  # noqa: PLR0913, PLR0917 - the fields of a finding that differ
    name: str, severity: Severity, title: str, why: str, fix: tuple[str, ...], source: str
) -> Finding:
    return Finding(id=name, cause=name, severity=severity, title=title, why=why, fix=fix, features=(), source=source)


def _placed(finding: Finding, places: list[str]) -> Finding:
    """The finding with where its setting stands, where that is not the environment."""
    if not places:
        return finding
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    rest = f" It stands in {', '.join(places)}." if more else ""
    return replace(finding, title=f"{finding.title} ({places[0]}{more})", why=f"{finding.why}{rest}")
