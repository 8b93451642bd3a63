"""What is said of settings that somebody wrote down, in several versions of vLLM."""

from __future__ import annotations

from pathlib import Path

import factory as make
import pytest

from fi_doctor import settings
from fi_doctor.diagnosis import given, unheld
from fi_doctor.facts.registry import read_registry
from fi_doctor.knowledge import registry
from fi_doctor.model import Missing, Severity
from fi_doctor.model.given import Stated
from fi_doctor.model.registry import Parse, Registered, Registry

NOT_READ = Missing(reason="its source was not read")


def found(version, *stated, environment=None, readings=None, **changes):
    facts = make.facts(packages={"vllm": version}, environment=environment or {}, **{"vllm": NOT_READ, **changes})
    return settings.find(facts, stated, readings or {})


def variable(name, value, **place):
    return Stated(name=name, kind="env", value=value, **place)


def flag(name, value="", **place):
    return Stated(name=name, kind="flag", value=value, **{"file": "--vllm-args", "server": "vllm", **place})


def told(findings):
    return [(one.id, one.severity.value, one.title) for one in findings]


def test_a_variable_that_the_version_reads_is_passed_over():
    assert found("0.14.1", environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"}) == ()


def test_a_variable_of_older_releases_is_unknown_and_its_successor_is_spelled_out():
    [one] = found("0.17.1", environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    assert told([one]) == [("setting-unknown", "warning", "vLLM 0.17.1 does not know VLLM_ATTENTION_BACKEND")]
    assert one.why.startswith("In vLLM 0.11.0 to 0.14.1, not in 0.17.1. Whatever its value, it has no effect.")
    assert one.fix == (
        "add to the command line: --attention-backend FLASHINFER  # the attention backend is an argument",
        "unset VLLM_ATTENTION_BACKEND",
    )
    assert one.source == "vllm/config/attention.py:93 (0.14.1)"


def test_true_for_a_switch_of_0_and_1_is_refused():
    [one] = found("0.20.2", environment={"VLLM_USE_FLASHINFER_MOE_FP8": "true"})
    title = "vLLM 0.20.2 cannot read VLLM_USE_FLASHINFER_MOE_FP8=true"
    assert told([one]) == [("setting-value-refused", "error", title)]
    assert one.fix == ("export VLLM_USE_FLASHINFER_MOE_FP8=1",)
    assert (one.source, "envs.py:1303" in one.why) == ("vllm/envs.py:1303 (0.20.2)", True)
    assert found("0.20.2", environment={"VLLM_USE_FLASHINFER_MOE_FP8": "1"}) == ()


def test_a_switch_that_became_an_argument_names_its_choices():
    [one] = found("0.33.0", environment={"VLLM_USE_FLASHINFER_MOE_FP8": "1"})
    assert one.id == given.UNKNOWN
    assert one.fix[0].startswith("add to the command line: --moe-backend flashinfer_trtllm  # or flashinfer_cutlass: ")


def test_a_variable_that_is_registered_and_read_nowhere_is_told():
    environment = {"VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB": "{}"}
    [one] = found("0.20.2", environment=environment)
    assert (one.id, one.severity) == (given.NEVER_READ, Severity.WARNING)
    assert "envs.py:1403" in one.why
    assert one.fix[0].startswith("--compilation-config.pass_config.fi_allreduce_fusion_max_size_mb stands for it")
    assert found("0.11.0", environment=environment) == ()


def test_any_text_turns_on_what_asks_for_a_text_only():
    [one] = found("0.11.0", environment={"VLLM_HAS_FLASHINFER_CUBIN": "0"})
    title = "vLLM 0.11.0: VLLM_HAS_FLASHINFER_CUBIN=0 is the same as 1"
    assert told([one]) == [("setting-means-otherwise", "info", title)]
    assert found("0.11.0", environment={"VLLM_HAS_FLASHINFER_CUBIN": "1"}) == ()
    assert found("0.33.0", environment={"VLLM_HAS_FLASHINFER_CUBIN": "0"}) == ()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("FLASHINFER_DISABLE_JIT", "0", "is the same as 1"),
        ("FLASHINFER_DISABLE_JIT", "1", ""),
        ("FLASHINFER_KDA_T1_FAST_PATH", "0", ""),  # it is left out where the text is not "1"
        ("FLASHINFER_KDA_T1_FAST_PATH", "true", "is the same as 0"),
        ("FLASHINFER_CUDNN_PREFILL_SHAPE_OVERRIDE", "0", ""),
        ("FLASHINFER_NVFP4_QUANTIZE_USE_TMA", "0", ""),  # set or not, and then compared with "1"
    ],
)
def test_a_word_is_compared_with_what_1_and_0_give(name, value, told):
    facts = make.facts(packages={"flashinfer-python": "0.7.2.post1"}, environment={name: value})
    titles = [one.title for one in settings.find(facts)]
    assert titles == ([f"FlashInfer 0.7.2.post1: {name}={value} {told}"] if told else [])


