"""`servoctl analyse`: poles, margins and robustness of the closed loop, linearised at a state."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from servoctl.cli.console import Announcer, note, number, say, say_json, say_table
from servoctl.cli.options import AsJson, Config, Overrides, SetFiles, changes_of

if TYPE_CHECKING:
    from servoctl.linear import Analysis
    from servoctl.linear.analyse import BoxAnalysis, Shifted
    from servoctl.linear.margins import Margins
    from servoctl.linear.modes import Mode


def analyse(
    config: Config,
    at: Annotated[
        float | None,
        typer.Option(metavar="T", help="Simulate up to this time [s] and linearise there; default: the start."),
    ] = None,
    change: Annotated[
        float,
        typer.Option(metavar="PERCENT", help="Error of each plant parameter in the robustness table; 0: no table."),
    ] = 10.0,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Linearise the closed loop: modes, margins, robustness.

    The modes are those of the constraint error and of the internal dynamics.
    """
    from servoctl.assembly import load
    from servoctl.linear import analyse as examine

    with Announcer(config, "tracing, linearising and searching the margins"):
        run = load(config, changes_of(set_file, overrides), engine="vm" if at is None else "auto")
        analysis = examine(run, at, change / 100.0)
    for warning in [*run.warnings, *analysis.warnings]:
        note(f"warning: {warning}")
    if as_json:
        say_json(analysis.to_dict())
    else:
        _say(analysis)


def _say(analysis: "Analysis") -> None:
    moving = "; in motion: margins and internal modes hold for this instant" if analysis.moving else ", at rest"
    say(f"at t = {analysis.state.t:g} s{moving}")
    followed = any(mode.group == "task" for mode in analysis.modes)
    for title, group in (
        ("error of the mechanism constraints", "passive"),
        ("task error", "task"),
        ("internal dynamics" if followed else "motion", "internal"),
    ):
        rows = [_row(mode) for mode in analysis.modes if mode.group == group]
        if rows:
            say(f"\n{title}")
            say_table(["of", "pole [1/s]", "frequency [rad/s]", "damping", "decay [s]"], rows, numbers=4)
    for i, sentence in enumerate(analysis.notes):
        say(sentence if i else f"\n{sentence}")
    for margins in analysis.margins:
        _say_margins(margins)
    if analysis.box.box:
        _say_box(analysis.box)
    if len(analysis.robustness) > 1:
        # with a jitter there are two
        simulated = [i for i, each in enumerate(analysis.margins) if not each.timing.on_drives]
        say("\nrobustness: one parameter of the plant differs from the law's model")
        if simulated:
            at = " and ".join(str(analysis.margins[i].timing) for i in simulated)
            say(f"gain, phase, delay: the smallest margins of all inputs, {at}")
        titles = ["parameter", "error", "slowest pole [1/s]", "decay [s]", "smallest damping"]
        titles += ["gain", "phase [deg]", "delay [s]"] * bool(simulated)
        say_table(titles, [_shifted_row(shifted, simulated) for shifted in analysis.robustness], numbers=4)


def _say_box(box: "BoxAnalysis") -> None:
    """Prints figures of the nominal machine and of the worst one of the box."""
    from servoctl.assembly.uncertainty import in_words

    spans = ", ".join(f"{name} {100 * low:+.3g} to {100 * high:+.3g} %" for name, (low, high) in box.box.items())
    chosen = "every corner" if box.corners else "random corners of the box, not all"
    say(f"\nover the box of law.uncertainty: {spans}; {box.machines} machines ({chosen}, and some inside)")
    for each in box.margins:
        say(f"\nworst machine, {each.timing}")
        pole = "largest real part of a pole [1/s]" if each.timing.period is None else "largest |z| of a pole"
        titles = {
            "growth": pole,
            "gain": "gain",
            "gain_down": "gain down to",
            "phase": "phase [deg]",
            "delay": "delay [s]",
        }
        rows = [
            [titles[name], f"{worst.nominal:.5g}", f"{worst.worst:.5g}", in_words(worst.machine)]
            for name, worst in each.figures.items()
        ]
        say_table(["pole, smallest margins of all inputs", "nominal", "worst", "machine"], rows)


def _say_margins(margins: "Margins") -> None:
    """Prints the margins of each actuator for one timing, and the limits of all actuators together."""
    say(f"\nmargins at the plant input, {margins.timing}")
    if not margins.actuators:
        say("none: the loop is unstable")
        return
    rows = [
        [one.actuator, *(f"{x:.4g}" for x in (one.gain, one.gain_down, one.phase, one.delay, one.modulus))]
        for one in margins.actuators
    ]
    say_table(["opened at", "gain up to", "gain down to", "phase [deg]", "delay [s]", "|1 + L|"], rows, numbers=5)
    if (delay := margins.delay_margin) is not None:
        limit = f"unstable from {delay:.4g} s on" if math.isfinite(delay) else "no limit"
        say(f"more delay at all actuators at once: {limit}")


def _shifted_row(shifted: "Shifted", simulated: list[int]) -> list[str]:
    slowest, least = shifted.slowest, shifted.least_damped
    pole, _, _, decay = ["-"] * 4 if slowest is None else _row(slowest)[1:]
    damping = "-" if least is None else _row(least)[3]
    error = f"{100 * shifted.change:+.3g} %" if shifted.parameter else ""
    row = [shifted.parameter or "(none)", error, pole, decay, damping]
    return row + (_least([shifted.margins[i] for i in simulated]) if simulated else [])


def _least(margins: "Sequence[Margins]") -> list[str]:
    """The smallest gain, phase and delay margin of all inputs."""
    if not all(each.actuators for each in margins):
        return ["-"] * 3
    return [f"{min(each.worst[kind] for each in margins):.4g}" for kind in ("gain", "phase", "delay")]


def _row(mode: "Mode") -> list[str]:
    """One line of the table of modes: subject, pole, frequency, damping ratio, decay time."""
    decay = "neutral" if mode.decay is None else f"{mode.decay:.4g}" if mode.decay > 0 else f"grows, {-mode.decay:.4g}"
    damping = number(mode.damping)
    real, imag = (round(part, 9) + 0.0 for part in (mode.pole.real, mode.pole.imag))
    pole = f"{real:.6g}" + (f"{imag:+.6g}j" if imag else "")
    return [mode.mostly or mode.of, pole, f"{mode.frequency:.4g}", damping, decay]
