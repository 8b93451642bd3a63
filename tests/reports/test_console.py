import re

import pytest
from msgspec.structs import replace
from report_samples import (
    FEATURES,
    SAMPLES,
    all_good,
    broken_toolkit,
    cell,
    empty,
    facts,
    gpu,
    gpu_facts,
    no_gpu,
    one_cause,
    one_variant_broken,
    outcome,
    report,
    row,
    two_sms,
)

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import (
    ActionKind,
    CellOutcome,
    Depth,
    Ending,
    Evidence,
    FirstStart,
    Missing,
    Package,
    Recommendation,
    Request,
    Scope,
    Severity,
    Stage,
    Verdict,
)
from fi_doctor.model.targets import Target
from fi_doctor.reports import render
from fi_doctor.reports.answer import tally
from fi_doctor.reports.failures import deciding_lines, how_to_settle
from fi_doctor.reports.table import fold

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def lines(sample, width=80):
    return render(sample, "console", width=width).splitlines()


@pytest.mark.parametrize("name", ["all-good", "no-gpu", "two-sms"])
def test_the_wide_console_looks_as_its_golden_file_says(golden, name):
    golden(f"{name}.console-120", render(SAMPLES[name](), "console", width=120))


def test_the_coloured_console_looks_as_its_golden_file_says(golden):
    golden("two-sms.console-color", render(two_sms(), "console", color=True))


def test_the_first_line_answers_the_question_and_the_second_says_what_the_exit_code_means():
    first, second = lines(one_variant_broken())[:2]
    assert first == "6 rows work, 1 is broken, 0 are unknown on NVIDIA H200 (SM90)"
    assert second.startswith("Exit 1 (measured, and does not hold): ")


def test_a_single_feature_and_several_equal_gpus_are_said_in_good_english():
    node = facts(gpu_facts(*(gpu(index) for index in range(8))))
    one = report((row("norm.rmsnorm"),), facts=node)
    assert lines(one)[0] == "1 row works, 0 are broken, 0 are unknown on 8 x NVIDIA H200 (SM90)"


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        (gpu_facts(), "a machine without a GPU"),
        (no_gpu().facts.gpus, "a machine where no GPU is seen"),
        (replace(gpu_facts(gpu()), gpus=Missing(reason="no NVML")), "a machine whose GPUs are not known"),
        (
            replace(gpu_facts(replace(gpu(), cuda_index=Missing(reason="hidden"))), cuda_order=()),
            "a machine whose 1 GPU CUDA_VISIBLE_DEVICES hides",
        ),
        (replace(gpu_facts(gpu()), cuda_order=Missing(reason="no libcuda.so.1")), "NVIDIA H200 (SM90)"),
    ],
    ids=["none", "neither NVML nor CUDA", "no NVML", "hidden", "no CUDA order"],
)
def test_the_first_line_says_what_is_known_of_the_gpus(gpus, words):
    text = " ".join(lines(report((row("import.torch"),), facts=facts(gpus)), 120)[:2])
    assert f"unknown on {words} Exit" in text


def test_two_kinds_of_gpu_are_counted_each_and_have_a_column():
    text = lines(two_sms(), 120)
    assert any(line.startswith("  SM121 (NVIDIA GB10): 1 row works") for line in text)
    header = next(line for line in text if line.startswith("feature"))
    assert header.split() == ["feature", "SM", "verdict", "evidence", "why"]
    order = [line.split()[1] for line in text if line.startswith(("norm.rmsnorm ", "quant.fp4 ")) and len(line) > 40]
    assert order[:4] == ["90", "121", "90", "121"]


def test_one_kind_of_gpu_needs_no_column():
    assert next(line for line in lines(all_good()) if line.startswith("feature")).split()[1] == "verdict"


def test_what_is_not_known_is_said_with_its_reason():
    text = "\n".join(lines(no_gpu()))
    assert "Not known: flashinfer-python, vllm (not installed)" in text
    assert "driver, GPUs (no libnvidia-ml.so.1 on this machine)" in text


def test_an_editable_package_is_marked_with_its_commit():
    vllm = facts().packages["vllm"]
    assert isinstance(vllm, Package)
    packages = {"vllm": replace(vllm, editable=True, commit="0123456789abcdef")}
    text = "\n".join(lines(report(facts=replace(facts(), packages=packages)), 200))
    assert "vllm 0.33.0 (editable, commit 0123456789ab [4 more characters])" in text


