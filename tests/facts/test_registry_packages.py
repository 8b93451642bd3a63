"""The variables that FlashInfer's modules read for themselves, and SGLang's arguments in their three shapes."""

import pytest
from test_registry import written

from fi_doctor.facts.registry import read_registry
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse

FLASHINFER = """
import os
import pathlib

_NAME = "FLASHINFER_NAMED"
ORDER = os.environ.get("FLASHINFER_ORDER", "a b")

def env_bool(name: str, default: bool = False) -> bool:
    value = os.environ.get(name, "1" if default else "0")
    value = value.lower()
    return value in ("1", "true")

def env_text(name, default="auto"):
    return os.getenv(name, default).lower() == "on"

def read():
    a = os.environ.get("FLASHINFER_EQUALS", "0") == "1"
    b = os.environ.get(_NAME)
    if b == "fast":
        pass
    c = pathlib.Path(os.getenv("FLASHINFER_DIR", "/tmp"))
    if "FLASHINFER_LIST" in os.environ:
        for word in os.environ["FLASHINFER_LIST"].split(" "):
            pass
    d = not os.getenv("FLASHINFER_CHECK")
    e = env_bool("FLASHINFER_HELPED")
    f = env_text("FLASHINFER_TOLD", "ON")
    g = int(os.environ.get("FLASHINFER_LEVEL", "0")) < 1
    h = env_text(f"FLASHINFER_{a}")
    return shlex.split(os.environ.get("FLASHINFER_FLAGS", ""))

def local():
    env_name = "FLASHINFER_LOCAL"
    value = os.environ.get(env_name)
    for word in ("FLASHINFER_ONE", "FLASHINFER_TWO"):
        int(os.environ[word])
    return {"FLASHINFER_MENTIONED": value}

def unrelated():
    return 1
"""


@pytest.fixture
def variables(tmp_path):
    root = written(
        tmp_path / "flashinfer", {"__init__.py": "\n", "env.py": FLASHINFER, "data/x.py": "getenv('FLASHINFER_X')\n"}
    )
    return read_registry(root, "flashinfer-python", "0.6").settings


@pytest.mark.parametrize(
    ("name", "parse", "choices", "default"),
    [
        ("FLASHINFER_EQUALS", Parse.EQUALS, ("1",), False),
        ("FLASHINFER_NAMED", Parse.EQUALS, ("fast",), False),
        ("FLASHINFER_DIR", Parse.PATH, (), "/tmp"),
        ("FLASHINFER_LIST", Parse.LIST, (), None),
        ("FLASHINFER_HELPED", Parse.BOOL_WORDS, ("1", "true"), Missing(reason="computed: '1' if default else '0'")),
        ("FLASHINFER_TOLD", Parse.BOOL_WORDS, ("on",), True),
        ("FLASHINFER_ORDER", Parse.TEXT, (), "a b"),
    ],
)
def test_a_variable_that_a_module_reads(variables, name, parse, choices, default):
    one = variables[name]
    assert (one.parse, one.choices, one.default) == (parse, choices, default)
    assert one.read_in == ("env.py",)


def test_a_variable_of_which_more_is_made_says_so(variables):
    assert variables["FLASHINFER_CHECK"].through == "not os.getenv('FLASHINFER_CHECK')"
    assert (variables["FLASHINFER_LEVEL"].parse, bool(variables["FLASHINFER_LEVEL"].through)) == (Parse.INT, True)
    assert variables["FLASHINFER_FLAGS"].parse is Parse.UNKNOWN


def test_a_variable_whose_name_a_function_holds_is_read(variables):
    assert variables["FLASHINFER_ONE"].parse is variables["FLASHINFER_TWO"].parse is Parse.INT
    assert variables["FLASHINFER_LOCAL"].read_in == ("env.py",)


def test_a_variable_that_is_only_named_is_not_understood(variables):
    one = variables["FLASHINFER_MENTIONED"]
    assert (one.parse, one.through, one.read_in) == (Parse.UNKNOWN, "it is only named", ("env.py",))


def test_a_variable_is_asked_for_where_it_is_only_looked_up(variables):
    assert variables["FLASHINFER_LIST"].asks_if_set
    assert not variables["FLASHINFER_EQUALS"].asks_if_set


def test_names_that_are_put_together_and_sources_to_compile_are_no_variables(variables):
    assert {name for name in variables if not name.startswith("FLASHINFER_")} == set()
    assert "FLASHINFER_X" not in variables


def test_two_modules_that_read_a_variable_otherwise_make_it_unknown(tmp_path):
    one, other = (
        "import os\nx = os.getenv('FLASHINFER_X') == '1'\n",
        "import os\nx = os.getenv('FLASHINFER_X') != '0'\n",
    )
    root = written(tmp_path / "flashinfer", {"__init__.py": "\n", "a.py": one, "b.py": other})
    found = read_registry(root, "flashinfer-python", "0.6").settings["FLASHINFER_X"]
    assert (found.parse, found.read_in) == (Parse.UNKNOWN, ("a.py", "b.py"))
    assert found.through == "a.py:2 and b.py:2 differ"


