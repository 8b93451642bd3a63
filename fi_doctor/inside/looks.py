"""Commands that do nothing but have a ninja look for jobs.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

LOOK = "# fi-doctor: look for jobs"  # in each of them
LOOK_S = 1.0  # between two looks
LAST_LOOK = ".looked.twice"  # what seems to be made in the end

_MOST = 2000
_SPARE = 60


def looks(seconds: float) -> list[str]:
    """Commands that have ninja look for jobs of its pool every second.

    It does so only when a command of its own has ended: one that compiles a single object for minutes would leave all
    jobs that are free meanwhile unused. They wait, one after another, and fail, since ninja's log then has nothing of
    them. What seems to come after them makes them the first of all commands, so that they use the job that ninja has of
    its own. Source: ninja 1.13, src/build.cc (Builder::Build, Plan::ComputeCriticalPath), src/jobserver.cc.
    """
    names = [f".look{number}" for number in range(_MOST)]
    names = names[: int(seconds / pause_s(seconds)) + _SPARE]
    return [
        "pool looks",
        "  depth = 1",
        "rule look",
        f"  command = sleep {pause_s(seconds):.1f}; false {LOOK}",
        *(line for name in names for line in (f"build {name}: look", "  pool = looks")),
        f"build .looked: look {' '.join(names)}",
        "build .looked.once: look .looked",
        f"build {LAST_LOOK}: look .looked.once",
    ]


def pause_s(seconds: float) -> float:
    """Between two looks of a ninja that may run for so long."""
    return max(LOOK_S, seconds / (_MOST - _SPARE))
