"""Constants that Python and C share and that belong to no other room."""

from enum import IntEnum

GIVEN_BACK, UNKNOWN = -1, -2  # answers of C to a frame: the tick is Python's, or no node takes it

RING_HEAD, RING_TAIL, RING_LOST, RING_UNWRITTEN = 0, 8, 1, 9
"""Indices of the counts of a ring of `hil.recorder.memory`. The producer writes the head and what is lost, the consumer
the tail and what is not written, in two cache lines."""

ARRIVES, BETWEEN, LOST = 0, 1, 2
NOT_FRICTION, OTHER = -1, -2
"""What the last windows showed of a motor: its torque arrives; one window of neither; from `LOST` on: in so many
windows none of it arrives; nor does it, and friction does not explain that; anything else."""

UNPROVED, AGAINST = -3, -4
"""Stage zero has not proved the motor, and nor has its motion since; nor that, and the last window went against it."""

COMES_WITHIN = 3
"""Windows within which a disturbance that comes at once is there: the one in which it comes, and two more."""


class Torques(IntEnum):
    """Whose torques are sent."""

    LAW = 0  # those of the law
    HOLD = 1  # those that hold the pose
    BLEND = 2  # from these to those of the law
    GUIDE = 3  # those while a hand guides the machine
    STOP = 4  # those of the controlled stop


class Measured(IntEnum):
    """What a rule judges, one number per node, drives first; `measured` in `c/tick.c` has the same order."""

    POSITION = 0  # of the joint [joint unit]
    SPEED = 1  # of the joint [joint unit/s]
    AGE = 2  # of the last accepted sample [s]
    SILENCE = 3  # time since the last sign of life [s]
    TORQUE = 4  # in the last sample [actuator unit]
    TEMPERATURE = 5  # from here on the gauges, in the order of `hil.drives.settings.GAUGES`
    MOTOR_TEMPERATURE = 6
    SUPPLY = 7
    LOAD = 8
    WARNING = 9
