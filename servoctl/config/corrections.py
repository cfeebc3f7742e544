"""Grammar of `correction`: the feedback that drives a constraint violation back to zero."""

from typing import Any

from pydantic import Field

from servoctl.laws.corrections import PER_ROW, Baumgarte, Correction, PFeedback, Poles, SecondOrderCorrection
from servoctl.laws.funnel import Funnel
from servoctl.tree.fields import PerName, PoleSet
from servoctl.tree.rules import Broken, OneOf, Ruled

KINDS = ("baumgarte", "second_order", "p_feedback", "funnel")


class CorrectionConfig(Ruled):
    """One correction; exactly one of its kinds is given."""

    one_of = OneOf(
        (*KINDS, "poles"), "a correction has exactly one kind", f"no kind (give exactly one of {', '.join(KINDS)})"
    )

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

    def fits_the_law(self, input_output: bool) -> Broken:
        """Kinds that do not fit the kind of the law."""
        for kind in self.given((*KINDS, "poles")):
            if input_output and kind != "poles":
                yield (kind,), "does not fit law.kind input_output (use poles)"
            if not input_output and kind == "poles":
                yield (kind,), "needs law.kind input_output (or use baumgarte, second_order, p_feedback or funnel)"
