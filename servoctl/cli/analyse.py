"""`servoctl analyse`: how the closed loop behaves around a state."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import note, say, say_json, say_table
from servoctl.cli.options import AsJson, Config, Overrides, SetFiles, given

if TYPE_CHECKING:
    from servoctl.linear import Analysis
    from servoctl.linear.margins_at import Margins
    from servoctl.linear.modes import Mode
    from servoctl.linear.robustness import Shifted


def analyse(
    config: Config,
    at: Annotated[
        float | None, typer.Option(metavar="T", help="Time [s] up to which the run is simulated; default: the start.")
    ] = None,
    change: Annotated[
        float,
        typer.Option(metavar="PERCENT", help="By how much each parameter of the plant is off; 0: leave that out."),
    ] = 10.0,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Linearise the closed loop: modes of the constraint error, internal dynamics, margins, robustness."""
    from servoctl.assembly import load
    from servoctl.linear import analyse as examine

    run = load(config, given(set_file, overrides), engine="vm" if at is None else "auto")
    found = examine(run, at, change / 100.0)
    for warning in [*run.warnings, *found.warnings]:
        note(f"warning: {warning}")
    if as_json:
        say_json(found.to_dict())
    else:
        _say(found)


def _say(found: "Analysis") -> None:
    frozen = "; in motion: margins and internal modes are of this instant" if found.moving else ", at rest"
    say(f"at t = {found.state.t:g} s{frozen}")
    for title, group in (
        ("passive constraints' error", "passive"),
        ("task error", "task"),
        ("internal dynamics", "internal"),
    ):
        rows = [_row(mode) for mode in found.modes if mode.group == group]
        if rows:
            say(f"\n{title}")
            say_table(["of", "pole [1/s]", "frequency [rad/s]", "damping", "decay [s]"], rows, numbers=4)
    for i, sentence in enumerate(found.notes):
        say(sentence if i else f"\n{sentence}")
    for margins in found.margins:
        _say_margins(margins)
    if len(found.robustness) > 1:
        own = _as_simulated(found.margins)
        say("\nwhere a parameter of the plant is not what the law takes it for")
        if own is not None:
            say(f"gain, phase, delay: the least margins of any input, {found.margins[own].timing}")
        titles = ["parameter", "is", "slowest pole [1/s]", "decay [s]", "least damping"]
        titles += ["gain", "phase [deg]", "delay [s]"] * (own is not None)
        say_table(titles, [_shifted_row(one, own) for one in found.robustness], numbers=4)


def _say_margins(margins: "Margins") -> None:
    """The table of one timing, and the limits that concern all actuators at once."""
    say(f"\nmargins at the plant's input, {margins.timing}")
    if not margins.actuators:
        say("none: the loop is unstable")
        return
    say_table(["opened at", "gain", "down to", "phase [deg]", "delay [s]", "|1 + L|"], _margin_rows(margins), 5)
    if margins.delay_margin is not None:
        say(f"more delay at all actuators at once: {_limit(margins.delay_margin, ' s')}")
    if margins.gain_factor is not None:
        say(f"factor on the law's gains (alpha, beta) in place of one torque: {_limit(margins.gain_factor)}")


def _limit(value: float, unit: str = "") -> str:
    return f"unstable from {value:.4g}{unit} on" if math.isfinite(value) else "no limit"


def _as_simulated(margins: "Sequence[Margins]") -> int | None:
    """Which margins are those of the run as it is simulated."""
    return next((i for i, one in enumerate(margins) if not one.timing.drives), None)


def _shifted_row(one: "Shifted", own: int | None) -> list[str]:
    """One line of the table of robustness."""
    slowest, least = one.slowest, one.least_damped
    pole, _, _, decay = ["-"] * 4 if slowest is None else _row(slowest)[1:]
    damping = "-" if least is None else _row(least)[3]
    row = [one.parameter or "(none)", f"{100 * one.change:+.3g} %" if one.parameter else "", pole, decay, damping]
    return row + ([] if own is None else _least(one.margins[own]))


def _least(margins: "Margins") -> list[str]:
    """The least gain, phase and delay of all inputs."""
    if not margins.actuators:
        return ["-"] * 3
    return [f"{min(getattr(one, kind) for one in margins.actuators):.4g}" for kind in ("gain", "phase", "delay")]


def _row(mode: "Mode") -> list[str]:
    """One line of the table of modes."""
    decay = "neutral" if mode.decay is None else f"{mode.decay:.4g}" if mode.decay > 0 else f"grows, {-mode.decay:.4g}"
    damping = "-" if mode.damping is None else f"{mode.damping:.4g}"
    real, imag = (round(part, 9) + 0.0 for part in (mode.pole.real, mode.pole.imag))
    pole = f"{real:.6g}" + (f"{imag:+.6g}j" if imag else "")
    return [mode.mostly or mode.of, pole, f"{mode.frequency:.4g}", damping, decay]


def _margin_rows(margins: "Margins") -> list[list[str]]:
    """One line for each actuator."""
    return [
        [one.actuator, *(f"{x:.4g}" for x in (one.gain, one.gain_down, one.phase, one.delay, one.modulus))]
        for one in margins.actuators
    ]
