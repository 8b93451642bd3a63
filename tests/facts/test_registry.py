"""The settings that a package's source has, in each shape in which releases write them; nothing of it is run."""

import pytest

from fi_doctor.facts.registry import read_registry, with_readers
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse

ENVS = """
import os
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    VLLM_A: bool = False
    VLLM_CUBIN: bool = False

CHOICES = ["x", "y"]

def maybe_convert_bool(value):
    if value is None:
        return None
    return bool(int(value))

def maybe_json(value):
    if os.path.exists(value):
        return open(value).read()
    return json.loads(value)

def disable():
    return bool(int(os.getenv("VLLM_FUNCTION", "1")))

def env_with_choices(name, default, choices, case_sensitive=True): ...
def env_list_with_choices(name, default, choices, case_sensitive=True): ...

environment_variables = {
    "VLLM_A": lambda: bool(int(os.getenv("VLLM_A", "0"))),
    "VLLM_GUARDED": lambda: bool(int(os.environ["VLLM_GUARDED"])) if "VLLM_GUARDED" in os.environ else None,
    "VLLM_MAYBE": lambda: maybe_convert_bool(os.getenv("VLLM_MAYBE", None)),
    "VLLM_FUNCTION": disable,
    "VLLM_INT": lambda: int(os.getenv("VLLM_INT", str(394 * 1024 * 1024))),
    "VLLM_FLOAT": lambda: float(os.environ.get("VLLM_FLOAT", "10.")),
    "VLLM_WORDS": lambda: (os.environ.get("VLLM_WORDS", "False").strip().lower() in ("1", "true")),
    "VLLM_EQUALS": lambda: os.environ.get("VLLM_EQUALS", "1") == "1",
    "VLLM_DIFFERS": lambda: os.getenv("VLLM_DIFFERS", "0") != "0",
    "VLLM_CUBIN": lambda: os.getenv("VLLM_CUBIN", False),
    "VLLM_TRI": lambda: {"1": True, "0": False}.get(os.getenv("VLLM_TRI", "").strip()),
    "VLLM_CHOICE": env_with_choices("VLLM_CHOICE", "x", CHOICES),
    "VLLM_ANY_CASE": env_with_choices("VLLM_ANY_CASE", None, ["x"], case_sensitive=False),
    "VLLM_MEMBERS": env_with_choices(
        "VLLM_MEMBERS", None,
        lambda: list(__import__("vllm.backends", fromlist=["Backend"]).Backend.__members__.keys())),
    "VLLM_LIST_OF": env_list_with_choices("VLLM_LIST_OF", [], ["a", "b"]),
    "VLLM_LIST": lambda: [] if "VLLM_LIST" not in os.environ else os.environ["VLLM_LIST"].split(","),
    "VLLM_JSON": lambda: json.loads(os.getenv("VLLM_JSON", "{}")),
    "VLLM_JSON_OR_FILE": lambda: maybe_json(os.getenv("VLLM_JSON_OR_FILE")),
    "VLLM_PATH": lambda: os.path.expanduser(os.getenv("VLLM_PATH", os.path.join(home(), "x"))),
    "VLLM_TEXT": lambda: os.getenv("VLLM_TEXT", "auto"),
    "VLLM_OR": lambda: os.getenv("VLLM_OR", "").lower() or "13.0",
    "VLLM_MORE": lambda: val if (val := float(os.getenv("VLLM_MORE", "1"))) > 0 else 10.0,
    "VLLM_TWO": lambda: bool(int(os.getenv("VLLM_TWO", "0")) or int(os.getenv("VLLM_A", "0"))),
    "VLLM_FOREIGN": lambda: parsed(os.getenv("VLLM_FOREIGN", "0")),
    "VLLM_OLD": deprecated_env("VLLM_OLD", "v0.23", "Use --moe-backend " "x.",
        lambda: bool(int(os.getenv("VLLM_OLD", "0")))),
    "MAX_JOBS": lambda: os.getenv("MAX_JOBS", None),
}
"""
ARGUMENTS = """
import argparse
from vllm.config.kernel import PASSTHROUGH

def _compute_kwargs(cls):
    if contains_type(type_hints, int):
        human_readable_int_args = {"max_batched"}
    elif contains_type(type_hints, float):
        pass

class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        kernel_kwargs = get_kwargs(KernelConfig)
        group = parser.add_argument_group(title="KernelConfig")
        moe_backend_kwargs = kernel_kwargs["moe_backend"]
        moe_backend_kwargs["type"] = lambda s: s.lower().replace("-", "_")
        group.add_argument("--moe-backend", **moe_backend_kwargs)
        kernel_kwargs["all2all"]["choices"].remove(PASSTHROUGH)
        group.add_argument("--all2all", "-a2a", **kernel_kwargs["all2all"])
        group.add_argument("--attention-backend", **kernel_kwargs["backend"])
        group.add_argument("--enable-autotune", **kernel_kwargs["enable_autotune"])
        group.add_argument("--max-batched", **kernel_kwargs["max_batched"])
        group.add_argument("--splits", **{**kernel_kwargs["splits"], "default": None})
        group.add_argument("--sizes", **kernel_kwargs["sizes"])
        group.add_argument("--pass-config", "-pc", **kernel_kwargs["pass_config"])
        group.add_argument("--dtype", **kernel_kwargs["dtype"])
        group.add_argument("--version", **kernel_kwargs["version"])
        if not helping:
            parser.add_argument("--prefill", choices=["flashinfer", "triton"], default=None, help="x")
        parser.add_argument("--disable-log-stats", action="store_true", help="x")
        parser.add_argument("--fail", default=False, action=argparse.BooleanOptionalAction)
        parser.add_argument("--ids", type=lambda s: s.split(","), default=None)
        parser.add_argument("--rank", "-r", type=int)
        return parser

    def create_engine_config(self):
        config = KernelConfig(moe_backend=self.moe_backend, splits=self.splits)
        if self.fail:
            raise ValueError
"""
KERNEL = '''
from vllm.backends import Backend
from vllm.config.utils import config

MoEBackend = Literal["auto", "flashinfer_cutlass"]
More = Literal[MoEBackend, "triton"]
PASSTHROUGH = "passthrough"

@config
class PassConfig:
    fuse: bool = None

@config
class KernelConfig:
    """Kernels."""

    moe_backend: MoEBackend = "auto"
    """What runs MoE."""
    all2all: Literal["naive", "passthrough"] = "naive"
    backend: Backend | None = None
    enable_autotune: bool = Field(default=True)
    max_batched: int = 2 * 1024
    splits: int = 8
    sizes: list[int] | None = None
    pass_config: PassConfig = Field(default_factory=PassConfig)
    dtype: "More | str" = "auto"
    version: Literal[2, 3] | None = None
    per_layer: dict[str, Backend] = field(default_factory=dict)
    made: str = field(init=False)
    words: ClassVar[int] = 3
    _hidden: int = 0

    def compute_hash(self) -> str:
        """The text
of a doc may begin further left."""
        return "x"

    @field_validator("moe_backend", mode="before")
    @classmethod
    def _lower(cls, value):
        return value.lower().replace("-", "_")

    @field_validator("backend", mode="before")
    @classmethod
    def _named(cls, value):
        if isinstance(value, str):
            if value.lower() == "auto":
                return None
            return Backend[value.upper()]
        return value

    @field_validator("splits", mode="before")
    @classmethod
    def _other(cls, value):
        return len(value)
'''
BACKENDS = """
from enum import Enum, EnumMeta

class Backend(Enum, metaclass=EnumMeta):
    FLASHINFER = "vllm.flashinfer"
    FLASH_ATTN = "vllm.flash_attn"
    CUSTOM = None

    def get_path(self): ...
"""