def test_the_default_of_a_variable_that_is_asked_for_is_not_the_same_as_none():
    [one] = found("0.33.0", environment={"VLLM_USE_FLASHINFER_SAMPLER": "1"})
    assert one.title == "vLLM 0.33.0: VLLM_USE_FLASHINFER_SAMPLER=1 is not the same as leaving it unset"
    assert found("0.33.0", environment={"VLLM_USE_FLASHINFER_SAMPLER": "0"}) == ()


@pytest.mark.parametrize("version", ["0.11.0", "0.17.1", "0.33.0"])
def test_a_name_of_a_fork_is_in_no_release(version):
    [one] = found(version, environment={"VLLM_USE_FLASHINFER_NORM": "1"})
    assert one.id == given.UNKNOWN
    assert one.why.startswith("None of the releases of vLLM from 0.11.0 to 0.33.0 that were read has it.")
    assert one.fix[0].startswith("Nothing stands for it")
    assert ("--fail-on-environ-validation" in one.why) == (version != "0.11.0")


def test_a_fork_that_is_installed_reads_its_own_variables():
    vllm = make.vllm(other_variables={"VLLM_USE_FLASHINFER_NORM": "model_executor/layers/layernorm.py"})
    assert found("0.14.1", environment={"VLLM_USE_FLASHINFER_NORM": "1"}, vllm=vllm) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLASHINFER_CUDA_ARCH_LIST", "9.0a"),
        ("FLASHINFER_SSU_HEADS_PER_CTA", "2"),  # C++ reads these
        ("FLASHINFER_TRTLLM_MOE_OVERLAP_RESERVED_SMS", "8"),
        ("VLLM_BATCH_INVARIANT", "1"),  # read without being registered
        ("VLLM_BUILD_COMMIT", "abc"),
        ("VLLM_TARGET_DEVICE", "cuda"),
        ("VLLM_ROUTER_SERVICE_PORT_HTTP", "80"),
        ("VLLM_ROUTER_PORT", "tcp://10.0.0.7:80"),
        ("SGLANG_NO_SUCH", "1"),  # SGLang is not installed
        ("MAX_JOBS", "many"),
    ],
)
def test_what_is_known_or_meant_for_others_is_passed_over(name, value):
    assert found("0.14.1", environment={name: value}) == ()


def test_variables_in_a_container_of_the_other_server_are_passed_over():
    place = {"file": "d.yaml", "part": "c", "server": "sglang"}
    assert found("0.33.0", variable("VLLM_NO_SUCH", "1", **place), variable("VLLM_USE_V1", "1", **place)) == ()


def test_settings_of_sglang_are_judged_where_it_is_installed():
    facts = make.facts(
        packages={"sglang": "0.5.18"}, environment={"SGLANG_NO_SUCH": "1", "SGLANG_USE_MODELSCOPE": "true"}
    )
    [one, other] = settings.find(facts, (flag("--enable-deepep-moe", server="sglang", file="Dockerfile", line=3),))
    assert one.title == "SGLang 0.5.18 does not know SGLANG_NO_SUCH"
    assert other.title == "SGLang 0.5.18 has no --enable-deepep-moe (Dockerfile:3)"
    assert other.fix[0].startswith("add to the command line: --moe-a2a-backend deepep")


