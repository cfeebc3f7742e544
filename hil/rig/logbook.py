"""The row of a tick: its columns, those of a simulated run and those that only drives have, and what writes it.

C writes the rows and counts the durations of a tick's parts (`log_tick` in `hil/core/c/tick.c`).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from hil.assembly.setup import RigSetup
from hil.core.controller import Controller
from hil.drives.base import Drive, Node
from hil.drives.settings import GAUGES
from hil.loop import Tick, nanoseconds
from hil.loop.tick import TickTimes
from hil.loop.timing import COUNTS, PARTS, TickStatistics
from hil.recorder import InMemory, Recorder
from hil.rig.machine import CompiledTick
from hil.safety.plan import Phase
from hil.safety.stages import Stages
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.rows import Chunk
from servoctl.simulation.simulate import Columns

STAGES = [mode.value for mode in Phase]  # names of the numbers in the column `stage`
LIVE = "live"  # group of the columns with the gains in force, named by their paths in the config


class ColumnLayout:
    """Names, units and order of the columns, and the row of a tick."""

    def __init__(
        self,
        loop: Loop,
        nodes: Sequence[Node],  # drives, in the plant's order, then encoder nodes
        emulated: bool,  # whether there is a simulated plant whose true state is known
        live: Sequence[str] = (),  # paths of gains that may change while the loop runs
    ) -> None:
        plant = loop.system.model.plant
        base = Columns(loop)
        units = base.units()
        # Each number of a tick gets its index as value: the value in a column is then the index of its source.
        numbers = np.arange(1 + loop.size + loop.layout.size, dtype=float)
        chunk = Chunk(numbers[:1], numbers[None, 1 : 1 + loop.size], numbers[None, 1 + loop.size :])
        source = {name: int(column[0]) for name, column in base.of(chunk).items()}
        # index into all these numbers for each column that a simulated run has too; these come first
        self.source = np.array(list(source.values()))
        actuators, coordinates = dict(plant.actuators), dict(plant.coordinates)
        extra: dict[str, str] = {
            "elapsed": "s",
            "task_time": "s",
            "lateness": "s",
            "skipped": "",
            "stage": "",
            "read": "s",
        }
        extra |= {f"law.{name}": unit for name, unit in actuators.items()}
        extra |= {f"age.{node.settings.name}": "s" for node in nodes}
        extra |= {f"position.{name}": "" for name in actuators} | {f"speed.{name}": "" for name in actuators}
        extra |= {f"{kind}.{name}": unit for kind in ("torque", "sent") for name, unit in actuators.items()}
        extra |= {"encoder_residual": ""}
        shown = [
            (gauge, i, node.settings.name)
            for gauge in GAUGES
            for i, node in enumerate(nodes)
            if isinstance(node, Drive) and gauge.quantity in node.shows
        ]
        # place in `Drive.gauges` and number of the drive for each column of temperatures, supply and load
        self.gauges = [(gauge.place, i) for gauge, i, _ in shown]
        extra |= {f"{gauge.name}.{name}": gauge.unit for gauge, _, name in shown}
        # column -> unit of those that only a simulated plant has: see `Emulator.truth`
        self.truth = {
            **{f"true_q.{name}": unit for name, unit in coordinates.items()},
            **{f"true_v.{name}": f"{unit}/s" for name, unit in coordinates.items()},
            **{f"true_u.{name}": unit for name, unit in actuators.items()},
            **{f"{kind}.{name}": "" for kind in ("true_on", "true_brake") for name in actuators},
        }
        extra |= self.truth if emulated else {}
        extra |= {f"{LIVE}.{path}": "" for path in live}
        # column -> unit, in order
        self.units: Mapping[str, str] = {name: units.get(name, "") for name in source} | extra
        self.values = np.zeros(len(self.units))  # the row of the last tick
        self._numbers = np.zeros(len(numbers))
        state, command = 1 + loop.size, 1 + loop.size + loop.layout.command_size
        # arrays to write a tick into: one of all numbers (time, state with memory, command and other values of the
        # loop's row), and views of its last three parts
        self.parts = self._numbers, self._numbers[1:state], self._numbers[state:command], self._numbers[command:]


class Logbook:
    """Rows and timing of a run: a `tick_log` of `hil/core/c/tick.h` with its arrays.

    Args:
        setup: Gains that may change, nodes and period.
    """

    def __init__(
        self,
        setup: RigSetup,
        machine: CompiledTick,
        controller: Controller,
        stages: Stages,
        table: ColumnLayout,
        recorder: Recorder | InMemory,
    ) -> None:
        self._machine, self._stages, self._table, self._recorder = machine, stages, table, recorder
        self._live, self._loop = setup.live_gains, controller.loop
        nodes = [node.settings.name for node in (*setup.drives, *setup.sensors)]
        self.timing = timing = TickStatistics(nanoseconds(setup.settings.values.period), nodes)
        layout, (numbers, state, command, _) = self._loop.layout, table.parts
        values = self._loop.log_call(*table.parts[1:])
        self.struct = log = machine.ffi.new("tick_log *")
        self._when = machine.ffi.new("tick_times *")
        log.sources, log.columns, log.block = len(table.source), len(table.values), COUNTS
        log.state, log.command, log.inputs = len(state), len(command), layout.slices["u"].start
        log.parameters, log.task, log.nominal = values.parameters, Phase.FULL.number, timing.nominal
        disturbance = layout.slices["disturbance"]
        log.disturbance, log.disturbances = disturbance.start, disturbance.stop - disturbance.start
        log.gauges = len(table.gauges)
        places = [place * machine.tick.channels + drive for place, drive in table.gauges]
        log.gauge = machine.pointer("int", np.array(places, dtype=np.int32))
        log.source = machine.pointer("int", table.source.astype(np.int32))
        log.numbers = machine.pointer("double", numbers)
        log.marks = machine.ffi.from_buffer("long long[]", timing.marks)
        machine.connect(log.values, values.call)
        for name, counts in zip((*PARTS, "ages"), timing.counts, strict=False):
            setattr(log, name, machine.pointer("unsigned long long", counts))
        self._row = machine.pointer("double", table.values)
        log.unused = self._row

    def enter(self, tick: Tick, times: TickTimes, true: Sequence[float], counts: bool = True) -> None:
        """Records a tick.

        Args:
            times: When its parts ended.
            true: True state of a simulated plant; empty without one.
            counts: Whether the durations of its parts count.
        """
        when, self.struct.stage, row = self._when, self._stages.mode.number, self._table.values
        when.deadline, when.began, when.elapsed, when.skipped = tick.deadline, tick.began, tick.elapsed, tick.skipped
        when.task_time, when.counts = self._stages.task_time, counts
        when.read, when.decided, when.written = times
        self._machine.functions.log_tick(self._machine.tick, self.struct, when, self._row)
        self._machine.raise_failure()
        self.written(1)
        if counts:
            self.timing.skip(tick.skipped)
        row[len(row) - len(true) - len(self._live.values) :] = [*true, *self._live.values]
        self._recorder.row(row)

    def written(self, ticks: int) -> None:
        """Takes note of ticks whose rows C has written."""
        self._loop.evaluations += ticks
