"""How vLLM calls FlashInfer, on packages of a few lines: each way of calling, and each way of not fitting."""

from __future__ import annotations

import textwrap

import factory as make
import pytest

from fi_doctor.facts import calls
from fi_doctor.facts.symbols import QUICK, WHOLE
from fi_doctor.model import Calls, MisfitKind, Missing

FLASHINFER = {
    "__init__.py": """
        from .norm import rmsnorm as rmsnorm
        from .decode import Wrapper as Wrapper
        from .kinds import Kind as Kind
        """,
    "_build_meta.py": '__version__ = "0.9.0"\n',
    "norm.py": '''
        from .utils import flashinfer_api, odd, keeps

        @flashinfer_api
        def rmsnorm(x, weight, eps: float = 1e-6, *, out=None):
            """rmsnorm(anything, goes, in, a, text)"""

        def anything(x, **kwargs): ...

        @odd
        def decorated(x): ...

        @keeps(
            limit=(1, 2),
        )
        def kept(x): ...

        renamed = rmsnorm
        SIZE = 3
        ''',
    "utils.py": """
        import functools

        def flashinfer_api(function): return function

        def odd(function): return lambda: function

        def keeps(limit):
            def decorate(function):
                @functools.wraps(function)
                def wrapper(*args, **kwargs):
                    return function(*args, **kwargs)
                return wrapper
            return decorate
        """,
    "decode.py": '''
        from dataclasses import dataclass
        from typing import overload

        class Base:
            def begin(self, x): ...

        class Wrapper(Base):
            """A wrapper.

        def plan(self): is not defined here.
            """

            def __init__(self, workspace, layout="NHD"):
                self._left = -1

            @overload
            def run(self, q): ...
            @overload
            def run(self, q, *, lse): ...
            def run(self, q, *, lse=None, out=None): ...

            @staticmethod
            def fixed(x): ...

            @property
            def size(self): ...

        class Foreign(SomethingElse):
            pass

        @dataclass
        class Plan:
            rows: int
            columns: int = 1

        def make() -> "Wrapper": ...
        def measure() -> torch.Tensor: ...
        def untold(): ...
        ''',
    "kinds.py": """
        import enum

        class Kind(enum.IntEnum):
            ONE = 1
        """,
}


@pytest.fixture
def told(tmp_path):
    write(tmp_path / "flashinfer", FLASHINFER)

    def tell(text: str, **files: str) -> Calls:
        write(
            tmp_path / "vllm",
            {"model.py": text, **{name.replace("__", "/") + ".py": file for name, file in files.items()}},
        )
        found = calls.bind(tmp_path / "vllm", tmp_path / "flashinfer", "flashinfer 0.9.0")
        assert isinstance(found, Calls)
        return found

    return tell


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))


def said(found: Calls) -> list[str]:
    return [f"{one.kind.name} {one.text}" for one in found.misfits]


