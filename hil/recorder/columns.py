"""What a tick leaves in the run folder: the columns of a simulated run, and those that only drives have."""

from collections.abc import Mapping, Sequence

import numpy as np

from hil.drives.base import Node
from hil.safety.stages import Phase
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.rows import Chunk
from servoctl.simulation.simulate import Columns
from servoctl.types import Array

STAGES = [mode.value for mode in Phase]
"""What the numbers in the column `stage` mean."""

LIVE = "live"
"""Group of the columns that hold the gains in force, by their paths in the config."""


class ColumnLayout:
    """Names, units and order of the columns, and the row of a tick.

    Attributes:
        units: Column -> unit, in order.
        parts: What the row of a tick is made from, beside what only drives have: time, state with memory and the
            loop's row, one after the other, then the last three by themselves; to be written in place.
    """

    def __init__(
        self, loop: Loop, nodes: Sequence[Node], drives: int, emulated: bool, live: Sequence[str] = ()
    ) -> None:
        """Lays the columns out.

        Args:
            loop: The law's closed loop.
            nodes: Drives, in the plant's order, then encoder nodes.
            drives: How many drives.
            emulated: Whether there is a simulated plant to know the truth from.
            live: Gains that may change while the loop runs.
        """
        plant = loop.system.model.plant
        base = Columns(loop)
        units = base.units()
        # every number of a run is numbered; where a column finds its number says which it takes
        numbers = np.arange(1 + loop.size + loop.layout.size, dtype=float)
        chunk = Chunk(numbers[:1], numbers[None, 1 : 1 + loop.size], numbers[None, 1 + loop.size :])
        source = {name: int(column[0]) for name, column in base.of(chunk).items()}
        self._source = np.array(list(source.values()))
        actuators, coordinates = dict(plant.actuators), dict(plant.coordinates)
        own: dict[str, str] = {
            "elapsed": "s",
            "task_time": "s",
            "lateness": "s",
            "skipped": "",
            "stage": "",
            "read": "s",
        }
        own |= {f"law.{name}": unit for name, unit in actuators.items()}
        own |= {f"age.{node.settings.name}": "s" for node in nodes}
        own |= {f"position.{name}": "" for name in actuators} | {f"speed.{name}": "" for name in actuators}
        own |= {f"torque.{name}": unit for name, unit in actuators.items()} | {"encoder_residual": ""}
        if emulated:
            own |= {f"true_q.{name}": unit for name, unit in coordinates.items()}
            own |= {f"true_v.{name}": f"{unit}/s" for name, unit in coordinates.items()}
        own |= {f"{LIVE}.{path}": "" for path in live}
        self.units: Mapping[str, str] = {name: units.get(name, "") for name in source} | own
        self._row = np.zeros(len(self.units))
        self._numbers = np.zeros(len(numbers))
        state, command = 1 + loop.size, 1 + loop.size + loop.layout.command_size
        self.parts = self._numbers, self._numbers[1:state], self._numbers[state:command], self._numbers[command:]
        self._base = len(source)

    def row(self, own: Sequence[float]) -> Array:
        """A row, of what stands in `parts`; it is overwritten by the next.

        Args:
            own: The columns that only drives have, in order.
        """
        self._row[: self._base] = self._numbers[self._source]
        self._row[self._base :] = own
        return self._row
