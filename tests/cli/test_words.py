"""The words of the command line: help says them, and a mistake in one is answered with the nearest."""

from __future__ import annotations

import pytest
from cli_command import in_three_parts, linked_package, verdicts

from fi_doctor import __version__

SHARED = ("--python", "--from", "--example", "--as-recorded", "--depth", "--budget", "--feature", "--jobs")
OPTIONS = {
    (): ("--version", "--help", "check", "report", "explain", "probes", "features"),
    ("check",): (*SHARED, "--require", "--fresh-cache", "--format", "-o", "--output"),
    ("report",): (*SHARED, "--fresh-cache", "--yaml", "--json", "--for-issue", "-o", "--output"),
    ("warm",): ("--feature", "--all", "--jobs", "--memory", "--budget", "--dry-run", "--json", "--python", "-q"),
    ("explain",): ("ID", "FILE", "--list", "--env-file", "--here", "--format", "--knowledge"),
    ("knowledge", "show"): ("[DIR|FILE]",),
    ("knowledge", "pack"): ("[DIR]", "--output", "-o"),
    ("features",): ("--help",),
    ("probes",): ("list", "show"),
    ("probes", "list"): ("--help",),
    ("probes", "show"): ("ID",),
}


@pytest.mark.parametrize("command", OPTIONS, ids=lambda words: "-".join(words) or "fi-doctor")
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_option(doctor, command, flag):
    done = doctor(*command, flag)
    assert (done.returncode, done.stderr) == (0, "")
    words = done.stdout.replace(",", " ").replace("{", " ").replace("}", " ").split()
    assert [option for option in OPTIONS[command] if option not in words] == []
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_help_says_what_the_exit_codes_mean_and_the_budget(doctor):
    said = " ".join(doctor("--help").stdout.split())
    for meaning in ("0 what was asked for holds", "1 measured", "2 usage", "3 could not tell", "4 a fault"):
        assert meaning in said
    assert "[default: 10m]" in " ".join(doctor("check", "--help").stdout.split())


