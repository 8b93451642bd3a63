"""FlashInfer's own check of its companion packages, replayed: short rules of both kinds, and the real jit/env.py."""

import json
import os
import sys
from pathlib import Path

import pytest
from elf_samples import elf
from flashinfer_rules import RAISES
from flashinfer_wheels import VERSIONS
from permissions import printed_by

from fi_doctor import sandbox
from fi_doctor.facts.companions import Companions
from fi_doctor.facts.cubins import count_cubins, damaged_cubins
from fi_doctor.facts.packages import Distribution, Survey
from fi_doctor.model import Missing

NONE = Missing(reason="not there")
IGNORES = """
import logging
import os
import pathlib

logger = logging.getLogger("flashinfer.jit")
_HINT = (
    "Run `flashinfer download-kernels` to install "
    "matching kernel wheels."
)

def _check_cubin_version(package_version: str) -> None:
    if (
        not os.getenv("FLASHINFER_DISABLE_VERSION_CHECK")
        and flashinfer_version != "0.0.0+unknown"
        and package_version != flashinfer_version
    ):
        raise RuntimeError(f"flashinfer-cubin version ({package_version}) does not match. {_HINT}")

def _get_cubin_dir():
    env_dir = os.getenv("FLASHINFER_CUBIN_DIR")
    if env_dir:
        if has_flashinfer_cubin():
            logger.warning("FLASHINFER_CUBIN_DIR=%s overrides the package", env_dir)
        return pathlib.Path(env_dir)
    if has_flashinfer_cubin():
        import flashinfer_cubin

        try:
            _check_cubin_version(flashinfer_cubin.__version__)
        except RuntimeError as error:
            logger.warning("Ignoring flashinfer-cubin (downloads to %s): %s", FLASHINFER_CACHE_DIR / "cubins", error)
        else:
            return pathlib.Path(flashinfer_cubin.get_cubin_dir())
    return FLASHINFER_CACHE_DIR / "cubins"

def _check_jit_cache_version(distribution: str, package_version: str) -> None:
    if (
        not os.getenv("FLASHINFER_DISABLE_VERSION_CHECK")
        and flashinfer_version != "0.0.0+unknown"
        and package_version != flashinfer_version
        and not package_version.startswith(f"{flashinfer_version}+")
    ):
        raise RuntimeError(f"{distribution} version ({package_version}) does not match. {_HINT}")

def _check_jit_cache_provider_version(distribution: str, package_version: str, shim_version: str) -> None:
    _check_jit_cache_version(distribution, package_version)
    if not os.getenv("FLASHINFER_DISABLE_VERSION_CHECK") and package_version != shim_version:
        raise RuntimeError(f"{distribution} version ({package_version}) is not that of the shim ({shim_version})")

def _get_aot_providers():
    if not has_flashinfer_jit_cache():
        return ()
    import flashinfer_jit_cache

    try:
        _check_jit_cache_version("flashinfer-jit-cache", flashinfer_jit_cache.__version__)
    except RuntimeError as error:
        logger.warning("Ignoring flashinfer-jit-cache (kernels will be compiled): %s", error)
        return ()
    providers = []
    for provider in flashinfer_jit_cache.get_jit_cache_providers():
        try:
            _check_jit_cache_provider_version(provider.distribution, provider.version, flashinfer_jit_cache.__version__)
        except RuntimeError as error:
            continue
        providers.append(provider)
    return tuple(providers)
"""


def put(folder, name, version):
    (folder / name / ("cubins" if "cubin" in name else "jit_cache")).mkdir(parents=True)
    (folder / name / "__init__.py").write_text("")
    (folder / name / "_build_meta.py").write_text(f'__version__ = "{version}"\n')


def companions(folder, rule, environ=(), *, version="0.5.3", cubin="", jit_cache="", providers=()):
    root = folder / "flashinfer"
    (root / "jit").mkdir(parents=True)
    (root / "jit" / "env.py").write_text(rule)
    modules = {}
    for name, installed in (("flashinfer_cubin", cubin), ("flashinfer_jit_cache", jit_cache)):
        if installed:
            put(folder, name, installed)
            modules[name] = str(folder / name / "__init__.py")
    return Companions(survey(folder, modules, providers), root, version, Path("/cache"), dict(environ))


