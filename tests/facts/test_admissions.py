"""Which GPUs FlashInfer's source lets a call through for: from real wheels, and from sources of every form."""

import time

import pytest
from flashinfer_wheels import VERSIONS

from fi_doctor.facts.admissions import CAPABILITIES, Admissions
from fi_doctor.facts.symbols import Symbols

BLACKWELL = (100, 101, 103, 107)
BLACKWELLS = (*BLACKWELL, 120, 121)
CUTLASS = (89, 90, 100, 103, 110, 120, 121)
F = "flashinfer"
# By version, read by hand: the place, and the capabilities that come past it. None: no such name; (): nothing certain.
KNOWN = {
    # Majors, four calls down: core.py -> get_trtllm_moe_sm100_module -> jit/fused_moe.py.
    f"{F}.fused_moe.trtllm_fp8_block_scale_moe": (
        ("jit/fused_moe.py:215", BLACKWELL), ("jit/fused_moe.py:233", BLACKWELL),
        ("jit/fused_moe.py:278", BLACKWELLS), ("jit/fused_moe.py:386", BLACKWELLS),
    ),
    f"{F}.fused_moe.trtllm_bf16_moe": (
        None, ("jit/fused_moe.py:233", BLACKWELL),
        ("jit/fused_moe.py:278", BLACKWELLS), ("jit/fused_moe.py:386", BLACKWELLS),
    ),
    # A chain of `if backend in ("120", "121")` on an f-string of the capability; in 0.7.2 a branch before may return.
    f"{F}.fused_moe.cutlass_fused_moe": (
        ("fused_moe/core.py:290", CUTLASS), ("fused_moe/core.py:328", CUTLASS), ("fused_moe/core.py:209", CUTLASS), (),
    ),
    # `if device_arch != "90": raise`, behind an argument.
    f"{F}.fused_moe.cutlass_fused_moe(use_deepseek_fp8_block_scale=True)": (
        ("fused_moe/core.py:794", (90,)), ("fused_moe/core.py:851", (90,)), ("fused_moe/core.py:752", (90,)), (),
    ),
    # A list on the function itself.
    f"{F}.fused_moe.cute_dsl_fused_moe_nvfp4": (
        None, None, ("fused_moe/cute_dsl/fused_moe.py:683", (100, 103)),
        ("fused_moe/cute_dsl/fused_moe.py:1863", (100, 103, 107)),
    ),
    f"{F}.fused_moe.b12x_fused_moe": (None, None, None, ("fused_moe/cute_dsl/b12x_moe.py:113", (120, 121))),
    # @backend_requirement with one list a backend.
    f"{F}.mm_fp4": (
        ("gemm.py:1854", (100, 103, 110, 120, 121)), ("gemm/gemm_base.py:1838", (100, 103, 110, 120, 121)),
        ("gemm/gemm_base.py:4803", (100, 103, 110, 120, 121)),
        ("gemm/gemm_base.py:9524", (100, 103, 107, 110, 120, 121)),
    ),
    f"{F}.bmm_fp8": (
        (), ("gemm/gemm_base.py:2086", CUTLASS), ("gemm/gemm_base.py:5053", CUTLASS),
        ("gemm/gemm_base.py:9924", (89, 90, 100, 103, 107, 110, 120, 121)),
    ),
    # @backend_requirement without backends: the list of its common check.
    f"{F}.gdn_prefill.chunk_gated_delta_rule": (None, None, ("gdn_prefill.py:178", (90, 100, 103, 110)), ()),
    # `get_compute_capability(...)[0] not in [9, 10, 12]`.
    f"{F}.decode.xqa_batch_decode_with_kv_cache": tuple(
        (f"xqa.py:{line}", (90, *BLACKWELLS)) for line in (249, 267, 317, 403)
    ),
    # `not is_sm90a_supported(...)`, which also asks for a CUDA version.
    f"{F}.gemm.fp8_blockscale_gemm_sm90": (
        None, None, ("gemm/gemm_base.py:6448", (90,)), ("gemm/gemm_base.py:12025", (90,)),
    ),
    f"{F}.norm.rmsnorm": ((), (), (), ()),
    f"{F}.mamba.selective_state_update": (None, None, (), ()),
}  # fmt: skip


@pytest.mark.wheels
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("call", KNOWN)
def test_the_source_of_a_real_wheel_says_which_gpus_it_admits(call, version, unpacked):
    root = unpacked(version)
    symbols = Symbols(root, version)
    found = Admissions(root, symbols).of(call)
    told = KNOWN[call][VERSIONS.index(version)]
    if not told:
        assert found == ()
        assert isinstance(symbols.where(call.partition("(")[0]), str) is (told is not None)
        return
    assert [(one.source, one.admits) for one in found] == [told]
    assert set(found[0].refuses) == set(CAPABILITIES) - set(told[1])