def test_the_version_is_one_line(doctor):
    done = doctor("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"fi-doctor {__version__}\n", "")


def test_without_a_command_help_is_shown(doctor):
    done = doctor()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: fi-doctor")
    assert "check" in done.stderr


MISTAKES = {
    "feature": (["check", "--feature", "norm.rmsnrm"], "'norm.rmsnrm'", "--feature norm.rmsnorm"),
    "feature-of-report": (["report", "--feature", "samplng.*"], "'samplng.*'", "--feature sampling.*"),
    "require": (["check", "--require", "kv.apend_paged"], "'kv.apend_paged'", "--require kv.append_paged"),
    "feature-of-warm": (["warm", "--feature", "norm.rmsnrm"], "'norm.rmsnrm'", "--feature norm.rmsnorm"),
    "option-of-warm": (["warm", "--dryrun"], "--dryrun", "fi-doctor warm --dry-run"),
    "format": (["check", "--format", "jsn"], "'jsn'", "--format json"),
    "depth": (["check", "--depth", "statc"], "'statc'", "--depth static"),
    "depth-of-report": (["report", "--depth", "rum"], "'rum'", "--depth run"),
    "option": (["check", "--budegt", "3m"], "--budegt", "fi-doctor check --budget"),
    "option-of-report": (["report", "--yml"], "--yml", "fi-doctor report --yaml"),
    "option-of-cache": (["cache", "--prun"], "--prun", "fi-doctor cache --prune"),
    "locked-and-tp": (["check", "--locked", "--tp", "2"], "--tp", "leave one"),
    "option-of-all": (["--verison"], "--verison", "fi-doctor --version"),
    "command": (["chek"], "'chek'", "fi-doctor check"),
    "command-of-probes": (["probes", "shw"], "'shw'", "fi-doctor probes show"),
    "missing-argument": (["probes", "show"], "ID", "fi-doctor probes list"),
    "feature-unlike-any": (["check", "--feature", "zzz"], "'zzz'", "fi-doctor features"),
    "explain-no-slip": (["explain", "nope"], "'nope'", "fi-doctor explain"),
    "explain-a-part": (["explain", "add_rmsnorm"], "'add_rmsnorm'", "fi-doctor explain rmsnorm"),
    "explain-a-probe": (["explain", "decode_xqa"], "'decode_xqa'", "fi-doctor explain attention.decode_xqa"),
    "explain-a-variant": (["explain", "fa2_d81"], "'fa2_d81'", "fi-doctor explain fa2_d80"),
    "explain-unlike-any": (["explain", "zzz"], "'zzz'", "fi-doctor explain"),
    "command-of-knowledge": (["knowledge", "shw"], "'shw'", "fi-doctor knowledge show"),
    "knowledge-that-is-none": (["explain", "works", "--knowledge", ""], "--knowledge", "fi-doctor knowledge show"),
    "explain-a-variable": (["explain", "VLLM_USE_DEP_GEMM"], "'VLLM_USE_DEP_GEMM'", "explain VLLM_USE_DEEP_GEMM"),
    "probes-show-unlike-any": (["probes", "show", "zzz"], "'zzz'", "fi-doctor probes list"),
    "format-unlike-any": (["check", "--format", "zzz"], "'zzz'", "--format console"),
    "one-too-many": (["check", "extra"], "extra", "fi-doctor check --help"),
    "no-value": (["check", "--budget"], "--budget", "fi-doctor check --help"),
    "budget-nonsense": (["check", "--budget", "soon"], "'soon'", "--budget 10m"),
    "budget-zero": (["check", "--budget", "0"], "'0'", "--budget 10m"),
    "budget-negative": (["check", "--budget=-5m"], "'-5m'", "--budget 10m"),
    "budget-endless": (["check", "--budget", "inf"], "'inf'", "--budget 10m"),
    "budget-nan": (["check", "--budget", "nan"], "'nan'", "--budget 10m"),
    "jobs-negative": (["check", "--jobs", "-1"], "--jobs", "fi-doctor check --help"),
    "jobs-nonsense": (["check", "--jobs", "many"], "--jobs", "fi-doctor check --help"),
    "from-and-example": (["check", "--from", "a.json", "--example", "h200"], "--example", "fi-doctor check"),
    "from-and-python": (["check", "--from", "a.json", "--python", "python3"], "--python", "leave one"),
    "as-recorded-alone": (["check", "--as-recorded"], "--as-recorded", "--from"),
    "explain": (["explain", "norm.rmsnrm"], "'norm.rmsnrm'", "fi-doctor explain norm.rmsnorm"),
    "explain-rule": (["explain", "nvcc-not-fund"], "'nvcc-not-fund'", "fi-doctor explain nvcc-not-found"),
    "probes-show": (["probes", "show", "norm.rmsnrm"], "'norm.rmsnrm'", "fi-doctor probes show norm.rmsnorm"),
}


# The others say which words there are.
WITHOUT_REASON = {"knowledge-that-is-none", "locked-and-tp", "from-and-example", "from-and-python", "as-recorded-alone"}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_2_with_what_and_why_and_what_to_do(doctor, mistake):
    args, what, todo = MISTAKES[mistake]
    done = doctor(*args)
    assert (done.returncode, done.stdout) == (2, "")
    said = in_three_parts(done.stderr)
    assert what in said["error"]
    assert todo in said["try"]
    assert said["why"] or mistake in WITHOUT_REASON
    assert "Traceback" not in done.stderr


def test_an_unknown_example_is_answered_with_the_nearest(doctor):
    from fi_doctor.knowledge import examples

    done = doctor("check", "--example", "nonesuch")
    assert (done.returncode, done.stdout) == (2, "")
    if not examples.names():
        assert in_three_parts(done.stderr)["error"] == "--example: no recording is shipped"
        return
    assert "'nonesuch'" in in_three_parts(done.stderr)["error"]
    for name in examples.names():
        near = doctor("check", "--example", name[:-1] + "~")
        assert near.returncode == 2
        assert in_three_parts(near.stderr)["try"].startswith("--example ")


def test_no_summary_of_a_command_is_cut(doctor):
    for words in ((), ("probes",)):
        assert "..." not in doctor(*words, "--help").stdout.partition("Commands:")[2]


def test_the_depth_of_a_report_has_one_default(doctor):
    said = " ".join(doctor("report", "--help").stdout.split())
    assert "[default: static]" in said
    assert "as deep as possible" not in said


def test_explain_without_an_id_counts_what_there_is_on_a_page(doctor):
    from fi_doctor.knowledge import faults

    done = doctor("explain")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) < 45
    assert "  fi-doctor explain --list: all ids" in lines
    families = [line.split() for line in lines[lines.index("Faults that logs tell, by family:") + 1 :]]
    counted = {family: int(number) for number, family in families}
    assert counted.keys() == {path.parent.name for path in faults.ids().values()}
    assert f"{sum(counted.values()):5}  Faults that logs tell" in lines


