"""Signals that ask a training to stop."""

import os
import signal
import sys
import threading

_MESSAGE = b"\nFinishing the step and saving a checkpoint. Once more to stop at once.\n"


class StopSignals:
    """Remembers SIGINT and SIGTERM while `fit` runs, instead of stopping in mid-step.

    A second signal, or one outside of `fit`, does what it would have done.

    Attributes:
        received: the signal's number, or None.
    """

    def __init__(self):
        self.received = None
        self._previous = {}
        self._fit = None

    def install(self):
        """Begin to listen. Called within `fit`, in whichever thread."""
        self.uninstall()
        self.received = None
        if threading.current_thread() is not threading.main_thread():
            return
        self._fit = next((c for c in _codes(sys._getframe()) if c.co_name == "fit"), 0)
        for number in (signal.SIGINT, signal.SIGTERM):
            previous = signal.getsignal(number)
            owner = getattr(previous, "__self__", None)
            if isinstance(owner, StopSignals):
                # Of a `fit` that raised: nobody will ask it what it received.
                previous = owner._previous.pop(number)
            if previous not in (signal.SIG_IGN, None):
                self._previous[number] = previous
                signal.signal(number, self._receive)

    def uninstall(self):
        """Give the signals back to whoever had them before."""
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        self._previous = {}

    def deliver(self, number):
        """Let a signal do what it would have done; nothing is left to finish."""
        previous = self._previous.get(number)
        self.uninstall()
        if previous is signal.SIG_DFL:
            # By an exception, so that whoever must clean up does.
            raise SystemExit(128 + number)
        signal.raise_signal(number)

    def _receive(self, number, frame):
        # An exception leaves `fit` without a word to its callbacks.
        in_fit = self._fit in _codes(frame)
        if self.received is not None or not in_fit:
            self.deliver(number)
        self.received = number
        os.write(2, _MESSAGE)


def _codes(frame):
    """Yields the code of every function that a frame was called from."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back