def test_settings_can_be_pasted_as_a_block():
    actions = (
        Recommendation(kind=ActionKind.SET, line="export A=1", why="because", findings=("a-rule", "b-rule")),
        Recommendation(kind=ActionKind.FLAG, line="--moe-backend x", why="", findings=()),
        Recommendation(kind=ActionKind.FLAG, line="vllm serve m --x", why="so", findings=()),
        Recommendation(kind=ActionKind.INSTALL, line="pip install x", why="long " * 40, findings=("c-rule",)),
        Recommendation(kind=ActionKind.NOTE, line="a note", why="n", findings=()),
        Recommendation(kind=ActionKind.REPORT, line="https://example.org/issues", why="r", findings=()),
    )
    text = lines(report(recommendations=actions))
    begin = text.index("What to do (the lines can be pasted):") + 1
    block = text[begin : text.index("", begin)]
    commands = [line.strip() for line in block if not line.startswith("  # ")]
    assert commands == ["export A=1", "pip install x"]
    assert "  # add to vllm serve: --moe-backend x" in block
    assert "  # vllm serve m --x" in block
    assert "  # because [a-rule, b-rule]" in block
    assert "  # report upstream: https://example.org/issues" in block


def test_what_to_do_begins_with_what_the_worst_findings_ask_for():
    error, info = broken_toolkit().findings[1], broken_toolkit().findings[0]
    actions = (
        Recommendation(kind=ActionKind.SET, line="export A=1", why="a", findings=(info.id,)),
        Recommendation(kind=ActionKind.SET, line="export C=1", why="c", findings=(info.id, error.id)),
        Recommendation(kind=ActionKind.NOTE, line="a note", why=error.title, findings=(error.id,)),
    )
    text = lines(report(findings=(info, error), recommendations=actions))
    begin = text.index("What to do (the lines can be pasted):")
    assert text[begin + 1 : begin + 7] == [
        "  # c [newer-flashinfer-exists, jit-toolkit-derived-wrongly]",
        "  export C=1",
        "  # a note [jit-toolkit-derived-wrongly]",
        "  # a [newer-flashinfer-exists]",
        "  export A=1",
        "",
    ]


def test_what_works_and_is_off_stands_by_itself_and_the_rows_that_ask_are_named():
    text = lines(one_cause())
    begin = text.index("Works here and is off by default:")
    assert text[begin - 1] == ""
    assert text[begin + 1 : begin + 5] == [
        "  # attention.prefill works here and vLLM 0.33.0 calls it only when told to",
        "  # add to vllm serve: --attention-backend FLASHINFER",
        "",
        text[begin + 4],
    ]
    assert "  # add to vllm serve: --moe-backend triton" in text[:begin]


def test_a_row_that_asks_is_named_where_the_reason_does_not():
    asked = Recommendation(kind=ActionKind.SET, line="export A=1", why="because", findings=("r-1",), features=("x.y",))
    assert "  # because [r-1, x.y]" in lines(report(recommendations=(asked,)))


def test_what_is_only_optional_leaves_nothing_to_set():
    optional = [one for one in one_cause().recommendations if one.optional]
    text = lines(report(recommendations=tuple(optional)))
    assert text.index("Nothing to set.") < text.index("Works here and is off by default:")


@pytest.mark.parametrize("advised", [(), one_cause().recommendations], ids=["nothing", "something"])
def test_without_vllm_it_is_said_once_that_none_of_its_settings_is_named(advised):
    bare = replace(facts(), packages={**facts().packages, "vllm": Missing(reason="not installed in /venv/bin/python")})
    said = "vLLM is not installed in /venv/bin/python: only FlashInfer's own"
    assert "\n".join(lines(report(facts=bare, recommendations=advised))).count(said) == 1
    assert said not in "\n".join(lines(report(recommendations=advised)))


def test_findings_of_one_cause_share_a_heading_and_its_mend():
    text = lines(one_cause())
    block = text[text.index("Findings:") + 1 : text.index("  More on each: fi-doctor explain ID")]
    assert block[0].startswith("  warning fusion-does-not-compile: ")
    assert [line for line in block if line.startswith("    the same cause: ")] == [
        "    the same cause: warning moe-refused: FP8 block-scale MoE is refused:",
        "    the same cause: warning old-builds-stay: 3 modules built with CUDA 12.6 stay",
    ]
    assert sum(line.startswith("    why: ") for line in block) == 1
    assert [line.strip() for line in block if "fix: " in line] == ["fix: rm -f /c/build.ninja"]


