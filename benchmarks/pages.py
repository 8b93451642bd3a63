"""Writes the pages below docs/ from the texts that `fi-doctor explain` prints: python benchmarks/pages.py.

A page for each family of rules, faults and rows and for each owner of settings, in which each id has an anchor that
stays as long as the id does, docs/rules/moe.md#first-start-compiles-moe-module; and one for the formats, from what
their modules say of themselves. Nobody edits these pages; those of WRITTEN_BY_HAND are linked to from the first one.
"""

import ast
import importlib
import inspect
import itertools
import json
import pathlib
import re
import textwrap

from fi_doctor import knowledge, reports
from fi_doctor.cli import outputs, schemas
from fi_doctor.knowledge import explain, explained_faults, explained_settings, faults
from fi_doctor.probing import catalog
from fi_doctor.reports import exports

DOCS = pathlib.Path(__file__).parents[1] / "docs"
MARK = "<!-- Written by benchmarks/pages.py. -->"
TITLES = {
    "rules": "Rules of `fi-doctor check`",
    "faults": "Faults that logs tell, for `fi-doctor explain LOG`",
    "features": "Rows of the matrix, with the probes that decide them",
    "settings": "Settings that may be recommended, by who reads them",
    "words": "Words",
}
INTRODUCTION = """What `fi-doctor explain ID` prints, as pages. It has more that is on no page: every variable, flag and
key that a known release of vLLM, FlashInfer or SGLang registers, and every variant of a probe."""

WRITTEN_BY_HAND = {
    "checking.md": "What a check examines",
    "crash-logs.md": "Crash logs",
    "moving.md": "Other versions and other GPUs",
    "gating.md": "The gate, CI and locks",
    "fleet.md": "Fleets",
    "probes.md": "Rows and probes",
    "safety.md": "Beside a server, and under attack",
    "figures.md": "Figures",
    "api.md": "For programs: diagnose, load and the endpoint",
    "recipes.md": "In CI, images, clusters and services",
}
FORMATS = """`fi-doctor check --format FORMAT[:PATH]` writes a report in any number of these at once, one of them to
stdout; `-o` takes the format by the ending of its file. A file appears whole or not at all. What a machine reads is
sorted, so that two reports can be compared line by line."""


def pages():
    """Path below docs/ -> text."""
    kb, specs = knowledge.load(), catalog.discover()
    folders = {path.stem: path.parent.name for path in (knowledge.SHIPPED / "rules").glob("*/*.yaml")}
    rows = [(row.id.partition(".")[0], row.id, of_row(row, specs)) for row in kb.features]
    entries = {
        "rules": [(folders[one.id], one.id, explain.rule_text(one)) for one in kb.rules],
        "faults": [(one.family, one.id, explained_faults.text(one)) for one in faults.load_all()],
        "features": rows + [("operators", one.id, explain.operator_text(one)) for one in kb.operators],
        "settings": [(one.owner, one.name, explained_settings.setting_text(kb, one)) for one in kb.settings],
        "words": [("words", name, explain.word_text(name)) for name in explain.WORDS],
    }
    found, index = {"formats.md": formats()}, [MARK, "# What fi-doctor knows", INTRODUCTION]
    links = {**WRITTEN_BY_HAND, "formats.md": "Formats, and what may be relied on in them"}
    index.append("\n".join(f"- [{title}]({name})" for name, title in links.items()))
    for folder, several in entries.items():
        index.append(f"## {TITLES[folder]}")
        for name, of_page in itertools.groupby(sorted(several), lambda entry: entry[0]):
            texts = [entry[1:] for entry in of_page]
            found[f"{folder}/{name}.md"] = page(f"{folder}: {name}", texts)
            links = ", ".join(f"[{key}]({folder}/{name}.md#{key})" for key in dict.fromkeys(key for key, _ in texts))
            index.append(f"**[{name}]({folder}/{name}.md)**: {links}")
    return {**found, "README.md": "\n\n".join(index) + "\n"}


def formats():
    """The page about formats: of each what its module says, and which endings, schemas and other forms there are."""
    sections = [MARK, "# Formats", FORMATS]
    endings = {form: [ending for ending, of in outputs._ENDINGS.items() if of == form] for form in reports.FORMATS}  # noqa: SLF001
    for form, module in renderers().items():
        told = f"\n\nFor `-o` with {', '.join(f'`.{ending}`' for ending in endings[form])}." if endings[form] else ""
        sections.append(f"## {form}\n\n{markdown(inspect.cleandoc(importlib.import_module(module).__doc__))}{told}")
    sections.append(
        f"## Settings alone\n\n`fi-doctor env --format` writes {', '.join(f'`{one}`' for one in exports.FORMS)}."
    )
    names = "\n".join(f"- `fi-doctor schema {name}`: `{schema_id(name)}`" for name in schemas.offered())
    sections.append(f"## JSON Schemas\n\n{names}")
    return "\n\n".join(sections) + "\n"


def renderers():
    """Format -> the module that writes it, in the order of FORMATS."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(reports))):
        if isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchValue):
            [used] = [one for one in node.body if isinstance(one, ast.ImportFrom)]
            found[node.pattern.value.value] = f"{used.module}.{used.names[0].name}"
    return {form: found[form] for form in reports.FORMATS}


def schema_id(name):
    return json.loads(schemas.text(name))["$id"]


def of_row(row, specs):
    """A row and its probes."""
    return "\n".join(
        [explain.feature_text(row), *(explain.probe_text(spec) for spec in specs if spec.feature == row.id)]
    )


def page(title, texts):
    sections = [f'<a id="{key}"></a>\n\n## {key}\n\n{markdown(text)}' for key, text in texts]
    return "\n\n".join([MARK, f"# {title}", *sections]) + "\n"


def markdown(text):
    """The same text, with what is set in as it stands; words in <brackets> are no tags."""
    blocks = []
    for block in text.strip().split("\n\n"):
        for is_set_in, lines in itertools.groupby(block.split("\n"), lambda line: line.startswith("  ")):
            part = "\n".join(lines)
            blocks.append(
                f"```text\n{textwrap.dedent(part)}\n```" if is_set_in else re.sub(r"([<*`\[])", r"\\\1", part)
            )
    return "\n\n".join(blocks)


def main():
    written = pages()
    for path in DOCS.rglob("*.md"):
        if path.relative_to(DOCS).as_posix() not in {*written, *WRITTEN_BY_HAND}:
            path.unlink()
    for name, text in written.items():
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(text)


if __name__ == "__main__":
    main()