def vllm(root, **files):
    texts = {
        "__init__.py": "\n",
        "envs.py": ENVS,
        "engine/arg_utils.py": ARGUMENTS,
        "config/kernel.py": KERNEL,
        "backends.py": BACKENDS,
    }
    return written(root / "vllm", texts | {name.replace("__", "/") + ".py": text for name, text in files.items()})


def written(root, texts):
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


@pytest.fixture
def settings(tmp_path):
    found = read_registry(vllm(tmp_path), "vllm", "1")
    assert found.unreadable == {}
    return found.settings


@pytest.mark.parametrize(
    ("name", "parse", "choices", "default"),
    [
        ("VLLM_A", Parse.BOOL_INT, (), False),
        ("VLLM_GUARDED", Parse.BOOL_INT, (), None),
        ("VLLM_MAYBE", Parse.BOOL_INT, (), None),
        ("VLLM_FUNCTION", Parse.BOOL_INT, (), True),
        ("VLLM_INT", Parse.INT, (), 413138944),
        ("VLLM_FLOAT", Parse.FLOAT, (), 10.0),
        ("VLLM_WORDS", Parse.BOOL_WORDS, ("1", "true"), False),
        ("VLLM_EQUALS", Parse.EQUALS, ("1",), True),
        ("VLLM_DIFFERS", Parse.DIFFERS, ("0",), False),
        ("VLLM_CUBIN", Parse.TRUTHY, (), False),
        ("VLLM_TRI", Parse.BOOL_WORDS, ("1",), None),
        ("VLLM_CHOICE", Parse.CHOICE, ("x", "y"), "x"),
        ("VLLM_ANY_CASE", Parse.CHOICE_ANY_CASE, ("x",), None),
        ("VLLM_MEMBERS", Parse.CHOICE, ("FLASHINFER", "FLASH_ATTN", "CUSTOM"), None),
        ("VLLM_LIST_OF", Parse.CHOICES_LIST, ("a", "b"), ()),
        ("VLLM_LIST", Parse.LIST, (), ()),
        ("VLLM_JSON", Parse.JSON, (), "{}"),
        ("VLLM_TEXT", Parse.TEXT, (), "auto"),
        ("VLLM_OR", Parse.TEXT, (), "13.0"),
        ("VLLM_OLD", Parse.BOOL_INT, (), False),
        ("MAX_JOBS", Parse.TEXT, (), None),
    ],
)
def test_the_table_of_variables(settings, name, parse, choices, default):
    one = settings[name]
    assert (one.kind, one.parse, one.choices, one.default) == ("env", parse, choices, default)
    assert one.through == ""