def test_a_finding_that_asked_for_nothing_keeps_its_mend_though_another_one_asked_for_the_same():
    first, *_ = one_cause().findings
    known = replace(first, id="b-known", cause="b", severity=Severity.INFO, title="b", fix=("export A=1",))
    asks = replace(known, id="a-asks", cause="a", severity=Severity.WARNING)
    one = Recommendation(kind=ActionKind.SET, line="export A=1", why="a", findings=("a-asks",), features=())
    text = lines(report(findings=(asks, known), recommendations=(one,)))
    assert text.index("    fix: export A=1") > text.index("  info b-known: b")
    assert sum("fix:" in line for line in text) == 1


def test_failures_that_nobody_explains_share_no_cause():
    first = replace(one_cause().findings[0], id="unexplained-failure", cause="not-known")
    found = (first, replace(first, title="another"))
    assert not any("the same cause" in line for line in lines(report(findings=found)))


def test_notes_alone_are_not_offered_for_pasting():
    note = Recommendation(kind=ActionKind.NOTE, line="a note", why="n", findings=())
    assert "What to do:" in lines(report(recommendations=(note,)))


def test_what_vllm_does_is_grouped_and_in_full_where_a_row_fails():
    said = "not called: vLLM has its own kernel (vLLM >=0.11,<0.34)"
    rows = (
        replace(row("norm.a"), vllm=said),
        replace(row("norm.b"), vllm="not called: another way (vLLM >=0.11,<0.34)"),
        replace(row("norm.c", Verdict.BROKEN), vllm=said),
        replace(row("import.torch"), vllm="imported by every process"),
    )
    text = lines(report(rows))
    begin = text.index("What vLLM does with them:")
    assert text[begin + 1 :][:3] == [
        "  not called (vLLM >=0.11,<0.34): norm.a, norm.b",
        f"  {said}: norm.c",
        "",
    ] or text[begin + 1 :] == ["  not called (vLLM >=0.11,<0.34): norm.a, norm.b", f"  {said}: norm.c"]


def test_a_command_within_a_sentence_is_not_broken():
    sentence = "To compile for a GPU that is not here: export FLASHINFER_CUDA_ARCH_LIST=9.0a"
    broken = broken_toolkit()
    finding = replace(broken.findings[0], fix=(sentence,))
    text = lines(replace(broken, findings=(finding,)))
    assert any("export FLASHINFER_CUDA_ARCH_LIST=9.0a" in line for line in text)


def test_nothing_to_set_is_said_and_is_no_comfort_when_something_is_broken():
    assert "Nothing to set." in lines(all_good())
    assert "Nothing to set: no known setting mends this." in lines(one_variant_broken())


def test_variants_that_agree_are_counted_and_those_that_differ_are_listed():
    assert "4 variants" in "\n".join(lines(all_good(), 120))
    text = "\n".join(lines(one_variant_broken(), 120))
    assert re.search(r"^norm.rmsnorm .*\n  float32 +broken +ran +as above$", text, re.MULTILINE)
    assert re.search(r"^  float16, bfloat16 +works +verified +numbers agree", text, re.MULTILINE)


@pytest.mark.parametrize(("verdict", "named"), [(Verdict.UNKNOWN, 8), (Verdict.BROKEN, 12)])
def test_of_many_variants_that_are_unknown_alike_the_first_are_named_and_of_those_that_fail_all(verdict, named):
    bad = [cell(f"of_{number}_ranks", verdict, Evidence.RAN, "why it is so") for number in range(12)]
    said = "\n".join(lines(report((row("comm.allreduce", cells=(cell("plain"), *bad)),)), 120))
    assert [f"of_{number}_ranks" in said for number in range(12)] == [number < named for number in range(12)]
    assert ("and 4 more" in said) == (named == 8)


