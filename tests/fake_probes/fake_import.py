"""Is a probe that cannot be imported a row of its own?"""

import a_module_that_nobody_has

PROBE = {"id": "fake.import", "feature": "fake.import", "gpus": 0, "timeout_s": 20, "variants": {"a": {}, "b": {}}}


def run(variant):
    return {"version": a_module_that_nobody_has.__version__, "variant": variant}
