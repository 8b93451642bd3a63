"""The policy as the command takes it: where it is found, what goes before it, and what it does to the exit code."""

from __future__ import annotations

import json
import os
import re

import pytest
from cli_command import BROKEN, ROOT, in_three_parts, script

from fi_doctor.cli import settle
from fi_doctor.model import Depth


def policy(doctor, text, name="fi-doctor.toml"):
    path = doctor.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def requested(doctor, *words, env=None):
    """The request of a check as it was settled."""
    done = doctor("check", "--from", doctor.report(), "-f", "json", *words, env=env)
    assert done.returncode in (0, 1, 3), done.stderr
    return json.loads(done.stdout)["request"]


def test_the_nearest_policy_is_found_and_named_in_the_report(doctor):
    path = policy(doctor, 'require = {"norm.*" = "verified"}')
    asked = requested(doctor)["policy"]
    assert asked["file"] == str(path)
    assert asked["requirements"] == [
        {
            "feature": "norm.*",
            "verdict": "works",
            "evidence": "verified",
            "scope": "full",
            "source": "fi-doctor.toml: require",
        }
    ]
    assert requested(doctor, "--no-config")["policy"]["file"] == ""


def test_a_policy_that_is_named_goes_before_the_one_that_is_near(doctor):
    policy(doctor, "jobs = 1")
    policy(doctor, "[tool.fi-doctor]\njobs = 2", "ci/pyproject.toml")
    other = policy(doctor, "jobs = 3", "ci/gate.toml")
    assert requested(doctor)["jobs"] == 1
    assert requested(doctor, "--config", "ci/pyproject.toml")["jobs"] == 2
    assert requested(doctor, env={"FI_DOCTOR_CONFIG": other})["jobs"] == 3
    assert requested(doctor, "--config", "ci/pyproject.toml", env={"FI_DOCTOR_CONFIG": other})["jobs"] == 2


KEYS = {
    "budget": ("5m", "7m", "9m", lambda asked: asked["budget_s"], (300, 420, 540)),
    "jobs": ("1", "2", "3", lambda asked: asked["jobs"], (1, 2, 3)),
    "memory": ("1g", "2g", "3g", lambda asked: asked["memory_mib"], (1024, 2048, 3072)),
    "feature": ("norm.*", "kv.*", "import.*", lambda asked: asked["features"], (["norm.*"], ["kv.*"], ["import.*"])),
    "rows": ("all", "called", "all", lambda asked: asked["policy"]["rows"], ("all", "called", "all")),
    "fail-on": (
        "wrong-result",
        "broken",
        "unsupported",
        lambda asked: asked["policy"]["fail_on"],
        (["wrong-result"], ["broken"], ["unsupported"]),
    ),
}


@pytest.mark.parametrize("key", KEYS)
def test_the_command_line_goes_before_variables_and_those_before_the_file_key_by_key(doctor, key):
    in_file, in_variable, typed, read, expected = KEYS[key]
    policy(doctor, f"{key} = {in_file}" if key == "jobs" else f'{key} = "{in_file}"')
    env = {f"FI_DOCTOR_{key.upper().replace('-', '_')}": in_variable}
    assert read(requested(doctor)) == expected[0]
    assert read(requested(doctor, env=env)) == expected[1]
    assert read(requested(doctor, f"--{key}", typed, env=env)) == expected[2]


def test_the_depth_and_the_format_of_a_policy(doctor):
    policy(doctor, 'depth = "static"\nformat = ["json:out.json"]')
    done = doctor("check")
    assert (done.returncode, done.stdout) == (3, "")
    written = json.loads((doctor.folder / "out.json").read_text(encoding="utf-8"))
    assert written["request"]["depth"] == "static"
    assert doctor("check", "-f", "json", env={"FI_DOCTOR_FORMAT": "yaml"}).stdout.startswith("{")
    assert doctor("check", env={"FI_DOCTOR_FORMAT": "yaml"}).stdout.startswith("schema:")


def test_the_depth_of_a_policy_is_not_that_of_a_recording(doctor):
    policy(doctor, 'depth = "build"')
    assert requested(doctor)["depth"] == "run"
    assert doctor("check", "--example", "h200", "--as-recorded").returncode == 0