def test_cells_are_named_by_their_probe_only_where_their_own_name_does_not_tell():
    cells = (
        cell("", probe="attention.sinks"),
        cell("fp8", Verdict.BROKEN, Evidence.RAN, "SIGSEGV", probe="attention.sinks_fp8"),
        cell("bf16", Verdict.UNKNOWN, Evidence.NONE, "not run", probe="attention.sinks_fp8"),
        cell("bf16", Verdict.WRONG_RESULT, Evidence.VERIFIED, "2 of 3 wrong", probe="attention.sinks_xqa"),
    )
    text = "\n".join(lines(report((row("attention.sinks", Verdict.BROKEN, cells=cells),)), 120))
    assert re.search(r"^  attention.sinks +works", text, re.MULTILINE)
    assert re.search(r"^  fp8 +broken", text, re.MULTILINE)
    assert re.search(r"^  attention.sinks_fp8 bf16 +unknown", text, re.MULTILINE)
    assert re.search(r"^  attention.sinks_xqa bf16 +wrong-result", text, re.MULTILINE)


def test_a_long_reason_that_repeats_is_said_once_in_a_run_of_rows():
    text = "\n".join(lines(broken_toolkit()))
    assert text.count("cannot find -lcudart") < 5
    assert re.search(r"^norm.rmsnorm +broken +built +as above$", text, re.MULTILINE)


def test_as_above_never_reaches_over_a_row_of_another_judgement():
    why = "a reason that is longer than the line which the table has for it, and that is why it is not repeated"
    rows = (
        row("a.a", Verdict.BROKEN, Evidence.RAN, why),
        row("a.b", Verdict.BROKEN, Evidence.BUILT, why),
        row("a.c"),
        row("a.d", Verdict.BROKEN, Evidence.RAN, why),
        row("a.e", Verdict.BROKEN, Evidence.RAN, why),
    )
    said = [line for line in lines(report(rows)) if line.startswith("a.")]
    assert [line[:3] for line in said if line.endswith("as above")] == ["a.e"]


def test_rows_that_were_not_run_for_one_reason_say_where_each_is_declared():
    rest = "not run: no GPU is seen and FLASHINFER_CUDA_ARCH_LIST names no architecture"
    rows = tuple(row(f"a.{n}", Verdict.UNKNOWN, Evidence.DECLARED, f"declared in {n}.py:1; {rest}") for n in "xyz")
    text = "\n".join(lines(report(rows)))
    assert text.count("names no") == 1
    assert re.search(r"^a.z +unknown +declared +declared in z.py:1; not run: as above$", text, re.MULTILINE)


def test_the_scope_has_a_column_only_where_some_of_it_is_a_subset():
    part = replace(row("norm.rmsnorm"), scope=Scope.SUBSET)
    untold = row("kv.append_paged", Verdict.UNKNOWN, Evidence.NONE, "timed out")
    text = "\n".join(lines(report((part, untold))))
    assert re.search(r"^feature +verdict +evidence +scope +why$", text, re.MULTILINE)
    assert re.search(r"^norm.rmsnorm +works +verified +subset ", text, re.MULTILINE)
    assert re.search(r"^kv.append_paged +unknown +none +- ", text, re.MULTILINE)
    assert not re.search(r"^feature .*scope", "\n".join(lines(all_good())), re.MULTILINE)


@pytest.mark.parametrize("width", [60, 66, 80, 120])
def test_a_long_path_is_cut_after_a_slash_and_a_variable_not_at_all(width):
    path = "/home/somebody/envs/serving/lib/python3.12/site-packages/flashinfer,"
    text = lines(report((row("activation.silu_and_mul", why=f"{path} FLASHINFER_CUDA_ARCH_LIST"),)), width)
    begin = next(number for number, line in enumerate(text) if line.startswith("activation.silu_and_mul"))
    said = [line[-(width - 44) :] if width >= 80 else line for line in text[begin : text.index("", begin)]]
    assert "".join(word for line in said for word in line.split() if "/" in word or "infer," in word) == path
    assert all(line.endswith(("/", ",", "LIST", "verified")) for line in said)
    assert "FLASHINFER_CUDA_ARCH_LIST" in said[-1]
    assert max(map(len, text[begin : text.index("", begin)])) <= width


@pytest.mark.parametrize(
    ("text", "width", "folded"),
    [
        ("", 5, [""]),
        ("a b", 5, ["a b"]),
        ("aaa bbb", 5, ["aaa", "bbb"]),
        ("/aa/bb/cc", 4, ["/aa/", "bb/", "cc"]),
        ("x /aaaaaa/b", 4, ["x", "/aaa", "aaa/", "b"]),
        ("\u4e2d\u6587\u4e2d", 4, ["\u4e2d\u6587", "\u4e2d"]),
    ],
)
def test_folding_cuts_at_spaces_then_at_slashes_then_anywhere(text, width, folded):
    assert fold(text, width) == folded


