"""A report that was pasted into a log or an issue is found, whatever is around it."""

from __future__ import annotations

import textwrap

import pytest

from fi_doctor.explaining import embedded
from fi_doctor.knowledge import examples
from fi_doctor.reports import document

REPORT = document.read(examples.data(examples.names()[0]), "example")
TEXTS = {"json": document.to_json(REPORT), "yaml": document.to_yaml(REPORT)}
AROUND = {
    "alone": "{}",
    "in a log": "INFO: started\n{}\nRuntimeError: it broke\n",
    "in a fence": "# Bug\n\n```\n{}```\n\nIt broke.\n",
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("form", TEXTS)
def test_a_report_is_found_as_it_was_written(form, around):
    found = embedded.report(AROUND[around].replace("{}", TEXTS[form]).encode())
    assert found is not None
    assert document.read(found.data, "pasted").facts == REPORT.facts
    assert found.is_all == (around == "alone")


def test_a_report_that_is_set_in_or_quoted_is_found():
    for margin in ("    ", "> "):
        found = embedded.report(f"see\n{textwrap.indent(TEXTS['yaml'], margin, lambda line: True)}\nend".encode())
        assert found is not None
        assert document.read(found.data, "pasted").facts == REPORT.facts


@pytest.mark.parametrize(
    "text", ["", "INFO: started", 'a "fi-doctor.report/1.5" is missing here', '{"schema": "fi-doctor.report/1']
)
def test_where_there_is_no_report_none_is_found(text):
    assert embedded.report(text.encode()) is None
