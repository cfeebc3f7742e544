"""Constants that Python and C share and that belong to no other room."""

from enum import IntEnum

GIVEN_BACK, UNKNOWN = -1, -2  # answers of C to a frame: its driver takes it, or no node does

MOST_SELECTS, MOST_EXPECTS, MOST_READS, MOST_OPERATIONS = 2, 8, 8, 8
"""What a message of a table may have of each for C to read it, and a chain of a number."""

RING_HEAD, RING_TAIL, RING_LOST, RING_UNWRITTEN = 0, 8, 1, 9
"""Indices of the counts of a ring of `hil.recorder.memory`. The producer writes the head and what is lost, the consumer
the tail and what is not written, in two cache lines."""

NEVER = -(1 << 31)  # [ns] time of what has not come; no clock of a run shows it


class Found(IntEnum):
    """What sensing finds wrong; `hil.sensing.sensing.FINDINGS` says what each means."""

    POSITION = 0  # a position that is not finite
    VELOCITY = 1  # a velocity that is not finite
    JUMP = 2  # a motion that is too large
    STUCK = 3  # an encoder that stands still
    SCALE = 4  # a position that does not move as its speed says
    CONTRADICTION = 5  # redundant measurements that contradict each other
    LOST = 6  # a torque that does not arrive
    AGAINST = 7  # a motion against a torque that was not proved
    NOT_MADE = 8  # a drive that reports far less than its torque
    DISTURBANCE = 9  # a disturbance that is too large
    CHANGE = 10  # a disturbance that has come at once


class Cause(IntEnum):
    """What explains a disturbance."""

    NONE = 0  # not asked for
    BLOCKED = 1  # the joint is blocked
    PART = 2  # a part of the torque arrives
    ALONE = 3  # a load on one joint, or torque that does not arrive
    LOAD = 4  # a load


class Torques(IntEnum):
    """Whose torques are sent."""

    LAW = 0  # those of the law
    HOLD = 1  # those that hold the pose
    BLEND = 2  # from these to those of the law
    GUIDE = 3  # those while a hand guides the machine
    STOP = 4  # those of the controlled stop
    CATCH = 5  # those that hold the pose, with more damping for an axis that its own motor has driven