def survey(folder, modules, providers=()):
    copies = tuple(
        Distribution(
            name=f"flashinfer-jit-cache-{tag}",
            version=version,
            location=str(folder),
            metadata="",
            editable=False,
            source=NONE,
            commit=NONE,
            requires=(),
        )
        for tag, version in providers
    )
    return Survey(
        executable="/venv/bin/python",
        version="3.12",
        implementation="cpython",
        prefix="/venv",
        base_prefix="/usr",
        sys_path=(),
        distributions=copies,
        modules=modules,
        problems=(),
    )


OVERRIDE = {"FLASHINFER_CUBIN_DIR": "/mine"}
DISABLED = {"FLASHINFER_DISABLE_VERSION_CHECK": "0"}  # any non-empty value


@pytest.mark.parametrize(
    ("rule", "cubin", "ok", "expected", "effect"),
    [
        (RAISES, "0.5.3", True, "exactly 0.5.3", "import flashinfer raises RuntimeError"),
        (RAISES, "0.5.2", False, "exactly 0.5.3", "import flashinfer raises RuntimeError: flashinfer-cubin version"),
        (RAISES, "0.5.3+x", False, "exactly 0.5.3", "import flashinfer raises RuntimeError"),
        (IGNORES, "0.5.3", True, "exactly 0.5.3", "the package is ignored"),
        (IGNORES, "0.5.2", False, "exactly 0.5.3", "the package is ignored: Ignoring flashinfer-cubin (downloads to"),
    ],
    ids=["equal, old", "other, old", "tagged, old", "equal, new", "other, new"],
)  # fmt: skip
def test_cubins_must_be_of_the_same_version(*, tmp_path, rule, cubin, ok, expected, effect):
    (check,) = companions(tmp_path, rule, cubin=cubin).checks()
    assert (check.package, check.found, check.expected, check.ok) == ("flashinfer-cubin", cubin, expected, ok)
    assert check.effect.startswith(effect)


@pytest.mark.parametrize(
    ("rule", "jit_cache", "ok", "expected"),
    [
        (RAISES, "0.5.3+cu129", True, "a version that begins with 0.5.3"),
        (RAISES, "0.5.30", True, "a version that begins with 0.5.3"),
        (RAISES, "0.5.2+cu129", False, "a version that begins with 0.5.3"),
        (IGNORES, "0.5.3+cu129", True, "0.5.3 or 0.5.3+cuXYZ"),
        (IGNORES, "0.5.3", True, "0.5.3 or 0.5.3+cuXYZ"),
        (IGNORES, "0.5.30", False, "0.5.3 or 0.5.3+cuXYZ"),
    ],
)
def test_the_jit_cache_is_compared_by_the_installed_rule(tmp_path, rule, jit_cache, ok, expected):
    (check,) = companions(tmp_path, rule, jit_cache=jit_cache).checks()
    assert (check.package, check.ok, check.expected) == ("flashinfer-jit-cache", ok, expected)


def test_a_check_cites_the_line_that_raises(tmp_path):
    for rule, wanted in ((RAISES, "flashinfer-cubin version"), (IGNORES, "flashinfer-cubin version")):
        (check,) = companions(tmp_path / str(hash(rule)), rule, cubin="0.5.3").checks()
        name, line = check.source.split(":")
        assert name == "jit/env.py"
        assert wanted in rule.splitlines()[int(line) - 1]


def test_a_check_that_is_switched_off_still_tells_the_mismatch(tmp_path):
    (check,) = companions(tmp_path, RAISES, DISABLED, cubin="0.5.2").checks()
    assert not check.ok
    assert check.effect == "nothing, because FLASHINFER_DISABLE_VERSION_CHECK is set: the package is used as it is"


def test_a_version_that_flashinfer_does_not_know_of_itself_fits_all(tmp_path):
    (check,) = companions(tmp_path, IGNORES, version="0.0.0+unknown", cubin="0.5.2").checks()
    assert check.ok
    assert check.expected == "any version, because FlashInfer calls itself 0.0.0+unknown"


def test_without_companions_there_is_nothing_to_check(tmp_path):
    found = companions(tmp_path, RAISES)
    assert found.checks() == ()
    assert found.modules() == ()
    assert found.architectures() == Missing(reason="flashinfer-jit-cache is not installed in /venv/bin/python")


