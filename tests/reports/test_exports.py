"""The settings alone: each form is what its reader takes, and nothing in it is obeyed that is only said."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess

import pytest
import yaml
from msgspec.structs import replace

from fi_doctor.knowledge import examples
from fi_doctor.model import ActionKind, Recommendation
from fi_doctor.reports import document, exports, render

REPORT = document.read(examples.data("h200"), "an example")
SET, FLAG, RUN, NOTE = ActionKind.SET, ActionKind.FLAG, ActionKind.RUN, ActionKind.NOTE


def export(form, *given, optional=False):
    asked = tuple(
        Recommendation(**{"why": "a reason", "findings": ("a-finding",), "kind": kind, "line": line, **rest})
        for kind, line, rest in given
    )
    return exports.export(replace(REPORT, recommendations=asked), form, optional=optional)


def variables_of_shell(text):
    """What bash has after it took the text, beside what it had."""
    script = f"{text}\n/usr/bin/env -0"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env={"OLD": "1"})
    assert done.stderr == ""
    return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)


HOSTILE = "/a b/$(touch /tmp/obeyed)`id`'\"\\#;&|é"


def test_a_shell_takes_each_variable_as_it_is():
    lines = [
        (SET, "export A=1 B='two words'", {}),
        (SET, "unset OLD; export C=/x", {}),
        (SET, "export D='/a b/#;&|é'", {}),
    ]
    found = variables_of_shell(export("shell", *lines).text)
    assert {name: found.get(name) for name in "ABCD"} == {"A": "1", "B": "two words", "C": "/x", "D": "/a b/#;&|é"}
    assert "OLD" not in found


@pytest.mark.parametrize(
    "line",
    [
        f"export A={shlex.quote(HOSTILE)}",
        "export A=$HOME",
        "export A=/path/that/can/be/written",
        "export A=1 && rm -rf /tmp/nothing",
        "export A",
        "rm -rf /tmp/nothing",
        "export A='open",
    ],
)
@pytest.mark.parametrize("form", ["shell", "dotenv", "docker", "k8s"])
def test_what_is_more_than_a_variable_is_a_comment(form, line):
    text = export(form, (SET, line, {})).text
    assert all(part.startswith("#") for part in text.splitlines())
    assert "choose, then set: " in text


@pytest.mark.parametrize("form", ["shell", "dotenv", "docker", "k8s"])
def test_reasons_and_lines_never_end_their_comment(form):
    given = [
        (RUN, "a\nrm -rf /tmp/nothing", {"why": "x\r\nrm -rf /tmp/nothing"}),
        (NOTE, "b", {"findings": ("c\nd",)}),
        (FLAG, "a sentence\nof two lines", {}),
    ]
    text = export(form, *given).text
    assert all(part.startswith("#") for part in text.splitlines())


def test_a_dockerfile():
    text = export("docker", (SET, "unset OLD; export A='two \"words\"' B=1", {})).text
    assert text.splitlines()[1:] == ["# OLD is to be left unset", 'ENV A="two \\"words\\""', 'ENV B="1"']


def test_an_env_file():
    text = export("dotenv", (SET, "export A=/x B='two words'", {})).text
    assert text.splitlines()[1:] == ["A=/x", "# B cannot be said in this form: 'two words'"]


@pytest.mark.parametrize(
    ("value", "forms"),
    [
        ("/a\nRUN x", "shell k8s"),
        ("/a\rRUN x", "k8s"),
        ("/a\tb", "shell k8s"),
        ("/a\x1b[31m", "k8s"),
        ("/a\0", ""),
        ("/a\u202eb", "k8s"),
        ("/a\U0001f600\x1b", ""),
        ("/a\udcff", ""),
        ("/a\U0001f600é", "shell dotenv docker k8s"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("form", ["shell", "dotenv", "docker", "k8s"])
def test_what_a_form_cannot_hold_is_left_out_and_told(form, value, forms):
    done = export(form, (SET, f"export A={shlex.quote(value)}", {}))
    if form in forms.split():
        assert (done.told, "cannot be said" in done.text) == ((), False)
        if form == "shell":
            assert variables_of_shell(done.text)["A"] == value
        elif form == "k8s":
            assert yaml.safe_load(done.text) == {"env": [{"name": "A", "value": value}]}
    else:
        assert all(part.lstrip().startswith("#") and part.isprintable() for part in done.text.splitlines())
        assert len(done.text.splitlines()) == 2
        [told] = done.told
        assert told.startswith("not set: A cannot be said in this form: '/a")
        assert told.isprintable()


def test_what_a_person_has_to_choose_is_told():
    done = export("shell", (SET, "export A=$HOME", {}), (RUN, "fi-doctor warm", {}), (SET, "unset OLD", {}))
    assert done.told == ("not set: choose, then set: export A=$HOME",)


def test_only_a_name_can_be_left_unset():
    text = export("docker", (SET, "unset 'A\nRUN x'", {})).text
    assert all(line.startswith("#") for line in text.splitlines())


def test_the_fields_of_a_container():
    given = [
        (SET, "export A=1 B='on: {}'", {}),
        (FLAG, "--attention-backend FLASHINFER", {}),
        (RUN, "fi-doctor warm", {}),
    ]
    found = yaml.safe_load(export("k8s", *given).text)
    assert found == {
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "on: {}"}],
        "args": ["--attention-backend", "FLASHINFER"],
    }


def words_of_a_shell(text):
    """What `vllm serve MODEL $(fi-doctor env --format vllm-args)` gives the program."""
    script = """for word in $(cat); do printf '%s\\0' "$word"; done"""
    done = subprocess.run(["sh", "-c", script], input=text, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--x", '{"a b": "* ?"}'], ["--x", {"a b": "* ?"}]),
        (["--x", "it's"], ["--x", "it's"]),
        (["--x", "two words"], None),
        (["--x", "{no json"], None),
        (["--x", "*"], None),
        (["--x", "\x1b"], None),
    ],
)
def test_what_a_shell_would_split_is_no_word(words, given):
    done = export("vllm-args", (FLAG, shlex.join(words), {}))
    found = words_of_a_shell(done.text)
    assert [json.loads(word) if word.startswith("{") else word for word in found] == (given or [])
    told = any(line.startswith("not among the words") for line in done.told)
    assert told == (given is None)
    assert all(line.isprintable() for line in done.told)


def test_words_of_a_command_line_stand_alone_and_their_reasons_beside():
    line = """--compilation-config '{"custom_ops": ["+rotary_embedding"]}'"""
    done = export("vllm-args", (FLAG, line, {"holds": "vllm >=0.14"}), (SET, "export A=1", {}))
    assert words_of_a_shell(done.text) == ["--compilation-config", '{"custom_ops":["+rotary_embedding"]}']
    assert "  " + line in done.told  # to be copied
    assert any("a reason [a-finding] (vllm >=0.14)" in told for told in done.told)
    other = export("sglang-args", (FLAG, line, {"holds": "vllm >=0.14"}))
    assert (other.text, other.told) == ("", ("nothing to add to the command line of SGLang",))


def test_json_has_them_apart():
    text = export("json", (SET, "export A=1", {}), (FLAG, "--x y", {}), (RUN, "fi-doctor warm", {})).text
    first, second, third = json.loads(text)
    assert (first["variables"], first["why"], first["findings"]) == ({"A": "1"}, "a reason", ["a-finding"])
    assert second["arguments"] == ["--x", "y"]
    assert third["line"] == "fi-doctor warm"


def test_what_is_to_be_pasted_is_never_cut():
    line = "pip install " + " ".join(f"package-{number}==1.0" for number in range(200))
    asked = Recommendation(kind=ActionKind.INSTALL, line=line, why="a reason", findings=())
    assert f"install: {line}\n" in exports.export(replace(REPORT, recommendations=(asked,)), "shell").text
    assert f"  {line}\n" in render(replace(REPORT, recommendations=(asked,)), "console", width=80)


def test_what_is_optional_is_asked_for():
    line = (SET, "export A=1", {"optional": True})
    assert export("shell", line).text == ""
    assert export("shell", line, optional=True).text.splitlines()[0].startswith("# optional: a reason")


@pytest.mark.parametrize("name", examples.names())
@pytest.mark.parametrize("form", exports.FORMS)
def test_every_recorded_machine_can_be_said(name, form):
    report = document.read(examples.data(name), "an example")
    done = exports.export(report, form, optional=True)
    if form == "shell":
        subprocess.run(["bash", "-euc", done.text], check=True, env={})
    elif form == "k8s":
        found = yaml.safe_load(done.text) or {}
        assert set(found) <= {"env", "args"}
    elif form in ("dotenv", "docker"):
        pattern = {"dotenv": r"#.*|\w+=\S*", "docker": r'#.*|ENV \w+="[^"]*"'}[form]
        assert all(re.fullmatch(pattern, line) for line in done.text.splitlines())
    elif form == "vllm-args":
        assert not any(line.startswith("#") for line in done.text.splitlines())


@pytest.mark.skipif(shutil.which("dash") is None, reason="no dash")
def test_a_plain_shell_takes_it_too():
    text = export("shell", (SET, "export A='x y'", {})).text
    done = subprocess.run(["dash", "-c", f'{text}\nprintf %s "$A"'], capture_output=True, text=True, check=True, env={})
    assert done.stdout == "x y"
