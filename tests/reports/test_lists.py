from report_samples import planned

from fi_doctor.model import Feature, Requires, VllmUse
from fi_doctor.reports import lists

RMSNORM = Feature(
    id="norm.rmsnorm",
    title="RMS normalisation",
    entry=("flashinfer.norm.rmsnorm",),
    probes=("norm.rmsnorm",),
    vllm=(VllmUse(vllm=">=0.11", use="not called"), VllmUse(vllm="", use="called " * 30)),
    fallback="vLLM's own kernel",
)


def test_features_are_listed_by_id_with_what_vllm_does_and_their_probes(golden):
    other = Feature(id="gemm.fp4", title="FP4 GEMM", entry=(), probes=(), vllm=())
    text = lists.features((RMSNORM, other))
    golden("features.list", text)
    assert text.index("gemm.fp4") < text.index("norm.rmsnorm")
    assert max(map(len, text.splitlines())) <= 80


def test_probes_are_listed_by_id_with_their_question_and_module(golden):
    spec = planned().spec
    stranger = type(spec)(
        **{name: getattr(spec, name) for name in spec.__struct_fields__}
        | {"id": "a.b", "module": "", "origin": "other \x1b[5m", "gpus": 2, "variants": {"fp16": Requires()}}
    )
    text = lists.probes((spec, stranger))
    golden("probes.list", text)
    assert text.index("a.b") < text.index("norm.rmsnorm")
    assert "\x1b" not in text


def test_empty_lists_say_so():
    assert lists.features(()) == "No features are known.\n"
    assert lists.probes(()) == "No probes are installed.\n"