def test_of_hidden_values_only_the_name_is_judged():
    assert found("0.20.2", environment={"VLLM_USE_FLASHINFER_MOE_FP8": "<hidden>"}) == ()
    assert [one.id for one in found("0.20.2", environment={"VLLM_NO_SUCH": "<hidden>"})] == [given.UNKNOWN]


def test_a_name_that_is_nearly_known_is_asked_for():
    [one] = found("0.14.1", environment={"VLLM_ATENTION_BACKEND": "FLASHINFER"})
    assert one.fix == ("Is VLLM_ATTENTION_BACKEND meant?", "unset VLLM_ATENTION_BACKEND")


@pytest.mark.parametrize("table", ["variables", "other_variables", "unread_variables"])
def test_of_files_that_could_not_be_read_nothing_is_said(table):
    vllm = make.vllm(unreadable={table: "cut off"})
    assert found("0.14.1", environment={"VLLM_NO_SUCH": "1"}, vllm=vllm) == ()


def test_of_a_build_that_is_not_shipped_only_the_names_in_its_files_are_told():
    environment = {"VLLM_NO_SUCH": "1", "VLLM_USE_FLASHINFER_SAMPLER": "true"}
    [one] = found("0.34.0.dev3", environment=environment, vllm=make.vllm())
    assert (one.id, one.title) == (given.UNKNOWN, "vLLM 0.34.0.dev3 does not know VLLM_NO_SUCH")
    assert found("0.34.0.dev3", environment=environment) == ()
    dead = {"VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB": "{}"}
    assert [each.id for each in found("0.34.0.dev3", environment=dead, vllm=make.vllm())] == [given.NEVER_READ]


def test_without_vllm_its_variables_are_passed_over_and_what_was_given_is_not_judged():
    facts = make.facts(environment={"VLLM_NO_SUCH": "1"})
    assert settings.find(facts) == ()
    [one] = settings.find(facts, (variable("VLLM_NO_SUCH", "1", file="a.env", line=1),))
    assert (one.id, one.severity, one.why) == (given.NOT_JUDGED, Severity.INFO, "not installed in /venv/bin/python")


def test_a_setting_of_the_installed_files_alone_is_of_a_modified_build():
    own = Registered(
        name="VLLM_OURS",
        kind="env",
        type="bool",
        parse=Parse.BOOL_INT,
        default=False,
        source="envs.py:9",
        read_in=("a.py",),
    )
    readings = {"vllm": Registry(owner="vllm", version="0.20.2", settings={"VLLM_OURS": own})}
    one, other = found("0.20.2", environment={"VLLM_OURS": "on"}, readings=readings)
    assert (one.title, one.severity) == ("VLLM_OURS is of a modified build, not of vLLM 0.20.2", Severity.INFO)
    assert other.id == given.REFUSED


def test_altered_files_are_read_and_the_release_is_not_believed(tmp_path: Path):
    package = tmp_path / "vllm"
    package.mkdir()
    table = '{"VLLM_OURS": lambda: bool(int(os.getenv("VLLM_OURS", "0")))}'
    (package / "envs.py").write_text(f"import os\nenvironment_variables = {table}\n")
    (package / "a.py").write_text("import vllm.envs as envs\nprint(envs.VLLM_OURS)\n")
    facts = make.facts(
        packages={"vllm": "0.20.2"},
        environment={"VLLM_OURS": "1"},
        vllm=make.vllm(root=str(package), altered={"envs.py": "other"}, variables={"VLLM_OURS": "envs.py:2"}),
    )
    read = settings.read_installed(facts, ())
    assert "VLLM_OURS" in read["vllm"].settings
    assert [one.id for one in settings.find(facts, (), read)] == [given.OF_A_MODIFIED_BUILD]
    assert isinstance(read_registry(package, "vllm", "0.20.2"), Registry)


def test_a_flag_of_newer_releases_is_unknown():
    [one] = found("0.20.2", flag("--linear-backend", "marlin"))
    title = "vLLM 0.20.2 has no --linear-backend (--vllm-args)"
    assert told([one]) == [("setting-unknown", "error", title)]
    assert one.why == "In vLLM 0.22.0 to 0.33.0, not in 0.20.2. vLLM does not start with it."
    assert found("0.22.0", flag("--linear-backend", "marlin")) == ()