@pytest.mark.parametrize(
    ("words", "source"),
    [
        ((), "default"),
        (("--fail-on", "error"), "default"),
        (("--fail-on", "broken,wrong-result"), "--fail-on"),
        (("--fail-on", "none"), "--fail-on"),
    ],
)
def test_who_wrote_the_verdicts_that_fail_is_named_and_nobody_where_nobody_did(doctor, words, source):
    done = doctor("check", "--from", doctor.report(), "-f", "json", *words)
    assert json.loads(done.stdout)["gate"]["requirements"][0]["source"] == source
    policy(doctor, 'fail-on = "broken"')
    named = doctor("check", "--from", doctor.report(), "-f", "json")
    assert json.loads(named.stdout)["gate"]["requirements"][0]["source"] == "fi-doctor.toml: fail-on"


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ('require = {"norm.*" = "verified"}', {}, 0),
        ('require = {"norm.*" = "verified"}', {"broken": (BROKEN,)}, 1),
        ('require = {"norm.*" = "verified"}', {"depth": Depth.STATIC}, 3),
        ('require = {"moe.trtllm_fp8_block" = "works"}', {}, 3),
        ('require = {"norm.*" = "unsupported"}', {}, 1),
        ('versions = {torch = ">=2"}', {}, 0),
        ('versions = {torch = ">=99"}', {}, 1),
        ('fail-on = "wrong-result"', {"broken": (BROKEN,)}, 0),
        ('fail-on = "unknown"', {}, 3),
        ('fail-on = "none"', {"broken": (BROKEN,)}, 0),
        (f'allow = [{{feature = "{BROKEN}", reason = "x", expires = 2999-01-01}}]', {"broken": (BROKEN,)}, 0),
        (
            f'allow = [{{feature = "{BROKEN}", verdict = "works", reason = "x", expires = 2999-01-01}}]',
            {"broken": (BROKEN,)},
            1,
        ),
        (f'allow = [{{feature = "{BROKEN}", reason = "x", expires = 2020-01-01}}]', {"broken": (BROKEN,)}, 1),
    ],
)
def test_the_exit_code_of_a_policy(doctor, text, options, code):
    policy(doctor, text)
    done = doctor("check", "--from", doctor.report(**options), "-q", "-f", "json")
    assert done.returncode == code, done.stderr
    assert json.loads(done.stdout)["gate"]["code"] == code
    assert done.stderr.splitlines()[-1].endswith(f"(exit {code})")


def test_a_row_that_no_vllm_calls_fails_a_recorded_machine_only_where_all_rows_are_looked_at(doctor):
    def failing(*words):
        done = doctor("check", "--example", "h200-flashinfer-0.5.3", "-q", "-f", "json", *words)
        return json.loads(done.stdout)["gate"]["requirements"][0]["rows"]

    both = ["sampling.top_k_top_p on SM90", "activation.silu_and_mul on SM90"]
    assert failing("--rows", "all") == both
    assert failing("--rows", "called") == ["sampling.top_k_top_p on SM90"]
    assert failing() == ["sampling.top_k_top_p on SM90"]
    assert failing("--feature", "*") == both


def test_verdicts_as_they_were_recorded_meet_the_policy_of_today(doctor):
    policy(doctor, 'versions = {torch = ">=99"}')
    done = doctor("check", "--from", doctor.report(), "--as-recorded")
    assert done.returncode == 1, done.stderr
    assert "version: torch is" in done.stderr


def test_a_row_that_a_policy_requires_is_looked_at_where_others_are_selected(doctor):
    policy(doctor, 'require = {"kv.*" = "works"}')
    asked = requested(doctor, "--feature", "norm.*")
    assert asked["features"] == ["norm.*", "kv.*"]
    assert asked["required"] == []


