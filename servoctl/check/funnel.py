"""What the funnels of task rows promise: width, largest gain, and the largest disturbance at which they hold."""

from typing import Any

from servoctl.assembly import Run
from servoctl.laws.bound_following import BoundConstraintFollowing


def funnel_section(run: Run) -> tuple[list[str], dict[str, Any]]:
    """Lines, and the same as values; empty without a funnel."""
    law = run.system.law
    if not isinstance(law, BoundConstraintFollowing) or law.funnel is None:
        return [], {}
    term, lines, values = law.funnel, [], {}
    task, period = run.system.model.matrices(run.start).task, term.period or 0.0
    betas = term.beta(task, law.funnel_numbers)
    for i, name, beta, of in zip(term.members, term.names, betas, term.of_rows(law.funnel_numbers), strict=True):
        begins = float(of.width(run.start.t))
        facts: dict[str, Any] = {"beta": float(beta), "start": begins, "end": of.end, "slope": of.slope}
        facts["edge"] = float(of.edge)
        widths = f"half-width {begins:.4g} at the start, then {of.end:.4g}"
        parts = [
            f"{name}: |beta| = {abs(beta):.4g} at the start, {widths}",
            f"gain {of.kappa:.4g} 1/s in the middle, {of.slope:.4g} 1/s from {of.edge:.1%} of the half-width on",
        ]
        # the proof is of samples whose held correction does not overshoot, from a violation that fits the funnel
        near = not of.rate or abs(task.violation[i]) <= of.start / of.rate
        tolerated = of.tolerated(period, term.late)
        near = near and abs(beta) + of.until_first_command(tolerated, term.late) <= begins
        if of.slope * period <= 1.0 and near:
            facts["tolerated"] = tolerated
            parts.append(
                f"|beta| stays inside at every sample while the model misses at most {facts['tolerated']:.4g} of the "
                "row's acceleration [unit/s^2]"
            )
            if of.rate:
                facts["violation"] = of.end / of.rate
                parts.append(f"|violation| then ends at no more than {of.end / of.rate:.4g}")
        else:
            parts.append("nothing is guaranteed: the slope is too large for the period, or the start too near the edge")
        lines.append("; ".join(parts))
        values[name] = facts
    return lines, values
