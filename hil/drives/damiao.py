"""How the registers of a Damiao motor are read and compared with the config, before it may make torque.

Design: registers are only read. They live in flash memory with about 10,000 writes, and a range that is changed behind
the back of another program would scale its torques.
"""

from collections.abc import Callable, Iterator, Mapping
from math import isclose

from hil.codecs.damiao import (
    CONTROL_MODE,
    MIT_MODE,
    MODES,
    PMAX,
    REQUEST,
    TICK,
    TIMEOUT,
    TMAX,
    VMAX,
    read,
    register_value,
)
from hil.codecs.mit import Ranges
from hil.drives.base import DriveError, HandshakeStep, Steps
from hil.drives.settings import DriveSettings
from hil.frame import Frame

RANGE_TOLERANCE = 1e-3  # largest relative difference of a range: the register may hold 12.566 for 4 pi

NAMES = {
    CONTROL_MODE: "CTRL_MODE",
    TIMEOUT: "TIMEOUT",
    PMAX: "PMAX",
    VMAX: "VMAX",
    TMAX: "TMAX",
}
"""Register -> its name in the maker's tool."""


class DamiaoRegisters:
    """The registers of one motor.

    Args:
        ranges: Ranges of its frames in the config.
        watchdog: Whether the config says that it stops by itself; None: it does not say.
        frame: Makes a frame of an id and a payload.
    """

    def __init__(
        self,
        settings: DriveSettings,
        ranges: Ranges,
        watchdog: bool | None,
        period: float,
        frame: Callable[[int, bytes], Frame],
    ) -> None:
        self._settings, self._ranges, self._watchdog, self._period = settings, ranges, watchdog, period
        self._frame = frame
        self._values: dict[int, float] = {}

    def take(self, frame: Frame) -> bool:
        """Whether a frame is about a register of this motor; its value is kept."""
        answer = register_value(frame.data, self._settings.node)
        if answer is None:
            return False
        self._values[answer.register] = answer.value
        return True

    def compare(self) -> Steps:
        """Reads the registers and compares them with the config.

        Raises:
            DriveError: They differ; the error names every register, its value and that of the config.
        """
        self._values.clear()
        for register, name in NAMES.items():
            request = self._frame(REQUEST, read(self._settings.node, register))
            expected = f"an answer to the request for {name} (register {register})"
            yield HandshakeStep([request], lambda register=register: register in self._values, 0.5, expected)  # type: ignore[misc]
        problems = list(self._problems(self._values))
        if problems:
            raise DriveError("; ".join(problems))

    def _problems(self, values: Mapping[int, float]) -> Iterator[str]:
        mode = round(values[CONTROL_MODE])
        if mode != MIT_MODE:
            what = f"{mode} ({MODES.get(mode, 'unknown')})"
            yield f"CTRL_MODE (register 10) is {what}, torque commands need 1 (MIT): set it with the maker's tool"
        for register, field, unit in (
            (PMAX, "position", "rad"),
            (VMAX, "velocity", "rad/s"),
            (TMAX, "torque", "N m"),
        ):
            actual, ours = values[register], float(getattr(self._ranges, field))
            if not isclose(actual, ours, rel_tol=RANGE_TOLERANCE):
                yield (
                    f"{NAMES[register]} (register {register}) is {actual:g} {unit}, the range of {field} in the config "
                    f"is {ours:g} {unit} (write `ranges` with the drive's value, or correct `motor`)"
                )
        yield from self._timeout(values[TIMEOUT] * TICK)

    def _timeout(self, timeout: float) -> Iterator[str]:
        """Problems of the watchdog's time [s]; 0 means that there is none."""
        allowed = self._settings.watchdog
        wanted = f"{round(allowed / TICK)}, {allowed:g} s"
        if not timeout:
            if self._watchdog:
                yield f"TIMEOUT (register 9) is 0: no watchdog (set it to {wanted}; or drive_watchdog: false)"
        elif timeout < 3 * self._period:
            yield f"TIMEOUT (register 9) is {timeout:g} s, less than 3 periods of the loop (set it to {wanted})"
        elif self._watchdog and timeout > allowed * (1 + RANGE_TOLERANCE):
            what = f"TIMEOUT (register 9) is {timeout:g} s, hil.safety.drive_watchdog is {allowed:g} s"
            yield f"{what} (set it to {wanted}; or raise drive_watchdog)"