@pytest.mark.parametrize(
    ("words", "env", "code", "said"),
    [
        (["--require", "norm.*=verified"], {}, 0, "norm.*: works, verified, full"),
        ([], {"FI_DOCTOR_REQUIRE": "kv.*, norm.*=verified"}, 0, "norm.*: works, verified, full"),
        ([], {"FI_DOCTOR_REQUIRE": "norm.*"}, 0, "norm.* works"),
        (["--require", "norm.*=works"], {}, 0, "norm.* works"),
        (["--require", "norm.*=built"], {}, 0, "norm.*: built"),
        (["--require", "norm.*=unsupported"], {}, 1, "norm.*: unsupported, declared, subset"),
    ],
)
def test_an_option_or_a_variable_requires_evidence_as_the_file_does(doctor, words, env, code, said):
    policy(doctor, 'require = {"kv.*" = "verified"}')
    done = doctor("check", "--from", doctor.report(), "-f", "json", *words, env=env)
    assert done.returncode == code, done.stderr
    asked = [(one["requirement"], one["source"]) for one in json.loads(done.stdout)["gate"]["requirements"]]
    assert (said, "FI_DOCTOR_REQUIRE" if env else "--require") in asked
    assert ("kv.*: works, verified, full", "fi-doctor.toml: require") in asked


@pytest.mark.parametrize(
    ("depth", "words", "code"),
    [
        (Depth.BUILD, ["--require", "norm.*=built"], 0),
        (Depth.BUILD, ["--require", "moe.fp8_block=built"], 0),
        (Depth.BUILD, [], 3),
        (Depth.BUILD, ["--require", "norm.*=built,kv.*"], 3),
        (Depth.STATIC, ["--require", "norm.*=built"], 3),
        (Depth.RUN, ["--require", "norm.*=built"], 0),
    ],
)
def test_rows_that_are_only_built_satisfy_who_asks_for_no_more(doctor, depth, words, code):
    done = doctor("check", "--from", doctor.report(depth=depth), "-q", *words)
    assert done.returncode == code, done.stderr
    is_bare = (depth, code) == (Depth.BUILD, 0)
    assert ("compiled and loaded, which is what was asked for; none was measured" in done.stderr) is is_bare
    assert bool(re.search(r"\b2 rows work, \d+ unknown", done.stderr)) is (depth is Depth.BUILD)


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_explain_gate_says_each_requirement_and_the_deciding_line_stays_last(doctor, quiet):
    text = (
        'require = {"norm.*" = "verified"}\nversions = {torch = ">=2"}\n'
        'allow = [{feature = "kv.*", reason = "x", expires = 2999-01-01},'
        ' {feature = "norm.*", reason = "y", expires = 2020-01-01}]'
    )
    path = policy(doctor, text)
    report = doctor.report(broken=(BROKEN,))
    done = doctor("check", "--from", report, "--explain-gate", *quiet)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines.pop(0) == f"gate: policy       {path}"
    assert lines[0].startswith("gate: no           decided: no selected row is broken or wrong-result (default): norm.")
    assert lines[2].startswith(
        "gate: no           norm.*: works, verified, full (fi-doctor.toml: require): norm.rmsnorm"
    )
    assert lines[3].startswith("gate: yes          torch >=2 (fi-doctor.toml: versions): torch is 2.")
    assert lines[4] == "gate: allow        feature kv.*, unused, until 2999-01-01: x"
    assert lines[6] == f"warning: allow in {path}: feature kv.* excused nothing; allowed until 2999-01-01: x"
    assert lines[7].startswith(f"warning: allow in {path}: feature norm.* expired on 2020-01-01")
    assert lines[8].startswith("fi-doctor: ")
    assert lines[8].endswith("(exit 1)")
    assert len(lines) == 9


def test_explain_gate_says_so_where_all_holds(doctor):
    lines = doctor("check", "--from", doctor.report(), "--explain-gate").stderr.splitlines()
    assert lines[-2:-1] == ["gate: every requirement holds"]
    assert "decided" not in "\n".join(lines)