MISFITS = {
    "missing-import": ("from flashinfer import nothing", "MISSING_NAME flashinfer 0.9.0 has no flashinfer.nothing"),
    "missing-module": ("import flashinfer.nothing", "MISSING_NAME flashinfer 0.9.0 has no flashinfer.nothing"),
    "import-module": (
        "import importlib\nimportlib.import_module('flashinfer.gone')",
        "MISSING_NAME flashinfer 0.9.0 has no flashinfer.gone",
    ),
    "from-importlib": ("from importlib import import_module\nm = import_module('.gone', 'flashinfer')", "MISSING_NAME"),
    "by-package": ("import importlib as i\ni.import_module('.gone', package='flashinfer')", "MISSING_NAME"),
    "built-in-import": ("__import__('flashinfer.gone')", "MISSING_NAME flashinfer 0.9.0 has no flashinfer.gone"),
    "gives-the-package": ("__import__('flashinfer.norm').rmsnorm(1)", "MISSING_ARGUMENT"),
    "gives-the-module": ("__import__('flashinfer.norm', fromlist=['rmsnorm']).kept(1, 2)", "TOO_MANY"),
    "imported-and-called": ("m = importlib.import_module('flashinfer.norm')\nm.rmsnorm(1)", "MISSING_ARGUMENT"),
    "caught-too-late": (
        "try:\n    x()\nexcept ImportError:\n    importlib.import_module('flashinfer.gone')",
        "MISSING_NAME",
    ),
    "catches-another": (
        "try:\n    importlib.import_module('flashinfer.gone')\nexcept KeyError:\n    pass",
        "MISSING_NAME",
    ),
    "spec-of-another": (
        "if find_spec('flashinfer.norm'):\n    importlib.import_module('flashinfer.gone')",
        "MISSING_NAME",
    ),
    "missing-attribute": ("import flashinfer\nx = flashinfer.norm.SIZES", "MISSING_NAME"),
    "missing-member": ("from flashinfer import Kind\nx = Kind.TWO", "MISSING_NAME flashinfer 0.9.0 has no Kind.TWO"),
    "missing-method": (
        "from flashinfer import Wrapper\nWrapper(w).plan(1)",
        "MISSING_NAME flashinfer 0.9.0 has no Wrapper.plan",
    ),
    "keyword": (
        "import flashinfer\nflashinfer.rmsnorm(x, w, epsilon=1)",
        "UNKNOWN_KEYWORD unexpected keyword argument 'epsilon'",
    ),
    "too-many": (
        "import flashinfer\nflashinfer.rmsnorm(x, w, e, o)",
        "TOO_MANY too many positional arguments: 4, and it takes 3",
    ),
    "twice": ("import flashinfer\nflashinfer.rmsnorm(x, w, x=1)", "TOO_MANY multiple values for argument 'x'"),
    "missing-argument": (
        "import flashinfer\nflashinfer.rmsnorm(x)",
        "MISSING_ARGUMENT missing a required argument: 'weight'",
    ),
    "in-a-function": ("def f():\n    from flashinfer.norm import rmsnorm as g\n    return g(1, 2, 3, 4)", "TOO_MANY"),
    "constructor": (
        "import flashinfer\nflashinfer.Wrapper(w, kv_layout=1)",
        "UNKNOWN_KEYWORD unexpected keyword argument 'kv_layout'",
    ),
    "dataclass": (
        "from flashinfer.decode import Plan\nPlan(columns=2)",
        "MISSING_ARGUMENT missing a required argument: 'rows'",
    ),
    "method": ("from flashinfer import Wrapper\nw = Wrapper(1)\nw.run(q, sinks=1)", "UNKNOWN_KEYWORD"),
    "inherited-method": (
        "from flashinfer import Wrapper\nWrapper(1).begin()",
        "MISSING_ARGUMENT missing a required argument: 'x'",
    ),
    "method-of-the-class": (
        "from flashinfer import Wrapper\nWrapper.run()",
        "MISSING_ARGUMENT missing a required argument: 'self', 'q'",
    ),
    "static-method": ("from flashinfer import Wrapper\nWrapper.fixed(1, 2)", "TOO_MANY"),
    "another-name": ("from flashinfer.norm import renamed\nrenamed(1)", "MISSING_ARGUMENT"),
    "kept-by-its-decorator": ("from flashinfer.norm import kept\nkept(1, 2)", "TOO_MANY"),
    "what-a-function-gives": ("from flashinfer.decode import make\nmake().run()", "MISSING_ARGUMENT"),
    "partial": (
        "from functools import partial\nfrom flashinfer import rmsnorm\nf = partial(rmsnorm, eps=1, gemma=True)",
        "UNKNOWN_KEYWORD",
    ),
    "partial-called": (
        "from functools import partial\nfrom flashinfer import rmsnorm\nf = partial(rmsnorm, 1)\nf()",
        "MISSING_ARGUMENT",
    ),
    "one-of-two": ("import flashinfer\nf = flashinfer.rmsnorm if a else flashinfer.norm.kept\nf()", "MISSING_ARGUMENT"),
    "lazily": ('f = lazy_import("flashinfer.norm", "layernorm")\nf(1)', "MISSING_LAZILY"),
    "unknown-keyword-beside-**": ("import flashinfer\nflashinfer.rmsnorm(x, epsilon=1, **more)", "UNKNOWN_KEYWORD"),
    "after-the-test": ("import flashinfer\nif hasattr(flashinfer, 'a'):\n    pass\nflashinfer.a()", "MISSING_NAME"),
    "other-branch": (
        "import flashinfer\nif hasattr(flashinfer, 'a'):\n    pass\nelse:\n    flashinfer.a()",
        "MISSING_NAME",
    ),
    "handed-to-a-function": ("import flashinfer\ndef f(g):\n    g(1)\nf(flashinfer.rmsnorm)", "MISSING_ARGUMENT"),
}


