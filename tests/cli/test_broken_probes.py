"""A broken probe of another package: every command says so in one line, and nothing but its own row misses it."""

import json

import pytest
from cli_command import ROOT

SOUND = '"""Q?"""\nPROBE = {"id": "kv.copy", "feature": "kv.copy"}\ndef run(): ...\n'
BROKEN = {
    "syntax": (SOUND + "\ndef (:\n", ":5: not Python: invalid syntax"),
    "no-literal": (SOUND.replace('{"id": "kv.copy", "feature": "kv.copy"}', "dict()"), ":2: PROBE must be a literal"),
    "unknown-key": (SOUND.replace('"id"', '"gpu": 1, "id"'), ":2: PROBE['gpu']: unknown key"),
    "not-text": ("\ud800", ": cannot be read: "),
    "gone": (None, "no package 'acme' is installed"),
}
COMMANDS = (
    ("check", "--example", "h200"),
    ("diff", "h200", "h200-nvcc-12.6"),
    ("features", "--example", "h200"),
    ("features", "--rows"),
    ("probes", "list"),
    ("probes", "show", "norm.rmsnorm"),
    ("report", "--depth", "static"),
)


@pytest.fixture
def broken(tmp_path):
    """install(kind): the environment in which such a package is installed, its row, and what is said of it."""

    def install(kind):
        text, said = BROKEN[kind]
        site = tmp_path / "site"
        info = site / "acme_kernels-1.0.dist-info"
        info.mkdir(parents=True)
        # What lies on PYTHONPATH is examined; only beside fi-doctor itself it is installed.
        (site / "fi_doctor").symlink_to(ROOT / "fi_doctor")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kernels\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[fi_doctor.probes]\nkernels = acme\n")
        if text is None:
            return {"PYTHONPATH": site}, "acme_kernels.kernels", said
        (site / "acme").mkdir()
        (site / "acme" / "__init__.py").touch()
        (site / "acme" / "kv_copy.py").write_bytes(text.encode("utf-8", "surrogatepass"))
        return {"PYTHONPATH": site}, "kv.copy", f"{site / 'acme' / 'kv_copy.py'}{said}"

    return install


@pytest.mark.parametrize(
    ("kind", "words"),
    [*((kind, ("probes", "list")) for kind in sorted(BROKEN)), *(("syntax", words) for words in COMMANDS)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_no_command_is_stopped_and_each_names_it_once(doctor, broken, kind, words):
    env, row, said = broken(kind)
    done = doctor(*words, env=env)
    assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("warning: probe ")]
    assert line.startswith(f"warning: probe {row} of acme-kernels cannot be used: ")
    assert said in line


@pytest.mark.parametrize("kind", ["syntax", "gone"])
def test_it_has_a_row_that_is_unknown_and_the_others_stay_as_they_are(doctor, broken, kind):
    env, row, said = broken(kind)
    words = ("check", "--example", "h200", "--format", "json")
    usual, done = (json.loads(doctor(*words, env=one).stdout)["features"] for one in ({}, env))
    [own] = [one for one in done if one["feature"] == row]
    assert (own["verdict"], own["evidence"]) == ("unknown", "none")
    assert own["why"].startswith("its probe cannot be used: ")
    assert said in own["why"]
    assert [one for one in done if one is not own] == usual
    assert doctor(*words, "--require", row, env=env).returncode == 3
