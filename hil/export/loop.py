"""Writes `NAME_loop.c`: the tick in C of a config with its tables, its bring-up as frames, its stop, and a main.

Design: the functions of law, sensing and prediction, the tick and the sockets are the very text that a run of
`servoctl hil` compiles, so the torques equal to the bit. What Python would do in a run on drives when a tick is not
ordinary is not exported: such a tick ends the program, which switches every drive off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hil.assembly.prepare import RigSetup, load
from hil.drives.base import Feedback
from hil.export.conversation import Conversation, converse
from hil.export.initialiser import initialiser, number, numbers
from hil.export.talk import frame_of, talk
from hil.loop import nanoseconds
from hil.loop.controller import Controller
from hil.safety import Reaction
from hil.safety.ladder import longest_ramp
from hil.session.run import WAIT_SHARE
from hil.session.tick_choice import machine_of
from hil.tick.compiled import HEAD_WITH_SOCKETS, TICK, text
from hil.tick.machine import CompiledTick
from servoctl.config.overrides import Override
from servoctl.engine.ccode import Program
from servoctl.errors import ConfigError
from servoctl.export.interface import comment, identifier
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array
from servoctl.version import VERSION

INCLUDES = (
    "net/if", "sched", "signal", "stdio", "stdlib", "sys/ioctl", "sys/mman", "linux/can", "linux/can/raw",
    "linux/can/error",
)  # fmt: skip

RENAMED = """#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#define select chosen_of /* the C library has one too */
"""

TABLES = ("message", "watch", "encoding", "channel", "drive", "rule")
"""Tables of a `tick`, and their sizes."""

SETTINGS = (
    "n", "m", "channels", "messages", "watched", "rules", "doubles", "integers", "predicts", "own_memory", "memory",
    "estimates", "rate_start", "status_start", "period", "skew", "residual_tolerance", "window", "longest",
    "memory_period", "margin", "steps", "stuck_travel", "stuck_time", "stuck_window",
    "scale_window", "scale_longest", "scale_share", "scale_enough", "scale_told", "scale_gap", "stops",
)  # fmt: skip
"""Numbers of a `tick` that stay."""


class LoopExport(NamedTuple):
    """An exported loop.

    Attributes:
        name: Prefix of the file.
        files: File name -> text.
        buses: Names of the buses, in the order of the program's arguments.
    """

    name: str
    files: dict[str, str]
    buses: list[str]

    @property
    def compile_line(self) -> str:
        """Shell command that compiles it."""
        stem = f"{self.name}_loop"
        return f"cc -std=c99 -O2 -ffp-contract=off -o {stem} {stem}.c -lm"


class _Compiled(NamedTuple):
    """A compiled function and the arrays on which a run calls it."""

    function: Any
    arguments: Sequence[Array]
    results: Sequence[Array]


def _compiled(function: Any, evaluate: Any) -> _Compiled:
    _, arguments, results = evaluate.kept
    return _Compiled(function, arguments, results)


def export_loop(config: Any, overrides: Sequence[Override] = ()) -> LoopExport:
    """Exports the loop of a config.

    Args:
        config: A path, or the bare name of a shipped config.
        overrides: `PATH=VALUE`, as after `--set`.

    Raises:
        ConfigError: The config is wrong, or C cannot do its ticks.
        DriveError: Emulated drives of this config do not come up.
    """
    setup = load(config, [*overrides, "hil.tick=c"], "c")
    controller = Controller(setup.loop)
    machine, why = machine_of(_without_notes(setup), controller)
    if machine is None:
        raise ConfigError(f"{setup.run.name}: --loop: {why}")
    conversation = converse(setup)
    machine.take_commands(conversation.wires)
    name = identifier(setup.run.name)
    body = _program(setup, controller, machine, conversation, name)
    return LoopExport(name, {f"{name}_loop.c": body}, list(setup.settings.buses))


def _without_notes(setup: RigSetup) -> RigSetup:
    """Without the rules that stop nothing: in the exported loop a broken rule ends the program."""
    return replace(setup, rules=tuple(rule for rule in setup.rules if rule.kind.reaction >= Reaction.STOP))


def _program(setup: RigSetup, controller: Controller, machine: CompiledTick, said: Conversation, name: str) -> str:
    loop = setup.loop
    assert isinstance(loop, CompiledLoop) and setup.prediction.call and setup.sensing.coordinates.call
    calls = {"predict": setup.prediction.call, "sense": setup.sensing.coordinates.call}
    functions = {name: _compiled(call.function, call.evaluate) for name, call in calls.items()}
    functions["law"] = _compiled(loop.control_kernel.function, controller.tick.evaluate)
    law = Program([each.function for each in functions.values()]).source
    head = HEAD_WITH_SOCKETS + "".join(f"#include <{each}.h>\n" for each in INCLUDES)
    files = [text(name) for name in ("tick.h", "sockets.h", "loop.h", *TICK, "sockets.c")]
    tables = [_settings(setup, name), _tables(machine), _set_up(setup, machine, functions, said)]
    tables.append(talk(setup, said, machine.ffi))
    code = [text(name) for name in ("bring_up.c", "loop.c")]
    parts = [_about(setup, name), head, RENAMED, law, "#undef select\n", *files, *tables, *code]
    return "\n".join(parts)


def _about(setup: RigSetup, name: str) -> str:
    lines = [
        f"The loop on drives of {setup.run.name}, exported by servoctl {VERSION}.",
        f"Compile: cc -std=c99 -O2 -ffp-contract=off -o {name}_loop {name}_loop.c -lm",
        f"Run:     ./{name}_loop --armed BUS... (as root, for real-time priority)",
        "It brings the drives up as emulated ones were brought up when it was exported, starts the task at once, and",
        "stops at the first tick that is not ordinary. Every way out switches every drive off.",
    ]
    return "/*\n" + "\n".join(f"  {comment(line)}" for line in lines) + "\n*/"


def _settings(setup: RigSetup, name: str) -> str:
    values = setup.settings.values
    period = nanoseconds(values.period)
    numbers_of = {
        "PERIOD": f"{period}LL", "WAIT": f"{round(WAIT_SHARE * period)}LL",
        "RAMP": f"{nanoseconds(max(map(longest_ramp, setup.drives)))}LL",
        "STALE": f"{setup.bounds.stale_age}LL", "LATE_TICKS": str(values.safety.late_ticks),
        "DURATION": number(setup.run.settings.duration),
        "NODES": str(len(setup.drives) + len(setup.sensors)), "NAME": f'"{name}_loop"',
        "BUSES": '"' + ", ".join(comment(bus) for bus in setup.settings.buses) + '"',
    }  # fmt: skip
    return "\n".join(f"#define {key} {value}" for key, value in numbers_of.items()) + "\n"


def _tables(machine: CompiledTick) -> str:
    """The tables as static arrays, and the arrays of the state."""
    tick, ffi = machine.tick, machine.ffi
    sizes = {
        "message": tick.messages, "watch": tick.watched, "encoding": tick.m, "channel": tick.channels, "drive": tick.m,
        "rule": tick.rules,
    }  # fmt: skip
    kinds = {"watch": "tick_watched"}
    lines = ["static tick machine;", "static tick_sockets wires;"]
    for name, size in sizes.items():
        table = getattr(tick, name)
        rows = ",\n".join("  " + initialiser(ffi, table[i]) for i in range(max(1, size)))
        lines.append(f"static tick_{name if name not in kinds else 'watched'} {name}_table[] = {{\n{rows}\n}};")
    factors = sum(tick.channel[i].factors for i in range(tick.channels))
    lines.append(f"static const double factors[] = {numbers([tick.factor[i] for i in range(factors)])};")
    indices = ", ".join(str(tick.factor_index[i]) for i in range(factors)) or "0"
    lines.append(f"static const int factor_indices[] = {{{indices}}};")
    total = sum(array.size for array in machine.numbers.values())
    lines += [f"static double number_block[{total}], kept_numbers[{tick.doubles}];",
              f"static long long time_block[{tick.integers}], kept_times[{tick.integers}];",
              f"static int clamped_inputs[{tick.m}];"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _set_up(setup: RigSetup, machine: CompiledTick, functions: Mapping[str, _Compiled], said: Conversation) -> str:
    """The function that connects the tables."""
    tick = machine.tick
    lines = [f"  machine.{name} = {_plain(getattr(tick, name))};" for name in SETTINGS]
    lines.append("  machine.old = INFINITY; /* only a stale sample ends the program */")
    lines += [f"  machine.{name} = {name}_table;" for name in TABLES]
    lines += ["  machine.factor = factors;", "  machine.factor_index = factor_indices;",
              "  machine.numbers = number_block;", "  machine.kept_numbers = kept_numbers;",
              "  machine.times = time_block;", "  machine.kept_times = kept_times;",
              "  machine.clamped = clamped_inputs;"]  # fmt: skip
    for block, state in (("number_block", machine.numbers), ("time_block", machine.times)):
        place = 0
        for name, array in state.items():
            lines.append(f"  machine.{name} = {block} + {place};")
            place += array.size
    memory = [tick.controller_memory[i] for i in range(tick.memory)]
    arrays = [f"static double law_memory[] = {numbers(memory)};", f"static double memory_begin[] = {numbers(memory)};"]
    lines += ["  machine.controller_memory = law_memory;", "  machine.memory_start = memory_begin;"]
    for name, call in functions.items():
        made, connected = _call(name, call)
        arrays += made
        lines += connected
    return "\n".join([*arrays, _buses(setup, machine, lines, said)])


def _call(name: str, call: _Compiled) -> tuple[list[str], list[str]]:
    """Arrays of a compiled function's arguments and results, and the lines that connect them."""
    arrays, lines, pointers = [], [], []
    for kind, values in (("in", call.arguments), ("out", call.results)):
        names = []
        for i, array in enumerate(values):
            names.append(f"{name}_{kind}{i}")
            flat = np.asarray(array, dtype=float).ravel(order="F")
            arrays.append(f"static double {names[-1]}[{max(1, flat.size)}] = {numbers(flat.tolist())};")
        pointers.append(f"static double *{name}_{kind}[] = {{{', '.join(names)}}};")
    lines += [f"  machine.{name}.function = servoctl_{call.function.name()};",
              f"  machine.{name}.arguments = {name}_in;", f"  machine.{name}.results = {name}_out;"]  # fmt: skip
    return [*arrays, *pointers], lines


