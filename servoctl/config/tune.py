"""Grammar of `tune`: search space, uncertain plants, objectives, constraints and length of the search."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from servoctl.tree.fields import (
    LIST,
    MAPPING,
    SCALAR,
    ByPath,
    Count,
    ListOrMapping,
    Natural,
    NumberField,
    Parameter,
    Positive,
    Real,
    shape,
)
from servoctl.tree.rules import Broken, Section, rule


class Range(Section):
    """Search range of a number."""

    low: Real = Field(description="smallest value [unit of the path]")
    high: Real = Field(description="largest value [unit of the path]")
    scale: Literal["linear", "log"] = Field(
        default="linear", description="log for ranges that cover several powers of ten"
    )
    step: Positive | None = Field(
        default=None, description="spacing of the values [unit of the path]; left out: any value"
    )

    @rule
    def _is_a_range(self) -> Broken:
        if self.low > self.high:
            yield (), f"low {self.low:g} is above high {self.high:g} (exchange them)"
        if self.scale == "log" and self.low <= 0:
            yield (), f"scale: log from low {self.low:g} (give a positive low, or scale: linear)"
        if self.scale == "log" and self.step is not None:
            yield ("step",), "step does not fit scale: log (leave one out)"


Members = Annotated[tuple[Parameter, ...], Field(min_length=1)]

Choices = ListOrMapping[Members, Range]
"""A list of values, or a range."""

Minimise = Annotated[
    Annotated[str, Tag(SCALAR)]
    | Annotated[tuple[str, ...], Field(min_length=1), Tag(LIST)]
    | Annotated[ByPath[Positive], Field(min_length=1), Tag(MAPPING)],
    Discriminator(shape),
]
"""A metric; several metrics for a Pareto front; or metric -> weight for their weighted sum."""


OrNone = float | Literal["none"]
Share = Annotated[OrNone, NumberField("a number between 0 and 1, or none", above=0, below=1, word="none")]

RESERVES = {"share": "gain_share", "overshoot": "overshoot", "gain_margin": "gain_margin"}
"""Key of `tune` -> the metric that it bounds; an entry of `tune.constraints` for the same metric overrides it."""


class Objective(Section):
    """Objectives to minimise."""

    minimise: Minimise = Field(
        default="rms_violation",
        description="a metric; a list of metrics, for a Pareto front; or metric -> weight, for a weighted sum",
    )
    over: Literal["worst", "mean"] = Field(
        default="worst", description="value of a metric over the plants of uncertainty: the worst, or the mean"
    )


class Tune(Section):
    """A search for the best numbers of a config on simulated runs."""

    search: Annotated[ByPath[Choices], Field(min_length=1)] = Field(
        description="path in the config -> {low, high, scale, step}, or a list of values"
    )
    uncertainty: ByPath[Members] = Field(
        default={},
        description="path in the config -> values; each trial runs with every combination, the first values first",
    )
    sensitivity: dict[str, ByPath[Parameter]] = Field(
        default={},
        description="name -> values at paths, for one more run per trial; the metric sensitivity.<name> is the change "
        "of rms_violation in that run",
    )
    objective: Objective = Field(default=Objective(), description="objectives to minimise")
    constraints: ByPath[Real] = Field(
        default={},
        description="metric -> largest allowed value with any plant of uncertainty (for gain_margin, pivot_min and "
        "bounds.ROW.min the smallest)",
    )
    share: Share = Field(
        default=0.4,
        description="largest gain_share: period divided by the longest stable period of the gains; none: no bound [-]",
    )
    overshoot: Share = Field(
        default=0.1,
        description="largest overshoot of a task error after a step, relative to the step; none: no bound [-]",
    )
    gain_margin: Annotated[OrNone, NumberField("a number above 1, or none", above=1, word="none")] = Field(
        default=2.0,
        description="smallest gain_margin: factor on one actuator's gain at which the sampled loop becomes unstable; "
        "none: no bound [-]",
    )
    sampler: Literal["tpe", "cmaes", "nsga2", "random"] | None = Field(
        default=None, description="method that chooses the next trials; left out: tpe, for a Pareto front nsga2"
    )
    trials: Count = Field(default=200, description="number of trials [-]")
    generation: Count = Field(
        default=16, description="number of trials that are chosen together, without results of each other [-]"
    )
    seed: Natural = Field(default=0, description="seed of the choice of trials [-]")

    refine: Natural = Field(
        default=0,
        description="largest number of further trials near the best one, by a descent without derivatives; 0: none [-]",
    )

    @rule
    def _sampler_fits(self) -> Broken:
        several = isinstance(self.objective.minimise, tuple) and len(self.objective.minimise) > 1
        if several and self.refine:
            yield ("refine",), "needs a single objective (leave refine out, or use weights: {metric: weight})"
        if self.sampler != "cmaes":
            return
        if several:
            yield ("sampler",), "cmaes with several objectives (use nsga2 or tpe, or weights: {metric: weight})"
        if not all(isinstance(choice, Range) for choice in self.search.values()):
            yield ("sampler",), "cmaes with a list of values in search (use tpe, or give a range)"
        if len(self.search) < 2:
            yield ("sampler",), "cmaes with one path in search (use tpe)"

    @rule
    def _choices_are_single_values(self) -> Broken:
        for path, choice in self.search.items():
            if not isinstance(choice, Range) and any(isinstance(value, list) for value in choice):
                yield ("search", path), "has a list among its values (write the field by name, and search its entries)"

    @rule
    def _each_once(self) -> Broken:
        metrics = self.objective.minimise if isinstance(self.objective.minimise, tuple) else ()
        for name in dict.fromkeys(metrics):
            if metrics.count(name) > 1:
                yield ("objective", "minimise"), f"has {name} twice (leave one out)"
        for path in self.uncertainty:
            if path in self.search:
                yield ("uncertainty", path), "is in search already (leave one out)"
