import json
import math
import os
import random
import sys

import jsonschema
import msgspec
import pytest
import yaml
from golden_texts import kept
from msgspec.structs import replace
from report_samples import FEATURES, HOSTILE, SAMPLES, all_good, broken_toolkit, outcome, report, row, two_sms

from fi_doctor.errors import DataError, UsageError
from fi_doctor.model import CellOutcome, Ending, Evidence, Missing, Report, Severity, Stage, Verdict
from fi_doctor.reports import FORMATS, document, render

MACHINE_FORMATS = ("json", "yaml")


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_report_looks_as_its_golden_file_says(golden, name, fmt):
    text = render(SAMPLES[name](), fmt)
    golden(f"{name}.{fmt}", kept(text, fmt, whole=True) if fmt == "html" else text)


def test_an_unknown_format_is_a_usage_error_that_names_the_formats():
    with pytest.raises(UsageError, match="xml") as caught:
        render(all_good(), "xml")
    assert caught.value.todo == f"one of: {', '.join(FORMATS)}"


@pytest.mark.parametrize("fmt", MACHINE_FORMATS)
@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "hostile"])
def test_what_is_written_reads_back_as_the_same_report(name, fmt):
    written = document.in_order(SAMPLES[name]())
    assert document.read(render(written, fmt).encode(), "it") == written


@pytest.mark.parametrize("fmt", MACHINE_FORMATS)
def test_hostile_text_reads_back_and_writes_the_same_again(fmt):
    once = render(SAMPLES["hostile"](), fmt)
    assert render(document.read(once.encode(), "it"), fmt) == once


def test_json_and_yaml_say_the_same():
    for sample in SAMPLES.values():
        assert json.loads(render(sample(), "json")) == yaml.safe_load(render(sample(), "yaml"))


def test_rows_outcomes_findings_and_maps_are_sorted():
    mixed = two_sms()
    mixed = replace(mixed, features=mixed.features[::-1], outcomes=(outcome("z.z"), outcome("a.a")))
    mixed = replace(mixed, findings=broken_toolkit().findings)
    plain = document.to_builtins(mixed)
    keys = [(each["feature"], each["sm"]) for each in plain["features"] if isinstance(each["sm"], int)]
    assert keys == sorted(keys)
    assert [each["probe"] for each in plain["outcomes"]] == ["a.a", "z.z"]
    assert [each["severity"] for each in plain["findings"]] == ["error", "info"]
    for mapping in (plain["facts"]["packages"], plain["facts"]["libraries"], plain["outcomes"][0]["seconds"]):
        assert list(mapping) == sorted(mapping)
    assert list(plain)[:2] == ["schema", "doctor"]


def test_equal_reports_are_equal_to_the_byte_whatever_order_they_were_made_in():
    one = two_sms()
    other = replace(one, features=tuple(random.Random(1).sample(one.features, len(one.features))))
    for fmt in MACHINE_FORMATS:
        assert render(one, fmt) == render(other, fmt)


def test_yaml_keeps_a_log_as_lines_and_text_that_looks_like_a_number_as_text():
    text = render(broken_toolkit(), "yaml")
    assert "  output: |\n    [1/3] /usr/local/bin/nvcc" in text
    assert "cuda: '13.0'" in text
    assert "&id" not in text
    assert "*id" not in text


def test_json_holds_no_character_that_a_terminal_obeys():
    text = render(SAMPLES["hostile"](), "json")
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "\\u202eabc\\u200b \\u009b2J" in text


@pytest.mark.parametrize("fmt", MACHINE_FORMATS)
def test_unicode_is_kept(fmt):
    assert "中文字符" in render(SAMPLES["hostile"](), fmt)


@pytest.mark.parametrize("fmt", MACHINE_FORMATS)
def test_measurements_that_json_cannot_say_are_kept_as_words(fmt):
    values = {"max_error": math.nan, "least": -math.inf, "huge": 2**80, "fine": 0.25, "all": True}
    cells = (CellOutcome(variant="", stage=Stage.RAN, ending=Ending.WRONG, detail="NaN", measurements=values),)
    back = document.read(render(report(outcomes=(outcome("norm.rmsnorm", cells=cells),)), fmt).encode(), "it")
    assert back.outcomes[0].cells[0].measurements == {
        "all": True,
        "fine": 0.25,
        "huge": str(2**80),
        "least": "-inf",
        "max_error": "nan",
    }


