"""Are wrong numbers told from every other failure?"""

PROBE = {
    "id": "fake.wrong",
    "feature": "fake.wrong",
    "gpus": 0,
    "timeout_s": 20,
    "variants": {"own": {}, "foreign": {}, "building": {}},
}


def build(variant):
    assert variant != "building", "asserted while building"


def run(variant):
    if variant == "foreign":
        _refuse_elsewhere()()
    got, expected = 1.5, 1.0
    assert got == expected, f"max error {got - expected} over 0.01"


def _refuse_elsewhere():
    """A function whose code stands in another file, as that of a library does."""
    space = {}
    exec(compile("def refuse():\n    raise AssertionError('deep inside')", "/usr/lib/other.py", "exec"), space)
    return space["refuse"]