@pytest.mark.parametrize("name", ["VLLM_JSON_OR_FILE", "VLLM_FOREIGN"])
def test_a_variable_that_is_given_to_what_is_not_read_is_not_understood(settings, name):
    assert settings[name].parse is Parse.UNKNOWN


@pytest.mark.parametrize("name", ["VLLM_MORE", "VLLM_TWO", "VLLM_PATH"])
def test_a_default_that_is_computed_is_not_guessed(settings, name):
    assert isinstance(settings[name].default, Missing)


def test_a_variable_has_the_type_and_the_line_of_the_file(settings):
    line = ENVS.split("\n").index('    "VLLM_A": lambda: bool(int(os.getenv("VLLM_A", "0"))),') + 1
    assert (settings["VLLM_A"].type, settings["VLLM_A"].source) == ("bool", f"envs.py:{line}")


@pytest.mark.parametrize(
    ("name", "parse", "choices", "default"),
    [
        ("--moe-backend", Parse.CHOICE_DASHES, ("auto", "flashinfer_cutlass"), "auto"),
        ("--all2all", Parse.CHOICE, ("naive",), "naive"),
        ("--attention-backend", Parse.CHOICE_ANY_CASE, ("FLASHINFER", "FLASH_ATTN", "CUSTOM", "auto"), None),
        ("--enable-autotune", Parse.FLAG, (), True),
        ("--max-batched", Parse.SIZE, (), 2048),
        ("--splits", Parse.INT, (), None),
        ("--sizes", Parse.INT, (), None),
        ("--pass-config", Parse.JSON, (), Missing(reason="computed: PassConfig")),
        ("--dtype", Parse.TEXT, ("auto", "flashinfer_cutlass", "triton"), "auto"),
        ("--version", Parse.CHOICE, ("2", "3"), None),
        ("--prefill", Parse.CHOICE, ("flashinfer", "triton"), None),
        ("--disable-log-stats", Parse.FLAG, (), False),
        ("--fail", Parse.FLAG, (), False),
        ("--ids", Parse.UNKNOWN, (), None),
        ("--rank", Parse.INT, (), None),
    ],
)
def test_the_engine_arguments(settings, name, parse, choices, default):
    one = settings[name]
    assert (one.kind, one.parse, one.choices, one.default) == ("flag", parse, choices, default)


def test_a_flag_has_its_key_its_short_name_and_its_opposite(settings):
    assert settings["--all2all"].aliases == ("-a2a",)
    assert settings["--all2all"].sets == "KernelConfig.all2all"
    assert settings["--enable-autotune"].negations == ("--no-enable-autotune",)
    assert settings["--fail"].negations == ("--no-fail",)
    assert settings["--disable-log-stats"].negations == ()
    assert settings["--sizes"].several


def test_a_variable_that_is_on_its_way_out_says_what_is_set_instead(settings):
    assert settings["VLLM_OLD"].deprecated == "v0.23: Use --moe-backend x."
    assert settings["VLLM_A"].deprecated == ""


def test_the_releases_that_pair_enable_with_disable(tmp_path):
    root = vllm(tmp_path, utils__argparse_utils="class EnableDisableAction:\n    pass\n")
    found = read_registry(root, "vllm", "1").settings["--enable-autotune"]
    assert found.negations == ("--no-enable-autotune", "--disable-autotune")


@pytest.mark.parametrize(
    ("name", "parse", "default"),
    [
        ("KernelConfig.moe_backend", Parse.CHOICE_DASHES, "auto"),
        ("KernelConfig.backend", Parse.CHOICE_ANY_CASE, None),
        ("KernelConfig.enable_autotune", Parse.BOOL_LAX, True),
        ("KernelConfig.splits", Parse.UNKNOWN, 8),  # a validator sees it first
        ("KernelConfig.max_batched", Parse.INT, 2048),
        ("KernelConfig.per_layer", Parse.JSON, "{}"),
        ("KernelConfig.sizes", Parse.JSON, None),
        ("PassConfig.fuse", Parse.BOOL_LAX, None),
    ],
)
def test_the_keys_of_configuration_classes(settings, name, parse, default):
    one = settings[name]
    assert (one.kind, one.parse, one.default) == ("key", parse, default)


