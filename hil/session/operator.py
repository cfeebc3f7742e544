"""What the operator can do during a run: stop it by a signal or by the live page, and change gains."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from hil.assembly.setup import RigSetup
from hil.loop import Tick
from hil.loop.controller import Controller
from hil.loop.realtime import StopSignals
from hil.rig.rig import CanRig
from hil.safety import EventKind
from hil.safety.plan import ENDING, Phase
from hil.safety.stages import Stages
from hil.session.reporter import Reporter
from hil.view.requests import SIGNAL
from hil.view.view import LivePage

STOP_BUTTON = "stop button of the live page"

STOPPED = (Phase.STOPPING, *ENDING)  # phases in which no gain changes
CHECK_EVERY = 100  # ticks between two checks of a process: the live page, the recorder


class OperatorLink:
    """Connects the operator with a run.

    Args:
        setup: Gains that may change.
        rig: Its bring-up is cancelled by the request to stop.
        lockstep: Whether time is virtual.
    """

    def __init__(
        self, setup: RigSetup, controller: Controller, rig: CanRig, stages: Stages, reporter: Reporter, lockstep: bool
    ) -> None:
        self._stages, self._rig, self._live_gains, self._controller = stages, rig, setup.live_gains, controller
        self._reporter, self._lockstep = reporter, lockstep
        self.stop_reason = ""  # first request to stop; empty before
        self.view: LivePage | None = None  # the live page; None without one

    @contextmanager
    def listen(self, signals: StopSignals) -> Iterator[None]:
        """Signals request the controlled stop in this context."""
        with ExitStack() as stack:
            signals.heard = self.request_stop
            stack.callback(setattr, signals, "heard", None)
            if self.view is not None:
                previous = signal.signal(SIGNAL, lambda number, frame: self.request_stop(STOP_BUTTON))
                stack.callback(signal.signal, SIGNAL, previous)
                if self.view.stop_pressed:  # before the handler was there
                    self.request_stop(STOP_BUTTON)
            if signals.first:
                self.request_stop(signals.first)
            yield

    def request_stop(self, reason: str) -> None:
        """Requests the controlled stop; may run in a signal handler. It has no effect after the run is over."""
        self.stop_reason = self.stop_reason or reason
        self._stages.ask_to_stop(reason)
        self._rig.bring_up.cancel()

    def attend(self, tick: Tick) -> None:
        """Reads the requests for gains and moves changing gains on; called after the torques were sent."""
        if self.view is not None:
            for number, value in self.view.requested_gains():
                refused = "refused: the run is stopping" if self._stages.mode in STOPPED else None
                gain = self._live_gains.gains[number]
                self._reporter.report(EventKind.GAIN, gain.path, refused or self._live_gains.request(number, value))
            if tick.number % CHECK_EVERY == 0 and (end := self.view.gone) is not None:
                self._reporter.report(EventKind.VIEW, "", end)
            if self._lockstep:
                self.view.pace(tick.began)
        self._live_gains.advance(self._controller.take_law)
