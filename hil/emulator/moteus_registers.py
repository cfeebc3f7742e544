"""What an emulated moteus answers to a read, and what a write commands.

Source: mjbots/moteus, docs/protocol/registers.md; fw/moteus_controller.cc for what writing the mode resets.
"""

from dataclasses import dataclass
from math import inf, nan

COMMAND_FIELDS = {
    0x020: "position",
    0x021: "velocity",
    0x022: "torque",
    0x023: "kp_scale",
    0x024: "kd_scale",
    0x025: "max_torque",
    0x027: "timeout",
    0x02B: "ilimit_scale",
    0x02D: "ignore_bounds",
}
"""Register -> field of `MoteusCommand`."""

_IGNORED = frozenset({0x010, 0x011, 0x012, *range(0x014, 0x01F), 0x026, 0x028, 0x029, 0x02A, 0x02C})
"""Registers of modes and limits that are taken and have no effect here."""

_MODEL, _FIRMWARE, _MAP_VERSION = 0x20, 0x010A, 5
_IDENTITY = {0x100: _MODEL, 0x101: _FIRMWARE, 0x102: _MAP_VERSION, 0x158: 1}
_SERIAL, _UUID = 0x120, 0x150


@dataclass
class MoteusCommand:
    """A command; its defaults are what a write of the mode resets it to."""

    mode: int
    position: float = 0.0  # position [rev]; NaN: where the shaft is
    velocity: float = 0.0  # [rev/s] velocity
    torque: float = 0.0  # [N m] feedforward torque
    kp_scale: float = 1.0  # factor of the stiffness
    kd_scale: float = 1.0  # factor of the damping
    max_torque: float = inf  # [N m] largest torque
    timeout: float = 0.0  # watchdog [s]; 0: that of the settings; NaN: none
    ilimit_scale: float = 1.0  # factor of the limit of the integral, which is 0 in the default settings
    ignore_bounds: float = 0.0  # whether the bounds of the position do not count

    def write(self, register: int, value: float) -> bool:
        """Writes a register of the command; returns whether there is one."""
        name = COMMAND_FIELDS.get(register)
        if name is not None:
            setattr(self, name, value)
        return name is not None or register in _IGNORED

    def read(self, register: int) -> float | None:
        """Value of a register of the command; None if there is none."""
        name = COMMAND_FIELDS.get(register)
        return 0.0 if name is None and register in _IGNORED else None if name is None else float(getattr(self, name))


def measured(
    mode: int,
    fault: int,
    position: float,
    velocity: float,
    torque: float,
    home: int,
    milliseconds: int,
    voltage: float,
    temperature: float,
) -> dict[int, float]:
    """Register -> value of what a drive measures [its unit].

    Args:
        mode: Mode.
        fault: Fault register.
        position: Position [rev].
        velocity: Velocity [rev/s].
        torque: Torque [N m].
        home: Home state.
        milliseconds: Time since power-on [ms].
        voltage: Supply voltage [V].
        temperature: Temperature of drive and motor [degree C].
    """
    return {
        0x000: mode, 0x001: position, 0x002: velocity, 0x003: torque, 0x006: nan,
        0x007: torque * velocity * 6.283185307179586, 0x00A: temperature, 0x00B: 1, 0x00C: home,
        0x00D: voltage, 0x00E: temperature, 0x00F: fault, 0x038: nan, 0x039: nan, 0x03A: torque,
        0x050: position % 1.0, 0x051: velocity, 0x058: 0b11, 0x070: milliseconds % (1 << 23), 0x071: 0,
    }  # fmt: skip


def fixed(register: int, node: int) -> float | None:
    """Value of a register that never changes, in the drive with this id; None if there is none."""
    if register == 0x110:
        return node
    if register in _IDENTITY:
        return _IDENTITY[register]
    if _SERIAL <= register < _SERIAL + 3 or _UUID <= register < _UUID + 4:
        return 0x1000 * node + register
    idle = register in (0x004, 0x005) or 0x030 <= register <= 0x048 or 0x052 <= register <= 0x07F
    return 0 if idle else None


INT32_ONLY = frozenset({0x100, 0x101, 0x102, *range(0x120, 0x123), *range(0x150, 0x154), 0x158})
"""Registers that are answered only with 32 bits."""
