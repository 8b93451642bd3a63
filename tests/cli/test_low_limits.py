"""Limits that a container or `ulimit` sets: the check ends with its verdict, or says which one is too low."""

import resource

import pytest

CODE = """
import threading, sys
def start(self): raise RuntimeError("can't start new thread")
threading.Thread.start = start
sys.argv[0] = "fi-doctor"
from fi_doctor.cli.process import main
main(sys.argv[1:])
"""
CHECK = ("check", "--depth", "static", "--feature", "norm.rmsnorm")


def test_a_check_without_any_thread_ends_with_its_verdict(doctor, tmp_path):
    (tmp_path / "few.py").write_text(CODE)
    first, *rest = doctor.argv(*CHECK)
    done = doctor(argv=[first, tmp_path / "few.py", *rest[2:]])
    assert done.returncode == 3, done.stderr
    assert "1 row unknown" in done.stderr


@pytest.mark.parametrize("mib", [300, 1000])
def test_a_check_with_little_address_space_ends_with_its_verdict(doctor, mib):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))

    done = doctor(*CHECK, preexec_fn=limit)
    assert done.returncode == 3, done.stderr
    assert "1 row unknown" in done.stderr


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        ("MemoryError()", "may not take enough memory"),
        ('RuntimeError("can\'t start new thread")', "may not start any thread"),
        ("OSError(24, 'Too many open files')", "may not open enough files"),
    ],
)
def test_what_a_limit_takes_away_is_said_and_no_fault(doctor, tmp_path, raised, why):
    code = (
        f"import sys\nfrom fi_doctor import cli\nfrom fi_doctor.cli.process import main\ndef run(_): raise {raised}\n"
    )
    (tmp_path / "limited.py").write_text(f"{code}cli.run = run\nmain([])\n")
    done = doctor(argv=[doctor.argv()[0], tmp_path / "limited.py"])
    assert done.returncode == 3
    assert why in done.stderr
    assert "Traceback" not in done.stderr