@pytest.mark.parametrize(("text", "expected"), MISFITS.values(), ids=MISFITS.keys())
def test_what_does_not_fit_is_told(told, text, expected):
    found = said(told(text))
    assert len(set(found)) == 1
    assert found[0].startswith(expected)


def test_both_sides_are_named(told):
    [misfit] = told("import flashinfer\n\nflashinfer.rmsnorm(x)\n").misfits
    assert (misfit.caller, misfit.callee, misfit.name) == ("model.py:3", "norm.py:4", "flashinfer.rmsnorm")


FITS = {
    "plain": "import flashinfer\nflashinfer.norm.rmsnorm(x, w, 1e-5, out=y)",
    "by-name": "import flashinfer.norm as n\nn.rmsnorm(weight=w, x=x)",
    "overloads": "from flashinfer import Wrapper\nWrapper(1).run(q, lse=1, out=2)",
    "enum": "from flashinfer import Kind\nx = Kind.ONE.value",
    "guarded-import": "try:\n    from flashinfer import nothing\nexcept ImportError:\n    nothing = None",
    "suppressed": "import contextlib\nwith contextlib.suppress(ImportError):\n    from flashinfer import nothing",
    "tried-call": "try:\n    m = importlib.import_module('flashinfer.a')\nexcept ImportError:\n    m = 0\nm.f()",
    "suppressed-call": "with suppress(ImportError):\n    f(import_module('flashinfer.nothing'))",
    "own-importer": "def import_module(name): ...\nimport_module('flashinfer.nothing')",
    "spec": "if find_spec('flashinfer.a'):\n    m = importlib.import_module('flashinfer.a')\n    m.f()",
    "spec-is": "if x and util.find_spec('flashinfer.a') is not None:\n    import flashinfer.a",
    "no-spec": "def f():\n    if find_spec('flashinfer.a') is None:\n        return\n    from flashinfer.a import b",
    "hasattr": "import flashinfer\nif hasattr(flashinfer, 'a') and x:\n    flashinfer.a(1)",
    "left-without": "import flashinfer as f\ndef g():\n    if not hasattr(f, 'a'):\n        return\n    f.a(1)",
    "getattr": "import flashinfer\nf = getattr(flashinfer, 'a', None)",
    "asked-for-first": 'f = lazy_import("flashinfer.norm", "a")\nok = hasattr(get("flashinfer.norm"), "a")\nf(1)',
    "pairs": 'NEEDED = [("flashinfer.norm", "a")]\nf = lazy_import("flashinfer.norm", "a")\nf(1)',
    "all-of-them": 'f = lazy_import("flashinfer.b", "a")\nm = g("flashinfer.b")\nall(hasattr(m, n) for n in ("a",))',
    "tensor": "from flashinfer.decode import measure\nmeasure().reshape(1, 2, 3)",
    "of-another-object": "import flashinfer\nclass A:\n    def run(self):\n        self.norm.rmsnorm(1, 2, 3, 4, 5)",
    "shadowed": "from flashinfer import rmsnorm\ndef f(rmsnorm):\n    rmsnorm(1, 2, 3, 4, 5)",
    "backend-names": 'register("flashinfer", "cutlass")\nassert x in ("flashinfer", "cutlass")\nimport flashinfer',
    "python's-own": "from flashinfer import Wrapper\nx = Wrapper.__name__",
    "type-checking": "if TYPE_CHECKING:\n    from flashinfer import a\ndef f(x: 'a'): ...",
    "typing's": "if typing.TYPE_CHECKING and x:\n    import flashinfer.nothing\n    flashinfer.rmsnorm(1)",
    "not-type-checking": "if not TYPE_CHECKING:\n    import flashinfer\nelse:\n    from flashinfer import nothing",
    "false": "if False:\n    from flashinfer import nothing as n\n    n.a(1)\nwhile 0:\n    import flashinfer.nothing",
    "true": "import flashinfer\nif True:\n    f = 1\nelse:\n    flashinfer.rmsnorm(1)",
    "never": "import flashinfer\nf = 1 if True else flashinfer.rmsnorm(1)\ng = False and flashinfer.rmsnorm(1)",
    "never-bound": "from flashinfer import rmsnorm\nf = rmsnorm if False else mine\nf(1)",
    "not-at-runtime": "if TYPE_CHECKING:\n    from flashinfer import rmsnorm as f\nelse:\n    f = mine\nf(1)",
    "narrowed": "from flashinfer import Wrapper\nw = Wrapper(1) if a else b()\nif isinstance(w, B):\n    w.plan(1)",
}