def test_a_module_that_is_no_python_is_told_and_the_others_are_read(tmp_path):
    texts = {
        "__init__.py": "\n",
        "a.py": "getenv(\n",
        "b.py": "import os\nx = os.getenv('FLASHINFER_X')\n",
        "c.py": b"",
    }
    found = read_registry(written(tmp_path / "flashinfer", texts), "flashinfer-python", "0.6")
    assert set(found.unreadable) == {"a.py"}
    assert set(found.settings) == {"FLASHINFER_X"}


OLD = """
CHOICES = ["triton", "flashinfer"]

@dataclasses.dataclass
class ServerArgs:
    attention_backend: Optional[str] = None
    level: int = 3

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--attention-backend", type=str, choices=CHOICES, default=ServerArgs.attention_backend)
        parser.add_argument("--level", type=int, default=ServerArgs.level)
        parser.add_argument("--disable-cuda-graph", action="store_true")
        parser.add_argument("--old", action=DeprecatedAction)
        parser.add_argument("--fp8-backend", dest="fp8_runner_backend", default=ServerArgs.level)
"""
FIELDS = """
from sglang.srt.arg_groups.choices import CHOICES

class Kernel(msgspec.Struct):
    attention_backend: A[Optional[str], Arg(help="x", choices=CHOICES)] = None
    size: A[int, "help"] = 1 << 4
    eager: A[bool, "help"] = False
    tf32: A[Optional[bool], Arg(help="x", action=argparse.BooleanOptionalAction)] = None
    mode: A[Literal["a", "b"], Arg(help="x", cli_name="--kernel-mode", aliases=["--km"])] = "a"
    names: A[List[str], Arg(help="x")] = None
    inner: A[str, Arg(help="x", no_cli=True)] = ""
    derived: A[int, Derived(doc="x")] = 1
    plain: int = 0
"""
ENVIRON = """
class Envs:
    SGLANG_BOOL = EnvBool(True)
    SGLANG_INT = EnvInt(384 * 1024)
    SGLANG_STR = EnvStr(None)
    SGLANG_NEW = EnvBoolWithAlias(False, deprecated_name="SGLANG_OLD")
    SGLANG_MADE = EnvStr(lambda: home())
envs = Envs()
"""


def test_sglang_with_arguments_that_are_added_one_by_one(tmp_path):
    texts = {"__init__.py": "\n", "srt/server_args.py": OLD}
    found = read_registry(written(tmp_path / "sglang", texts), "sglang", "0.5.1").settings
    assert found["--attention-backend"].choices == ("triton", "flashinfer")
    assert (found["--level"].parse, found["--level"].default) == (Parse.INT, 3)
    assert (found["--disable-cuda-graph"].parse, found["--disable-cuda-graph"].default) == (Parse.FLAG, False)
    assert found["--old"].parse is Parse.UNKNOWN
    assert found["--fp8-backend"].sets == "ServerArgs.fp8_runner_backend"  # the name under which it is read


def test_sglang_with_arguments_that_are_fields(tmp_path):
    texts = {
        "__init__.py": "\n",
        "srt/server_args.py": "class ServerArgs:\n    pass\n",
        "srt/arg_groups/choices.py": 'CHOICES = ["triton", "flashinfer"]\n',
        "srt/arg_groups/fields/exec_.py": FIELDS,
    }
    found = read_registry(written(tmp_path / "sglang", texts), "sglang", "0.5.23").settings
    told = {name: (one.parse, one.choices, one.default) for name, one in found.items()}
    assert told == {
        "--attention-backend": (Parse.CHOICE, ("triton", "flashinfer"), None),
        "--size": (Parse.INT, (), 16),
        "--eager": (Parse.FLAG, (), False),
        "--tf32": (Parse.FLAG, (), None),
        "--kernel-mode": (Parse.CHOICE, ("a", "b"), "a"),
        "--names": (Parse.TEXT, (), None),
    }
    assert found["--kernel-mode"].aliases == ("--km",)
    assert found["--tf32"].negations == ("--no-tf32",)


def test_sglang_with_variables_that_have_a_table(tmp_path):
    texts = {
        "__init__.py": "\n",
        "srt/server_args.py": OLD,
        "srt/environ.py": ENVIRON,
        "srt/a.py": "from sglang.srt.environ import envs\nif envs.SGLANG_BOOL.get():\n    pass\n",
    }
    found = read_registry(written(tmp_path / "sglang", texts), "sglang", "0.5.9").settings
    assert (found["SGLANG_BOOL"].parse, found["SGLANG_BOOL"].default) == (Parse.BOOL_WORDS, True)
    assert found["SGLANG_BOOL"].read_in == ("srt/a.py",)
    assert (found["SGLANG_INT"].default, found["SGLANG_STR"].default) == (393216, None)
    assert found["SGLANG_NEW"].aliases == ("SGLANG_OLD",)
    assert found["SGLANG_INT"].is_dead
    assert isinstance(found["SGLANG_MADE"].default, Missing)