def test_explain_gate_names_every_culprit_and_who_set_what_and_breaks_no_line_that_a_script_reads(doctor):
    policy(doctor, 'budget = "5m"\nformat = ["console", "json:out.json"]')
    report = doctor.report(broken=(BROKEN, "kv.append_paged"), wrong=("norm.fused_add_rmsnorm",))
    env = {"FI_DOCTOR_JOBS": "3", "FI_DOCTOR_FEATURE": "norm.*,kv.*"}
    lines = doctor("check", "--from", report, "--explain-gate", "--rows", "all", env=env).stderr.splitlines()
    assert lines[0].startswith("gate: policy       ")
    at = lines.index("gate: set          budget 5m (fi-doctor.toml: budget)")
    assert lines[at + 1 : at + 5] == [
        "gate: set          feature norm.*, kv.* (FI_DOCTOR_FEATURE)",
        "gate: set          format console, json:out.json (fi-doctor.toml: format)",
        "gate: set          jobs 3 (FI_DOCTOR_JOBS)",
        "gate: set          rows all (--rows)",
    ]
    told = lines[at + 5 : -1]
    assert all(line.startswith("gate: ") for line in told)
    assert told[0].startswith("gate: no           decided: no selected row is broken or wrong-result (default): ")
    assert told[0].endswith("; also kv.append_paged on SM90, norm.rmsnorm on SM90")
    assert max(map(len, told)) > 80


