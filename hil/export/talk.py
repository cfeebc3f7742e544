"""The frames of bring-up and stop as tables in C."""

from collections.abc import Sequence
from math import inf
from typing import Any

from hil.assembly.prepare import RigSetup
from hil.drives.wire import Answer
from hil.export.conversation import BringUpFrame, Conversation
from hil.export.initialiser import initialiser, number
from hil.frame import Frame
from hil.tick.tables import fill_expects, fill_field
from servoctl.export.interface import comment

NO_FRAME = "{0, 0, 0, 0, 0, 0, {0}}"


def talk(setup: RigSetup, said: Conversation, ffi: Any) -> str:
    """Bring-up, stop and what keeps alive, as tables of frames."""
    buses = list(setup.settings.buses)
    nodes = (*setup.drives, *setup.sensors)
    start = setup.sensing.displacements(setup.run.system.model.plant, setup.start.q).tolist()
    answers: list[str] = []
    steps = [_step(buses, step, answers, ffi) for each in said.bring_up for step in each]
    stops: list[str] = []
    rows, first = [], 0
    for i, node in enumerate(nodes):
        count, bus = len(said.bring_up[i]), buses.index(node.settings.bus)
        brake, off = (said.brake[i], said.off[i]) if i < len(setup.drives) else ([], [])
        places = [len(stops), len(brake), len(stops) + len(brake), len(off)]
        stops += [frame_of(bus, frame) for frame in (*brake, *off)]
        torque = said.hold[i] if i < len(said.hold) else 0.0
        begins = (first + said.first_enable[i], int(i < len(said.resting) and said.resting[i] is not None))
        numbers_of = ", ".join(map(str, (first, count, *begins, *places)))
        pose = ", ".join(map(number, (start[i], torque, node.settings.start_tolerance)))
        rows.append(f'{{"{comment(node.settings.name)}", {numbers_of}, {pose}}}')
        first += count
    holding = [frame_of(buses.index(d.settings.bus), f) for d, f in zip(setup.drives, said.holding, strict=True)]
    resting = [NO_FRAME if frame is None else frame_of(buses.index(d.settings.bus), frame)
               for d, frame in zip(setup.drives, said.resting, strict=True)]  # fmt: skip
    alive = [f"{{{each.every}, {frame_of(buses.index(each.bus), each.frame)}}}" for each in said.alive]
    empty = f"{{0, {NO_FRAME}}}"
    tables = [
        ("const loop_answer answers", answers or [f'{{"", "", 0, 0, 0, 0, {{0, 0, 0, 0, 0, 0}}, {NO_FRAME}}}']),
        ("const loop_step steps", steps), ("const loop_alive alive", alive or [empty]),
        ("const tick_frame stops", stops), ("const tick_frame holding", holding), ("const tick_frame resting", resting),
        ("const loop_off offs", _offs(setup, said, ffi)), ("const loop_node nodes", rows),
        ("const double start_q", [number(q) for q in setup.start.q.tolist()]),
    ]  # fmt: skip
    return "\n".join(f"static {kind}[] = {{\n  " + ",\n  ".join(rows) + "\n};" for kind, rows in tables) + "\n"


def _offs(setup: RigSetup, said: Conversation, ffi: Any) -> list[str]:
    """Each a `loop_off`."""
    buses, rows = list(setup.settings.buses), []
    for i, (drive, wire) in enumerate(zip(setup.drives, said.wires, strict=False)):
        for off in wire.off:
            expects = []
            for part in (off.selects, off.bits):
                place = ffi.new("tick_expects[1]")
                for target, each in zip(place, part, strict=False):
                    fill_expects(target, each)
                expects.append(initialiser(ffi, place))
            head = (i, buses.index(drive.settings.bus), off.length, off.answers, off.id, off.mask)
            rows.append(f"{{{', '.join(map(str, (*head, len(off.selects), len(off.bits), *expects)))}}}")
    return rows


def _step(buses: Sequence[str], step: BringUpFrame, answers: list[str], ffi: Any) -> str:
    """A `loop_step`; the number that it checks is added to the `answers`."""
    mask = ", ".join(map(str, step.mask or b"\0"))
    bus, number_at = buses.index(step.bus), -1
    if step.answer is not None:
        number_at = len(answers)
        answers.append(_answer(bus, step.answer, ffi))
    return f"{{{int(step.mask is not None)}, {number_at}, {frame_of(bus, step.frame)}, {{{mask}}}}}"


def _answer(bus: int, answer: Answer, ffi: Any) -> str:
    """A `loop_answer`."""
    field = ffi.new("tick_field *")
    if answer.field is not None:
        fill_field(field, answer.field)
    poll = NO_FRAME if answer.poll is None else frame_of(bus, answer.poll)
    least, most = answer.least, answer.most
    expected = f"{least:g}" if least == most else f"at most {most:g}" if least == -inf else f"at least {least:g}"
    head = f'"{comment(answer.name)}", "{expected}", {int(answer.field is None)}, {int(answer.unlimited)}'
    return f"{{{head}, {number(least)}, {number(most)}, {initialiser(ffi, field[0])}, {poll}}}"


def frame_of(bus: int, frame: Frame) -> str:
    """A `tick_frame`."""
    flags = frame.extended << 1 | frame.remote << 2 | frame.fd << 4 | frame.brs << 5
    length = frame.length if frame.remote else len(frame.data)
    data = ", ".join(map(str, frame.data)) or "0"
    return f"{{0, {frame.id}, {bus}, {flags}, {length}, 0, {{{data}}}}}"