@pytest.mark.parametrize("fmt", MACHINE_FORMATS)
def test_an_infinite_budget_is_written_as_the_largest_number(fmt):
    endless = report(request=replace(all_good().request, budget_s=math.inf))
    assert document.read(render(endless, fmt).encode(), "it").request.budget_s == sys.float_info.max


@pytest.mark.parametrize("fmt", MACHINE_FORMATS)
def test_random_text_survives(fmt):
    generator = random.Random(7)
    alphabet = "a :#-'\"|>&*!%@`{}[],?\\\n\r\t\0\x1b\x85\u2028\ufeff\uffff中😀~ 0.1eyn="
    for _ in range(60):
        text = "".join(generator.choices(alphabet, k=generator.randrange(1, 40)))
        written = document.in_order(report(findings=()))
        written = replace(written, created=text, features=(row(text, why=text),))
        assert document.read(render(written, fmt).encode(), "it") == written


def test_the_json_schema_admits_every_sample():
    schema = document.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    wrong = {
        name: list(validator.iter_errors(json.loads(render(sample(), "json")))) for name, sample in SAMPLES.items()
    }
    assert wrong == {name: [] for name in SAMPLES}


def test_the_json_schema_refuses_a_row_without_a_verdict():
    plain = json.loads(render(all_good(), "json"))
    del plain["features"][0]["verdict"]
    with pytest.raises(jsonschema.ValidationError, match="verdict"):
        jsonschema.validate(plain, document.schema())


def edited(**changes):
    """A good report's builtins with top-level fields changed."""
    return {**json.loads(render(all_good(), "json")), **changes}


def read(plain):
    return document.read(json.dumps(plain).encode(), "r.json")


def test_a_newer_minor_with_fields_and_words_that_are_new_is_read():
    plain = edited(schema="fi-doctor.report/1.7", novelty={"deep": [1]})
    plain["facts"]["phase_of_moon"] = "full"
    plain["features"][0].update(verdict="works-mostly", evidence="proved", scope="most", colour="blue")
    plain["outcomes"][0].update(stage="polished", ending="abducted")
    plain["findings"] = [msgspec.to_builtins(broken_toolkit().findings[0]) | {"severity": "catastrophic"}]
    back = read(plain)
    assert (back.features[0].verdict, back.features[0].evidence) == (Verdict.UNKNOWN, Evidence.NONE)
    assert (back.outcomes[0].stage, back.outcomes[0].ending) == (Stage.NONE, Ending.NOT_RUN)
    assert back.findings[0].severity is Severity.INFO
    assert render(back, "console")


def test_optional_fields_that_are_missing_take_their_defaults():
    plain = edited()
    for name in ("seconds", "output", "reproduce", "cached"):
        del plain["outcomes"][0][name]
    back = read(plain).outcomes[0]
    assert (back.seconds, back.output, back.reproduce, back.cached) == ({}, "", "", False)


def test_a_newer_major_says_to_upgrade():
    with pytest.raises(DataError) as caught:
        read(edited(schema="fi-doctor.report/2.0"))
    assert str(caught.value) == (
        'error: "r.json" was written by a newer fi-doctor\n'
        '  why: its schema is "fi-doctor.report/2.0"; this one reads 1.x\n'
        "  try: install a newer fi-doctor, from where this one came"
    )


def test_text_with_a_number_without_end_is_of_no_report():
    plain = edited()
    plain["facts"]["gpus"]["gpus"][0]["name"] = "9" * 999
    assert read(plain)
    plain["facts"]["gpus"]["gpus"][0]["name"] = "A" + "9" * 5001
    with pytest.raises(DataError) as caught:
        read(plain)
    assert "more than a thousand digits" in caught.value.why


def test_an_older_major_says_to_write_it_anew():
    with pytest.raises(DataError, match="older fi-doctor"):
        read(edited(schema="fi-doctor.report/0.9"))


def test_an_error_inside_names_the_path():
    plain = edited()
    plain["facts"]["gpus"]["gpus"][0]["name"] = 5
    with pytest.raises(DataError) as caught:
        read(plain)
    assert caught.value.why == "facts.gpus.gpus[0].name: expected `str`, got `int`"
    assert "fi-doctor report --json" in caught.value.todo