WRONG_NUMBERS = ("-1", "1_0", "+2", "\u0663", "9" * 20, "1000000", " 2")
MISTAKES = {
    "feature": (
        'require = {"norm.rmsnrm" = "works"}',
        "no feature is called 'norm.rmsnrm'; the nearest is norm.rmsnorm",
    ),
    "key": ('requir = {"norm.*" = "works"}', "requir: no such key; the nearest is require"),
    "budget": ('budget = "x"', "budget: 'x' is not a duration"),
    "depth": (
        'depth = "statc"',
        "depth: there is no 'statc'; the choices are static, build, run; try: depth = \"static\"",
    ),
    "memory": ('memory = "x"', "memory: 'x' is not a size"),
    "format": ('format = ["jsn"]', "format: there is no 'jsn'"),
    "finding": ('allow = [{finding = "x", reason = "x", expires = 2999-01-01}]', "no finding is called 'x'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_policy_is_2_with_the_file_and_the_place(doctor, name):
    text, said = MISTAKES[name]
    path = policy(doctor, text)
    done = doctor("check", "--from", doctor.report())
    assert (done.returncode, done.stdout) == (2, "")
    parts = in_three_parts(done.stderr)
    assert str(path) in parts["error"]
    assert said in parts["why"]
    assert parts["try"] == "mend the file, or leave it out with --no-config"


def test_all_mistakes_are_told_at_once_and_before_anything_is_started(doctor):
    policy(doctor, "\n".join(text for name, (text, _) in MISTAKES.items() if name != "key") + "\njobs = -1")
    started = script(doctor.folder / "python", "#!/bin/sh\ntouch started\n")
    done = doctor("check", "--python", started)
    assert done.returncode == 2
    assert "7 errors" in done.stderr
    assert all(said in done.stderr for name, (_, said) in MISTAKES.items() if name != "key")
    assert not (doctor.folder / "started").exists()


def test_a_policy_that_is_named_may_be_a_stream_and_no_pipe_that_nobody_writes_to(doctor):
    done = doctor("check", "--from", doctor.report(), "--config", "/dev/stdin", "-f", "json", data="jobs = 3")
    assert json.loads(done.stdout)["request"]["jobs"] == 3
    os.mkfifo(doctor.folder / "pipe.toml")
    done = doctor("check", "--from", doctor.report(), "--config", "pipe.toml")
    assert done.returncode == 2
    assert "neither a file nor a stream" in in_three_parts(done.stderr)["why"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("\ufeffjobs = 3".encode(), "it begins with a byte order mark"),
        ("jobs = 3".encode("utf-16"), "it begins with UTF-16"),
    ],
    ids=["mark", "utf-16"],
)
def test_a_policy_of_windows_is_2_and_says_what_is_the_matter(doctor, data, said):
    (doctor.folder / "fi-doctor.toml").write_bytes(data)
    done = doctor("check", "--from", doctor.report())
    assert done.returncode == 2
    assert in_three_parts(done.stderr)["why"] == f"fi-doctor.toml: {said}; TOML is UTF-8 without a mark"


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (["--config", "none.toml"], {}, "No such file"),
        (["--config", "."], {}, "Is a directory"),
        ([], {"FI_DOCTOR_CONFIG": "none.toml"}, "No such file"),
        (["--config", "x", "--no-config"], {}, "a policy or none"),
        (["--fail-on", "brokn"], {}, "--fail-on: there is no 'brokn'"),
        (["--fail-on", "none,broken"], {}, '--fail-on: "none" lets no verdict fail, and "broken" is one'),
        ([], {"FI_DOCTOR_REQUIRE": ","}, "FI_DOCTOR_REQUIRE: ',' names nothing"),
        ([], {"FI_DOCTOR_FAIL_ON": "brokn"}, "FI_DOCTOR_FAIL_ON=broken"),
        (["--rows", "caled"], {}, "try: --rows called"),
        ([], {"FI_DOCTOR_ROWS": "caled"}, "try: FI_DOCTOR_ROWS=called"),
        ([], {"FI_DOCTOR_BUDGET": "x"}, "FI_DOCTOR_BUDGET=10m"),
        *(
            ([], {"FI_DOCTOR_JOBS": word}, f"FI_DOCTOR_JOBS: {word!r} is not a whole number up to")
            for word in WRONG_NUMBERS
        ),
        *((["--jobs", word], {}, f"'--jobs': {word!r} is not a whole number up to") for word in WRONG_NUMBERS),
        (["--budget", "\u0663m"], {}, "is not a duration"),
        (["--memory", "\u0663g"], {}, "is not a size"),
        ([], {"FI_DOCTOR_DEPTH": "garbage"}, "try: FI_DOCTOR_DEPTH=static"),
        ([], {"FI_DOCTOR_FEATURE": "norm.rmsnrm"}, "FI_DOCTOR_FEATURE=norm.rmsnorm"),
        ([], {"FI_DOCTOR_REQUIRE": "norm.rmsnrm"}, "FI_DOCTOR_REQUIRE=norm.rmsnorm"),
        ([], {"FI_DOCTOR_REQUIRE": "norm.rmsnorm=bult"}, "FI_DOCTOR_REQUIRE=norm.rmsnorm=built"),
        (["--require", "norm.rmsnorm="], {}, "--require: there is no 'norm.rmsnorm='"),
        (["--require", "norm.*=verified,subset"], {}, "--require: 'subset' is a scope and no feature"),
        (["--require", "norm.rmsnrm=built"], {}, "try: --require norm.rmsnorm"),
        ([], {"FI_DOCTOR_FORMAT": "jsn"}, "FI_DOCTOR_FORMAT=json"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list | dict) else "",
)
def test_a_mistake_beside_the_policy_is_2_and_names_its_place(doctor, words, env, said):
    done = doctor("check", "--from", doctor.report(), *words, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("REQUIRES", "REQUIRE"),
        ("FAILON", "FAIL_ON"),
        ("FAIL-ON", "FAIL_ON"),
        ("BUGDET", "BUDGET"),
        ("JOB", "JOBS"),
        ("rows", "ROWS"),
        ("DEPHT", "DEPTH"),
    ],
)
def test_a_variable_that_is_nearly_called_like_one_that_is_read_is_2_with_that_one(doctor, name, meant):
    done = doctor("check", "--from", doctor.report(), env={f"FI_DOCTOR_{name}": "1"})
    assert (done.returncode, done.stdout) == (2, "")
    said = in_three_parts(done.stderr)
    assert f"FI_DOCTOR_{name}" in said["error"]
    assert said["why"].endswith(f"the nearest that is read is FI_DOCTOR_{meant}")


def test_variables_that_others_set_for_things_called_alike_are_left_alone(doctor):
    """As Kubernetes does for services that are called fi-doctor and fi-doctor-require."""
    names = ["SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR", "REQUIRE_PORT", "CHILD"]
    env = {f"FI_DOCTOR_{name}": "tcp://10.0.0.1:80" for name in names}
    done = doctor("check", "--from", doctor.report(), env={**env, "FI_DOCTOR_REQUIRES": "", "FI_DOCTOR_ALLOW": ""})
    assert done.returncode == 0
    assert "warning: " not in done.stderr