@pytest.mark.parametrize("text", FITS.values(), ids=FITS.keys())
def test_what_fits_or_is_done_without_is_no_misfit(told, text):
    found = told(text)
    assert said(found) == []
    assert [one.why for one in found.unbound] == []


HANDED_ON = {
    "**": ("rmsnorm(x, w, **{'eps': 1, 'epsilon': 2})", "UNKNOWN_KEYWORD unexpected keyword argument 'epsilon'"),
    "nested": ("rmsnorm(x, w, **{'eps': 1, **{'epsilon': 2}})", "UNKNOWN_KEYWORD"),
    "dict": ("rmsnorm(x, w, **dict(eps=1, epsilon=2))", "UNKNOWN_KEYWORD"),
    "*": ("rmsnorm(*[x, w], *(e, o))", "TOO_MANY too many positional arguments: 4, and it takes 3"),
    "too-few": ("rmsnorm(*(x,), **{'eps': 1})", "MISSING_ARGUMENT missing a required argument: 'weight'"),
    "twice": ("rmsnorm(x, w, eps=1, **{'eps': 1})", "TOO_MANY multiple values for keyword argument 'eps'"),
    "by-a-name": ("k = {'epsilon': 1}\n    rmsnorm(x, w, **k)", "UNKNOWN_KEYWORD"),
    "by-a-name-twice": ("k: dict = dict(eps=1)\n    rmsnorm(x, w, **k)\n    rmsnorm(x, **k)", "MISSING_ARGUMENT"),
    "list-by-a-name": ("a = [x, w, e, o]\n    rmsnorm(*a)", "TOO_MANY"),
    "partial": ("partial(rmsnorm, *(x, w, e, o))", "TOO_MANY"),
}


@pytest.mark.parametrize(("text", "expected"), HANDED_ON.values(), ids=HANDED_ON.keys())
def test_what_a_literal_hands_on_is_bound_as_if_written(told, text, expected):
    found = told(f"from flashinfer import rmsnorm\ndef f(x):\n    {text}")
    assert [one[: len(expected)] for one in said(found)] == [expected]
    assert not any("cannot be seen" in one.why for one in found.unbound)


@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm(*[x, w], **{'eps': 1})",
        "rmsnorm(**{'x': 1, 'weight': 2, 'x': 3})",
        "k = {'eps': 1}\n    rmsnorm(x, w, **k)",
    ],
)
def test_what_a_literal_hands_on_may_fit(told, text):
    found = told(f"from flashinfer import rmsnorm\ndef f(x):\n    {text}")
    assert (found.misfits, found.unbound) == ((), ())


@pytest.mark.parametrize(
    "text",
    [
        "k = {'epsilon': 1}\n    k.pop('epsilon')\n    rmsnorm(x, w, **k)",
        "k = {'epsilon': 1}\n    if x:\n        k = {}\n    rmsnorm(x, w, **k)",
        "k = {'epsilon': 1}\n    del k['epsilon']\n    rmsnorm(x, w, **k)",
        "k = {'epsilon': 1}\n    mine(k)\n    rmsnorm(x, w, **k)",
        "k = l = {'epsilon': 1}\n    l.clear()\n    rmsnorm(x, w, **k)",
        "for k in x:\n        rmsnorm(x, w, **k)\n    k = {'epsilon': 1}",
        "k = {'epsilon': 1}\n    def g(k):\n        rmsnorm(x, w, **k)",
        "def g():\n        k = {'epsilon': 1}\n    rmsnorm(x, w, **k)",
        "k = {'epsilon': 1}\n    h = lambda: k.clear()\n    rmsnorm(x, w, **k)",
        "global k\n    k = {'epsilon': 1}\n    rmsnorm(x, w, **k)",
        "import k\n    rmsnorm(x, w, **k)\n    k = {'epsilon': 1}",
        "*a, b = x\n    a = [x, w, e, o]\n    rmsnorm(*a)",
        "rmsnorm(x, w, **{name: 1})",
        "rmsnorm(x, w, **dict(x))",
        "rmsnorm(*{x, w, e, o})",
    ],
)
def test_what_is_not_sure_to_be_handed_on_is_not_told(told, text):
    found = told(f"from flashinfer import rmsnorm\ndef f(x):\n    {text}")
    assert found.misfits == ()
    assert "hands on what cannot be seen" in found.unbound[0].why


