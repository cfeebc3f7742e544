"""Which part of a logged row holds what."""

from collections.abc import Mapping

from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.model import Model


class Layout:
    """The slices of a row: first the command, then what else is logged.

    Args:
        model: Plant and constraints.
        law: The law; None: an open loop.
        estimate: Part -> size, of an estimator; None: there is none.
        size: Length of the loop's memory; None: that of the law.

    Attributes:
        command: Name -> size, of the command part.
        log: Name -> size, of the rest.
        slices: Name -> slice of the row.
        size: Length of a row.
        command_size: Length of its command part.
    """

    def __init__(
        self, model: Model, law: AttachedLaw | None, estimate: Mapping[str, int] | None = None, size: int | None = None
    ) -> None:
        n, m, r, p = model.n, model.m, len(model.task_rows), len(model.passive_rows)
        command = {"u": m, "rank": 1, "residual": 1, "pivot_min": 1, "status": 1}
        relaxed_rows, observed, memory = ((), (), {}) if law is None else (law.relaxed_rows, law.observed, law.memory)
        bounds = 0 if law is None else len(law.bounded)
        command |= {"given_up": len(relaxed_rows), "bound_active": bounds, "bound_lack": bounds}
        command |= {"search": 2 if law is not None and law.searches else 0, "disturbance": len(observed)}
        command |= dict(estimate or {}) | {"memory_rate": len(memory) if size is None else size}
        log = {
            "violation": r,
            "violation_rate": r,
            "passive": p,
            "passive_rank": min(p, 1),
            "passive_force": n,
            "servo_force": n,
            "bound": bounds,
        }
        self._place(command, log)

    def _place(self, command: dict[str, int], log: dict[str, int]) -> None:
        """Puts the parts one after the other: name -> size."""
        self.command, self.log = command, log
        self.slices: dict[str, slice] = {}
        position = 0
        for name, size in {**command, **log}.items():
            self.slices[name] = slice(position, position + size)
            position += size
        self.size = position
        self.command_size = sum(command.values())