@pytest.fixture
def read(tmp_path):
    """What turns GPUs away from pkg.f (or another call) of a package with this source and utils.py."""

    def of(source, call="pkg.f", **others):
        root = tmp_path / "pkg"
        root.mkdir(exist_ok=True)
        (root / "__init__.py").write_text("from .a import *\n")
        (root / "a.py").write_text(source)
        (root / "utils.py").write_text(UTILS)
        for name, text in others.items():
            (root / f"{name}.py").write_text(text)
        return [(one.source, one.admits) for one in Admissions(root, Symbols(root, "pkg")).of(call)]

    return of


UTILS = """
def get_compute_capability(device):
    return torch.cuda.get_device_capability(device)


def is_sm90a_supported(device):
    major, _ = get_compute_capability(device)
    return major == 9 and version_at_least(torch.version.cuda, "12.3")
"""
HEAD = "from .utils import get_compute_capability, is_sm90a_supported\n\n\ndef f(x, *, backend='auto'):\n"
NINES = (90,)
NINE = "get_compute_capability(x)[0] != 9"
CERTAIN = {  # the line with the comment is where it is refused
    "major": ["if get_compute_capability(x.device)[0] != 9:", "    raise ValueError  # here"],
    "both": ["m, n = get_compute_capability(x)", "if (m, n) != (9, 0):", "    raise ValueError  # here"],
    "range": ["m, _ = get_compute_capability(x)", "if m < 9 or m >= 10:", "    raise ValueError  # here"],
    "chain": ["m, _ = get_compute_capability(x)", "if not 9 <= m < 10:", "    raise ValueError  # here"],
    "text": ["a, b = get_compute_capability(x)", "if f'{a * 10 + b}' not in ('90',):", "    raise ValueError  # here"],
    "helper": ["if not is_sm90a_supported(x.device):", "    raise ValueError  # here"],
    "or": ["if x.ok() or not is_sm90a_supported(x.device):", "    raise ValueError  # here"],
    "assert": ["assert torch.cuda.get_device_capability(x.device) == (9, 0)  # here"],
    "else": [
        "if is_sm90a_supported(x) or get_compute_capability(x)[0] == 9:",
        "    y = 1",
        "else:",
        "    raise V  # here",
    ],
    "a-branch-before": ["if x is None:", "    x = 1", f"if {NINE}:", "    raise ValueError  # here"],
    "with": ["with torch.cuda.device(x):", f"    if {NINE}:", "        raise ValueError  # here"],
    "finally": ["try:", f"    if {NINE}:", "        raise ValueError  # here", "finally:", "    pass"],
    "majors": ["return ctx.get_nvcc_flags_list(supported_major_versions=[9])  # here"],
    "either": [f"y = 1 if {NINE} else 2", "if y == 1:", "    raise ValueError  # here"],
}


@pytest.mark.parametrize("form", CERTAIN)
def test_every_form_that_is_certain_is_read_with_its_line(read, form):
    line = HEAD.count("\n") + 1 + next(at for at, text in enumerate(CERTAIN[form]) if "# here" in text)
    assert read(HEAD + body(CERTAIN[form])) == [(f"a.py:{line}", NINES)]


MAJORS = "ctx.get_nvcc_flags_list(supported_major_versions=[9])"
UNCERTAIN = {
    "an-argument": [f"if backend == 'x' and {NINE}:", "    raise ValueError"],
    "behind-a-return": ["if backend == 'x':", "    return 1", f"if {NINE}:", "    raise ValueError"],
    "caught": ["try:", f"    if {NINE}:", "        raise ValueError", "except ValueError:", "    pass"],
    "suppressed": ["with contextlib.suppress(ValueError):", f"    if {NINE}:", "        raise ValueError"],
    "in-a-loop": ["for y in x:", f"    if {NINE}:", "        raise ValueError"],
    "reassigned": [f"m = {NINE}", "if x.ok():", "    m = False", "if m:", "    raise ValueError"],
    "a-list-that-grows": ["y = [9]", "y.append(10)", f"if 10 not in y and {NINE}:", "    raise ValueError"],
    "not-called": ["def g():", f"    if {NINE}:", "        raise ValueError", "return g"],
    "a-lambda": [f"return lambda: {MAJORS}"],
    "a-second-part": [f"return x.ok() and {MAJORS}"],
    "a-choice": [f"return {MAJORS} if x.ok() else 1"],
    "majors-that-are-computed": ["return ctx.get_nvcc_flags_list(supported_major_versions=majors())"],
    "no-majors": ["return ctx.get_nvcc_flags_list(supported_major_versions=None)"],
    "a-generator": [f"if {NINE}:", "    raise ValueError", "yield 1"],
    "every-gpu": ["raise NotImplementedError"],
    "another-source": ["if capabilities[x] != 9:", "    raise ValueError"],
}