def test_a_name_at_the_top_of_a_file_may_be_changed_by_others(told):
    found = told(
        "from flashinfer import rmsnorm\nk = {'epsilon': 1}\ndef f(x):\n    rmsnorm(x, w, **k)\nrmsnorm(x, **k)"
    )
    assert said(found) == []


UNBOUND = {
    "**": ("import flashinfer\nflashinfer.rmsnorm(x, **more)", "** in the call hands on"),
    "*": ("import flashinfer\nflashinfer.rmsnorm(*all)", "* in the call hands on"),
    "taken-by-**": (
        "import flashinfer\nflashinfer.norm.anything(1, y=2)",
        "FlashInfer takes by ** what it does not name there: y",
    ),
    "computed": ("import flashinfer\nf = getattr(flashinfer, name)", "the name is computed"),
    "decorator": ("import flashinfer\nflashinfer.norm.decorated(1, 2)", "@odd may change what it takes"),
    "foreign-base": ("from flashinfer.decode import Foreign\nForeign(1).run(2)", "which Foreign inherits"),
    "untold": ("from flashinfer.decode import untold\nuntold().run()", "does not say what it gives"),
    "handed-on": ("import flashinfer\nregister(flashinfer.rmsnorm)", "it is handed on, and called elsewhere"),
    "may-be-another": ("import flashinfer\nf = flashinfer.rmsnorm if a else mine\nf(1)", "it may be something else"),
    "tried": (
        "import flashinfer\ntry:\n    flashinfer.rmsnorm(1)\nexcept TypeError:\n    pass",
        "a TypeError of it is caught",
    ),
    "of-a-value": (
        "from flashinfer import Wrapper\nWrapper(1)._left.plan(1)",
        "it cannot be looked up: what it is a member of is not known",
    ),
}


@pytest.mark.parametrize(("text", "why"), UNBOUND.values(), ids=UNBOUND.keys())
def test_what_cannot_be_told_is_named_and_never_fits(told, text, why):
    found = told(text)
    assert said(found) == []
    assert any(why in one.why for one in found.unbound)


WRAPPERS = {
    "attribute": "class A:\n    def f(self):\n        self.w.run()\n    def g(self):\n        self.w = Wrapper(1)",
    "optional": "class A:\n    w: Wrapper | None = None\n    def f(self):\n        self.w.run()",
    "quoted": "class A:\n    w: 'Optional[Wrapper]'\n    def f(self, other: 'A'):\n        other.w.run()",
    "dict": "class A:\n    def f(self):\n        self.ws: dict[int, Wrapper] = {}\n        self.ws[1].run()",
    "list": "class A:\n def f(self):\n  self.w = []\n  self.w.append(Wrapper(1))\n  self.w[0].run()",
    "got": "class A:\n    ws: dict[int, Wrapper]\n    def f(self):\n        w = self.ws.get(1)\n        w.run()",
    "loop": "def f(ws: list[Wrapper]):\n    for w in ws:\n        w.run()",
    "argument": "def f(w: Wrapper):\n    w.run()",
    "returned": "def make():\n    w = Wrapper(1)\n    return w\ndef f():\n    make().run()",
    "declared": "class A:\n    def w(self) -> Wrapper: ...\n    def f(self):\n        v = self.w()\n        v.run()",
    "property": "class A:\n    @property\n    def w(self) -> Wrapper: ...\n    def f(self):\n        self.w.run()",
    "inherited": "class B(A):\n    def f(self):\n        self.w.run()\nclass A:\n    w: Wrapper",
    "set-by-an-heir": "class A:\n    def f(self):\n        self.w.run()\nclass B(A):\n    w: Wrapper",
    "of-a-mixin": "class A:\n    def f(self):\n        self.w.run()\nclass B:\n    w: Wrapper\nclass C(A, B): ...",
    "of-an-object": "class A:\n    w: Wrapper\ndef f():\n    A().w.run()",
    "passed": "class A:\n    def __init__(self, w):\n        self.w = w\n        self.w.run()\na = Wrapper(1)\nA(a)",
    "called-object": "class A:\n    def __call__(self) -> Wrapper: ...\na = A()\na().run()",
    "asserted": "def f(w):\n    assert isinstance(w, Wrapper)\n    w.run()",
    "tested": "def f(w):\n    if isinstance(w, Mine):\n        pass\n    elif isinstance(w, Wrapper):\n        w.run()",
    "declared-by": "if TYPE_CHECKING:\n    import flashinfer as fi\ndef f(w: 'fi.Wrapper'):\n    w.run()",
    "cast": "def f(w):\n    v = cast(Wrapper, w)\n    v.run()",
}


