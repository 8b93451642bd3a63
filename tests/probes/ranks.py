"""What is asked of the ranks of the all-reduce probes."""

import re
import time


def ask(probe, variant):
    return probe._verdict(probe._ranks().ask(probe._Asked(variant), time.monotonic() + 100))


def missed(probe, surroundings, cases):
    """One set of ranks for all: the stand-in keeps its protocol whatever the numbers are."""
    found = {}
    for variant, seeded in cases.items():
        for fault, said in seeded.items():
            surroundings(fault)
            verdict = ask(probe, variant)
            if not (isinstance(verdict, AssertionError) and re.search(said, str(verdict))):
                found[variant, fault] = verdict
        surroundings("rounded_once")  # which a kernel may do
        if (verdict := ask(probe, variant)) is not None:
            found[variant, "rounded_once"] = verdict
    return found
