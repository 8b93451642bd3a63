"""Names that look like FlashInfer's, where the file binds them to something else, and what stands below a question."""

from __future__ import annotations

import textwrap

import pytest
from test_calls import said, told

__all__ = ["told"]  # the fixture

TAKEN = "from flashinfer.norm import rmsnorm\n"

ELSE = {
    "comprehension": "[rmsnorm(bogus=1) for rmsnorm in []]",
    "comprehension-of-what-is-not-known": "[rmsnorm(bogus=1) for rmsnorm in ops()]",
    "comprehension-of-pairs": "{a: rmsnorm(bogus=1) for a, rmsnorm in ops()}",
    "comprehension-that-is-kept": "held = [rmsnorm for rmsnorm in ops()]\nheld[0](bogus=1)",
    "generator-in-a-call": "any(rmsnorm(bogus=1) for rmsnorm in ops())",
    "lambda": "f = lambda rmsnorm: rmsnorm(bogus=1)",
    "lambda-star": "f = lambda *rmsnorm: rmsnorm(bogus=1)",
    "walrus": "def f(g):\n    if (rmsnorm := g):\n        rmsnorm(bogus=1)",
    "walrus-in-a-comprehension": "def f(g):\n    [rmsnorm := one for one in g]\n    rmsnorm(bogus=1)",
    "except": "def f():\n    try:\n        g()\n    except ValueError as rmsnorm:\n        rmsnorm(bogus=1)",
    "pattern-in-a-mapping": "def f(x):\n    match x:\n        case {'a': rmsnorm}:\n            rmsnorm(bogus=1)",
    "pattern-star": "def f(x):\n    match x:\n        case [*rmsnorm]:\n            rmsnorm(bogus=1)",
    "pattern-rest": "def f(x):\n    match x:\n        case {**rmsnorm}:\n            rmsnorm(bogus=1)",
    "pattern-as": "def f(x):\n    match x:\n        case int() as rmsnorm:\n            rmsnorm(bogus=1)",
    "starred-target": "def f(x):\n    a, *rmsnorm = x\n    rmsnorm(bogus=1)",
    "augmented": "def f(g):\n    rmsnorm += g\n    rmsnorm(bogus=1)",
    "class-body": "class A:\n    rmsnorm = g\n    rmsnorm(bogus=1)",
    "class-body-annotated": "class A:\n    rmsnorm: object = g\n    rmsnorm(bogus=1)",
    "global": "def f():\n    global rmsnorm\n    rmsnorm = g\nrmsnorm(bogus=1)",
    "nonlocal": (
        "def f():\n    from flashinfer.norm import rmsnorm\n    def h():\n        nonlocal rmsnorm\n"
        "        rmsnorm = g\n    h()\n    rmsnorm(bogus=1)"
    ),
    "star-import": "from x import *\nrmsnorm(bogus=1)",
    "deleted": "del rmsnorm\nrmsnorm(bogus=1)",
}


@pytest.mark.parametrize("text", ELSE.values(), ids=ELSE)
def test_a_name_that_is_bound_to_something_else_is_not_taken_for_flashinfers(told, text):
    assert not said(told(TAKEN + text))