def _buses(setup: RigSetup, machine: CompiledTick, lines: list[str], said: Conversation) -> str:
    buses = list(setup.settings.buses)
    nodes = (*setup.drives, *setup.sensors)
    synced = {node.settings.bus for node in nodes if node.feedback is Feedback.SYNC}
    rows = ", ".join(
        f"{{-1, {int(bool(setup.settings.buses[bus].get('fd')))}, {int(bus in synced)}, 0, 0, 0, 0, 0, 0}}"
        for bus in buses
    )
    commands = []
    for drive, wire in zip(setup.drives, said.wires, strict=False):
        assert wire.command is not None
        commands.append(frame_of(buses.index(drive.settings.bus), wire.command.frame))
    many = len(commands)
    messages = max(1, machine.tick.messages)
    arrays = [f"static tick_bus buses[] = {{{rows}}};", f"static tick_frame frames[4096], last_frames[{messages}];",
              "static int frame_numbers[4096];", f"static long long frame_order[{messages}];",
              "static tick_frame commands[] = {\n  " + ",\n  ".join(commands) + "\n};"]  # fmt: skip
    lines += [f"  wires.commands = {many};", "  wires.command = commands;", "  wires.last = last_frames;",
              "  wires.number = frame_numbers;", "  wires.order = frame_order;"]  # fmt: skip
    early = [f"  wires.buses = {len(buses)};", "  wires.room = 4096;",
             "  wires.bus = buses;", "  wires.frames = frames;"]  # fmt: skip
    return "\n".join([*arrays, "static void set_up(void)", "{", *early, *lines, "}"]) + "\n"


def _plain(value: Any) -> str:
    return number(value) if isinstance(value, float) else f"{value}ULL" if value >= 1 << 31 else str(value)