def test_findings_have_severity_id_reason_fixes_and_explain_and_the_worst_comes_first():
    text = lines(broken_toolkit())
    begin = text.index("Findings:")
    assert text[begin + 1].startswith("  error jit-toolkit-derived-wrongly: FlashInfer takes /usr/local")
    assert "    fix: put /usr/local/cuda-13.0/bin first on PATH" in text
    assert "    fix: export CUDA_HOME=/usr/local/cuda-13.0" not in text  # What to do says it
    assert text.count("  More on each: fi-doctor explain ID") == 1
    assert any(line.startswith("  info newer-flashinfer-exists") for line in text[begin + 5 :])


def test_a_failed_probe_shows_its_deciding_lines_and_how_to_reproduce_it_on_one_line():
    text = lines(broken_toolkit())
    assert "    | /usr/bin/ld: cannot find -lcudart: No such file or directory" in text
    assert not any("/usr/local/bin/nvcc -c rmsnorm.cu" in line for line in text)
    reproduce = [line for line in text if "reproduce:" in line]
    assert len(reproduce) == 2
    # With all that a probe was started with a line can have thousands of characters: JSON and YAML have it.
    assert reproduce[0] == "    reproduce: fi-doctor check --python /venv/bin/python --feature activation.silu_and_mul"
    assert not any("CUDA_VISIBLE_DEVICES" in line for line in text)
    assert any("fi-doctor probes show ID" in line for line in text)
    assert "CUDA_VISIBLE_DEVICES=GPU-0 /venv/bin/python" in render(broken_toolkit(), "json")
    assert "    | (the same lines as activation.silu_and_mul on SM90)" in text


def test_a_failed_variant_counts_though_its_probe_says_returned():
    cells = (CellOutcome(variant="a", stage=Stage.RAN, ending=Ending.WRONG, detail="max error 3"),)
    text = lines(report(outcomes=(outcome("norm.rmsnorm", cells=cells),)))
    assert "  norm.rmsnorm on SM90, a: wrong-result: max error 3 (stage reached: ran)" in text


def test_each_variant_has_its_own_words():
    ends = [("a", "max error 3"), ("b", "max error 5"), ("c", "max error 3")]
    cells = tuple(CellOutcome(variant=name, stage=Stage.RAN, ending=Ending.WRONG, detail=said) for name, said in ends)
    text = lines(report(outcomes=(outcome("norm.rmsnorm", cells=cells),)), 120)
    said = "  norm.rmsnorm on SM90, a, c: wrong-result: max error 3 (stage reached: ran); b: max error 5"
    assert [line for line in text if line.startswith("  norm.rmsnorm on")] == [said]


def test_a_failed_variant_says_where_its_module_came_from():
    cells = (CellOutcome(variant="", stage=Stage.RAN, ending=Ending.WRONG, detail="wrong", module_from="cache"),)
    text = lines(report(outcomes=(outcome("norm.rmsnorm", cells=cells),)))
    assert "  norm.rmsnorm on SM90: wrong-result: wrong (stage reached: ran; module from:" in text
    assert "    cache)" in text


def test_without_telling_lines_the_last_lines_of_the_output_are_shown():
    silent = outcome("norm.rmsnorm", ending=Ending.TIMED_OUT, output="".join(f"line {n}\n" for n in range(20)))
    assert deciding_lines(silent) == [f"line {n}" for n in range(15, 20)]


def test_that_a_command_failed_is_no_deciding_line_where_its_own_words_are_there():
    output = (
        "sError(retcode, process.args,\nsubprocess.CalledProcessError: Command '['ninja']'\nld: cannot find -lcuda\n"
    )
    assert deciding_lines(outcome("norm.rmsnorm", ending=Ending.RAISED, output=output)) == ["ld: cannot find -lcuda"]
    alone = outcome("norm.rmsnorm", ending=Ending.RAISED, output=output.rpartition("ld:")[0])
    assert len(deciding_lines(alone)) == 2


def test_of_many_error_lines_the_first_and_the_last_are_shown():
    many = outcome("norm.rmsnorm", ending=Ending.RAISED, output="".join(f"a.cu({n}): error: x\n" for n in range(50)))
    shown = deciding_lines(many)
    assert shown[0] == "a.cu(0): error: x"
    assert shown[-1] == "a.cu(49): error: x"
    assert len(shown) == 5


