"""A signal that comes where what it raises is swallowed: it ends the command all the same, with its code."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_command import ROOT

TAIL = """
import contextlib, ctypes, gc, os, signal, sys, time, weakref
import fi_doctor.cli
from fi_doctor.cli import process

class Thing: pass
def told(*_): os.kill(os.getpid(), signal.{signal}); return 0
def deep(): told()

def in_callback():
    thing = Thing()
    kept = weakref.ref(thing, told)
    del thing
    return kept

def in_del():
    Thing.__del__ = told
    Thing()

def in_suppress():
    with contextlib.suppress(BaseException):
        deep()

def in_except():
    try:
        deep()
    except:
        pass

def in_finally():
    for _ in range(1):
        try:
            deep()
        finally:
            break

def in_generator():
    def lines():
        try:
            yield 1
        finally:
            told()
    next(lines())

def in_ctypes():
    ctypes.CFUNCTYPE(ctypes.c_int)(told)()

def in_ray():
    with contextlib.suppress(KeyboardInterrupt):
        deep()
    raise KeyboardInterrupt  # in the place of ours, without a word of it

def in_another_fault():
    with contextlib.suppress(OSError):
        try:
            deep()
        finally:
            raise OSError

def run(argv):
    {place}()
    print("went on", flush=True)
    {then}
    return 0

fi_doctor.cli.run = run
process.main([])
"""
PLACES = ("callback", "del", "suppress", "except", "finally", "generator", "ctypes", "another_fault")
CODES = {"SIGTERM": (143, "terminated"), "SIGINT": (130, "interrupted"), "SIGHUP": (129, "its terminal was closed")}


def ended(place, then, number="SIGTERM"):
    code = TAIL.format(place=place, then=then, signal=number)
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize("then", ["time.sleep(60)", "", "raise OSError"], ids=["works-on", "ends", "fails"])
@pytest.mark.parametrize("place", PLACES)
def test_a_signal_that_is_swallowed_ends_the_command(place, then):
    done = ended(f"in_{place}", then)
    assert done.stdout == "went on\n"
    assert done.returncode == 143
    assert done.stderr.endswith("fi-doctor: terminated; no verdict\n")  # in the middle of Python's words, if need be
    assert "Terminated" not in done.stderr


@pytest.mark.parametrize("number", CODES)
def test_the_code_is_that_of_the_signal_that_was_swallowed(number):
    done = ended("in_callback", "time.sleep(60)", number)
    code, how = CODES[number]
    assert (done.returncode, done.stderr) == (code, f"fi-doctor: {how}; no verdict\n")


CLEANING = """
    try:
        {first}
        time.sleep(60)
    finally:
        try:
            raise OSError
        except OSError:
            time.sleep(0.5)
        with contextlib.suppress(OSError):
            time.sleep(0.5)
            raise OSError
        print("cleaned", flush=True)
"""


@pytest.mark.parametrize("first", ["deep()", "in_callback()", "in_ray()"], ids=["raised", "swallowed", "exchanged"])
def test_cleaning_is_not_broken_off_to_look_again(first):
    done = ended("str", CLEANING.format(first=first).strip())
    assert done.stdout == "went on\ncleaned\n"
    assert (done.returncode, done.stderr) == (143, "fi-doctor: terminated; no verdict\n")


def test_an_alarm_that_was_set_before_ends_the_command():
    code = TAIL.format(place="str", then="signal.setitimer(signal.ITIMER_REAL, 0.2); time.sleep(60)", signal="SIGTERM")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == -14
