from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.conditions import Truth, View, check, check_text, fill, holds, unknowns
from fi_doctor.conditions.subjects import KEYED, SUBJECTS
from fi_doctor.model import Ending, Missing, Stage

YES, NO, UNKNOWN = Truth.YES, Truth.NO, Truth.UNKNOWN
HEALTHY = View(make.facts())
NO_GPU = View(make.facts(gpus=make.no_gpus()))

# A leaf of each truth: sm is 90 here, and whether CUDA of the jit-cache is newer is not known.
LEAF = {YES: {"sm": 90}, NO: {"sm": 100}, UNKNOWN: {"jit_cache_cuda": ">=12"}}


@pytest.mark.parametrize(
    ("word", "parts", "expected"),
    [
        ("all", (YES, YES), YES),
        ("all", (YES, UNKNOWN), UNKNOWN),
        ("all", (UNKNOWN, NO), NO),
        ("any", (NO, NO), NO),
        ("any", (NO, UNKNOWN), UNKNOWN),
        ("any", (UNKNOWN, YES), YES),
    ],
    ids=lambda value: (
        value
        if isinstance(value, str)
        else "-".join(v.value for v in value)
        if isinstance(value, tuple)
        else value.value
    ),
)
def test_all_and_any_follow_kleene(word, parts, expected):
    assert holds({word: [LEAF[part] for part in parts]}, HEALTHY) is expected


@pytest.mark.parametrize(("inner", "expected"), [(YES, NO), (NO, YES), (UNKNOWN, UNKNOWN)], ids=lambda t: t.value)
def test_not_turns_yes_and_no_and_leaves_unknown(inner, expected):
    assert holds({"not": LEAF[inner]}, HEALTHY) is expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"sm": 90}, YES),
        ({"sm": ">=90,<100"}, YES),
        ({"sm": ">=100"}, NO),
        ({"gpu_count": 1}, YES),
        ({"driver_cuda": ">=12.8"}, YES),
        ({"nvcc": "<12.8"}, NO),
        ({"nvcc": ">=12.8,<13"}, NO),
        ({"flashinfer": ">=0.7,<0.8"}, YES),
        ({"cuda_home_found_by": ["CUDA_HOME", "CUDA_PATH"]}, YES),
        ({"cuda_home_found_by": "which nvcc"}, NO),
        ({"cuda_home": {"matches": "cuda-13"}}, YES),
        ({"cache_writable": True}, YES),
        ({"version_check_disabled": True}, NO),
        ({"package": {"flashinfer-python": ">=0.7.2.dev0", "torch": ">=2.14"}}, YES),
        ({"package": {"flashinfer-python": ">=0.7.2.dev0", "torch": ">=3"}}, NO),
        ({"package": {"vllm": ">=0.1"}}, UNKNOWN),
        ({"package": {"never-heard-of": ">=1"}}, UNKNOWN),
        ({"installed": {"vllm": False}}, YES),
        ({"installed": {"torch": True}}, YES),
        ({"installed": {"never-heard-of": False}}, UNKNOWN),
        ({"library": {"cudart": ">=13"}}, YES),
        ({"library": {"nccl": ">=2"}}, UNKNOWN),
        ({"env_set": {"CUDA_HOME": False}}, YES),
        ({"env": {"CUDA_HOME": "/usr"}}, NO),
        ({"missing": "nvcc"}, NO),
        ({"missing": "jit_cache_cuda"}, YES),
        ({"missing": {"jit_cache_cuda": {"matches": "not installed"}}}, YES),
        ({"missing": {"jit_cache_cuda": "another reason"}}, NO),
        ({"cubin_matches": False}, NO),
    ],
    ids=str,
)
def test_a_leaf_on_a_healthy_machine(condition, expected):
    assert check(condition, "when") == []
    assert holds(condition, HEALTHY) is expected


@pytest.mark.parametrize(
    "condition",
    [
        {"sm": ">=1"},
        {"gpu_count": 0},
        {"driver_cuda": ">=1"},
        {"nvcc_newer_than_driver": True},
        {"machine_gpu_count": ">=1"},
    ],
    ids=str,
)
def test_a_leaf_about_a_missing_fact_is_unknown(condition):
    assert holds(condition, NO_GPU) is UNKNOWN


def test_any_visible_gpu_decides_a_leaf_and_a_hidden_one_does_not():
    view = View(
        make.facts(
            gpus=make.gpu_facts(make.gpu(sm=90), make.gpu(sm=120, index=1), make.gpu(sm=100, index=2, visible=False))
        )
    )
    assert holds({"sm": 120}, view) is YES
    assert holds({"sm": 100}, view) is NO
    assert holds({"machine_gpu_count": 3}, view) is YES