HERE = "fi-doctor check --python /venv/bin/python --feature 'norm.*'"
OPEN = row("norm.rmsnorm", Verdict.UNKNOWN, Evidence.NONE, "not run")


def test_a_row_that_was_too_slow_is_settled_by_more_time():
    assert lines(two_sms())[-2:] == [
        "To settle what is unknown, give it more time:",
        "  fi-doctor check --python /venv/bin/python --budget 20m --feature quant.fp4",
    ]


@pytest.mark.parametrize("gpus", [gpu_facts(gpu()), gpu_facts()], ids=["GPU", "none"])
def test_a_static_check_is_settled_by_leaving_static_out(gpus):
    request = Request(depth=Depth.STATIC, features=("norm.*",))
    text = lines(report((OPEN,), facts=facts(gpus), outcomes=(), request=request))
    assert text[-2:] == [
        "To settle what is unknown, check without --depth static:",
        "  fi-doctor check --python /venv/bin/python --feature 'norm.*'",
    ]
    assert not any("GPU can be used" in line for line in text)


@pytest.mark.parametrize(
    ("target", "depth", "said"),
    [
        (
            Target(words="h200,cuda=13.0", sm=90, name="NVIDIA H200", cuda="13.0"),
            Depth.STATIC,
            [
                ("check on a machine with NVIDIA H200, and what else --target names", HERE),
                (
                    "as far as compiling does, and without a GPU, compile where what --target names is installed",
                    f"{HERE} --target h200,cuda=13.0 --depth build",
                ),
            ],
        ),
        (Target(words="sm=90", sm=90), Depth.BUILD, [("check on a machine with SM90", HERE)]),
    ],
    ids=["static", "built"],
)
def test_what_is_open_for_a_machine_that_is_not_here_is_settled_there_or_by_compiling(target, depth, said):
    request = Request(depth=depth, features=("norm.*",))
    found = report((OPEN,), facts=facts(gpu_facts(gpu())), outcomes=(), request=request)
    assert how_to_settle(replace(found, target=target)) == said


def test_nothing_is_said_to_settle_a_row_that_no_probe_is_for():
    offered = replace(OPEN, why="offered (flashinfer/topk.py:156), nothing here runs it")
    request = Request(depth=Depth.STATIC)
    assert not any("To settle" in line for line in lines(report((offered,), request=request)))
    assert any("To settle" in line for line in lines(report((offered, OPEN), request=request)))


@pytest.mark.parametrize(
    ("architectures", "torch_cuda", "words"),
    [
        (("90a",), "13.0", "check where a GPU can be used"),
        (("90a",), Missing(reason="torch 2.13.0+cpu is built without CUDA"), "install a torch for CUDA"),
        (Missing(reason="torch sees no GPU"), "13.0", "though nothing runs then:   export FLASHINFER_CUDA_ARCH_LIST=9"),
    ],
    ids=["compiled", "torch of the CPU", "no architecture"],
)
def test_without_a_gpu_what_is_missing_first_is_said(architectures, torch_cuda, words):
    machine = facts(no_gpu().facts.gpus)
    machine = replace(
        machine,
        flashinfer=replace(machine.flashinfer, architectures=architectures),
        toolkit=replace(machine.toolkit, torch_cuda=torch_cuda),
    )
    text = " ".join(lines(report((OPEN,), facts=machine), 120)[-2:])
    assert words in text


def test_what_the_table_says_of_open_rows_is_not_said_again():
    why = "a reason of its own"
    text = "\n".join(lines(report((replace(OPEN, why=why),), request=Request(depth=Depth.BUILD))))
    assert text.count(why) == 1
    assert "To settle what is unknown, run the probes too:" in text


def missing(*names, features=(OPEN,)):
    packages = {**facts().packages, **{name: Missing(reason="not installed in /venv/bin/python") for name in names}}
    without = replace(facts(), packages=packages)
    if "flashinfer-python" in names:
        without = replace(without, flashinfer=Missing(reason="not installed in /venv/bin/python"))
    return report(features, facts=without, outcomes=())


@pytest.mark.parametrize(
    ("names", "are"),
    [
        (("flashinfer-python",), "flashinfer-python is"),
        (("torch",), "torch is"),
        (("flashinfer-python", "torch"), "flashinfer-python and torch are"),
    ],
    ids=" and ".join,
)
def test_without_a_package_there_is_nothing_to_check_and_the_next_line_says_what_names_another_python(names, are):
    text = lines(missing(*names), 120)
    assert text[:3] == [
        f"Nothing to check: {are} not installed in /venv/bin/python",
        "--python PATH names the interpreter that serves:",
        "  fi-doctor check --python /path/to/venv/bin/python",
    ]
    assert not any(line.startswith(("feature ", "What vLLM", "To settle")) for line in text)


