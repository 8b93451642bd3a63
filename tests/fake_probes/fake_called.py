"""Is what is compiled only when it is called not taken for built?"""

PROBE = {
    "id": "fake.called",
    "feature": "fake.called",
    "gpus": 0,
    "timeout_s": 20,
    "compiles": ["nvcc", "triton"],
    "variants": {"before": {}, "lazy": {}},
}


def build(variant):
    return variant == "before"


def run(variant):
    return {"variant": variant}