NO_REPORT = {
    "empty": (b"", "it is empty"),
    "white space": (b" \n\t\n", "it is empty"),
    "binary": (bytes(range(256)), "cannot be read as YAML"),
    "an ELF file": (b"\x7fELF\x02\x01\x01" + bytes(64), "cannot be read as YAML"),
    "gzip": (b"\x1f\x8b\x08\x00", "gzip"),
    "a sentence": (b"hello there", "got text"),
    "a list": (b"- a\n- b\n", "got a list"),
    "null": (b"~", "got nothing"),
    "a JSON list": (b"[1, 2]", "got a list"),
    "another schema": (b"schema: goss/1.0\n", "'goss/1.0'"),
    "a number for schema": (b"schema: 1.0\n", '"schema" is 1.0'),
    "no schema": (b"a: 1\n", 'no "schema"'),
    "only a schema": (b"schema: fi-doctor.report/1.0\n", "missing required field"),
    "two YAML documents": (b"a: 1\n---\nb: 2\n", "cannot be read as YAML"),
    "latin-1": ("schema: \xe9".encode("latin-1"), "cannot be read as YAML"),
    "JSON that is not UTF-8": (b'{"a": "\xff"}', "cannot be read as JSON"),
    "JSON with a number too large": (b'{"a": 1e999}', "cannot be read as JSON"),
    "deep JSON": (b'{"a":' + b"[" * 100_000, "nested deeper"),
    "deep YAML": (b"a: " + b"[" * 900 + b"]" * 900, "nested deeper"),
    "very deep YAML": (b"a: " + b"[" * 100_000, ""),
    "deep block YAML": (b"".join(b" " * n + b"a:\n" for n in range(200)), "nested deeper"),
    "an alias bomb": (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "alias"),
    "a Python tag": (b"a: !!python/object/apply:os.system [id]\n", "tag"),
    "a bad timestamp tag": (b"a: !!timestamp x\n", "tag"),
    "a bad number": (b"a: 0b_\n", "cannot be read"),
    "a number without end": (b"a: " + b"9" * 5000, "a number of 5000 digits"),
    "a hexadecimal number without end": (b"a: 0x" + b"f" * 9000, "a number of 9002 digits"),
    "a number to the base 60": (b"a: 1" + b":59" * 300 + b".5", "a number of 903 digits"),
    "a number beyond 64 bits": (b'{"schema": "fi-doctor.report/1.0", "sm": ' + b"9" * 400 + b"}", "1329 bits"),
    "YAML that would take minutes": (b"a: " + b"x" * (8 << 20), "over 8 MiB"),
    "a key twice in JSON": (b'{"a": [{"b": 1, "c": {}, "b": 2}]}', "it has 'b' twice in one object"),
    "a key twice in YAML": (b"a: 1\nb:\n- c: x\n  d: c\n  e: [c, c]\n  c: {}\n", "line 6 has 'c' a second time"),
    "a schema twice": (b'{"schema": "fi-doctor.report/9.0", "schema": "fi-doctor.report/1.0"}', "'schema' twice"),
    "a list as a key": (b"? [a]\n: b\n", "cannot be read as YAML"),
}


@pytest.mark.parametrize(("data", "why"), NO_REPORT.values(), ids=NO_REPORT)
def test_what_is_no_report_is_said_with_a_reason_and_a_way_out(data, why):
    with pytest.raises(DataError) as caught:
        document.read(data, "some.yaml")
    assert '"some.yaml"' in caught.value.what
    assert why in caught.value.why
    assert caught.value.todo
    assert len(str(caught.value)) < 800


def test_a_broken_file_is_told_of_by_what_its_name_says_it_is():
    with pytest.raises(DataError) as caught:
        document.read(b"a: [", "node.json")
    assert caught.value.why.startswith("it does not begin as JSON does, and cannot be read as YAML")
    assert "report --json -o report.json" in caught.value.todo
    with pytest.raises(DataError) as caught:
        document.read(b"a: [", "node.yaml")
    assert caught.value.why.startswith("it cannot be read as YAML")
    assert "report --yaml -o report.yaml" in caught.value.todo