@pytest.mark.parametrize("name", ["VERSIONS", "ALLOW", "POLICY", "PYTHON", "LOCKED", "VLLM"])
def test_a_variable_that_is_not_read_is_a_warning_that_says_what_is_read(doctor, name):
    done = doctor("check", "--from", doctor.report(), env={f"FI_DOCTOR_{name}": "x"})
    assert done.returncode == 0
    [told] = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    why = f": {name.lower()} is a key of the policy only" if name in ("VERSIONS", "ALLOW") else ""
    assert told.startswith(f"warning: FI_DOCTOR_{name} is not read{why}; read are FI_DOCTOR_BUDGET, _CONFIG, _DEPTH, ")
    assert told.endswith("_ROWS")


@pytest.mark.parametrize(
    "env",
    [
        {"FAIL_ON": "a", "REQUIRE": "nrom.x", "FEATURE": "nope", "JOBS": "x", "MEMORY": "q"},
        {"FAIL_ON": "a", "REQUIRE": "nrom.x", "FEATURE": "nope", "ROWS": "b"},
        {"ROWS": "b", "DEPTH": "c"},
        {"REQUIRES": "b", "BUGDET": "1", "FEATURE": "nope"},
    ],
    ids=", ".join,
)
def test_all_variables_that_cannot_be_used_are_told_at_once(doctor, env):
    done = doctor("check", "--from", doctor.report(), env={f"FI_DOCTOR_{name}": value for name, value in env.items()})
    assert done.returncode == 2
    said = in_three_parts(done.stderr)
    assert said["error"] == f"{len(env)} values cannot be used"
    assert all(f"FI_DOCTOR_{name}: " in done.stderr for name in env)


def test_every_variable_that_is_named_on_the_page_is_read(doctor):
    """Each is refused for a value that it cannot have."""
    text = (ROOT / "docs" / "gating.md").read_text(encoding="utf-8")
    [listed] = re.findall(r"before `FI_DOCTOR_([A-Z`_, \n]+?) and\n?\s*`_CONFIG`", text)
    names = [*re.findall(r"[A-Z]+(?:_[A-Z]+)*", listed), "CONFIG"]
    assert sorted(names) == sorted(settle.READ)
    for name in names:
        done = doctor("check", "--from", doctor.report(), env={f"FI_DOCTOR_{name}": "no/such"})
        assert (name, done.returncode) == (name, 2)


def test_what_is_wrong_beside_the_policy_is_told_at_once(doctor):
    env = {"FI_DOCTOR_DEPTH": "deep", "FI_DOCTOR_JOBS": "x"}
    done = doctor("check", "-f", "xml", "--budget", "soon", env=env)
    assert done.returncode == 2
    assert in_three_parts(done.stderr)["error"] == "4 values cannot be used"
    for words in (
        "FI_DOCTOR_DEPTH: there is no 'deep'",
        "FI_DOCTOR_JOBS: 'x' is not",
        "--budget: 'soon'",
        "there is no 'xml'",
    ):
        assert words in done.stderr


def test_what_to_try_in_a_policy_is_toml(doctor):
    policy(doctor, 'budget = "x"\nformat = ["jsn", "junit:"]\nmemory = "x"')
    said = doctor("check", "--from", doctor.report()).stderr
    assert 'try: budget = "10m"' in said
    assert 'try: memory = "16g"' in said
    assert 'try: format = "json"' in said
    policy(doctor, 'format = ["json", "yaml"]')
    both = in_three_parts(doctor("check", "--from", doctor.report()).stderr)
    assert both["try"] == 'format = "yaml:FILE"'


def test_a_family_that_is_mistyped_has_a_nearest_one(doctor):
    done = doctor("check", "--from", doctor.report(), "--require", "nrom.*")
    assert in_three_parts(done.stderr)["try"] == "--require norm.*"


def test_report_and_warm_take_no_policy(doctor):
    policy(doctor, "broken [")
    assert doctor("report", "--from", doctor.report()).returncode == 0


def test_a_policy_may_name_no_file_that_cannot_be(doctor):
    policy(doctor, 'format = ["nfd:a\\u0000b"]')
    done = doctor("check", "--from", doctor.report())
    assert done.returncode == 2
    assert "embedded null byte" in in_three_parts(done.stderr)["why"]
