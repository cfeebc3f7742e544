"""`servoctl hil`: runs a config on drives, emulated or real. `servoctl emulate`: serves the emulated ones.

`servoctl replay`: recomputes the inputs of a run on drives, and compares them with its log.
"""

import os
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from servoctl.cli.check import say_imports
from servoctl.cli.console import Announcer, ExitCode, Phases, heed, note, number, say, say_json, say_table
from servoctl.cli.options import (
    AsJson,
    Classes,
    Config,
    EngineName,
    Overrides,
    RunFolderOut,
    SetFiles,
    changes_of,
    fresh_folder,
)
from servoctl.cli.run import headline, outliers, say_figures
from servoctl.errors import counted

if TYPE_CHECKING:
    from hil.session.replay import Replay
    from hil.session.run import HilRun, RunResult


def hil(
    config: Config,
    duration: Annotated[
        float | None, typer.Option(metavar="S", help="Time in the last stage [s]; default: run.duration.")
    ] = None,
    stage: Annotated[
        Literal["shadow", "zero", "ramp", "full", "float"] | None,
        typer.Option(
            help="Last stage; default: full on emulated drives, shadow (sends nothing) on real ones. float: "
            "the machine is held against gravity alone, to be guided by hand."
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Enable nothing: the machine is moved by hand, and calibration.yaml gets signs, zeros and ranges.",
        ),
    ] = False,
    armed: Annotated[bool, typer.Option("--armed", help="Allow real drives to produce torque.")] = False,
    require_rt: Annotated[bool, typer.Option("--require-rt", help="Refuse to start without real-time rights.")] = False,
    cpu: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Pin the loop to this CPU, for example an isolated one.")
    ] = None,
    view: Annotated[
        bool,
        typer.Option(
            "--view",
            help="Serve a live page with a stop button and print its address; virtual time then runs at real speed.",
        ),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(metavar="NAME.csv", help="With --stage float: write the guided motion as a reference file."),
    ] = None,
    out: RunFolderOut = None,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    engine: Annotated[EngineName, typer.Option(help="Engine of the law and the sensing; auto compiles to C.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Run a config on drives, emulated or real.

    Drives are emulated by default; real ones need a real bus in the config, and --armed.
    """
    from hil.loop.realtime import die_with_parent
    from hil.session.start import Request, start

    overlays = tuple(changes_of(set_file, overrides))
    request = Request(config, overlays, stage, duration, armed, require_rt, engine, cpu, record, calibrate)
    phases = Phases()
    prepared = start(request)
    phases.end("loading, tracing and compiling")
    for line in prepared.notes:
        note(line)
    folder = out or fresh_folder(prepared.setup.run.name)
    if not prepared.environment.lockstep:
        die_with_parent(os.getppid())  # by SIGTERM, which is a controlled stop
    try:
        result = _run(prepared, folder, view)
    except KeyboardInterrupt:  # Ctrl-C before the run installed its own handler
        note("interrupted before the first frame")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    try:
        _say_end(prepared, result, folder, as_json, phases)
    except KeyboardInterrupt:
        note(f"interrupted: the run had already ended, and {folder} is complete")
    finally:
        if record is not None:
            _write_guided(prepared, result, record)
        for name in result.unconfirmed:
            note(f"{name}: DID NOT CONFIRM THAT IT IS OFF: use the emergency stop")
    raise typer.Exit(result.exit_code)


def _run(prepared: "HilRun", folder: Path, view: bool) -> "RunResult":
    """Runs, and prints events, progress and the address of the live page while the loop goes on."""
    with Announcer(prepared.setup.run.name) as announcer:

        def tell_address(address: str) -> None:
            announcer.say(f"live page; anyone with this address can open it: {address}")

        return prepared.run(
            folder,
            lambda event: announcer.say(f"{event.time / 1e9:9.4f} s  {event}"),
            announcer.progress,
            tell_address if view else None,
        )


def _write_guided(prepared: "HilRun", result: "RunResult", file: Path) -> None:
    """Writes the guided motion; a failure here does not change the exit code."""
    from hil.session.by_hand import write_guided_motion
    from servoctl.errors import RunFolderError

    try:
        note(write_guided_motion(file, result.trajectory, list(prepared.setup.loop.system.model.plant.coordinates)))
    except RunFolderError as error:
        note(str(error))


def _say_end(prepared: "HilRun", result: "RunResult", folder: Path, as_json: bool, phases: Phases) -> None:
    """Prints the result of a run; a failure here does not change the exit code."""
    from hil.session.reporter import bus_loads

    summary = result.trajectory.summary()
    phases.end("bring-up and writing", "running", share=summary["wall_time"])
    if as_json:
        say_json(summary)
        return
    say(headline(summary))
    if result.calibration:
        _say_calibration(result, prepared.setup.sensing.displacements.units)
        say(str(phases), dim=True)
        return
    say_figures(result.trajectory, summary)
    say()
    _say_loop(summary, bus_loads(result.trajectory, prepared.setup.settings.buses))
    say()
    say(str(phases), dim=True)
    say(f"written to {folder}; next: servoctl report {quote(str(folder))}")


def _say_calibration(result: "RunResult", units: Sequence[str]) -> None:
    """Prints what a calibration found for each drive, in the unit of its displacement."""
    rows = []
    for axis, unit in zip(result.calibration, units, strict=False):  # encoder nodes follow the drives
        lower, upper = (number(limit) for limit in axis.position_limits)
        residual = "-" if isnan(axis.residual) else number(axis.residual)
        by_stops = "" if axis.zero_from == "the start pose" else f", zero from {axis.zero_from}"
        moved = "never" if isnan(axis.moved_at) else number(axis.moved_at)
        found = (
            ["-"] * 3
            if axis.problem
            else [f"{axis.sign:+d}", f"{number(axis.offset)} {unit}", f"{lower} to {upper} {unit}"]
        )
        rows.append([axis.name, moved, *found, residual, axis.problem or f"sign from {axis.evidence}{by_stops}"])
    say()
    titles = ["drive", "first moved [s]", "sign", "offset", "range seen", "residual [steps]", ""]
    say_table(titles, rows, numbers=5)
    if result.patch is None:
        say("\nnothing is written: the calibration is refused (see above)")
        return
    say(f"\nwritten to {result.patch}; lay it over the config: --set-file {quote(str(result.patch))}")


TIMES = ("mean", "std", "p50", "p99", "p99_9", "max")
PARTS = ("lateness", "period", "execution", "read", "law", "write")


def _say_loop(summary: Mapping[str, Any], loads: Mapping[str, tuple[float, float, float]]) -> None:
    """Prints how the loop ran and what its buses carried; `loads`: what `bus_loads` says."""
    _say_times(summary["timing"])
    in_c = f", {summary['ticks_in_c']} of {summary['steps']} ticks" if summary.get("ticks_in_c") else ""
    say(f"tick: {summary.get('tick', 'Python')}{in_c}")
    if summary.get("realtime"):
        say(f"real time: {'; '.join(summary['realtime'])}")
    counts = {name: summary["counts"].get(name, 0) for name in ("missed", "implausible", "rejected")}
    say(
        f"samples: {counts['missed']} missing at their tick, {counts['implausible']} implausible; "
        f"{sum(drive['rejected'] for drive in summary['drives'].values())} invalid frames from drives"
    )
    for line in outliers(summary):
        say(line)
    for name, bus in summary["bus"].items():
        load = ""
        if name in loads:
            mean, most, before = loads[name]
            setup = f", {100 * before:.0f} % while the drives were set up" if before > most else ""
            load = f"load {100 * mean:.0f} % on average, {100 * most:.0f} % at most{setup} (with the most stuff bits), "
        say(f"bus {name}: {load}{bus['sent']} frames sent, {bus['received']} received, {bus['errors']} error frames")
        problems = {"refused": "not accepted for sending", "lost": "lost in reception", "invalid": "not readable"}
        counts_of = [f"{bus[key]} {words}" for key, words in problems.items() if bus[key]]
        if counts_of:
            say(f"bus {name}: {', '.join(counts_of)}")


def _say_times(timing: Mapping[str, Any]) -> None:
    durations = {name: timing[f"{name}_s"] for name in PARTS}
    if ages := timing["age_s"]:
        oldest = max(ages, key=lambda name: ages[name].get("max", 0.0))
        durations[f"age of samples (oldest: {oldest})"] = ages[oldest]
    rows = [
        [name, *(number(1e6 * times.get(key, 0.0)) for key in TIMES)] for name, times in durations.items() if times["n"]
    ]
    say_table(["time [us]", *(key.replace("_", ".") for key in TIMES)], rows, numbers=len(TIMES))
    skipped, in_a_row = timing["skipped_periods"], timing["longest_late_run"]
    say(f"{counted(skipped, 'period')} skipped; at most {counted(in_a_row, 'late tick')} in a row")
    say(
        f"{timing['ticks']} ticks, {timing['late_ticks']} of them late by a period or more; "
        f"least time left in a period {1e6 * timing['least_slack_s']:.0f} us"
    )
    if "cpu_per_tick_s" in timing:
        cpu, law = timing["cpu_per_tick_s"], timing["law_s"].get("mean", 0.0)
        say(f"CPU per tick {1e6 * cpu:.0f} us, of which about {1e6 * law:.0f} us are the law")


def emulate(
    config: Config,
    set_file: SetFiles = None,
    overrides: Overrides = None,
    vcan: Annotated[
        bool, typer.Option("--vcan", help="Allow virtual SocketCAN interfaces (vcan*); the loop treats them as real.")
    ] = False,
    engine: Annotated[EngineName, typer.Option(help="Engine of the simulated plant.")] = "auto",
) -> None:
    """Emulate a config's drives and plant until Ctrl-C.

    A physical bus is refused.
    """
    from hil.assembly.emulation import serve

    def begun(lines: Sequence[str]) -> None:
        heed()
        for line in lines:
            say(f"emulated on {line}")
        say("running until Ctrl-C")

    with Announcer("") as announcer:
        serve(config, changes_of(set_file, overrides), engine, vcan, begun, announcer.say)
    note("ended")


def replay(
    run: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", exists=True, file_okay=False, help="A folder that a run wrote.")
    ],
    classes: Classes = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=0.0,
            help="Allowed difference, relative to the largest |u| of each actuator.",
            show_default="0, equal to the bit, on the engine of the run; 1e-9 on another",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute u of a run and compare it with its log.

    Also compares the logged torques with the frames in can.blf. Exit code 4: they differ.
    """
    from hil.session.replay import CONFIG
    from hil.session.replay import replay as again
    from servoctl.config import load_config

    if (run / CONFIG).is_file() and (run / CONFIG).stat().st_size:
        say_imports(load_config(run / CONFIG).of_folder(classes).config, note if as_json else say)
    with Announcer(run.name) as announcer:
        result = again(run, classes, tolerance, announcer.progress)
    if as_json:
        say_json(result.to_dict())
    else:
        _say_result(result)
    raise typer.Exit(ExitCode.DONE if result.agrees else ExitCode.BAD_STATUS)


def _say_result(result: "Replay") -> None:
    skipped = f" ({counted(result.skipped, 'more row')} did not use the law)" if result.skipped else ""
    engine = f"engine {result.engine}"
    if result.engine != result.logged_engine:
        engine += f", the run used {result.logged_engine}"
    measure = f"within {result.tolerance:g} of the largest |u|" if result.tolerance else "to the bit"
    verb = "differs" if result.differing == 1 else "differ"
    comparison = f"{counted(result.differing, 'row')} {verb}" if result.differing else "all rows are equal"
    say(f"{result.rows} rows compared{skipped}; {engine}; {comparison}, {measure}")
    if result.missing:
        say(
            f"can.blf lacks {result.missing} of the run's frames: it was cut or deleted (what it lacks is not compared)"
        )
    if result.samples:
        say(f"{result.samples} positions decoded again from can.blf: {_equal(result.other_samples)}")
    if result.sent is not None:
        sent = result.sent
        for count, other, subject in (
            (sent.torques, sent.other_torques, "torques sent in stage full, compared with the law and its limits"),
            (sent.frames, sent.other_frames, "torque frames in can.blf, compared with the torques sent"),
        ):
            say(f"{count} {subject}: {_equal(other)}")
        if sent.first:
            say(f"first difference: {sent.first}")
    say()
    rows = [[name, result.units[name], f"{size:.3g}"] for name, size in result.largest.items()]
    say_table(["input", "unit", "largest difference"], rows, numbers=1)
    if result.first is not None:
        first, unit = result.first, result.units[result.first.actuator]
        say(
            f"\nfirst difference in row {first.row}, t = {first.t:.6g} s: {first.actuator} was "
            f"{first.logged!r} {unit}, is {first.recomputed!r} {unit}"
        )


def _equal(differing: int) -> str:
    return f"{differing} differ" if differing else "all equal"