def test_a_row_is_told_once_for_each_sm():
    told = document.to_builtins(all_good())
    row = told["features"][0]
    told["features"].append(row | {"sm": 42})
    assert document.read(json.dumps(told).encode(), "some.json").features
    told["features"].append(row | {"sm": 42, "why": "another"})
    with pytest.raises(DataError, match="is not a fi-doctor report") as caught:
        document.read(json.dumps(told).encode(), "some.json")
    assert caught.value.why == f"it has the row {row['feature']!r} on SM42 twice"


def test_a_report_that_is_too_large_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr(document, "MAX_BYTES", 1024)
    with pytest.raises(DataError, match="too large"):
        document.read(render(all_good(), "json").encode(), "r.json")


@pytest.mark.parametrize("fmt", MACHINE_FORMATS)
def test_a_byte_order_mark_and_leading_white_space_do_no_harm(fmt):
    data = b"\xef\xbb\xbf\n" + render(all_good(), fmt).encode()
    assert document.read(data, "it") == document.in_order(all_good())


def test_a_date_without_quotes_stays_text():
    text = render(all_good(), "yaml").replace("'2026-11-27T10:00:00Z'", "2026-11-27T10:00:00Z")
    assert document.read(text.encode(), "it").created == "2026-11-27T10:00:00Z"


@pytest.mark.parametrize("fmt", MACHINE_FORMATS)
def test_a_mangled_document_is_read_or_refused_but_never_anything_else(fmt):
    good = render(two_sms(), fmt).encode()
    generator = random.Random(11)
    refused = 0
    for _ in range(120):
        data = bytearray(good)
        start = generator.randrange(len(data))
        match generator.randrange(4):
            case 0:
                del data[start:]
            case 1:
                del data[start : start + generator.randrange(1, 60)]
            case 2:
                data[start:start] = bytes(generator.choices(b'{}[]:,&*!\0"\n\t- \xff', k=8))
            case _:
                data[start] = generator.randrange(256)
        try:
            assert isinstance(document.read(bytes(data), "it"), Report)
        except DataError:
            refused += 1
    assert refused > 30


def test_a_value_of_another_type_anywhere_is_read_or_refused_but_never_anything_else():
    plain = json.loads(render(broken_toolkit(), "json"))
    places = list(walk(plain))
    generator = random.Random(3)
    for holder, key in generator.sample(places, 150):
        before = holder[key]
        for value in (None, 5, -1.5, "x", [], {}, [[]], {"kind": "missing"}, {"kind": "zork"}, True):
            holder[key] = value
            try:
                back = document.read(json.dumps(plain).encode(), "it")
            except DataError:
                continue
            assert render(back, "console")
        holder[key] = before


def walk(value):
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from walk(value[key])


def test_a_file_that_cannot_be_opened_is_said_with_its_absolute_path(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(DataError) as caught:
            document.read_file(path)
        assert str(path) in caught.value.what
        assert caught.value.why in {"Is a directory", "No such file or directory"}


@pytest.mark.parametrize("when", ["before", "while it is opened"])
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path, monkeypatch, when):
    path = tmp_path / "r.yaml"
    os.mkfifo(path)
    (tmp_path / "plain").touch()
    if when != "before":  # it was a file when it was looked at
        plain = (tmp_path / "plain").stat()
        monkeypatch.setattr(type(path), "stat", lambda _: plain)
    with pytest.raises(DataError, match="it is not a file"):
        document.read_file(path)


def test_a_file_is_read(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(render(all_good(), "yaml"))
    assert [each.feature for each in document.read_file(path).features] == list(FEATURES)


def test_undecodable_bytes_of_a_path_are_kept_as_escapes():
    bad = b"/opt/\xff\xfe".decode("utf-8", "surrogateescape")
    odd = replace(all_good(), created=bad)
    for fmt in MACHINE_FORMATS:
        assert document.read(render(odd, fmt).encode(), "it").created == "/opt/\\udcff\\udcfe"
    assert "\udcff" in HOSTILE


def test_missing_is_written_with_its_reason():
    plain = document.to_builtins(all_good())
    assert plain["facts"]["packages"]["sglang"] == {"kind": "missing", "reason": "not installed"}
    assert isinstance(all_good().facts.packages["sglang"], Missing)