@pytest.mark.parametrize(
    ("rule", "environ", "cubin", "expected"),
    [
        (RAISES, {}, "", "/cache/cubins"),
        (RAISES, OVERRIDE, "", "/mine"),
        (RAISES, OVERRIDE, "0.5.3", "PACKAGE"),
        (RAISES, DISABLED, "0.5.2", "PACKAGE"),
        (IGNORES, OVERRIDE, "0.5.3", "/mine"),
        (IGNORES, {}, "0.5.3", "PACKAGE"),
        (IGNORES, {}, "0.5.2", "/cache/cubins"),
        (IGNORES, {"FLASHINFER_CUBIN_DIR": ""}, "", "/cache/cubins"),
    ],
)
def test_the_cubin_folder_is_chosen_in_the_installed_order(tmp_path, rule, environ, cubin, expected):
    found = companions(tmp_path, rule, environ, cubin=cubin).cubin_dir()
    assert found == expected.replace("PACKAGE", str(tmp_path / "flashinfer_cubin" / "cubins"))


def test_a_cubin_folder_that_stops_the_import_is_missing(tmp_path):
    found = companions(tmp_path, RAISES, cubin="0.5.2").cubin_dir()
    assert isinstance(found, Missing)
    assert found.reason.startswith("import flashinfer raises RuntimeError: flashinfer-cubin version (0.5.2)")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("", "there is no function _get_cubin_dir"),
        ("def _get_cubin_dir():\n    return lookup()\n", "line 2"),
        ("(", "not Python"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_not_guessed(tmp_path, rule, words):
    found = companions(tmp_path, rule, cubin="0.5.3")
    assert isinstance(found.cubin_dir(), Missing)
    assert words in found.cubin_dir().reason
    assert found.checks() == ()


def test_prebuilt_modules_are_those_with_a_library(tmp_path):
    found = companions(tmp_path, RAISES, jit_cache="0.5.3+cu129")
    for name, size in (("norm", 9), ("page", 0)):
        folder = tmp_path / "flashinfer_jit_cache" / "jit_cache" / name
        folder.mkdir()
        (folder / f"{name}.so").write_bytes(b"x" * size)
    (tmp_path / "flashinfer_jit_cache" / "jit_cache" / "empty").mkdir()
    assert found.modules() == ("norm",)


def test_providers_are_checked_against_the_shim_and_name_their_architecture(tmp_path):
    providers = (("sm90a", "0.7.2+cu130"), ("sm120f", "0.7.2+cu129"))
    found = companions(tmp_path, IGNORES, version="0.7.2", jit_cache="0.7.2+cu130", providers=providers)
    folder = tmp_path / "flashinfer_jit_cache_sm90a" / "jit_cache" / "norm"
    folder.mkdir(parents=True)
    (folder / "norm.so").write_bytes(b"x")
    assert found.architectures() == ("120f", "90a")
    assert found.modules() == ("norm",)
    checks = {check.package: check for check in found.checks()}
    assert checks["flashinfer-jit-cache"].ok
    assert checks["flashinfer-jit-cache-sm90a"].ok
    wrong = checks["flashinfer-jit-cache-sm120f"]
    assert (wrong.ok, wrong.found, wrong.expected) == (
        False,
        "0.7.2+cu129",
        "exactly 0.7.2+cu130, as flashinfer-jit-cache",
    )
    assert wrong.effect.startswith("the package is ignored: flashinfer-jit-cache-sm120f version (0.7.2+cu129)")


def test_cubins_are_counted_and_an_absent_folder_holds_none(tmp_path):
    (tmp_path / "a" / "fmha").mkdir(parents=True)
    for name in ("a/one.cubin", "a/fmha/two.cubin", "a/fmha/checksums.txt"):
        (tmp_path / name).write_text("")
    assert count_cubins(str(tmp_path)) == 2
    assert count_cubins(str(tmp_path / "none")) == 0
    assert count_cubins(NONE) == NONE


REAL = """
import io, json, logging, sys, types
log = io.StringIO()
logging.basicConfig(stream=log, format="%(message)s")
root = sys.argv[1]
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(device_count=lambda: 0)
for name, place in (("flashinfer", root), ("flashinfer.jit", root + "/jit")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [place]
sys.modules["flashinfer.version"] = types.ModuleType("flashinfer.version")
sys.modules["flashinfer.version"].__version__ = sys.argv[2]
try:
    from flashinfer.jit import env
    print(json.dumps({"cubin_dir": str(env.FLASHINFER_CUBIN_DIR), "error": "", "log": log.getvalue()}))
except RuntimeError as error:
    print(json.dumps({"cubin_dir": "", "error": str(error), "log": log.getvalue()}))
"""


@pytest.mark.wheels
@pytest.mark.parametrize(
    ("version", "cubin", "jit_cache", "environ"),
    [
        ("1.2.3", "1.2.3", "1.2.3+cu129", {}),
        ("1.2.3", "1.2.2", "", {}),
        ("1.2.3", "1.2.2", "", DISABLED),
        ("1.2.3", "1.2.2", "", OVERRIDE),
        ("1.2.3", "", "1.2.30", {}),
        ("1.2.3", "", "1.2", {}),
        ("1.2.3", "", "", OVERRIDE),
        ("0.0.0+unknown", "1.2.3", "", {}),
        ("1.2.3", "1.2.3", "", OVERRIDE),
    ],
)
@pytest.mark.parametrize("release", VERSIONS)
def test_every_case_agrees_with_the_real_file(*, tmp_path, unpacked, release, version, cubin, jit_cache, environ):
    package = unpacked(release)
    modules = {}
    for name, installed in (("flashinfer_cubin", cubin), ("flashinfer_jit_cache", jit_cache)):
        if installed:
            put(tmp_path, name, installed)
            modules[name] = str(tmp_path / name / "__init__.py")
            where = tmp_path / name / ("cubins" if "cubin" in name else "jit_cache")
            body = f"def get_cubin_dir(): return {str(where)!r}\nget_jit_cache_dir = get_cubin_dir\n"
            body += "def get_jit_cache_providers(): return ()\nfrom ._build_meta import __version__\n"
            (tmp_path / name / "__init__.py").write_text(body)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "HOME": "/home/x", **environ}
    result = sandbox.run([sys.executable, "-c", REAL, str(package), version], timeout_s=60, env=env)
    theirs = json.loads(result.stdout)
    ours = Companions(survey(tmp_path, modules), package, version, Path("/home/x/.cache/flashinfer"), environ)
    found, checks = ours.cubin_dir(), ours.checks()
    refused = [check for check in checks if not check.ok]
    assert len(checks) == len(modules)
    if theirs["error"]:
        assert theirs["error"] in [
            check.effect.removeprefix("import flashinfer raises RuntimeError: ") for check in refused
        ]
        assert found == Missing(reason=f"import flashinfer raises RuntimeError: {theirs['error']}") or jit_cache
        return
    assert found == theirs["cubin_dir"]
    ignored = [check.effect.removeprefix("the package is ignored: ") for check in refused if not environ]
    assert [line for line in theirs["log"].splitlines() if line.startswith("Ignoring")] == ignored