@pytest.mark.parametrize("text", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_a_wrapper_is_followed_to_where_its_method_is_called(told, text):
    found = told(f"from flashinfer import Wrapper\n{text}")
    assert said(found) == ["MISSING_ARGUMENT missing a required argument: 'q'"]
    assert list(found.calls)[-1] == "flashinfer.Wrapper().run"


OTHERS = {
    "attribute": "class B:\n    def __init__(self):\n        self.w = mine\n    def f(self):\n        self.w.run()",
    "unread-base": "class B(Mine):\n    def f(self):\n        self.w.run()",
    "sibling": "class B(Base):\n    def f(self):\n        self.w.run()",
    "method": "class B:\n    def make(self):\n        return mine\n    def f(self):\n        self.make().run()",
    "function": "def make(): ...\nmake().run()",
    "argument": "class B:\n    def take(self, w):\n        w.run()\n    def f(self):\n        self.take(mine)",
    "of-an-object": "def f(b: B):\n    b.w.run()\nclass B:\n    w: Mine",
    "hidden-by-a-method": "class B(A):\n    def make(self): ...\n    def f(self):\n        self.make().run()",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS.keys())
def test_what_one_class_holds_is_not_taken_for_that_of_another(told, text):
    first = """
        from flashinfer import Wrapper
        class Base: ...
        class A(Base):
            def __init__(self):
                self.w = self.make()
                self.take(self.w)
            def make(self):
                return Wrapper(1)
            def take(self, w):
                w.run(q)
        """
    found = told(f"{textwrap.dedent(first)}{text}")
    assert found.calls["flashinfer.Wrapper().run"] == ("model.py:10",)
    assert (found.misfits, found.unbound) == ((), ())


def test_a_member_of_what_is_not_known_may_be_that_of_a_class(told):
    found = told("from flashinfer import Wrapper\nclass A:\n    w: Wrapper\ndef f(other):\n    other.w.run()")
    assert said(found) == []
    assert [one.why for one in found.unbound] == [
        "it may be something else: missing a required argument: 'q'",
    ]


def test_a_class_of_another_file_is_inherited(told):
    other = "import flashinfer\nclass A:\n    def __init__(self):\n        self.w = flashinfer.Wrapper(1)\n"
    text = "from vllm.other import A\nimport flashinfer\nclass B(A):\n    def f(self):\n        self.w.run()"
    assert [one.caller for one in told(text, other=other).misfits] == ["model.py:5"]


def test_what_vllm_puts_into_an_object_itself_is_not_missing(told):
    found = told(
        "from flashinfer import Wrapper\nw = Wrapper(1)\nif w.seen:\n    w.begin(1, 2, 3)\nw.seen = w.begin = f"
    )
    assert said(found) == []
    [one] = found.unbound
    assert (one.name, one.why[:27]) == ("flashinfer.Wrapper().begin", "it may be something else: t")
    assert found.wanting == {}


def test_a_wrapper_that_holds_wrappers_is_no_wrapper(told):
    found = told("from flashinfer import Wrapper\nws: dict[int, Wrapper] = {}\nws.get(1)\nws.items()\nws.run()")
    assert said(found) == []


def test_names_of_another_file_are_followed(told):
    wrappers = 'f = _lazy_import_wrapper("flashinfer.norm", "rmsnorm")\n'
    by_name = told("from vllm.utils.flashinfer import f as g\ng(1)", utils__flashinfer=wrappers)
    by_module = told("from vllm.utils import flashinfer as fi\nfi.f(1)", utils__flashinfer=wrappers)
    assert [one.caller for one in (*by_name.misfits, *by_module.misfits)] == ["model.py:2", "model.py:2"]


THROUGH = {
    "one-name": "from flashinfer.norm import rmsnorm as norm\n",
    "several": "from flashinfer.norm import (\n    anything,\n    rmsnorm as norm,  # that\n)\n",
    "where-it-is-there": "try:\n    from flashinfer.norm import rmsnorm as norm\nexcept ValueError:\n    raise\n",
}


@pytest.mark.parametrize("taken", THROUGH.values(), ids=THROUGH)
def test_a_name_that_is_taken_through_another_file_is_followed(told, taken):
    found = told("from vllm.ops.x import norm\nnorm(1, 2, bogus=1)", ops__x=taken, ops__y="from vllm.ops.x import z\n")
    assert said(found) == ["UNKNOWN_KEYWORD unexpected keyword argument 'bogus'"]
    assert found.files == 2  # and not y, which takes none of it


def test_an_import_of_several_modules_is_one_of_flashinfer(told):
    found = told("import functools, flashinfer\np = functools.partial(flashinfer.norm.rmsnorm, bogus=1)")
    assert said(found) == ["UNKNOWN_KEYWORD unexpected keyword argument 'bogus'"]


def test_files_that_import_one_another_are_read(told):
    other = "from vllm.utils.flashinfer import f\nimport flashinfer\ng = flashinfer.rmsnorm\n"
    found = told(
        "from vllm.other import g\nimport flashinfer\ng(1)", other=other, utils__flashinfer="from vllm.other import g"
    )
    assert len(found.misfits) == 1


def test_what_is_called_is_told_with_its_places(told):
    found = told("import flashinfer\nflashinfer.rmsnorm(1, 2)\nflashinfer.norm.rmsnorm(1, 2)\n")
    assert found.calls == {"flashinfer.norm.rmsnorm": ("model.py:3",), "flashinfer.rmsnorm": ("model.py:2",)}
    assert found.places == {"flashinfer.norm.rmsnorm": "norm.py:4", "flashinfer.rmsnorm": "norm.py:4"}


def test_what_is_done_without_is_told(told):
    found = told("import flashinfer\nf = getattr(flashinfer, 'newer', None)")
    assert found.wanting == {"flashinfer.newer": "model.py:2"}


def test_a_call_into_a_file_with_an_error_inside_a_function_does_not_fit(told, tmp_path):
    norm = tmp_path / "flashinfer" / "norm.py"
    text = "import flashinfer\nflashinfer.rmsnorm(1, 2)\n"
    assert told(text).unbound == ()
    norm.write_text(f"{norm.read_text()}\ndef broken():\n    return (\n")
    found = told(text)
    assert found.fitting == 1  # the import
    assert "norm.py cannot be parsed by Python" in found.unbound[0].why
    norm.write_text(f"{norm.read_text()}\n{'# long' * QUICK}")
    assert told(text).unbound == ()
    whole = calls.bind(tmp_path / "vllm", tmp_path / "flashinfer", "flashinfer 0.9.0", whole=WHOLE)
    assert "norm.py cannot be parsed by Python" in whole.unbound[0].why


def test_a_file_that_is_no_python_is_named(told):
    assert list(told("import flashinfer\ndef (:\n").unread) == ["model.py"]


def test_a_file_without_flashinfer_is_not_read(told):
    assert told("def (:\n'about flashinfer'\n").files == 0


@pytest.mark.parametrize("gone", ["vllm", "flashinfer"])
def test_without_one_of_the_two_there_is_a_reason(tmp_path, gone):
    write(tmp_path / "flashinfer", FLASHINFER)
    write(tmp_path / "vllm", {"__init__.py": ""})
    modules = {name: str(tmp_path / name / "__init__.py") for name in ("vllm", "flashinfer")}
    found = calls.read_calls(make.survey(**{**modules, gone: Missing(reason=f"no {gone} here")}))
    assert found == Missing(reason=f"no {gone} here")


def test_each_kind_of_misfit_is_shown_above():
    shown = {expected.split(" ")[0] for _, expected in MISFITS.values()}
    assert shown == {kind.name for kind in MisfitKind}