def test_what_cannot_be_given_is_no_key(settings):
    assert not {"KernelConfig.made", "KernelConfig.words", "KernelConfig._hidden"} & set(settings)


def test_a_variable_that_no_file_reads_is_dead(tmp_path):
    reads = "import vllm.envs as envs\nif envs.VLLM_A:\n    # envs.VLLM_INT is not read here\n    pass\n"
    imported = "from vllm.envs import (VLLM_TEXT,\n    VLLM_EQUALS)\nvllm.envs.is_set('VLLM_GUARDED')\n"
    root = vllm(tmp_path, a=reads, b=imported, collect_env="NAMES = ['VLLM_FLOAT']\n")
    found = read_registry(root, "vllm", "1").settings
    assert found["VLLM_A"].read_in == ("a.py", "envs.py")  # VLLM_TWO asks for it, too
    assert found["VLLM_TEXT"].read_in == found["VLLM_EQUALS"].read_in == ("b.py",)
    assert found["VLLM_GUARDED"].asks_if_set
    assert found["VLLM_INT"].is_dead
    assert found["VLLM_FLOAT"].is_dead


def test_a_variable_that_only_the_program_beside_it_reads_is_not_dead(tmp_path):
    root = vllm(tmp_path)
    (root / "vllm-rs").write_bytes(b"\0\0VLLM_INTVLLM_FLOATVLLM_")
    found = read_registry(root, "vllm", "1").settings
    assert found["VLLM_INT"].read_in == found["VLLM_FLOAT"].read_in == ("vllm-rs",)


def test_a_variable_that_a_module_reads_for_itself_is_found(tmp_path):
    text = "import os\ndef on():\n    return bool(int(os.getenv('VLLM_BATCH_INVARIANT', '0')))\n"
    one = read_registry(vllm(tmp_path, layers__batch=text), "vllm", "1").settings["VLLM_BATCH_INVARIANT"]
    assert (one.parse, one.default, one.source) == (Parse.BOOL_INT, False, "layers/batch.py:3")


def test_the_readers_of_flags_and_keys_leave_out_what_is_only_passed_on(tmp_path):
    root = vllm(tmp_path, a="def f(config):\n    return config.moe_backend\n")
    found = with_readers(read_registry(root, "vllm", "1"), root).settings
    assert found["--moe-backend"].read_in == found["KernelConfig.moe_backend"].read_in == ("a.py",)
    assert found["--fail"].read_in == ("engine/arg_utils.py",)
    assert found["--splits"].is_dead


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is empty"),
        (b"environment_variables = {\n", "is not Python"),
        (b"# \xff\xfe\nx = 1\n", "is not Python"),
        (b"x = 1\n", "has no table environment_variables"),
        (b"(" * 5000 + b")" * 5000, "is not Python"),
    ],
    ids=["empty", "syntax error", "no UTF-8", "no table", "nested too deeply"],
)
def test_a_file_that_cannot_be_read_takes_its_part_away_and_no_more(tmp_path, text, why):
    found = read_registry(vllm(tmp_path, envs=text), "vllm", "1")
    assert why in found.unreadable["variables"]
    assert {one.kind for one in found.settings.values()} == {"flag", "key"}


@pytest.mark.parametrize(
    "text", [b"", b"class KernelConfig(:\n", b"\xff\xfe\n"], ids=["empty", "syntax error", "no UTF-8"]
)
def test_a_configuration_that_cannot_be_read_leaves_flags_that_are_not_understood(tmp_path, text):
    found = read_registry(vllm(tmp_path, config__kernel=text), "vllm", "1")
    assert set(found.unreadable) == {"config/kernel.py"}
    assert found.settings["--moe-backend"].parse is Parse.UNKNOWN
    assert found.settings["VLLM_A"].parse is Parse.BOOL_INT


@pytest.mark.parametrize("name", ["envs.py", "engine/arg_utils.py"])
def test_a_file_that_is_gone_or_a_folder_is_told(tmp_path, name):
    root = vllm(tmp_path)
    (root / name).unlink()
    assert read_registry(root, "vllm", "1").unreadable
    (root / name).mkdir()
    assert read_registry(root, "vllm", "1").unreadable


def test_nothing_to_read_is_missing(tmp_path):
    assert isinstance(read_registry(tmp_path / "nowhere", "vllm", "1"), Missing)
    (tmp_path / "empty").mkdir()
    assert isinstance(read_registry(tmp_path / "empty", "vllm", "1"), Missing)
    assert isinstance(read_registry(tmp_path, "tensorrt-llm", "1"), Missing)