@pytest.mark.parametrize(
    ("size", "how"),
    [(0, "0 bytes"), (30, "30 bytes of at least 64"), (200, "200 bytes of at least "), (None, "")],
)
def test_a_fetched_cubin_that_is_not_whole_is_told(tmp_path, size, how):
    path = tmp_path / "cubins" / "fmha" / "a.cubin"
    path.parent.mkdir(parents=True)
    path.write_bytes(elf()[:size])
    found = damaged_cubins(f"{tmp_path}/cubins")
    assert (list(found), next(iter(found.values()), "").startswith(how)) == ([str(path)] if how else [], True)


def test_an_error_page_is_no_cubin_and_a_link_to_nowhere_is_left_alone(tmp_path):
    (tmp_path / "a.cubin").write_text("<html>" * 20)
    (tmp_path / "b.cubin").symlink_to("gone")
    os.mkfifo(tmp_path / "c.cubin")
    expected = {f"{tmp_path}/a.cubin": "it is not ELF", f"{tmp_path}/c.cubin": "it is not a file"}
    assert damaged_cubins(str(tmp_path)) == expected


def test_the_cubins_of_the_package_were_not_fetched(tmp_path):
    folder = tmp_path / "flashinfer_cubin" / "cubins"
    folder.mkdir(parents=True)
    (folder / "a.cubin").touch()
    assert damaged_cubins(str(folder)) == {}


def test_a_folder_of_modules_that_is_closed_says_so(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    code = (
        "import pathlib, sys; from fi_doctor.facts.companions import why_closed as why; "
        "print([why(pathlib.Path(place)) for place in sys.argv[1:]])"
    )
    said = printed_by(code, tmp_path / "closed", tmp_path, tmp_path / "gone")
    assert said == f"['{tmp_path}/closed: Permission denied', '', '']\n"
