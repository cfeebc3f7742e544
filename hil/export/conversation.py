"""Bring-up of drives as frames: what the drivers send to emulated drives, and what they wait for.

Design: each node is brought up by its own driver, one after the other. Between two frames that the driver sends, every
frame of the node but its samples counts as an answer, and must come again, with the same bits. Of a frame that is
described for the tick in C, only the bits that tell the state of the node count: the others are measured. Of an answer
that its handshake describes, a number must lie in a range: the others differ from drive to drive.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hil.assembly.emulation import in_lockstep
from hil.assembly.prepare import RigSetup
from hil.drives.base import Condition, Drive, Feedback, HandshakeStep, Node, Steps
from hil.drives.wire import Answer, Off, Wire
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


class BringUpFrame(NamedTuple):
    """A frame of a bring-up.

    Attributes:
        bus: Name of the bus.
        frame: The frame.
        mask: Bits that must agree in a frame that is awaited; None: the frame is sent.
        answer: The number that must be in it; None: no such number counts.
    """

    bus: str
    frame: Frame
    mask: bytes | None
    answer: Answer | None = None


class _Said(NamedTuple):
    """A frame, and the answers that were described at that time."""

    bus: int
    sent: bool
    frame: Frame
    answers: Sequence[Answer]


class Alive(NamedTuple):
    """A frame that keeps a drive alive, sent every so many ticks."""

    bus: str
    frame: Frame
    every: int


class Conversation(NamedTuple):
    """The frames of a run on drives, other than torques.

    Attributes:
        bring_up: Of each node, drives first.
        first_enable: Of each node, the number of the step that begins to enable it.
        resting: Of each drive, the frame that it gets once per period until it is enabled; None: none.
        alive: What keeps the drives alive.
        brake: Frames of each drive that make it brake by itself.
        off: Frames of each drive that switch it off.
        wires: What the frames of each node mean while it works.
        hold: Torque of each drive that holds the start pose [actuator unit].
        holding: The frame that commands it.
    """

    bring_up: Sequence[Sequence[BringUpFrame]]
    first_enable: Sequence[int]
    resting: Sequence[Frame | None]
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
        ConfigError: Some drive does not say what keeps it alive at a constant interval, or what proves that it is off.
        DriveError: A drive does not come up.
    """
    nodes: list[Node] = [*setup.drives, *setup.sensors]
    _wires(setup, nodes)
    environment = in_lockstep(setup, engine)
    names = list(environment.buses)
    period = setup.settings.values.period
    hold = setup.gravity_compensation(0.0, setup.start.q).u.tolist() if setup.falls else [0.0] * len(setup.drives)
    said: list[_Said] = []
    answers: Sequence[Answer] = ()

    def record(bus: int, sent: bool, frame: Frame, time: int) -> None:
        if not (sent and dispatch.serving):
            said.append(_Said(bus, sent, frame, answers))

    def described(steps: Steps) -> Steps:
        nonlocal answers
        for step in steps:
            answers = step.answers
            yield step
            answers = ()

    dispatch = _Recording(environment.buses, nodes, environment.clock, record)

    def steps_of(node: Node, steps: Steps, settled: bool = True) -> list[BringUpFrame]:
        said.clear()
        _perform(node, described(steps), dispatch, environment.clock, period)
        return _answers(node, names, said, settled)

    bring_up, first_enable, resting = [], [], []
    try:
        for i, node in enumerate(nodes):
            exchange = BusExchange(dispatch, node.settings.bus, period)
            steps = steps_of(node, _prepared(node, exchange), settled=False)
            if isinstance(node, Drive):
                steps += steps_of(node, node.reset())
            first_enable.append(len(steps))
            if isinstance(node, Drive):
                resting.append(_resting(node))
                enabled = steps_of(node, _enabled(node, hold[i]))
                torque = BringUpFrame(node.settings.bus, node.command(hold[i]), None)
                if resting[i] is not None and enabled[:1] != [torque]:
                    enabled.insert(0, torque)  # the driver sends it as what keeps the drive alive
                steps += enabled
            bring_up.append(steps)
        alive = [each for drive in setup.drives for each in _alive(drive)]
        wires = _wires(setup, nodes)
        holding = [drive.command(torque) for drive, torque in zip(setup.drives, hold, strict=True)]
        for drive, torque in zip(setup.drives, hold, strict=True):
            drive.quick_stop_frames(torque)  # the first may prepare the drive, the later ones are sent repeatedly
        brake = [list(drive.quick_stop_frames(torque)) for drive, torque in zip(setup.drives, hold, strict=True)]
        off = [list(drive.disable_frames()) for drive in setup.drives]
    finally:
        dispatch.close()
    return Conversation(
        bring_up, first_enable, resting, list(dict.fromkeys(alive)), brake, off, wires, hold, holding
    )  # fmt: skip


def _wires(setup: RigSetup, nodes: Sequence[Node]) -> Sequence[Wire]:
    """What the frames of each node mean.

    Raises:
        ConfigError: That is not known, or not by which frames a drive proves that it is off.
    """
    wires, why = wires_of(nodes)
    silent = [node.settings for node, wire in zip(nodes, wires, strict=False) if wire.command and not wire.off]
    if silent:
        names = ", ".join(f"{each.name} ({each.protocol})" for each in silent)
        why = f"its program could not see that a drive is off: {names} (run them with servoctl hil)"
    if why:
        raise ConfigError(f"{setup.run.name}: --loop: {why}")
    return wires


