"""An emulated drive, or encoder, on CANopen: CiA 402 in cyclic synchronous torque mode.

When it leaves operation by a ramp, by disable operation or by shutdown, it closes its brake and holds its torque for
the brake's delay, `brake_time` of its settings; disable voltage ends torque at once.

Source: CiA 402 (IEC 61800-7-201), from the tables of vendors; the option codes too. Brake delay: Beckhoff AMP8000,
object 0x3000:04.
"""

from functools import partial

from hil.codecs.cia402 import PATTERNS, TORQUE_MODE, Cia402State
from hil.drives.settings import DriveSettings
from hil.emulator import objects
from hil.emulator.canopen import RECOVERED_FROM_BUS_OFF, CanOpenNode
from hil.emulator.node import EmulatedDrive
from hil.emulator.objects import MODE, POLARITY, TURNED_TORQUE, Key
from hil.loop.clock import Event, cancel, nanoseconds

WORDS = {state: value for _, value, state in PATTERNS}  # state -> its part of the statusword


_S = Cia402State

COMMANDS: tuple[tuple[int, int, dict[Cia402State, Cia402State]], ...] = (
    # shutdown: transitions 2, 6, 8
    (0b1000_0111, 0b0110, {_S.SWITCH_ON_DISABLED: _S.READY, _S.SWITCHED_ON: _S.READY, _S.ENABLED: _S.READY}),
    # switch on, and where operation is enabled disable operation: 3, 5
    (0b1000_1111, 0b0111, {_S.READY: _S.SWITCHED_ON, _S.ENABLED: _S.SWITCHED_ON}),
    # enable operation: 3 and 4, 4, and 16 if 0x605A is 5 or more
    (0b1000_1111, 0b1111, dict.fromkeys((_S.READY, _S.SWITCHED_ON, _S.QUICK_STOP), _S.ENABLED)),
    # quick stop: 7, 10, 11
    (
        0b1000_0110,
        0b0010,
        {**dict.fromkeys((_S.READY, _S.SWITCHED_ON), _S.SWITCH_ON_DISABLED), _S.ENABLED: _S.QUICK_STOP},
    ),
    # disable voltage: 7, 10, 9, 12
    (0b1000_0010, 0, dict.fromkeys((_S.READY, _S.SWITCHED_ON, _S.ENABLED, _S.QUICK_STOP), _S.SWITCH_ON_DISABLED)),
    # fault reset: 15
    (0b1000_0000, 0b1000_0000, {_S.FAULT: _S.SWITCH_ON_DISABLED}),
)
"""Mask and value of bits 7, 3, 2, 1 and 0 of a controlword, of which one row fits each; state -> state after it."""


def following(state: Cia402State, controlword: int, before: int, quick_stop_option: int) -> Cia402State:
    """State after a controlword; `before` is the previous one: the rising edge of bit 7 resets a fault.

    From a `quick_stop_option` (0x605A) of 5 on the drive stays in quick stop and can be enabled from there.
    """
    after = next(moves for mask, value, moves in COMMANDS if controlword & mask == value).get(state, state)
    no_edge = state is _S.FAULT and before & 0x80
    must_stop = state is _S.QUICK_STOP and after is _S.ENABLED and quick_stop_option < 5
    return state if no_edge or must_stop else after


_ENABLED = Cia402State.ENABLED

CONTROLWORD, STATUSWORD, ERROR_CODE = (0x6040, 0), (0x6041, 0), (0x603F, 0)
MODE_DISPLAY = (0x6061, 0)
TARGET_TORQUE, TORQUE_OFFSET, ACTUAL_TORQUE = (0x6071, 0), (0x60B2, 0), (0x6077, 0)
MAX_TORQUE, MAX_CURRENT, POSITIVE_LIMIT, NEGATIVE_LIMIT = (0x6072, 0), (0x6073, 0), (0x60E0, 0), (0x60E1, 0)
ABORT_OPTION, QUICK_STOP_OPTION, FAULT_OPTION = (0x6007, 0), (0x605A, 0), (0x605E, 0)
QUICK_STOP_DECELERATION = (0x6085, 0)

RAMPS = {Cia402State.SWITCHED_ON: (0x605C, 0), Cia402State.READY: (0x605B, 0)}
"""State after operation -> the object that says whether it brakes by a ramp on the way: disable operation, shutdown."""