def test_one_gpu_of_unknown_capability_makes_only_open_questions_unknown():
    view = View(make.facts(gpus=make.gpu_facts(make.gpu(sm=90), make.gpu(sm=Missing(reason="MIG"), index=1))))
    assert holds({"sm": 90}, view) is YES
    assert holds({"sm": 120}, view) is UNKNOWN


def test_gpus_are_not_called_hidden_where_cuda_could_not_be_asked():
    view = View(make.facts(gpus=make.gpu_facts(cuda_order=Missing(reason="cuInit failed"))))
    assert holds({"gpu_count": 0}, view) is UNKNOWN
    assert holds({"missing": "gpu_count"}, view) is YES


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ({"probe": "norm.*", "ending": "raised"}, YES),
        ({"probe": "norm.*", "ending": ["signalled", "raised"], "stage": "imported"}, YES),
        ({"probe": "norm.*", "ending": "signalled"}, NO),
        ({"probe": "norm.*", "text": "cannot find -lcudart"}, YES),
        ({"probe": "norm.*", "ending": "raised", "sm": ">=100"}, NO),
        ({"probe": "kv.*", "ending": "raised"}, UNKNOWN),
        ({"probe": "norm.*", "variant": "fp16", "ending": "returned"}, YES),
        ({"probe": "norm.*", "variant": "bf16", "ending": "returned"}, NO),
        ({"probe": "norm.*", "variant": "fp8", "ending": "returned"}, UNKNOWN),
    ],
    ids=str,
)
def test_a_leaf_about_outcomes(test, expected):
    cells = (
        make.cell(Ending.RAISED, Stage.IMPORTED, "bf16", detail="ld: cannot find -lcudart"),
        make.cell(variant="fp16"),
        make.cell(Ending.NOT_RUN, Stage.NONE, "fp8"),
    )
    assert check({"outcome": test}, "when") == []
    assert holds({"outcome": test}, View(make.facts(), (make.outcome(cells=cells),))) is expected


def test_a_probe_that_was_not_run_leaves_a_leaf_unknown():
    view = View(make.facts(), (make.outcome(ending=Ending.NOT_RUN, stage=Stage.NONE),))
    assert holds({"outcome": {"probe": "norm.rmsnorm", "ending": "raised"}}, view) is UNKNOWN


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        (
            {"all": [{"sm": 90}, {"sm": "Hopper"}]},
            'when.all[1].sm: expected a number or a range such as ">=90,<100", got "Hopper"',
        ),
        ({"smm": 90}, "when.smm: no such subject; the nearest is 'sm'"),
        ({"al": []}, "when.al: no such subject; the nearest is 'all'"),
        ({"all": []}, "when.all: expected a list of conditions, got []"),
        ({"sm": 90, "nvcc": "<13"}, "when: expected one key"),
        ([], "when: expected one key"),
        ({"nvcc": "13"}, 'when.nvcc: expected a range of versions such as ">=12.8,<13", got "13"'),
        ({"nvcc": ""}, "when.nvcc: expected a range of versions"),
        ({"nvcc": 13.0}, "when.nvcc: expected a range of versions"),
        ({"cache_writable": "yes"}, 'when.cache_writable: expected true or false, got "yes"'),
        ({"sm": True}, "when.sm: expected a number or a range"),
        ({"cuda_home": {"matches": "("}}, "when.cuda_home: '(' is no regular expression of RE2"),
        (
            {"cuda_home": {"matches": "a" * 201}},
            "when.cuda_home: a regular expression of 201 characters; 200 are allowed",
        ),
        (
            {"cuda_home": 1},
            "when.cuda_home: expected a text, a list of texts or {matches: regex, without: regex}, got 1",
        ),
        ({"package": "torch"}, "when.package: expected a mapping of distributions to a test, got 'torch'"),
        (
            {"package": {"torch": "new"}},
            'when.package.torch: expected a range of versions such as ">=12.8,<13", got "new"',
        ),
        ({"missing": "nvc"}, "when.missing: expected a subject"),
        ({"missing": {"nvcc": 1}}, "when.missing.nvcc: expected a text"),
        ({"reason": {"nvc": "x"}}, "when.reason.nvc: no such subject; the nearest is 'nvcc'"),
        ({"outcome": {"ending": "raised"}}, "when.outcome: expected a mapping with the glob of a probe"),
        ({"outcome": {"probe": "*", "ending": "exploded"}}, "when.outcome.ending: no such ending: 'exploded'"),
        ({"outcome": {"probe": "*", "txt": "x"}}, "when.outcome.txt: expected one of"),
        ({"not": {"sm": "x"}}, "when.not.sm: expected a number"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_wrong_condition_is_refused_with_its_place(condition, error):
    [told] = check(condition, "when")
    assert told.startswith(error)


def test_all_errors_of_a_condition_are_told():
    assert len(check({"any": [{"sm": "x"}, {"not": {"nvcc": "y"}}, {"z": 1}]}, "when")) == 3


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("nvcc {nvcc} at {cuda_home}", "nvcc 13.0 at /usr/local/cuda-13.0"),
        ("torch {package:torch}", "torch 2.14.0+cu130"),
        ("{jit_cache_cuda}", "(not known: flashinfer-jit-cache is not installed)"),
        ("{reason:jit_cache_cuda}", "flashinfer-jit-cache is not installed"),
        ("{mismatch}", "none"),
        ('{{"moe": {nvcc}}}', '{"moe": 13.0}'),
        ("{cache_writable}", "yes"),
    ],
)
def test_placeholders_are_filled(text, filled):
    assert check_text(text, "why") == []
    assert fill(text, HEALTHY) == filled


