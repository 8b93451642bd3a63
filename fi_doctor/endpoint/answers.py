"""What is answered to a request: the pages of the last report, its health, and words where there is none."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fi_doctor.endpoint.pages import Pages
from fi_doctor.endpoint.sources import Source
from fi_doctor.model import Missing, secrets

Headers = list[tuple[str, str]]
StartResponse = Callable[[str, Headers], object]

AGE = "Fi-Doctor-Age"  # seconds since the check
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
# path -> format, type of the content
_PAGES = {
    "/": ("html", "text/html; charset=utf-8"),
    "/report.json": ("json", "application/json"),
    "/metrics": ("prometheus", PROMETHEUS),
}
_HEALTH = "/healthz"
_READ_ONLY = ("GET", "HEAD")
# Beside what the page says of itself, which is stricter: nobody frames it, wherever it leads.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_SECURITY: Headers = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
]
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+?)\.?(?::[0-9]{1,5})?")


class Answer(NamedTuple):
    """What is sent, before a HEAD loses its body."""

    status: str
    body: bytes
    headers: Headers


class Endpoint:
    """A WSGI application; several threads may call it.

    hosts: the names by which it may be called, None for any. A page of another site whose name was made to lead here
    is so kept out. max_age_s: a check that was made longer ago is no good health; None for no bound.
    """

    def __init__(
        self,
        source: Source,
        *,
        hosts: frozenset[str] | None = None,
        max_age_s: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._hosts, self._max_age_s, self._clock = source, hosts, max_age_s, clock

    def __call__(self, environ: dict[str, object], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, as PEP 3333 has it."""
        method = str(environ.get("REQUEST_METHOD", ""))
        answer = self._answer(
            method,
            str(environ.get("PATH_INFO", "")),
            environ.get("HTTP_HOST"),
            str(environ.get("HTTP_IF_NONE_MATCH", "")),
        )
        length = ("Content-Length", str(len(answer.body)))
        has_length = not answer.status.startswith("304")
        start_response(answer.status, [*answer.headers, *_SECURITY, *([length] if has_length else [])])
        return [] if method == "HEAD" or not answer.body else [answer.body]

    def _answer(self, method: str, path: str, host: object, known: str) -> Answer:
        if not self._is_for_us(host):
            return _words("421 Misdirected Request", f"this is no name of this endpoint: {_printable(host)}")
        if path not in _PAGES and path != _HEALTH:
            return _words("404 Not Found", f"there is {', '.join((*_PAGES, _HEALTH))}")
        if method not in _READ_ONLY:
            return _words("405 Method Not Allowed", "it can only be read", [("Allow", ", ".join(_READ_ONLY))])
        found = self._source.now()
        if isinstance(found, Missing):
            return _words(
                "503 Service Unavailable",
                f"no report: {_printable(secrets.hidden(found.reason, secrets.held(os.environ)))}",
            )
        age = found.age_s(self._clock())
        return self._health(found, age) if path == _HEALTH else _page(found, age, path, known)

    def _is_for_us(self, host: object) -> bool:
        """Without a Host, as in HTTP/1.0, it is no browser that asks."""
        if self._hosts is None or host is None:
            return True
        named = _HOST.fullmatch(str(host))
        return named is not None and named[1].lower() in self._hosts

    def _health(self, found: Pages, age: int | None) -> Answer:
        gate = found.report.gate
        told = [_printable(f"{gate.reason} (exit {gate.code})"), _ago(age)]
        if why := self._too_old(age):
            told.insert(0, why)
        is_well = gate.code == 0 and not why
        return _words("200 OK" if is_well else "503 Service Unavailable", "\n".join(told), _age(age))

    def _too_old(self, age: int | None) -> str:
        if self._max_age_s is None or (age is not None and age <= self._max_age_s):
            return ""
        return f"too old to tell: no check within the last {self._max_age_s:g} s is known"


def _page(found: Pages, age: int | None, path: str, known: str) -> Answer:
    form, kind = _PAGES[path]
    body, tag = found.text(form)
    headers = [("Content-Type", kind), *_age(age)]
    if form == "html":
        headers.append(("Content-Security-Policy", _POLICY))
    if form == "prometheus":  # the age, and so the whole, differs each time
        return Answer("200 OK", body + _age_metric(age), headers)
    headers.append(("ETag", tag))
    if tag in {word.strip().removeprefix("W/") for word in known.split(",")}:
        return Answer("304 Not Modified", b"", headers)
    return Answer("200 OK", body, headers)


def _age_metric(age: int | None) -> bytes:
    name = "fi_doctor_report_age_seconds"
    value = "NaN" if age is None else age
    return f"# HELP {name} Time since the check.\n# TYPE {name} gauge\n{name} {value}\n".encode()


def _words(status: str, text: str, headers: Headers | None = None) -> Answer:
    return Answer(status, f"{text}\n".encode("utf-8", "backslashreplace"), [("Content-Type", _TEXT), *(headers or [])])


def _age(age: int | None) -> Headers:
    return [] if age is None else [(AGE, str(age))]


def _ago(age: int | None) -> str:
    return "checked at a time that the report does not tell" if age is None else f"checked {age} s ago"


def _printable(text: object) -> str:
    return "".join(char if char.isprintable() else " " for char in str(text))