VOLTAGE_ENABLED, WARNS, REMOTE, LIMIT_ACTIVE, FOLLOWS = 1 << 4, 1 << 7, 1 << 9, 1 << 11, 1 << 12

COMMUNICATION_ERROR = 0x8100  # emergency code of a loss of communication without a code of its own


class CiA402Encoder(CanOpenNode):
    """An encoder node: position and velocity in the objects of a drive; its options are those of the drive."""

    special_faults = frozenset({"clock_drift", "heartbeat_loss", "sdo_abort"})

    def set_up(self) -> None:
        self.connect(objects.communication_objects(self.settings.node, {}) | objects.MEASUREMENTS)


class CiA402(CanOpenNode, EmulatedDrive):
    """A drive; options as of `CanOpenNode`."""

    settings: DriveSettings
    special_faults = CiA402Encoder.special_faults | {"wrong_mode"}
    usual_code, overvoltage_code, overheat_code = 0x2310, 0x3210, 0x4310

    def set_up(self) -> None:
        rated = self.settings.rated_torque if self.settings.rated_torque is not None else 1.0
        entries = objects.communication_objects(self.settings.node, objects.DEFAULT_MAPS)
        entries |= objects.drive_objects(round(1000 * rated))
        self._rated = round(1000 * rated) / 1000
        self.connect(entries)
        self.state = Cia402State.NOT_READY
        self._controlword = 0
        self._closing: Event | None = None

    def boot(self) -> None:
        self.station.went_off = lambda: self.disconnected(0)
        self.station.came_back = lambda: self.emergency(RECOVERED_FROM_BUS_OFF, 0x11)
        super().boot()
        self.reset()

    def halt(self) -> None:
        super().halt()
        self._off(Cia402State.NOT_READY)

    def reset(self) -> None:
        self._controlword = 0
        self._off(Cia402State.SWITCH_ON_DISABLED)

    def trip(self, code: int, told: bool = False) -> None:
        """Goes to the fault state; `told`: the emergency was sent already."""
        if self.state in (Cia402State.NOT_READY, Cia402State.FAULT, Cia402State.FAULT_REACTION):
            return
        values = self.values
        values[ERROR_CODE] = code
        if not told:
            self.emergency(code, 0x01)
        moving = self.motor.enabled
        self._enter(Cia402State.FAULT_REACTION)
        if moving and values[FAULT_OPTION] > 0:
            self.brake_down(partial(self._close_brake, Cia402State.FAULT))
        else:
            self._off(Cia402State.FAULT)

    def clear_fault(self) -> None:
        if self.state is Cia402State.FAULT:
            self.values[ERROR_CODE] = 0
            self.emergency(0, 0)
            self._enter(Cia402State.SWITCH_ON_DISABLED)

    def measure(self, everything: bool = True) -> None:
        super().measure()
        if not everything:
            return
        values = self.values
        share = self.motor.torque() / self.torque_table / self._rated if self.motor.enabled else 0.0
        values[0x6079, 0] = round(1000 * self.voltage)
        values[objects.DRIVE_TEMPERATURE] = min(32767, round(10 * self.temperature()))
        values[objects.MOTOR_LOAD] = min(0xFFFF, round(1000 * self.motor.thermal.load))
        values[ACTUAL_TORQUE] = min(32767, max(-32768, round(1000 * share * self._torque_sign)))
        values[STATUSWORD] = self._statusword()

    def written(self, key: Key, value: int) -> int:
        """Checks an object before SDO writes it, and acts on it."""
        if key == MODE:
            if value not in (0, TORQUE_MODE):
                return objects.OUT_OF_RANGE
            self.values[MODE_DISPLAY] = 8 if self.wrong_mode else value
        elif key in (CONTROLWORD, TARGET_TORQUE, TORQUE_OFFSET, MAX_TORQUE):
            self.values[key] = value
            self.commanded()
        return 0

    def commanded(self) -> None:
        """Acts on controlword and target torque."""
        values = self.values
        word = values[CONTROLWORD]
        if word != self._controlword:
            before, self._controlword = self._controlword, word
            self._obey(word, before)
        if self.state is _ENABLED:
            self.motor.command(self._target())

    def disconnected(self, code: int) -> None:
        option = self.values[ABORT_OPTION]
        if option == 1 and (code or self.motor.enabled):
            self.trip(code or COMMUNICATION_ERROR, told=bool(code))
        elif option == 2 and self.motor.enabled:
            self._off(Cia402State.SWITCH_ON_DISABLED)
        elif option == 3 and self.state is Cia402State.ENABLED:
            self._quick_stop()

    def _obey(self, word: int, before: int) -> None:
        values = self.values
        after = following(self.state, word, before, values[QUICK_STOP_OPTION])
        if after is self.state or (after is Cia402State.ENABLED and self.refuses):
            return
        if self.state is Cia402State.FAULT:
            self.clear_fault()
            return
        was, self.state = self.state, after
        if after is Cia402State.ENABLED:
            self.stop_control()
            cancel(self._closing)
            self.motor.enable(self._target())
        elif after is Cia402State.QUICK_STOP:
            self._quick_stop()
            return
        elif after is Cia402State.SWITCH_ON_DISABLED:
            self._off(after)
            return
        elif was is Cia402State.ENABLED:
            if values[RAMPS[after]] == 1:
                self.brake_down(partial(self._close_brake, None))
            else:
                self.motor.command(self._target())
                self._close_brake(None)
        self._enter(after)

    def _close_brake(self, state: Cia402State | None) -> None:
        """Closes its brake, holds its torque for the time that the brake takes, then goes off as `_off`."""
        cancel(self._closing)
        if not self.settings.brake:
            self._off(state)
            return
        self.motor.close_brake()
        self._closing = self.world.after(nanoseconds(self.settings.brake_time), partial(self._off, state))

    def _quick_stop(self) -> None:
        option = self.values[QUICK_STOP_OPTION]
        if option == 0:
            self._off(Cia402State.SWITCH_ON_DISABLED)
            return
        self._enter(Cia402State.QUICK_STOP)
        ended = None if option >= 5 else partial(self._close_brake, Cia402State.SWITCH_ON_DISABLED)
        self.brake_down(ended, self._deceleration)

    @property
    def _deceleration(self) -> float | None:
        """Deceleration of the quick stop, at the motor [rad/s^2]; None: 0x6085 is not set."""
        counts = self.values[QUICK_STOP_DECELERATION]
        return counts * self.number("acceleration_unit", self._velocity_unit) if counts else None

    def _off(self, state: Cia402State | None) -> None:
        """Switches its torque off, and enters a state; None: it stays in the one that it has."""
        self.stop_control()
        cancel(self._closing)
        self.motor.disable()
        if state is not None:
            self._enter(state)

    def _enter(self, state: Cia402State) -> None:
        self.state = state
        self.changed(STATUSWORD)

    def _target(self) -> float:
        """Commanded torque of the motor [N m]; 0 in other modes than torque mode."""
        values = self.values
        if values[MODE_DISPLAY] != TORQUE_MODE:
            return 0.0
        lower, upper = self._limits
        share = min(upper, max(lower, values[TARGET_TORQUE] + values[TORQUE_OFFSET]))
        return self.torque_table * self._rated * share * self._torque_sign / 1000

    @property
    def _torque_sign(self) -> int:
        return -1 if self.values[POLARITY] & TURNED_TORQUE else 1

    @property
    def _limits(self) -> tuple[int, int]:
        """Smallest and largest target that it follows [1/1000 of the rated torque]."""
        values = self.values
        most = min(values[MAX_TORQUE], values[MAX_CURRENT])
        return -min(most, values[NEGATIVE_LIMIT]), min(most, values[POSITIVE_LIMIT])

    def _statusword(self) -> int:
        values = self.values
        word = WORDS[self.state] | VOLTAGE_ENABLED | REMOTE
        if self.motor.thermal.near:
            word |= WARNS
        if self.state is _ENABLED and values[MODE_DISPLAY] == TORQUE_MODE:
            word |= FOLLOWS
        lower, upper = self._limits
        follows = lower <= values[TARGET_TORQUE] + values[TORQUE_OFFSET] <= upper
        if self.motor.saturated or (self.motor.enabled and not follows):
            word |= LIMIT_ACTIVE
        return word