def test_what_is_filled_into_a_command_is_one_word_of_it():
    view = View(make.facts(toolkit=make.toolkit(jit=make.jit(home="/opt/my cuda; rm -rf x"))))
    assert fill("export CUDA_HOME={cuda_home}", view, quote=True) == "export CUDA_HOME='/opt/my cuda; rm -rf x'"


def test_each_value_of_a_list_is_a_word_of_its_own():
    stale = {"norm": "then", "my page": "then"}
    view = View(make.facts(flashinfer=make.flashinfer("0.5.3", stale_modules=stale, cache_dir="/c")))
    line = fill("rm {stale_build_files}", view, quote=True)
    assert line == "rm /c/cached_ops/norm/build.ninja '/c/cached_ops/my page/build.ninja'"
    assert fill("{stale_modules}: {stale_toolkits}", view) == "norm, my page: then"
    assert fill("rm {stale_build_files}", HEALTHY, quote=True) == "rm none"


def test_requirements_that_are_not_installed_are_words_to_install():
    lines = ("torch", "nvidia-cudnn-frontend>=1.13.0", "ninja", "sglang; extra == 'all'", "click", "not a requirement>")
    packages = {
        "flashinfer-python": make.package("flashinfer-python", "0.5.3", requires=lines),
        **{name: make.missing("not installed") for name in ("ninja", "nvidia-cudnn-frontend", "sglang")},
    }
    view = View(make.facts(packages=packages))
    text = "pip install {requirement_not_installed}"
    assert fill(text, view, quote=True) == "pip install 'nvidia-cudnn-frontend>=1.13.0' ninja"


def test_files_that_are_too_many_to_name_are_not_named():
    stale = {f"m{number}": "then" for number in range(9)}
    view = View(make.facts(flashinfer=make.flashinfer("0.5.3", stale_modules=stale)))
    assert unknowns("rm {stale_build_files}", view) == ("{stale_build_files}",)
    assert unknowns("rm {cached_ops}/*/build.ninja", view) == ()


def test_a_line_says_which_of_its_placeholders_are_unknown():
    assert unknowns("{nvcc} {jit_cache_cuda} {env:CC} {package:vllm}", HEALTHY) == (
        "{jit_cache_cuda}",
        "{env:CC}",
        "{package:vllm}",
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{nvc}", "why: {nvc} names no subject; the nearest is 'nvcc'"),
        ("{package}", "why: {package} needs a key, {package:KEY}"),
        ("{nvcc:x}", "why: {nvcc:x} takes no key"),
        ("{", "why: a lone '{'; write it twice to mean a brace"),
        ("{Nvcc}", "why: a lone '{'"),
        ("{reason:nvc}", "why: {reason:nvc} names no subject"),
    ],
)
def test_a_wrong_text_is_refused(text, error):
    assert check_text(text, "why")[0].startswith(error)


@pytest.mark.parametrize("view", [HEALTHY, NO_GPU], ids=["healthy", "no-gpu"])
@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_every_subject_reads_as_values_of_its_kind_or_missing(name, view):
    subject = SUBJECTS[name]
    reading = subject.read(view)
    types = {"number": int, "version": str, "flag": bool, "text": str}
    assert isinstance(reading, Missing) or all(isinstance(v, (types[subject.kind.value], Missing)) for v in reading)


@pytest.mark.parametrize("name", sorted(KEYED))
def test_every_keyed_subject_answers_for_a_key_that_nobody_knows(name):
    reading = KEYED[name].read(HEALTHY, "never-heard-of")
    assert isinstance(reading, (Missing, tuple))


