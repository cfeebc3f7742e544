"""Which columns a run on drives has: those of a simulated run, and those that only drives have."""

from collections.abc import Mapping, Sequence

import numpy as np

from hil.drives.base import Drive, Node
from hil.drives.settings import GAUGES
from hil.safety.plan import Phase
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
