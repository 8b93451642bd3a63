"""What a report says of the measurements that its rows lean on: once for each place where something was measured."""

from report_samples import report

from fi_doctor.model.targets import Measured, Target
from fi_doctor.reports import console, markdown
from fi_doctor.reports.used import LEANS, by_measurement

H200 = "FlashInfer 0.7.2.post1, nvcc 13.0, sm_90a, NVIDIA H200"
B200 = "FlashInfer 0.7.2.post1, nvcc 13.0, sm_100a"
OTHER = ("another generation of GPUs",)
BUILT = Measured(outcome="compiles", subject="norm", place=B200, detail="2 objects, 70 CPU s, 915 MiB")
NEAREST = {
    "norm.layernorm": (Measured(outcome="wrong-result", subject="bf16", place=H200, is_run=True, differs=OTHER), BUILT),
    "norm.rmsnorm": (Measured(outcome="verified", subject="bf16", place=H200, is_run=True, differs=OTHER), BUILT),
}
TARGET = Target(words="b200", sm=100, nearest=NEAREST)


def test_rows_are_named_and_modules_once_with_what_they_took():
    assert by_measurement(report(target=TARGET)) == {
        f"wrong-result ({H200}; {OTHER[0]})": ["norm.layernorm (bf16)"],
        f"compiles ({B200}; exactly this)": ["norm (2 objects, 70 CPU s, 915 MiB)"],
        f"verified ({H200}; {OTHER[0]})": ["norm.rmsnorm"],
    }


def test_a_report_for_a_target_says_so_and_no_other_does():
    for render in (console.render, markdown.render):
        text = " ".join(render(report(target=TARGET)).split())
        assert LEANS in text
        assert "norm.layernorm (bf16)" in text
        assert LEANS not in render(report())