@pytest.mark.parametrize(
    "name", ["--port", "--host", "--api-key", "--no-grpc", "--ssl-cert", "--log-level", "--task", "--max-num"]
)
def test_flags_that_the_registry_does_not_hold_are_passed_over(name):
    assert found("0.17.1", flag(name, "1")) == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [("--gpu-memory-utilisation", "--gpu-memory-utilization"), ("--attention-backendd", "--attention-backend")],
)
def test_a_misspelt_flag_is_told_with_the_one_that_is_meant(name, meant):
    [one] = found("0.33.0", flag(name, "x"))
    assert told([one]) == [("setting-unknown", "warning", f"vLLM 0.33.0 has no {name} (--vllm-args)")]
    assert one.why.startswith("None of the releases of vLLM from 0.11.0 to 0.33.0 that were read has it.")
    assert one.fix == (f"Is {meant} meant?", f"Take {name} out of --vllm-args")
    assert found("0.33.0", flag(meant, "0.9" if "gpu" in meant else "FLASHINFER")) == ()


def test_of_a_flag_like_no_other_it_is_told_that_the_http_servers_were_not_looked_up():
    [one] = found("0.17.1", flag("--no-such", "1"))
    assert told([one]) == [("setting-unknown", "info", "vLLM 0.17.1 may have no --no-such (--vllm-args)")]
    assert one.why.endswith("The HTTP server's own flags of this release were not looked up: it may be one of those.")
    assert one.fix == ()
    facts = make.facts(packages={"sglang": "0.5.23"}, vllm=NOT_READ)
    [one] = settings.find(facts, (flag("--no-such", server="sglang"),))  # its registry holds its HTTP server's, too
    assert (one.severity, one.title) == (Severity.WARNING, "SGLang 0.5.23 has no --no-such (--vllm-args)")


def test_no_flag_of_the_http_server_is_taken_for_a_misspelt_one():
    releases = registry.releases("vllm")
    asked = {unheld.asked(name, registry.at("vllm", one)) for name in unheld.HTTP_SERVER for one in releases[::8]}
    assert asked == {()}


def test_a_value_that_is_nearly_one_of_many_has_that_one_named_first():
    [one] = found("0.33.0", flag("--attention-backend", "FLASHINFR"))
    assert one.why.startswith("'FLASHINFR' is none of FLASHINFER, FLASH_ATTN, ")
    assert one.fix[0] == "Is FLASHINFER meant?"
    [one] = found("0.33.0", flag("--attention-backend", "nothing like it"))
    assert "is none of FLASH_ATTN, " in one.why
    assert len(one.fix) == 1


def test_a_key_that_a_dotted_flag_reaches_is_judged_too():
    name = "--attention-config.use_cudnn_prefill"
    [one] = found("0.33.0", flag(name, "true"))
    assert one.title == f"vLLM 0.33.0 has no {name} (--vllm-args)"
    assert one.fix[0].startswith("--attention-config.mla_prefill_backend stands for it")
    assert found("0.20.2", flag(name, "true")) == ()


def test_a_word_that_is_no_choice_is_refused_and_the_model_behind_a_flag_is_not():
    [one] = found("0.33.0", flag("--moe-backend", "foo"))
    assert (one.id, one.severity) == (given.REFUSED, Severity.ERROR)
    assert found("0.33.0", flag("--moe-backend", "marlin", more=("org/model",)), flag("--enforce-eager", "org/m")) == ()
    [one] = found("0.33.0", flag("--enforce-eager", "true"))
    assert one.fix == ("add to the command line: --enforce-eager",)


def test_a_flag_of_several_numbers_and_a_short_one_are_no_finding():
    sizes = flag("--cudagraph-capture-sizes", "1", more=("2", "4"))
    assert found("0.33.0", sizes) == ()
    [one] = found("0.33.0", flag("--cudagraph-capture-sizes", "1", more=("two",)))
    assert one.id == given.REFUSED
    assert found("0.11.0", flag("--optimization-level", "3")) == ()  # -O3, which sets its --compilation-config


