"""What stands beside a report, for the formats that name it: texts of rules, pages of the docs, policy and lock."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from fi_doctor.cli import emit
from fi_doctor.cli.outputs import Target
from fi_doctor.knowledge import explain
from fi_doctor.model import KnowledgeBase, Report, Verdict
from fi_doctor.reports.beside import Anchor, Beside

_DOCS = Path(__file__).parents[2] / "docs"  # of a checkout; an installed wheel has none
_LINK = re.compile(r"\[([^\[\]]+)\]\(([a-z]+/[a-z0-9-]+\.md#[^()\s]+)\)")
_HEADER = re.compile(r"\s*\[+\s*([^\[\]]+?)\s*\]+\s*(?:#.*)?")
_KEY = re.compile(r"\s*(\"[^\"]+\"|'[^']+'|[\w-]+)\s*=")


def beside(report: Report, targets: Iterable[Target], kb: KnowledgeBase, lock: str | None = None) -> Beside:
    """What the formats that are asked for can use of it. lock: the file that was compared with."""
    wanted = list(targets)
    if any(one.form == "sarif" for one in wanted):
        return Beside(texts=_texts(report, kb), pages=_published(), anchor=_anchor(report.request.policy.file, lock))
    if any(one.form == "console" and one.path is None for one in wanted) and emit.style()[1]:
        return Beside(pages=_published() or _installed())
    return Beside()


def _texts(report: Report, kb: KnowledgeBase) -> dict[str, str]:
    names = {finding.id for finding in report.findings} | {verdict.value for verdict in Verdict} | {"gate"}
    texts = {name: explain.word_text(name) for name in names & explain.WORDS.keys()}
    return texts | {rule.id: explain.rule_text(rule) for rule in kb.rules if rule.id in names}


def _published() -> dict[str, str]:
    """Where the project says that its documentation is."""
    import importlib.metadata

    try:
        urls = importlib.metadata.metadata("fi-doctor").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    named = dict(one.split(", ", 1) for one in urls if ", " in one)
    base = named.get("Documentation", "")
    return _pages(f"{base.rstrip('/')}/") if base.startswith("https://") else {}


def _installed() -> dict[str, str]:
    return _pages(f"{_DOCS.as_uri()}/")


def _pages(base: str) -> dict[str, str]:
    """Id -> address, by the index of the pages; nothing where there is none."""
    try:
        index = (_DOCS / "README.md").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {name: base + path for name, path in _LINK.findall(index)}


def _anchor(policy: str, lock: str | None) -> Anchor | None:
    """The policy, else the lock."""
    if not policy and lock is None:
        return None
    path = Path(os.path.abspath(policy or lock or ""))  # noqa: PTH100 - of a link the name, which is in the repository
    return Anchor(_uri(path), _lines(path) if policy else {})


def _uri(path: Path) -> str:
    """As the repository calls the file, else as the current folder does; an address where it lies in neither."""
    from urllib.parse import quote

    root = next((one for one in path.parents if os.path.lexists(one / ".git")), None)
    for folder in (root, Path(os.path.abspath("."))):  # noqa: PTH100 - Path.cwd() follows links
        if folder is not None and path.is_relative_to(folder):
            return quote(path.relative_to(folder).as_posix(), errors="surrogateescape")
    return path.as_uri()


def _lines(path: Path) -> dict[str, int]:
    """Key -> line, "fail-on" or "require.moe.*"; tomllib does not say where a key stands."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return {}
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            table = header[1].removeprefix("tool.fi-doctor").removeprefix(".")
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            name = key[1].strip("\"'")
            found.setdefault(f"{table}.{name}" if table else name, number)
    return found