@pytest.mark.parametrize("form", UNCERTAIN)
def test_what_is_not_certain_is_not_guessed(read, form):
    assert read(HEAD + body(UNCERTAIN[form])) == []


def body(lines):
    return "".join(f"    {line}\n" for line in lines)


def test_a_named_argument_decides_the_branch_it_is_for(read):
    source = HEAD + body([f"if backend == 'x' and {NINE}:", "    raise ValueError"])
    assert read(source, "pkg.f(backend='x')") == [("a.py:6", NINES)]
    assert read(source, "pkg.f(backend='y')") == []


CALLED = """import functools

from .utils import get_compute_capability


@functools.cache
def make(arch, n, *, other='80'):
    here = '%d' if other == '90' else get_compute_capability(0)
    if other != '80' or arch != '90' or here != (9, 0):
        raise ValueError
"""


def test_calls_are_followed_with_what_they_are_given_and_through_imports_inside_functions(read):
    source = "def f(x):\n    from .b import make as build\n    return build('90', 3).run(x)\n"
    assert read(source, b=CALLED) == [("b.py:10", NINES)]


def test_a_constant_of_the_module_and_a_copy_of_it_are_read(read):
    source = "SUPPORTED = (9, 10)\n\n\ndef f():\n"
    source += "    return c.get_nvcc_flags_list(supported_major_versions=list(SUPPORTED))\n"
    assert read(source) == [("a.py:5", (90, 100, 101, 103, 107))]


LISTS = '''from .utils import supported_compute_capability, backend_requirement


@supported_compute_capability([80, 90])
def _cudnn(*args, **kwargs):
    """A text
that comes to column 0."""
    return True


@supported_compute_capability(
    [
        90,  # Hopper
        100,
    ]
)
def _cutlass(*args, **kwargs):
    return True


def _bare(*args):
    return True


@backend_requirement(
    {
        "cudnn": _cudnn,
        "cutlass": _cutlass,
    }
)
@flashinfer_api
def f(x, backend):
    return x


@backend_requirement({}, common_check=_cutlass)
def g(x):
    return x


@backend_requirement({"bare": _bare, "cudnn": _cudnn})
def h(x):
    return x


@supported_compute_capability([120, 121])
def i(x):
    return x


@some_decorator
@supported_compute_capability(OTHER)
def j(x):
    return x


def k(x):
    return i(x)


def m(x):
    return g(x)


class N:
    def __init__(self, x):
        g(x)

    @supported_compute_capability([100])
    def run(self):
        return 1
'''


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("pkg.f", [("a.py:25", (80, 90, 100))]),
        ("pkg.g", [("a.py:11", (90, 100))]),
        ("pkg.h", []),
        ("pkg.i", [("a.py:46", (120, 121))]),
        ("pkg.j", []),
        ("pkg.k", []),
        ("pkg.m", [("a.py:11", (90, 100))]),
        ("pkg.N", [("a.py:11", (90, 100))]),
        ("pkg.N.run", [("a.py:69", (100,))]),
        ("pkg.absent", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lists_are_read_where_a_call_is_held_against_them_or_the_name_itself_is_declared(read, call, told):
    assert read(LISTS, call) == told


def test_a_function_that_is_defined_twice_or_calls_itself_is_left_alone(read):
    one, two = "    def f(x):\n        raise ValueError\n", f"    def f(x):\n        if {NINE}:\n            raise V\n"
    assert read(f"if torch.ok:\n{one}else:\n{two}") == []
    assert read("def f(x):\n    return f(x)\n") == []


HOSTILE = {
    "calls-that-multiply": "def f(x=1):\n    return " + " or ".join(f"f(x * {n} + 1)" for n in range(2, 40)) + "\n",
    "deep": "def f(x):\n    return " + "not " * 900 + "x\n",
    "deeper": "def f(x):\n    return " + "(" * 300 + "x" + ")" * 300 + "\n",
    "a-long-number": "def f(x):\n    y = 0x" + "f" * 9000 + "\n    return f'{y}'\n",
    "an-endless-loop": "def f(x):\n    while True:\n        pass\n",
    "no-python": "def f(x):\n    return (\n",
    "control-characters": "def f(x):\n    \x0c\x00return 1\n",
}


@pytest.mark.parametrize("form", HOSTILE)
def test_a_source_that_is_no_good_takes_no_time_and_says_nothing(read, form):
    begun = time.process_time()
    assert read(HOSTILE[form]) == []
    assert time.process_time() - begun < 5