def test_a_number_that_flashinfer_cannot_read_is_a_warning():
    environment = {"FLASHINFER_CUBIN_DOWNLOAD_THREADS": "many"}
    facts = make.facts(packages={"flashinfer-python": "0.7.2.post1"}, environment=environment)
    assert [(one.id, one.severity) for one in settings.find(facts)] == [(given.REFUSED, Severity.WARNING)]


def test_one_setting_in_two_places_is_one_finding():
    places = [{"file": "deploy.yaml", "line": line, "part": f"container {line}"} for line in (4, 9)]
    [one] = found("0.33.0", *(variable("VLLM_USE_V1", "1", **place) for place in places))
    assert one.title == "vLLM 0.33.0 does not know VLLM_USE_V1 (deploy.yaml:4 (container 4) and 1 more)"
    assert one.why.endswith("It stands in deploy.yaml:4 (container 4), deploy.yaml:9 (container 9).")
    assert one.fix == ("Take VLLM_USE_V1 out of deploy.yaml:4 (container 4)",)


@pytest.mark.parametrize(
    ("version", "given_here", "fires"),
    [
        (
            "0.14.1",
            (variable("VLLM_ATTENTION_BACKEND", "FLASHINFER"), flag("--attention-backend", "TRITON_ATTN")),
            True,
        ),
        (
            "0.14.1",
            (variable("VLLM_ATTENTION_BACKEND", "FLASHINFER"), flag("--attention-backend", "FLASHINFER")),
            False,
        ),
        ("0.20.2", (variable("VLLM_USE_FLASHINFER_MOE_FP8", "1"), flag("--moe-backend", "triton")), True),
        ("0.20.2", (variable("VLLM_USE_FLASHINFER_MOE_FP8", "1"), flag("--moe-backend", "flashinfer_cutlass")), False),
        ("0.20.2", (variable("VLLM_USE_FLASHINFER_MOE_FP8", "1"), flag("--moe-backend", "auto")), False),
        ("0.20.2", (variable("VLLM_USE_FLASHINFER_MOE_FP8", "true"), flag("--moe-backend", "triton")), False),
        ("0.33.0", (variable("VLLM_USE_FLASHINFER_MOE_FP8", "1"), flag("--moe-backend", "triton")), False),
        ("0.33.0", (flag("--moe-backend", "marlin", file="d.yaml", part="c"), flag("--moe-backend", "triton")), True),
        ("0.33.0", (flag("--moe-backend", "marlin", part="a"), flag("--moe-backend", "triton", part="b")), False),
        ("0.33.0", (flag("--enforce-eager"), flag("--no-enforce-eager")), True),
        (
            "0.33.0",
            (flag("--attention-backend", "flashinfer"), flag("--attention-config.backend", "FLASHINFER")),
            False,
        ),
        (
            "0.33.0",
            (flag("--attention-backend", "flashinfer"), flag("--attention-config.backend", "TRITON_ATTN")),
            True,
        ),
        ("0.33.0", (flag("--tensor-parallel-size", "8"), flag("--tensor-parallel-size", "08")), False),
        (
            "0.14.1",
            (
                variable("VLLM_USE_FLASHINFER_SAMPLER", "0", file="a.env"),
                variable("VLLM_USE_FLASHINFER_SAMPLER", "0", file="b.env"),
            ),
            False,
        ),
        (
            "0.14.1",
            (
                variable("VLLM_USE_FLASHINFER_SAMPLER", "0", file="a.env"),
                variable("VLLM_USE_FLASHINFER_SAMPLER", "1", file="b.env"),
            ),
            True,
        ),
    ],
)
def test_two_settings_of_one_key_contradict_each_other_where_only_one_can_hold(version, given_here, fires):
    clashes = [one for one in found(version, *given_here) if one.id == given.CONTRADICT]
    assert len(clashes) == fires
    assert all(one.severity is Severity.WARNING and "only one of them can hold" in one.why for one in clashes)