@pytest.mark.parametrize("beside", [("works",), ("--here",), ("--env-file", "env.txt")], ids=" ".join)
def test_a_list_of_ids_is_of_nothing_else(doctor, beside):
    done = doctor("explain", "--list", *beside)
    assert (done.returncode, done.stdout) == (2, "")
    assert "fi-doctor explain --list" in done.stderr


def test_explain_lists_every_id(doctor):
    from fi_doctor import knowledge
    from fi_doctor.knowledge import explain
    from fi_doctor.probing import catalog

    kb, specs = knowledge.load(), catalog.discover()
    done = doctor("explain", "--list")
    assert (done.returncode, done.stderr) == (0, "")
    aliases = {alias for rule in kb.rules for alias in rule.aliases}
    listed = {word.rstrip(",:") for word in done.stdout.split()}
    names = {*explain.ids(kb), *(spec.id for spec in specs)}
    assert [name for name in names if name not in aliases and name not in listed] == []
    groups = [line for line in done.stdout.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert groups == [
        "Verdicts:",
        "Evidence, the weakest first:",
        "Scope, of what the evidence holds:",
        "Other words:",
        "Features:",
        "Operators of a complete backend:",
        "Probes, besides those that have the name of their row:",
        f"Findings, {len(kb.rules)} of them of rules:",
        "Faults that logs tell:",
        "Causes, of which several rules and faults may be:",
        "Families of faults:",
        "Settings:",
    ]
    others = done.stdout.partition("Other words:\n")[2].partition("\n\n")[0]
    assert [line.split(":")[0].strip() for line in others.splitlines() if not line.startswith("    ")] == [
        "allow",
        "frozen",
        "gate",
        "locked",
        "scope",
    ]
    assert len(done.stdout.splitlines()) < 700  # there are many faults
    assert "{" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_feature_that_only_a_probe_names_is_known(doctor, tmp_path):
    place = linked_package(tmp_path)
    probe = (place / "probes/import_torch.py").read_text(encoding="utf-8")
    probe = probe.replace('"import.torch"', '"stranger.thing"').replace("Can torch be imported", "Is it strange", 1)
    (place / "probes/stranger_thing.py").write_text(probe, encoding="utf-8")
    env = {"PYTHONPATH": place}
    assert "stranger.thing: Is it strange" in " ".join(doctor("features", env=env).stdout.split())
    path = doctor.report()
    for option in ("--feature", "--require"):
        done = doctor("check", "--from", path, option, "stranger.*", "--format", "json", env=env)
        assert done.returncode == 3, done.stderr
        assert verdicts(done.stdout)["stranger.thing"] == "unknown"
    both = doctor("check", "--from", path, "--feature", "norm.*", "--require", "stranger.thing", env=env)
    assert both.returncode == 3
    assert "stranger.thing" in both.stderr


def test_explain_features_and_probes_print_what_they_know(doctor):
    from fi_doctor import knowledge
    from fi_doctor.probing import catalog

    kb = knowledge.load()
    features, listed = doctor("features"), doctor("probes", "list")
    assert (features.returncode, listed.returncode) == (0, 0)
    assert [feature.id for feature in kb.features if feature.id not in features.stdout] == []
    assert [spec.id for spec in catalog.discover() if spec.id not in listed.stdout] == []
    spec = catalog.discover()[0]
    assert doctor("probes", "show", spec.id).stdout == catalog.source(spec)
    for name in (kb.rules[0].id, kb.features[0].id, "wrong-result", "verified", "attention.decode_xqa", "fa2_d80"):
        done = doctor("explain", name)
        assert done.returncode == 0, done.stderr
        assert name in done.stdout


@pytest.mark.parametrize("name", ["--attention-backend", "-cc", "--moe-backend"])
def test_a_setting_that_begins_with_a_dash_is_explained(doctor, name):
    done = doctor("explain", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(name)
