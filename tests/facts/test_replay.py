"""The closed interpreter: what it follows it follows as Python does, and it reaches nothing else."""

import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from fi_doctor.facts.replay import Replay, Unreplayable


def replay(body, **world):
    text = "LIMIT = 3\ndef rule(a):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return Replay(text, world)


def outcome(function, *values):
    try:
        return function(*values)
    except (ValueError, IndexError) as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "body",
    [
        "x, y = a.split('.')\nreturn (int(x), y + 'a')",
        "return 'big' if len(a) > LIMIT else 'small'",
        "b = set()\nfor c in a.split('.'):\n    if c == '0':\n        continue\n    b.add(c)\nreturn sorted(b)",
        "return a or 'nothing'",
        "return a and not a.startswith('9')",
        "return f'<{a!r}> {len(a)}'",
        "try:\n    return int(a)\nexcept (KeyError, ValueError) as error:\n    return str(error)",
        "try:\n    n = int('1')\nexcept ValueError:\n    n = 2\nelse:\n    n = 3\nreturn n",
        "return a[-1].isalpha() and a[0] in ('9', 'h')",
        "return [a, 1] == [a, 1] and a is not None",
        "x: str = a\ny = z = -1\npass\nreturn (x, y, z)",
    ],
)
@pytest.mark.parametrize("value", ["9.0", "9.0a", "", "hopper", "12.1.3"])
def test_it_computes_what_python_computes(body, value):
    scope = {}
    exec("LIMIT = 3\ndef rule(a):\n" + textwrap.indent(body, "    "), scope)
    assert outcome(replay(body).call, "rule", value) == outcome(scope["rule"], value)


@pytest.mark.parametrize(
    "body",
    [
        "return open(a)",
        "return __import__('os')",
        "import subprocess\nreturn subprocess.run(a)",
        "from os import system\nreturn system(a)",
        "return a.__class__",
        "return a.format(a)",
        "return (lambda: 1)()",
        "return [x for x in a]",
        "while a:\n    pass",
        "with a:\n    pass",
        "del a",
        "global a",
        "return eval(a)",
        "return getattr(a, 'upper')",
        "return a ** 9",
        "return a * 1000000000",
        "try:\n    unknown()\nexcept Exception:\n    return 'swallowed'",
        "return rule(*a)",
        "return rule(b=1)",
        "a.b = 1",
        "raise KeyboardInterrupt",
    ],
)
def test_what_it_does_not_know_ends_it(body):
    with pytest.raises(Unreplayable):
        replay(body).call("rule", "9.0")


def test_what_is_modelled_can_be_imported_and_called():
    found = replay("from flashinfer.jit.cpp_ext import newer as n\nreturn n('12.9')", newer=lambda text: text == "12.9")
    assert found.call("rule", "") is True


def test_a_path_is_joined_and_nothing_else_is_done_with_it():
    assert replay("return base / 'cubins'", base=Path("/x")).call("rule", "") == Path("/x/cubins")
    with pytest.raises(Unreplayable):
        replay("return base.read_text()", base=Path("/x")).call("rule", "")


def test_the_line_of_a_raise_and_the_log_are_kept():
    body = "try:\n    raise RuntimeError('no')\nexcept RuntimeError as e:\n    logger.warning('%s: %s', a, e)\nreturn 1"
    found = replay(body)
    assert found.call("rule", "x") == 1
    assert (found.warnings, found.raised_at) == (["x: no"], 4)


def test_a_class_leaves_its_attributes():
    text = "class A:\n    @staticmethod\n    def f(x):\n        return x + 1\n"
    text += "    def __init__(self):\n        self.x = self.f(n)\n"
    assert Replay(text, {"n": 1}).construct("A").x == 2


def test_an_endless_loop_or_recursion_ends():
    with pytest.raises(Unreplayable, match="steps"):
        replay("for x in range(1000000000):\n    pass").call("rule", "")
    with pytest.raises(Unreplayable, match="deep"):
        replay("return rule(a)").call("rule", "")


def test_an_object_without_the_attribute_is_not_guessed():
    with pytest.raises(Unreplayable):
        replay("return thing.y", thing=SimpleNamespace(x=1)).call("rule", "")
