"""Is an exception kept with its type and message?"""

PROBE = {"id": "fake.raised", "feature": "fake.raised", "gpus": 0, "timeout_s": 20}

LOG = (
    'Ninja build failed.\nninja: Entering directory\nFAILED: a.o\na.cu(3): error: identifier "x" is undefined\n1 error'
)


def run():
    raise RuntimeError(LOG)
