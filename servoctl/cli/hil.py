"""`servoctl hil`: a config on drives, emulated or real."""

import os
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from servoctl.cli.announcer import Announcer
from servoctl.cli.console import note, say, say_json, say_table
from servoctl.cli.options import AsJson, Config, Overrides
from servoctl.cli.outcome import Outcome
from servoctl.cli.run import fresh_folder


def hil(
    config: Config,
    duration: Annotated[
        float | None, typer.Option(metavar="S", help="Time in the last stage [s]; default: run.duration.")
    ] = None,
    stage: Annotated[
        Literal["shadow", "zero", "ramp", "full"] | None,
        typer.Option(help="How far to go; default: full on emulated drives, shadow (sends nothing) on real ones."),
    ] = None,
    armed: Annotated[bool, typer.Option("--armed", help="Let real drives make torque.")] = False,
    require_rt: Annotated[bool, typer.Option("--require-rt", help="Refuse without real-time rights.")] = False,
    view: Annotated[
        bool,
        typer.Option(
            "--view",
            help="Serve a live page on this machine, with a stop button, and say its address; paces lock-step.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; default: runs/<name>-<date>-<time>.")
    ] = None,
    overrides: Overrides = None,
    engine: Annotated[
        Literal["auto", "c", "vm", "numpy"], typer.Option(help="What law and sensing run on; auto compiles to C.")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Run a config on drives: emulated by default, real by naming a real bus and arming it."""
    from hil.realtime import die_with_parent
    from hil.start import Request, start

    request = Request(config, tuple(overrides or ()), stage, duration, armed, require_rt, engine)
    begun = start(request)
    for line in begun.notes:
        note(line)
    folder = out or fresh_folder(begun.name)
    if not begun.lockstep:
        die_with_parent(os.getppid())  # by SIGTERM, which is a controlled stop
    try:
        with Announcer(begun.name) as announcer:
            ended = begun.run(
                folder,
                lambda event: announcer.say(f"{event.time / 1e9:9.4f} s  {event}"),
                announcer.progress,
                (lambda address: announcer.say(f"live page, for who has its address: {address}")) if view else None,
            )
    except KeyboardInterrupt:
        note("interrupted before the first frame")
        raise typer.Exit(Outcome.INTERRUPTED) from None
    summary = ended.trajectory.summary()
    if as_json:
        say_json(summary)
    else:
        _say(summary, begun.accuracy(ended.trajectory))
        say(f"\nwritten to {folder}; next: servoctl report {quote(str(folder))}")
    for name in ended.unconfirmed:
        note(f"{name}: DID NOT CONFIRM THAT IT IS OFF: use the emergency stop")
    raise typer.Exit(ended.exit_code)


def _say(summary: dict[str, Any], bounds: dict[str, float]) -> None:
    from servoctl.cli.run import headline, number

    say(headline(summary))
    rows = [
        [name, *(number(metrics[key]) for key in ("max_violation", "rms_violation")), number(bounds.get(name))]
        for name, metrics in summary["tasks"].items()
    ]
    say()
    say_table(["task", "max error", "rms error", "explained by the loop"], rows, numbers=3)
    timing = summary["timing"]
    say()
    rows = [
        [
            name,
            *(number(1e6 * timing[f"{name}_s"].get(key, 0.0)) for key in ("mean", "p50", "p99", "p99_9", "max")),
        ]
        for name in ("lateness", "period", "execution", "read", "law", "write")
        if timing[f"{name}_s"]["n"]
    ]
    say_table(["time [us]", "mean", "p50", "p99", "p99.9", "max"], rows, numbers=5)
    say(f"{timing['skipped_periods']} periods skipped; at most {timing['longest_late_run']} late ticks in a row")
    if "cpu_per_tick_s" in timing:
        bare, cpu, law = timing["bare"], timing["cpu_per_tick_s"], timing["law_s"].get("mean", 0.0)
        figures = ", ".join(
            f"{1e6 * bare['lateness_s'][key]:.0f} {key.replace('_', '.')}" for key in ("p50", "p99", "max")
        )
        say(
            f"a loop that does nothing, for {bare['ticks'] * bare['nominal_period_s']:.1f} s just before: late by "
            f"{figures} us, {bare['skipped_periods']} periods skipped"
        )
        say(f"CPU per tick {1e6 * cpu:.0f} us, of which about {1e6 * law:.0f} us are the law")
    for name, bus in summary["bus"].items():
        say(f"bus {name}: {bus['sent']} frames sent, {bus['received']} received, {bus['errors']} error frames")
