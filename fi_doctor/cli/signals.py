"""Signals that end the command: one that has come ends it, also where what it raised was swallowed."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import Any

INTERRUPTED = 130
# Signals that end the command, how that is called, and the code that a shell gives for it.
ENDINGS = {
    signal.SIGINT: ("interrupted", INTERRUPTED),
    signal.SIGTERM: ("terminated", 143),
    signal.SIGHUP: ("its terminal was closed", 129),
}
# A signal is followed by others: a service manager insists, kernel and shell both tell of a closed terminal. They must
# not break off the killing of children. One that comes much later is from somebody who waits in vain.
CLEANING_S = 10.0
# Until the command ends, this often it is looked whether what was raised is still on its way.
_LOOK_S = 0.1


class Terminated(KeyboardInterrupt):
    """One of those, travelling like Ctrl-C always does, so that children are killed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.how, self.code = ENDINGS[signal.Signals(number)]


class Ender:
    """The handler: the first signal ends the command, those that follow at once are part of it.

    A handler runs between any two steps of the main thread. Where that is a weak reference's callback (importlib has
    one for each module that it loads) or a __del__, Python prints what is raised and goes on; a library may catch
    everything. So the first signal is remembered and, until `rest`, raised again wherever nothing of it is in flight.
    """

    def __init__(self) -> None:
        self.number = 0  # the first that came
        self._deaf_until = 0.0
        self._is_resting = False

    def listen(self) -> None:
        """Take the signals, except those that are ignored, as under nohup, which means to go on."""
        sys.unraisablehook = _say_unraisable
        for number in ENDINGS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)

    def rest(self) -> None:
        """Raise nothing any more, for good: what is left to do is done to its end."""
        # Not SIG_IGN, about which Python complains where a signal has arrived and was not yet handled.
        self._is_resting = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Raise Terminated, unless the command is ending by an earlier one."""
        del frame
        now = time.monotonic()
        if self._is_resting or now < self._deaf_until:
            return
        self._deaf_until = now + CLEANING_S
        self.number = self.number or number
        # Not earlier: an alarm that was set before we were begun, as `perl -e 'alarm 60; exec ...'` does, is to end us.
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        raise Terminated(self.number)

    def _look(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self._is_resting and self.number and not _is_on_its_way():
            raise Terminated(self.number)


def _is_on_its_way() -> bool:
    """Whether Terminated, or what was raised while it was handled, is being handled: children are being killed.

    Ray raises an interrupt of its own in its place.
    """
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _say_unraisable(told: Any) -> None:
    """As Python says it, except of Terminated, which is raised again."""
    if not isinstance(told.exc_value, Terminated):
        sys.__unraisablehook__(told)
