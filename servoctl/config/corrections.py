"""Grammar of `correction`: the feedback that drives a constraint violation back to zero."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from servoctl.errors import counted
from servoctl.laws.corrections import PER_ROW, Baumgarte, Correction, PFeedback, Poles, SecondOrderCorrection
from servoctl.laws.funnel import Funnel
from servoctl.tree.fields import PerName, PoleSet, gain_fields
from servoctl.tree.rules import WRONG, Broken, FieldPath, OneKind, OneOf

KINDS = ("baumgarte", "second_order", "p_feedback", "funnel")


class CorrectionConfig(OneKind):
    """One correction; exactly one of its kinds is given."""

    one_of = OneOf(dict.fromkeys((*KINDS, "poles"), ()), "a correction has exactly one kind", "kind")

    baumgarte: Baumgarte | None = Field(default=None, description="phi'' + 2 alpha phi' + beta^2 phi = 0")
    second_order: SecondOrderCorrection | None = Field(
        default=None, description="phi'' + damping phi' + stiffness phi = 0"
    )
    p_feedback: PFeedback | None = Field(default=None, description="P beta' + beta = 0")
    funnel: Funnel | None = Field(
        default=None, description="beta' = -F(beta): p_feedback whose gain grows towards the edge of a corridor"
    )
    poles: PerName[PoleSet] | None = Field(
        default=None,
        description="law input_output: poles of the task error [1/s], one number or as many as the row's "
        f"relative degree{PER_ROW}",
    )

    @property
    def chosen(self) -> Correction:
        """The one that is given."""
        chosen: Any = next(value for _, value in self if value is not None)
        return chosen if self.poles is None else Poles(chosen)

    def unfit_kinds(self, law: str | None) -> Broken:
        """Kinds that do not fit the kind of the law: `poles` is that of input_output, and of no other law."""
        for kind in self.given((*KINDS, "poles")):
            if law == "input_output" and kind != "poles":
                yield (kind,), "does not fit law.kind input_output (use poles)"
            if law != "input_output" and kind == "poles":
                yield (kind,), "needs law.kind input_output (or use baumgarte, second_order, p_feedback or funnel)"

    def wrong_gains(self, rows: int | None) -> Broken:
        """Gains of a task entry, or of the plant, that are not one number, or one for each of so many rows.

        Args:
            rows: None: only a class knows their number.
        """
        for path, gain in self.gains:
            if isinstance(gain, Mapping):
                yield path, "a mapping by task name (only law.correction has one; here a number, or one per row)"
            elif isinstance(gain, tuple) and rows is not None and path != ("poles",):  # a row has several poles
                yield from wrong_length(path, gain, rows)

    @property
    def gains(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Path and value of each gain, of which rows may have their own."""
        if self.poles is not None:
            yield ("poles",), self.poles
        for kind in self.given(KINDS):
            correction = getattr(self, kind)
            of: Any = type(correction)
            for name in () if correction is WRONG else gain_fields(of):
                yield (kind, name), getattr(correction, name)


def wrong_length(path: FieldPath, gains: Sequence[Any], rows: int, which: str = "") -> Broken:
    """Gains that are not one for each row."""
    if len(gains) != rows:
        many = f"{counted(len(gains), 'value')} for {counted(rows, 'row')}"
        yield path, f"{many} (give one per row{which})"
