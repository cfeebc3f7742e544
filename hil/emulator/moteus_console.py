"""Settings of an emulated moteus, and the console that reads and writes them by lines of text.

Source: mjbots/moteus, docs/protocol/diagnostic.md and docs/reference/configuration.md.
"""

import math
from collections.abc import Callable

MOST = 61  # most bytes of text in one frame


class MoteusSettings:
    """Settings by name, as `conf get` shows them."""

    def __init__(self, node: int, timeout_mode: int) -> None:
        """Starts with the defaults of the firmware, except for the id and `servo.timeout_mode`."""
        self.values: dict[str, int | float] = {
            "id.id": node,
            "can.prefix": 0,
            "servo.timeout_mode": timeout_mode,
            "servo.default_timeout_s": 0.1,
            "servo.timeout_max_torque_Nm": 5.0,
            "servo.max_current_A": 100.0,
            "servo.max_velocity": 500.0,
            "servo.default_velocity_limit": math.nan,
            "servo.default_accel_limit": math.nan,
            "servo.fault_position_error": math.nan,
            "servo.fault_velocity_error": math.nan,
            "servo.pid_position.kp": 4.0,
            "servo.pid_position.ki": 1.0,
            "servo.pid_position.kd": 0.05,
            "servo.pid_position.ilimit": 0.0,
            "servopos.position_min": math.nan,
            "servopos.position_max": math.nan,
            "motor_position.rotor_to_output_ratio": 1.0,
        }

    def number(self, name: str) -> float:
        """A setting as a number."""
        return float(self.values[name])

    def set(self, name: str, text: str) -> bool:
        """Sets a value from its text; returns whether there is such a setting and the text is a number."""
        before = self.values.get(name)
        if before is None:
            return False
        try:
            self.values[name] = int(text) if isinstance(before, int) else float(text)
        except ValueError:
            return False
        return True

    def text(self, name: str) -> str | None:
        """A value as the console shows it; None if there is no such setting."""
        value = self.values.get(name)
        return None if value is None else str(value) if isinstance(value, int) else f"{value:.6f}"


class EmulatedConsole:
    """The console: lines of text in, answers out.

    Args:
        settings: What `conf` reads and writes.
        debug: Called with the words after `d`; returns whether it is a command.
    """

    def __init__(self, settings: MoteusSettings, debug: Callable[[list[str]], bool]) -> None:
        self._settings, self._debug = settings, debug
        self._line = b""
        self._answers = b""

    def write(self, text: bytes) -> None:
        """Takes text; each whole line is carried out."""
        *lines, self._line = (self._line + text).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            words = line.decode(errors="replace").split()
            if words:
                self._answers += self._answer(words).encode() + b"\r\n"

    def read(self, most: int) -> bytes:
        """The next bytes of the answers, at most so many."""
        count = min(most, MOST)
        part, self._answers = self._answers[:count], self._answers[count:]
        return part

    def _answer(self, words: list[str]) -> str:
        match words:
            case ["conf", "get", name]:
                value = self._settings.text(name)
                return "ERR error reading" if value is None else value
            case ["conf", "set", name, text]:
                return "OK" if self._settings.set(name, text) else "ERR error setting"
            case ["conf", "write"] | ["tel", "stop"]:
                return "OK"
            case ["d", *rest] if self._debug(rest):
                return "OK"
        return "ERR unknown command"
