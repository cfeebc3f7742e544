"""The law of a machine in separate parts, as a law for each part."""

from dataclasses import fields, replace
from typing import Any

from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.types import Array

_KNOWN = (
    "passive_rank_tolerance rows levels reactions preload wished optional damping stiffness higher allocation weights "
    "feedback_allocation null_space has_secondary aim free_damping limited lower upper rank_tolerance "
    "residual_tolerance on_infeasible input_damping observer observer_rate"
)
"""The fields that `separable` judges or `law_of_part` takes over."""


def separable(law: BoundConstraintFollowing) -> bool:
    """Whether the law of a machine in separate parts is the law of each part: nothing looks at several parts."""
    coupled = (
        len(law.levels) > 1, law.wished, law.reactions, law.limited, law.observer, law.null_space,
        law.on_infeasible == "damp", any(row.degree > 2 for row in law.rows),
    )  # fmt: skip
    # a field that is not in this list may couple parts, so the law stays whole unless the field has its default
    known = all(getattr(law, field.name) == field.default for field in fields(law) if field.name not in _KNOWN.split())
    return known and not any(coupled)


def law_of_part(law: BoundConstraintFollowing, rows: Array, inputs: Array) -> BoundConstraintFollowing:
    """The law of some rows and inputs that are separate from all others, in that order; it must be `separable`."""

    def chosen(values: tuple[Any, ...], indices: Array) -> tuple[Any, ...]:
        return tuple(values[i] for i in indices)

    names = dict.fromkeys(("rows", "damping", "stiffness"), rows)
    names |= dict.fromkeys(("weights", "aim", "lower", "upper"), inputs)
    changes: dict[str, Any] = {name: chosen(getattr(law, name), indices) for name, indices in names.items()}
    return replace(law, **changes, levels=(tuple(range(len(rows))),), optional=(), higher=())
