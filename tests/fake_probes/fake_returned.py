"""Does a probe that returns come out as verified? Nothing is needed."""

import sys

PROBE = {"id": "fake.returned", "feature": "fake.returned", "gpus": 0, "timeout_s": 20}


class Scalar:
    """What numpy and torch give: a number behind item()."""

    def item(self):
        return 0.25


def build():
    sys.stdout.write("building\n")


def run():
    sys.stderr.write("running\n")
    return {
        "elements": 3,
        "error": 0.5,
        "nan": float("nan"),
        "inf": float("-inf"),
        "scalar": Scalar(),
        "good": True,
        "huge": 2**70,
        "text": "x",
    }


if __name__ == "__main__":
    sys.stdout.write(f"{run()}\n")