def _prepared(node: Node, exchange: BusExchange) -> Steps:
    """What comes before a drive is enabled, or before an encoder is read."""
    yield from node.identify(exchange)
    if isinstance(node, Drive):
        yield from node.configure(exchange)
    elif node.feedback is not Feedback.REPLY:
        yield HandshakeStep([], lambda: node.sample is not None, 1.0, "a sample")


def _enabled(drive: Drive, hold: float) -> Steps:
    drive.enable_requested = True
    yield from drive.enable(hold)
    yield HandshakeStep([], lambda: drive.condition is Condition.ENABLED, 1.0, "the state enabled")


def _resting(drive: Drive) -> Frame | None:
    """The zero torque or query that a drive gets in each tick until it is enabled; None: its driver sends none."""
    drive.alive_frames()  # of a tick in which it may have got a frame
    fed, command = drive.alive_frames(), drive.command(0.0)
    return next((frame for frame in fed if frame.id & drive.command_bits == command.id & drive.command_bits), None)


def _perform(node: Node, steps: Steps, dispatch: Dispatch, clock: Clock, period: float) -> None:
    running = Handshake({node: steps}, dispatch.send, clock, LIMIT)
    step = nanoseconds(period)
    while not running.advance():
        dispatch.wait(min(clock.now() + step, dispatch.service(step)), lambda: node.settings.bus)


def _answers(node: Node, names: Sequence[str], said: Sequence[_Said], settled: bool) -> list[BringUpFrame]:
    """The steps of a node: frames sent in its bring-up, and its answers before each of them.

    Until a drive is settled by its reset, it may report a fault: of its state only counts that it is off.
    """
    wire = node.wire() or Wire(())
    steps: list[BringUpFrame] = []
    answers: dict[tuple[int, bytes], BringUpFrame] = {}
    for bus, sent, frame, described in said:
        name = names[bus]
        answer = _described(frame, sent, described)
        if answer is not None and answer.poll is not None:
            if not steps or steps[-1].answer != answer:  # an exported loop polls by itself
                head = Frame(answer.id, answer.head, extended=answer.id > 0x7FF, fd=frame.fd, brs=frame.brs)
                steps.append(BringUpFrame(name, head, b"\xff" * len(answer.head), answer))
        elif answer is not None:
            mask = (b"\xff" * len(answer.head)).ljust(len(frame.data), b"\0")
            answers[answer.id, answer.head] = BringUpFrame(name, frame, mask, answer)
        elif sent:
            steps += [*_awaited(answers.values(), wire), BringUpFrame(name, frame, None)]
            answers.clear()
        elif name == node.settings.bus and node.takes(frame.id) and (step := _answer(name, frame, wire, settled)):
            like = next((off.id for off in wire.off if _fits(off, frame)), frame.id)
            key = like, frame.data if _exact(step) else b""
            answers.pop(key, None)  # of a state the last one counts
            answers[key] = step
    return [*steps, *_awaited(answers.values(), wire)]


def _described(frame: Frame, sent: bool, answers: Sequence[Answer]) -> Answer | None:
    """The description that a frame belongs to: as an answer, or as a request for more text."""
    for each in answers:
        if frame == each.poll if sent else frame.id == each.id and frame.data.startswith(each.head):
            return each
    return None


def _awaited(answers: Iterable[BringUpFrame], wire: Wire) -> list[BringUpFrame]:
    """The answers to wait for: states, which come by a timer too, only where nothing else answers."""
    found = list(answers)
    states = [step for step in found if any(_fits(off, step.frame) for off in wire.off)]
    return [step for step in found if _exact(step)] or states or found


def _fits(off: Off, frame: Frame) -> bool:
    return frame.id & off.mask == off.id and off.length == len(frame.data)


def _exact(step: BringUpFrame) -> bool:
    return step.mask == b"\xff" * len(step.frame.data) or step.answer is not None


def _answer(bus: str, frame: Frame, wire: Wire, settled: bool) -> BringUpFrame | None:
    """The answer that a received frame is; None: it is a sample."""
    size = len(frame.data)
    messages = [each for each in wire.messages if each.id == frame.id and each.length == size]
    offs = [each for each in wire.off if _fits(each, frame)]
    if not messages and not offs:
        return BringUpFrame(bus, frame, b"\xff" * size)
    told = messages[:1] if settled or not offs else []
    known = [expects for each in told for expects in (*each.selects, *each.expects)]
    known += [expects for each in offs for expects in (*each.selects, *each.bits)]
    if not known:
        return None
    mask = bytearray(size)
    for each in known:
        field = each.field
        bits = (each.mask & field.mask) << field.shift
        for k in range(field.size):
            at = field.first + (field.size - 1 - k if field.big else k)
            if 0 <= at < size:
                mask[at] |= bits >> 8 * k & 0xFF
    return BringUpFrame(bus, frame, bytes(mask))


def _alive(drive: Drive) -> list[Alive]:
    """Frames that keep a drive alive, other than its commands."""
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