def test_a_kernel_that_needs_no_flashinfer_is_something_to_check():
    first, *_ = lines(missing("flashinfer-python", features=(OPEN, row("mine.kernel"))), 120)
    assert first.startswith("1 row works, 0 are broken, 1 is unknown")


def test_a_checkout_without_metadata_is_checked():
    packages = {**facts().packages, "flashinfer-python": Missing(reason="no metadata")}
    assert lines(report(facts=replace(facts(), packages=packages)))[0].startswith("7 rows work")


def test_fi_doctors_own_interpreter_is_called_so():
    own = replace(facts(), interpreter=replace(facts().interpreter, is_own=True))
    assert "Python 3.12.3 (/venv/bin/python, fi-doctor's own)" in "\n".join(lines(report(facts=own)))
    assert "fi-doctor's own" not in "\n".join(lines(report()))


def test_a_report_without_rows_says_that_nothing_was_selected():
    first, second = lines(empty())[:2]
    assert first == "Nothing was selected by nothing.*; fi-doctor features lists what there is"
    assert second == "Exit 3 (could not tell): nothing was selected"
    assert not any(line.startswith("feature ") for line in lines(empty()))


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "hostile"])
def test_plain_output_is_ascii_and_fits_80_columns_but_for_commands_and_paths(name):
    text = render(SAMPLES[name](), "console", width=80)
    assert text.isascii()
    assert text.endswith("\n")
    assert all(line == line.rstrip() for line in text.splitlines())
    long = [line for line in text.splitlines() if len(line) > 80]
    assert all("reproduce: " in line for line in long)


@pytest.mark.parametrize("color", [False, True], ids=["plain", "color"])
@pytest.mark.parametrize("width", [1, 60, 80, 200])
def test_hostile_text_commands_neither_the_terminal_nor_the_markup(width, color):
    text = render(SAMPLES["hostile"](), "console", width=width, color=color)
    plain = ESCAPES.sub("", text)
    assert "\x1b" not in plain
    assert all(char.isprintable() or char == "\n" for char in plain)
    assert "[bold red]x[/]" in plain
    assert ":smile:" in plain
    assert "\\x1b[31mred" in plain


def test_colour_adds_no_word_and_takes_none_away():
    for sample in SAMPLES.values():
        coloured = ESCAPES.sub("", render(sample(), "console", color=True))
        assert [line.rstrip() for line in coloured.splitlines()] == render(sample(), "console").splitlines()


def test_the_environment_changes_nothing(monkeypatch):
    before = render(two_sms(), "console"), render(two_sms(), "console", color=True)
    for name, value in {"COLUMNS": "33", "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert (render(two_sms(), "console"), render(two_sms(), "console", color=True)) == before


def test_every_row_of_the_report_has_a_line():
    text = lines(all_good())
    assert [line.split()[0] for line in text if line.startswith(FEATURES)] == list(FEATURES)


def test_the_first_line_counts_in_the_order_of_the_gate():
    given = ((FEATURES[0], Verdict.WRONG_RESULT), (FEATURES[1], Verdict.BROKEN), (FEATURES[2], Verdict.UNSUPPORTED))
    rows = tuple(row(name, verdict, Evidence.RAN) for name, verdict in given)
    first = tally(rows)
    order = [first.index(word) for word in ("work", "wrong results", "broken", "unknown", "unsupported")]
    assert order == sorted(order)
    reason = decide(Request(depth=Depth.RUN), rows, (), facts()).reason
    order = [reason.index(word) for word in ("wrong results", "broken", "unsupported")]
    assert order == sorted(order)


def test_what_was_compiled_is_not_told_where_no_row_asks_for_it():
    found = FirstStart(modules=("norm",), objects=2, jobs=1, estimated_seconds=9.0, command="fi-doctor warm")
    whole = replace(all_good(), builds=replace(all_good().builds, first_start=found))
    said = "A server's first start would compile"
    assert said in "\n".join(lines(whole))
    imports = tuple(row for row in whole.features if not row.needs_gpu)
    assert imports
    assert said not in "\n".join(lines(replace(whole, features=imports)))
