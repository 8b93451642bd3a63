"""Whether a use fits what the installed FlashInfer defines: it fits, it does not, or it cannot be told."""

from __future__ import annotations

from typing import NamedTuple

from fi_doctor.facts.calls.arguments import Given
from fi_doctor.facts.calls.callees import Callees
from fi_doctor.facts.calls.definitions import Callee, Signature
from fi_doctor.facts.calls.use import CALLED, COMPUTED, HANDED_ON, Use
from fi_doctor.facts.calls.values import LAZY, OPTIONAL, OWN
from fi_doctor.model import MisfitKind, Missing

_UNFOUND = "it cannot be looked up"


class Fitted(NamedTuple):
    """What came of one use."""

    name: str
    kind: MisfitKind | None = None  # of what does not fit
    text: str = ""  # of that, or why it cannot be told
    place: str = ""  # in FlashInfer's source
    is_told: bool = True  # whether it could be told
    is_wanting: bool = False  # FlashInfer has none, and the caller does without


def fit(use: Use, callees: Callees) -> Fitted | None:
    """What the use comes to; of several names that it may be, it fits if one of them does, and fails if all do.

    None where it is no use of FlashInfer after all.
    """
    if use.how == COMPUTED:
        return Fitted(use.names[0], text="the name is computed", is_told=False)
    pairs = zip(use.names, use.given or (None,) * len(use.names), strict=True)
    found = [one for name, passed in pairs if (one := _fit_one(name, passed, use, callees)) is not None]
    if not found:
        return None
    best = min(found, key=_rank)
    why = "it may be something else" if use.may_differ else use.doubt or _never_run(use, callees)
    if best.kind is None or not why:
        return best
    return best._replace(kind=None, text=f"{why}: {best.text}", is_told=False)


def _never_run(use: Use, callees: Callees) -> str:
    """Why it does no harm: it is run only where FlashInfer has what it has not, or has not what it has."""
    for name in sorted(use.sure):
        found = callees.find(name)
        if isinstance(found, Missing) and found.absent:
            return f"it is run only where there is {name}"
    for name in sorted(use.lacking):
        if isinstance(callees.find(name), Callee):
            return f"it is run only where there is no {name}"
    return ""


def _rank(fitted: Fitted) -> int:
    return 2 if fitted.kind is not None else 0 if fitted.is_told else 1


def _fit_one(name: str, passed: Given | None, use: Use, callees: Callees) -> Fitted | None:
    found = _find(name, callees, is_called=use.how == CALLED)
    if found is None:
        return None
    if isinstance(found, Missing):
        if not found.absent:
            return Fitted(name, text=f"{_UNFOUND}: {found.reason}", is_told=False)
        if use.lookup == OWN:
            return None
        if use.lookup == OPTIONAL:
            return Fitted(name, text=found.reason, is_wanting=True)
        kind = MisfitKind.MISSING_LAZILY if use.lookup == LAZY else MisfitKind.MISSING_NAME
        return Fitted(name, kind, found.reason)
    if found.kind == "unknown" and use.how != CALLED:
        return None
    if use.how == HANDED_ON and found.kind == "function":
        return Fitted(name, text="it is handed on, and called elsewhere", place=found.place, is_told=False)
    if use.how != CALLED or passed is None:
        return Fitted(name, place=found.place)
    if found.signature is None:
        why = _UNFOUND if found.kind == "unknown" else "it is not known what it takes"
        text = f"{why}: {found.unread or f'{name} is a module'}"
        return Fitted(name, text=text, place=found.place, is_told=False)
    is_unbound = found.needs_self and "()" not in name and found.kind == "function"
    signature = found.signature.with_self() if is_unbound else found.signature
    return _bind(name, passed, signature, found.place, is_partial=use.is_partial)


def _find(name: str, callees: Callees, *, is_called: bool) -> Callee | Missing | None:
    """What a name is; "()" in it is an instance of a class, or what a function says that it gives.

    None for what a function gives that is none of FlashInfer's classes: a tensor.
    """
    owner, *rest = name.split("()")
    found = callees.find(owner)
    is_declared = False  # a class that is declared as what comes back: it may be one that inherits it
    for number, attributes in enumerate(rest, 1):
        if isinstance(found, Missing):
            return None if number == 1 else found  # what is asked of nothing: the name itself is told of elsewhere
        if found.kind != "class":
            given = callees.given(found)
            if given is None or isinstance(given, Missing):
                return given
            owner, found = given
            is_declared = True
        names = attributes.strip(".").split(".") if attributes else []
        if number == len(rest) and not names and is_called:
            names = ["__call__"]
        for attribute in names:
            found = callees.find(f"{owner}.{attribute}")
            owner = f"{owner}.{attribute}"
            if isinstance(found, Missing):
                return found if not is_declared else Missing(reason=f"{found.reason}; what inherits it may have it")
    return found


def _bind(name: str, passed: Given, signature: Signature, place: str, *, is_partial: bool) -> Fitted:
    wrong = _wrong(passed, signature, is_partial=is_partial)
    if wrong is not None:
        return Fitted(name, wrong[0], wrong[1], place)
    if passed.open_end:
        return Fitted(
            name, text=f"{passed.open_end} in the call hands on what cannot be seen", place=place, is_told=False
        )
    known = {*signature.positional, *signature.keyword_only}
    unknown = [keyword for keyword in passed.keywords if keyword not in known]
    if unknown:
        text = f"FlashInfer takes by ** what it does not name there: {', '.join(unknown)}"
        return Fitted(name, text=text, place=place, is_told=False)
    return Fitted(name, place=place)


def _wrong(passed: Given, signature: Signature, *, is_partial: bool) -> tuple[MisfitKind, str] | None:
    """The first thing that does not fit, in the words of Python's own errors."""
    most = len(signature.positional)
    if passed.number > most and not signature.takes_more:
        return MisfitKind.TOO_MANY, f"too many positional arguments: {passed.number}, and it takes {most}"
    by_place = set(signature.positional[: passed.number])
    by_name = {*signature.positional[signature.positional_only :], *signature.keyword_only}
    for number, keyword in enumerate(passed.keywords):
        if keyword in passed.keywords[:number]:
            return MisfitKind.TOO_MANY, f"multiple values for keyword argument {keyword!r}"
        if keyword in by_place and keyword not in signature.positional[: signature.positional_only]:
            return MisfitKind.TOO_MANY, f"multiple values for argument {keyword!r}"
        if keyword not in by_name and not signature.takes_any:
            return MisfitKind.UNKNOWN_KEYWORD, f"unexpected keyword argument {keyword!r}"
    if passed.open_end or is_partial:
        return None
    missing = [one for one in signature.in_order() if one in signature.required - by_place - set(passed.keywords)]
    if missing:
        named = ", ".join(repr(one) for one in missing)
        return MisfitKind.MISSING_ARGUMENT, f"missing a required argument: {named}"
    return None
