"""One report after another, each reduced to what a fleet needs; what two reports have alike is kept once.

Of 10,000 reports nearly all of each is the same: a group of facts is told apart by a digest of how it is written, and
looked at when it is new. The rest of a report is decoded only as far as its verdicts.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

import msgspec

from fi_doctor.conditions import machine
from fi_doctor.diagnosis.fact_changes import Told
from fi_doctor.errors import DataError, DoctorError
from fi_doctor.fleet import identity
from fi_doctor.model import Doctor, Facts, Finding, Missing, Report, Request, secrets
from fi_doctor.reports import document, files, refusals

# Groups of facts in which nodes can drift; what is told of `sources` and `calls` follows from the files of packages.
GROUPS = (
    *("gpus", "toolkit", "packages", "environment", "libraries", "flashinfer", "system", "machine", "interpreter"),
    *("binaries", "site", "host_limits", "triton_ptxas", "vllm", "ray_copies", "server"),
)


NONE = -1
# What rules ask of facts that differ by nature (free memory, what else runs there): nodes that differ in one of these
# are not judged alike.
MOMENTARY = (
    *("folders_full", "folders_low", "gpu_memory_taken", "exclusive_in_use", "jobs_beyond_memory"),
    "cutlass_sources_unwritable",
)


class NodeReport(NamedTuple):
    """A node, and its report or why there is none."""

    name: str
    found: bytes | Report | DoctorError  # bytes: JSON or YAML
    source: str = ""  # the file
    identity: str = ""  # by which whoever asked tells it from others; "": by what its report says of the machine


class Reading(NamedTuple):
    """What is kept of a report."""

    name: str
    source: str
    created: str
    minor: int  # of its schema
    doctor: Doctor
    request: Request
    hostname: str
    executable: str  # of the interpreter
    serials: tuple[str, ...]  # of its GPUs
    sections: tuple[int, ...]  # of each of GROUPS, NONE where the report has none; and of what was asked for
    # Which of MOMENTARY hold on its facts; () where the verdicts stand as they were written.
    moment: tuple[bool, ...]
    # As `sections`, but without the folders that it alone has: nodes that differ in nothing else have the same.
    alike: tuple[int, ...]
    rows: int  # its verdicts and findings, as far as they differ between reports
    identity: str = ""  # as NodeReport


class _Wire(msgspec.Struct):
    """A report as it is decoded here."""

    schema: str
    doctor: msgspec.Raw
    request: msgspec.Raw
    facts: dict[str, msgspec.Raw]
    features: msgspec.Raw
    findings: msgspec.Raw
    gate: msgspec.Raw
    created: str = ""


class _Row(msgspec.Struct, frozen=True):
    """What of a row the gate and a comparison look at."""

    feature: str
    sm: int | Missing
    verdict: str
    evidence: str
    scope: str
    needs_gpu: bool
    vllm_calls: bool = True
    locked: str = ""


_Rows = tuple[_Row, ...]
_Findings = list[Finding]  # of another name than the tuple: what was decoded is remembered by it


class _Judged(msgspec.Struct):
    """What a report is judged again by."""

    facts: Facts


class _System(msgspec.Struct):
    hostname: str | Missing = ""


class _Interpreter(msgspec.Struct):
    executable: str = ""
    prefix: str = ""


class Reader:
    """Reads reports, and keeps what is in them: sections by number, and a sample of each kind of report."""

    def __init__(self, stands: Callable[[Doctor], bool]) -> None:
        """stands: whether the verdicts of a doctor are taken as they were written."""
        self.stands = stands
        self.sections: list[dict[str, Told]] = []  # number -> the facts that configure, by name
        self.section_minor: list[int] = []  # number -> the schema that it is told in
        self._decoders = {name: msgspec.json.Decoder(kind) for name, kind in get_type_hints(Facts).items()}
        self._by_digest: dict[tuple[str, bytes], int] = {}
        self._by_content: dict[object, int] = {}
        self._rows: dict[object, int] = {}
        self._decoded: dict[bytes, Any] = {}
        self._texts: dict[str, str] = {}
        self._samples: dict[tuple[object, ...], bytes] = {}
        self._words: dict[int, str] = {}  # number of a section -> all its words

    def read(self, one: NodeReport) -> Reading:
        """What is kept of it. Errors: DataError where it is no whole report, the DoctorError that stands for it."""
        if isinstance(one.found, DoctorError):
            raise one.found
        data = msgspec.json.encode(one.found) if isinstance(one.found, Report) else one.found
        name = one.source or one.name
        wire, data = _decode(data, name)
        document.check_schema(wire.schema, name)
        try:
            return self._reduced(one, wire, data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _not_whole(name, str(error)) from error

    def sample(self, reading: Reading) -> Report:
        """A whole report that has these facts and verdicts; secrets are not yet taken out of it."""
        return msgspec.json.decode(zlib.decompress(self._samples[key_of(reading)]), type=Report)

    def common(self, reading: Reading) -> Report | None:
        """The same without the folders that this node alone has; None where what is left is no report."""
        own = identity.folders(reading.hostname, reading.name)
        text = zlib.decompress(self._samples[key_of(reading)]).decode("utf-8")
        try:
            return msgspec.json.decode(own.without(text), type=Report)
        except msgspec.MsgspecError:
            return None

    def _reduced(self, one: NodeReport, wire: _Wire, data: bytes) -> Reading:
        minor = int(wire.schema.rpartition(".")[2])
        doctor, request = self._typed(wire.doctor, Doctor), self._typed(wire.request, Request)
        python = self._typed(wire.facts.get("interpreter", msgspec.Raw(b"{}")), _Interpreter)
        told = {name: identity.without_prefix(name, bytes(raw), python.prefix) for name, raw in wire.facts.items()}
        sections = [self._section(name, told[name], minor) if name in told else NONE for name in GROUPS]
        host = msgspec.json.decode(wire.facts.get("system", b"{}"), type=_System).hostname
        own = identity.folders(host if isinstance(host, str) else "", one.name)
        asked: dict[str, Told] = {"request.depth": str(request.depth), "request.features": tuple(request.features)}
        reading = Reading(
            name=self._text(one.name),
            source=self._text(one.source),
            created=self._text(wire.created),
            minor=minor,
            doctor=doctor,
            request=request,
            hostname=self._text(host) if isinstance(host, str) else "",
            executable=self._text(python.executable),
            serials=identity.serials(msgspec.json.decode(wire.facts.get("gpus", b"{}"))),
            sections=(*sections, request_number := self._kept("request", asked, minor)),
            alike=(*(self._alike(number, own, minor) for number in sections), request_number),
            moment=() if self.stands(doctor) else _moment(data),
            rows=self._standing(wire),
            identity=self._text(one.identity),
        )
        if key_of(reading) not in self._samples:
            # The whole is looked at once; of what is like it later every section that is new.
            msgspec.json.decode(data, type=Report)
            if why := refusals.of_json(data):
                raise msgspec.ValidationError(why)
            self._samples[key_of(reading)] = zlib.compress(data, 1)
        return reading

    def _section(self, group: str, raw: bytes, minor: int) -> int:
        key = (f"{group} {minor}", hashlib.blake2b(raw, digest_size=16).digest())
        number = self._by_digest.get(key)
        if number is None:
            if why := refusals.of_json(raw):
                raise msgspec.ValidationError(why)
            self._decoders[group].decode(raw)  # what is not as it should be is refused here
            told = {
                self._text(name): self._told(value)
                for name, value in identity.configuring(group, msgspec.json.decode(raw))
            }
            number = self._by_digest[key] = self._kept(group, told, minor)
        return number

    def _kept(self, group: str, told: dict[str, Told], minor: int) -> int:
        """The number of a section with this content."""
        content = (group, minor, tuple(sorted(told.items())))
        number = self._by_content.setdefault(content, len(self.sections))
        if number == len(self.sections):
            self.sections.append(told)
            self.section_minor.append(minor)
        return number

    def _alike(self, number: int, own: identity.Folders, minor: int) -> int:
        """The number of the section without these folders; its own where it names none."""
        if number == NONE:
            return NONE
        if number not in self._words:
            told = self.sections[number].items()
            values = (value if isinstance(value, str) else "\n".join(value) for _, value in told)
            self._words[number] = "\n".join((*(fact for fact, _ in told), *values))
        if not own.are_in(self._words[number]):
            return number
        without = {
            own.without(fact): own.without(value) if isinstance(value, str) else tuple(map(own.without, value))
            for fact, value in self.sections[number].items()
        }
        return self._kept("alike", without, minor)

    def _standing(self, wire: _Wire) -> int:
        """The number of what its verdicts and findings are."""
        rows = self._typed(wire.features, _Rows)
        if why := refusals.of_rows(rows):
            raise msgspec.ValidationError(why)
        found = self._typed(wire.findings, _Findings)
        said = tuple(sorted((one.id, str(one.severity), one.features) for one in found))
        content = (tuple(sorted(map(msgspec.structs.astuple, rows), key=repr)), said)
        return self._rows.setdefault(content, len(self._rows))

    def _typed(self, raw: msgspec.Raw, kind: Any) -> Any:
        """What is written there, decoded once for all reports that have it written so."""
        key = hashlib.blake2b(raw, digest_size=16, person=getattr(kind, "__name__", "rows").encode()).digest()
        found = self._decoded.get(key)
        if found is None:
            found = self._decoded[key] = msgspec.json.decode(raw, type=kind)
        return found

    def _told(self, value: Told) -> Told:
        return self._text(value) if isinstance(value, str) else tuple(map(self._text, value))

    def _text(self, text: str) -> str:
        """The text without secrets, kept once."""
        found = self._texts.get(text)
        if found is None:
            found = self._texts[text] = secrets.hidden(text)
        return found


def key_of(reading: Reading) -> tuple[object, ...]:
    """What reports have in common that are judged alike: facts that configure, verdicts, who judged."""
    return reading.sections, reading.rows, reading.moment, reading.doctor.version, reading.doctor.knowledge


def alike_of(reading: Reading) -> tuple[object, ...]:
    """The same without the folders that a node alone has."""
    return key_of(reading._replace(sections=reading.alike))


def _moment(data: bytes) -> tuple[bool, ...]:
    facts = msgspec.json.decode(data, type=_Judged).facts
    answers = (machine.SUBJECTS[name][1](facts) for name in MOMENTARY)
    return tuple(isinstance(one, tuple) and bool(one) for one in answers)


def _decode(data: bytes, name: str) -> tuple[_Wire, bytes]:
    """The report, and it as JSON."""
    if len(data) > files.MAX_BYTES or data.lstrip()[:1] != b"{":
        data = msgspec.json.encode(document.plain(data, name))
    try:
        return msgspec.json.decode(data, type=_Wire), data
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        document.plain(data, name)  # says what is wrong with it in the words of every other command
        raise _not_whole(name, str(error)) from error


def _not_whole(name: str, why: str) -> DataError:
    return DataError(
        f'"{name}" is not a whole report', why=why, todo="fi-doctor report --json -o report.json, on that node"
    )