@pytest.mark.parametrize(
    ("nvcc", "torch", "driver", "true"),
    [
        ("13.0", "13.0", "13.0", set()),
        ("13.1", "13.0", "13.0", {"nvcc_newer_than_driver", "nvcc_differs_from_torch"}),
        ("12.8", "12.8", "12.4", {"nvcc_newer_than_driver", "torch_cuda_newer_than_driver"}),
        ("12.6", "13.0", "13.0", {"nvcc_differs_from_torch", "nvcc_major_differs_from_torch"}),
        (
            "13.0",
            "13.0",
            "12.8",
            {
                "nvcc_newer_than_driver",
                "nvcc_major_newer_than_driver",
                "torch_cuda_newer_than_driver",
                "torch_cuda_major_newer_than_driver",
            },
        ),
    ],
    ids=["equal", "nvcc-minor-newer", "minors-newer-than-driver", "majors-differ", "driver-a-major-behind"],
)
def test_versions_are_related(nvcc, torch, driver, true):
    view = View(make.facts(gpus=make.gpu_facts(cuda=driver), toolkit=make.toolkit(nvcc, torch_cuda=torch)))
    names = [
        name for name in SUBJECTS if name.endswith(("_driver", "_from_torch")) and name.startswith(("nvcc", "torch"))
    ]
    assert {name for name in names if holds({name: True}, view) is YES} == true


@pytest.mark.parametrize(
    ("targets", "sm", "unbuilt", "plain"),
    [
        (("90a",), 90, (), ()),
        (("90",), 90, (), (90,)),
        (("90", "90a"), 90, (), ()),
        (("100a",), 90, (90,), ()),
        (("80",), 89, (), ()),
        (("89",), 80, (80,), ()),
        (("120f",), 121, (), ()),
        (("120a",), 121, (121,), ()),
    ],
    ids=str,
)
def test_architectures_are_compared_with_the_gpus(targets, sm, unbuilt, plain):
    view = View(make.facts(gpus=make.gpu_facts(make.gpu(sm=sm)), flashinfer=make.flashinfer(architectures=targets)))
    assert SUBJECTS["sm_not_built_for"].read(view) == unbuilt
    assert SUBJECTS["sm_built_without_suffix"].read(view) == plain


def test_the_toolkit_of_a_linked_nvcc_is_that_of_its_target():
    linked = make.nvcc(home="/usr/local", resolved="/opt/cuda-12.8/bin/nvcc")
    view = View(make.facts(toolkit=make.toolkit(jit=make.jit(home="/usr/local", nvcc=linked))))
    assert fill("{cuda_home_of_nvcc}", view) == "/opt/cuda-12.8"


def test_usr_local_cuda_is_the_toolkit_that_it_links_to():
    linked = make.nvcc(home="/usr/local/cuda", resolved="/usr/local/cuda-13.0/bin/nvcc")
    view = View(make.facts(toolkit=make.toolkit(jit=make.jit(home="/usr/local/cuda", nvcc=linked))))
    assert holds({"missing": "cuda_home_of_nvcc"}, view) is YES


@pytest.mark.parametrize(
    ("others", "driver", "home"),
    [
        (("12.8", "12.9", "13.0"), "13.0", "/usr/local/cuda-13.0"),
        (("12.8", "12.9", "13.0"), "12.8", "/usr/local/cuda-12.9"),
        (("12.4",), "13.0", "(not known: there is no other toolkit that would do)"),
    ],
    ids=["newest", "not-above-the-driver-s-major", "none-newer"],
)
def test_the_newest_toolkit_is_one_that_the_driver_runs(others, driver, home):
    kit = make.toolkit("12.6", others=tuple(make.nvcc(version) for version in others))
    view = View(make.facts(gpus=make.gpu_facts(cuda=driver), toolkit=kit))
    assert fill("{fit_newer_cuda_home}", view) == home


def test_headers_that_no_compiler_could_be_asked_for_are_not_known_to_be_missing():
    unasked = make.missing("nvcc did not answer")
    view = View(make.facts(toolkit=make.toolkit(jit=make.jit(headers={"cuda_runtime.h": unasked}))))
    assert holds({"jit_header_missing": {"matches": ""}}, view) is Truth.UNKNOWN


def test_a_compiler_outside_a_bin_folder_belongs_to_no_cuda_home():
    loose = make.nvcc(home="/opt/tools")
    loose = replace(loose, path="/opt/tools/nvcc", resolved="/opt/tools/nvcc")
    facts = make.facts(toolkit=make.toolkit(jit=make.jit(home="/opt", found_by="which nvcc", nvcc=loose)))
    assert holds({"missing": "cuda_home_of_nvcc"}, View(facts)) is Truth.YES


def test_an_architecture_that_nvcc_has_dropped_does_not_ask_for_a_newer_nvcc():
    facts = make.facts(flashinfer=make.flashinfer(architectures=("70",)))
    assert holds({"architecture_unknown_to_nvcc": {"matches": ""}}, View(facts)) is Truth.NO


def test_a_number_of_more_digits_than_python_converts_is_unknown_and_no_fault():
    long = "1" * 5000
    facts = make.facts(gpus=make.gpu_facts(cuda=long), flashinfer=make.flashinfer(architectures=(long,)))
    for rule in knowledge.load().rules:
        assert holds(rule.when, View(facts)) in tuple(Truth)
