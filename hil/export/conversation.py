"""Bring-up of drives as frames: what the drivers send to emulated drives, and what they wait for.

Design: each node is brought up by its own driver, one after the other. Between two frames that the driver sends, every
frame of the node but its samples counts as an answer, and must come again, with the same bits. Of a frame that is
described for the tick in C, only the bits that tell the state of the node count: the others are measured.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hil.assembly.emulation import in_lockstep
from hil.assembly.prepare import RigSetup
from hil.drives.base import Condition, Drive, Feedback, HandshakeStep, Node, Steps
from hil.drives.wire import Message, Wire
from hil.frame import Frame
from hil.loop import Clock, nanoseconds
from hil.rig.dispatch import BusExchange, Dispatch
from hil.rig.handshake import Handshake
from hil.tick.tables import wires_of
from servoctl.errors import ConfigError

LIMIT = 20.0
"""Time limit for the bring-up of one node [s]."""

LONGEST_INTERVAL = 1000
"""Ticks in which a drive must have sent what keeps it alive."""


class Step(NamedTuple):
    """A frame of a bring-up.

    Attributes:
        bus: Name of the bus.
        frame: The frame.
        mask: Bits that must agree in a frame that is awaited; None: the frame is sent.
    """

    bus: str
    frame: Frame
    mask: bytes | None


class Alive(NamedTuple):
    """A frame that keeps a drive alive, sent every so many ticks."""

    bus: str
    frame: Frame
    every: int


class Conversation(NamedTuple):
    """What is said to the nodes besides torques.

    Attributes:
        bring_up: Of each node, drives first.
        alive: What keeps the drives alive.
        brake: Frames of each drive that make it brake by itself.
        off: Frames of each drive that switch it off.
        wires: What the frames of each node mean while it works.
        hold: Torque of each drive that holds the start pose [actuator unit].
        holding: The frame that commands it.
    """

    bring_up: Sequence[Sequence[Step]]
    alive: Sequence[Alive]
    brake: Sequence[Sequence[Frame]]
    off: Sequence[Sequence[Frame]]
    wires: Sequence[Wire]
    hold: Sequence[float]
    holding: Sequence[Frame]


class _Recording(Dispatch):
    """Frames between buses and nodes; those that are sent once per period are not part of the bring-up."""

    serving = False

    def service(self, period: int) -> int:
        self.serving = True
        try:
            return super().service(period)
        finally:
            self.serving = False


def converse(setup: RigSetup, engine: str = "auto") -> Conversation:
    """Brings emulated drives up to the enabled state, and notes what was said.

    Raises:
        ConfigError: Some drive does not say what keeps it alive at a constant interval.
        DriveError: A drive does not come up.
    """
    environment = in_lockstep(setup, engine)
    nodes: list[Node] = [*setup.drives, *setup.sensors]
    said: list[tuple[int, bool, Frame]] = []
    names = list(environment.buses)

    def record(bus: int, sent: bool, frame: Frame, time: int) -> None:
        if not (sent and dispatch.serving):
            said.append((bus, sent, frame))

    dispatch = _Recording(environment.buses, nodes, environment.clock, record)
    period = setup.settings.values.period
    hold = setup.gravity_compensation(0.0, setup.start.q).u.tolist() if setup.falls else [0.0] * len(setup.drives)
    bring_up = []
    try:
        for i, node in enumerate(nodes):
            said.clear()
            exchange = BusExchange(dispatch, node.settings.bus, period)
            _perform(
                node, _steps(node, exchange, hold[i] if i < len(hold) else 0.0), dispatch, environment.clock, period
            )
            bring_up.append(_answers(node, names, said))
        alive = [each for drive in setup.drives for each in _alive(drive)]
        wires, why = wires_of(nodes)
        if why:
            raise ConfigError(f"{setup.run.name}: --loop: {why}")
        holding = [drive.command(torque) for drive, torque in zip(setup.drives, hold, strict=True)]
        brake = [list(drive.quick_stop_frames()) for drive in setup.drives]
        off = [list(drive.disable_frames()) for drive in setup.drives]
    finally:
        dispatch.close()
    return Conversation(bring_up, list(dict.fromkeys(alive)), brake, off, wires, hold, holding)


def _steps(node: Node, exchange: BusExchange, hold: float) -> Steps:
    yield from node.identify(exchange)
    if isinstance(node, Drive):
        yield from node.configure(exchange)
        node.enable_requested = True
        yield from node.enable(hold)
        yield HandshakeStep([], lambda: node.condition is Condition.ENABLED, 1.0, "the state enabled")
    elif node.feedback is not Feedback.REPLY:
        yield HandshakeStep([], lambda: node.sample is not None, 1.0, "a sample")


def _perform(node: Node, steps: Steps, dispatch: Dispatch, clock: Clock, period: float) -> None:
    running = Handshake({node: steps}, dispatch.send, clock, LIMIT)
    step = nanoseconds(period)
    while not running.advance():
        dispatch.wait(min(clock.now() + step, dispatch.service(step)), lambda: node.settings.bus)


def _answers(node: Node, names: Sequence[str], said: Sequence[tuple[int, bool, Frame]]) -> list[Step]:
    """The steps of a node: frames sent in its bring-up, and its answers before each of them."""
    wire = node.wire()
    messages = () if wire is None else wire.messages
    steps: list[Step] = []
    answers: dict[tuple[int, bytes], Step] = {}
    for bus, sent, frame in said:
        name = names[bus]
        if sent:
            steps += [*_awaited(answers.values()), Step(name, frame, None)]
            answers.clear()
        elif (
            name == node.settings.bus and node.takes(frame.id) and (step := _answer(name, frame, messages)) is not None
        ):
            key = frame.id, frame.data if _exact(step) else b""
            answers.pop(key, None)  # of a state the last one counts
            answers[key] = step
    return [*steps, *_awaited(answers.values())]


def _awaited(answers: Iterable[Step]) -> list[Step]:
    """The answers to wait for: states, which come by a timer too, only where nothing else answers."""
    found = list(answers)
    return [step for step in found if _exact(step)] or found


def _exact(step: Step) -> bool:
    return step.mask == b"\xff" * len(step.frame.data)


def _answer(bus: str, frame: Frame, messages: Sequence[Message]) -> Step | None:
    """The answer that a received frame is; None: it is a sample, or of another node."""
    for message in messages:
        if message.id != frame.id or message.length != len(frame.data):
            continue
        if not message.expects:
            return None
        mask = bytearray(len(frame.data))
        for each in (*message.selects, *message.expects):
            field = each.field
            bits = (each.mask & field.mask) << field.shift
            for k in range(field.size):
                at = field.first + (field.size - 1 - k if field.big else k)
                if 0 <= at < len(mask):
                    mask[at] |= bits >> 8 * k & 0xFF
        return Step(bus, frame, bytes(mask))
    return Step(bus, frame, b"\xff" * len(frame.data))


def _alive(drive: Drive) -> list[Alive]:
    """What keeps a drive alive besides its commands."""
    first: dict[Frame, int] = {}
    for tick in range(LONGEST_INTERVAL):
        drive.command(0.0)
        for frame in drive.alive_frames():
            if frame in first:
                every = tick - first[frame]
                return [Alive(drive.settings.bus, each, every) for each in first]
            first[frame] = tick
    if first:
        raise ConfigError(f"{drive.settings.name}: --loop: its driver keeps it alive at no constant interval")
    return []