SAME = {
    "class-body": "class A:\n    rmsnorm(bogus=1)",
    "method-past-the-class": "class A:\n    rmsnorm = g\n    def f(self): rmsnorm(bogus=1)",
    "comprehension": "[rmsnorm(bogus=1) for one in ops()]",
    "comprehension-through-them": "[one(bogus=1) for one in [rmsnorm]]",
    "after-a-comprehension": "[rmsnorm for rmsnorm in ops()]\nrmsnorm(bogus=1)",
    "lambda": "f = lambda x: rmsnorm(bogus=1)",
    "another-function": "def f(g):\n    rmsnorm = g\ndef h(): rmsnorm(bogus=1)",
    "global-that-is-set-to-it": "norm = None\ndef f():\n    global norm\n    norm = rmsnorm\ndef h(): norm(bogus=1)",
    "decorator": "@rmsnorm(1, 2, bogus=1)\ndef f(): ...",
    "decorator-of-a-class": "@rmsnorm(1, 2, bogus=1)\nclass A: ...",
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_a_name_that_is_flashinfers_still_is(told, text):
    assert said(told(TAKEN + textwrap.dedent(text))) == ["UNKNOWN_KEYWORD unexpected keyword argument 'bogus'"]


def test_a_bare_decorator_is_called_with_what_it_decorates(told):
    assert said(told(f"{TAKEN}@rmsnorm\ndef f(): ...")) == ["MISSING_ARGUMENT missing a required argument: 'weight'"]


CALL = "flashinfer.norm.rmsnorm(1, 2, bogus=1)"
GUARDED = {
    "hasattr-and": "hasattr(flashinfer, 'nothing') and flashinfer.nothing()",
    "not-hasattr-or": "not hasattr(flashinfer, 'nothing') or flashinfer.nothing()",
    "hasattr-if-else": "x = flashinfer.nothing() if hasattr(flashinfer, 'nothing') else None",
    "hasattr-in-a-comprehension": "[flashinfer.nothing() for _ in y if hasattr(flashinfer, 'nothing')]",
    "held-where-it-is-there": "f = flashinfer.nothing if hasattr(flashinfer, 'nothing') else None\nf()",
    "held-by-a-block": "f = None\nif hasattr(flashinfer, 'nothing'):\n    f = flashinfer.nothing\nf()",
    "held-or-caught": "try:\n    f = flashinfer.nothing\nexcept AttributeError:\n    f = None\nf()",
    "attribute-error": "try:\n    flashinfer.nothing\nexcept AttributeError:\n    pass",
    "attribute-error-suppressed": "with contextlib.suppress(AttributeError):\n    flashinfer.nothing",
    "after-return": f"def f():\n    return 1\n    {CALL}",
    "after-raise": f"def f():\n    raise ValueError\n    {CALL}",
    "after-continue": f"for x in y:\n    continue\n    {CALL}",
    "version": f"if Version(flashinfer.__version__) < Version('0.5'):\n    {CALL}",
    "version-else": f"if Version(flashinfer.__version__) > Version('0.5'):\n    pass\nelse:\n    {CALL}",
    "version-left-early": f"def f():\n    if flashinfer.__version__ > '0.5':\n        return\n    {CALL}",
    "version-of-the-distribution": f"if version('flashinfer-python') < '0.5':\n    {CALL}",
    "version-in-a-variable": f"old = Version(flashinfer.__version__) < Version('0.5')\nif old:\n    {CALL}",
    "version-by-a-function": f"def is_old():\n    return flashinfer.__version__ < '0.5'\nif is_old():\n    {CALL}",
    "version-around-a-def": f"if flashinfer.__version__ < '0.5':\n    def f():\n        {CALL}",
    "version-and": f"flashinfer.__version__ < '0.5' and {CALL}",
    "signature": f"if 'bogus' in inspect.signature(flashinfer.norm.rmsnorm).parameters:\n    {CALL}",
    "below-hasattr-of-what-is-gone": f"if hasattr(flashinfer, 'nothing'):\n    {CALL}",
    "below-hasattr-of-what-is-there": f"if hasattr(flashinfer, 'rmsnorm'):\n    pass\nelse:\n    {CALL}",
}


@pytest.mark.parametrize("text", GUARDED.values(), ids=GUARDED)
def test_what_a_guard_may_keep_from_being_run_is_no_misfit(told, text):
    assert not said(told(f"import flashinfer\n{text}"))


UNGUARDED = {
    "another-version": f"if torch.__version__ < '2':\n    {CALL}",
    "after-the-guard": f"if flashinfer.__version__ < '0.5':\n    pass\n{CALL}",
    "beside-the-guard": f"(flashinfer.__version__ < '0.5' and f(), {CALL})",
    "below-hasattr-of-what-is-there": f"if hasattr(flashinfer, 'rmsnorm'):\n    {CALL}",
    "before-return": f"def f():\n    {CALL}\n    return 1",
    "returned": f"def f():\n    return {CALL}",
    "after-a-return-in-a-branch": f"def f(x):\n    if x:\n        return\n    {CALL}",
    "attribute-error": f"try:\n    {CALL}\nexcept AttributeError:\n    pass",
    "as-default": f"def f(x={CALL}): ...",
}


@pytest.mark.parametrize("text", UNGUARDED.values(), ids=UNGUARDED)
def test_what_no_guard_is_about_is_a_misfit(told, text):
    assert said(told(f"import flashinfer\n{text}")) == ["UNKNOWN_KEYWORD unexpected keyword argument 'bogus'"]


def test_an_attribute_is_not_forgiven_by_an_error_of_imports(told):
    found = told("import flashinfer\ntry:\n    flashinfer.nothing()\nexcept ImportError:\n    pass")
    assert said(found) == ["MISSING_NAME flashinfer 0.9.0 has no flashinfer.nothing (__init__.py read)"]
