"""The parts of a run on drives, built and connected before the first frame."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hil.assembly.environment import Environment, TamperedController
from hil.assembly.prepare import RigSetup
from hil.assembly.proving import let_go
from hil.loop.controller import Controller
from hil.loop.stop_signals import StopSignals
from hil.recorder import InMemory, Recorder
from hil.recorder.columns import ColumnLayout
from hil.rig.dispatch import Dispatch
from hil.safety import Limits, Monitor
from hil.safety.plan import UNPOWERED, RunPlan, Stage
from hil.safety.stages import Stages
from hil.session.ahead import TicksAhead
from hil.session.calibration import HandCalibration
from hil.session.logbook import Logbook
from hil.session.missed import MissedTicks
from hil.session.operator import OperatorLink
from hil.session.outliers import OutlierReports
from hil.session.reporter import Reporter
from hil.session.tick_choice import tick_in_c
from hil.tick.ahead import AheadRig


@dataclass
class RunParts:
    """What a run is made of.

    Attributes:
        setup: The config, ready for drives.
        environment: Buses and clock.
        stage: Last stage.
        plan: What each stage does.
        facts: Facts for the summary.
        monitor: Judges and counts events.
        controller: Evaluates the law.
        table: Columns of a row.
        recorder: Records rows, frames and events.
        reporter: Brings events to the monitor, the recorder and the operator.
        outliers, missed: Watch the readings left out by the estimator, and the tasks out of reach.
        dispatch: Brings frames to the drivers.
        rig: The machine.
        stages: Decides which torques are sent.
        logbook: Rows and timing.
        operator: Signals and the live page.
        ahead: Lets C do several ticks in one call.
        hand: The calibration by hand; None in other stages.
        unconfirmed: Drives that did not confirm that they are off when the run ended; empty in shadow.
    """

    setup: RigSetup
    environment: Environment
    stage: Stage
    plan: RunPlan
    facts: dict[str, Any]
    monitor: Monitor
    controller: Controller
    table: ColumnLayout
    recorder: Recorder | InMemory
    reporter: Reporter
    outliers: OutlierReports
    missed: MissedTicks
    dispatch: Dispatch
    rig: AheadRig
    stages: Stages
    logbook: Logbook
    operator: OperatorLink
    ahead: TicksAhead
    hand: HandCalibration | None
    unconfirmed: tuple[str, ...] = ()


def assemble(
    setup: RigSetup,
    environment: Environment,
    stage: Stage,
    duration: float | None,
    out: Path | None,
    facts: dict[str, Any],
    signals: StopSignals | None,
    wait: int,
) -> RunParts:
    """Builds the parts of a run.

    Args:
        setup, environment, stage, duration, out, facts, signals: As of `hil.session.run.HilRun`.
        wait: Longest time after the beginning of a tick to wait for samples [ns].

    Raises:
        RunFolderError: The folder cannot be made.
    """
    nodes = [*setup.drives, *setup.sensors]
    monitor = Monitor(setup.drives, setup.sensors, setup.bounds, setup.rules)
    faults = environment.faults
    controller = Controller(setup.loop) if faults is None else TamperedController(setup.loop, faults)
    setup.live_gains.begin(controller.take_law)
    gains = [gain.path for gain in setup.live_gains.gains]
    emulated = environment.truth is not None
    table = ColumnLayout(setup.loop, nodes, len(setup.drives), emulated, gains)
    recorder: Recorder | InMemory = InMemory(table.units, facts)
    if out is not None:
        text = "" if setup.run.loaded is None else setup.run.loaded.text
        recorder = Recorder(out, table.units, facts, text, environment.lockstep)
    try:
        reporter = Reporter(monitor, recorder, environment.clock)
        dispatch = Dispatch(environment.buses, nodes, environment.clock, recorder.frame)
        plan = setup.plan(stage, duration)
        rig = _rig(setup, environment, stage, dispatch, plan, controller.estimating)
        limits = Limits(setup.settings.drives, setup.settings.values.period, environment.clock.now)
        stages = Stages(rig, controller, monitor, limits, plan)
        facts["tick"] = tick_in_c(rig, setup, controller, stages, limits, recorder.frame_records)
        outliers = OutlierReports(setup.loop, reporter)
        missed = MissedTicks(setup.loop, setup.run.settings.settling_band)
        logbook = Logbook(setup, controller, rig, stages, table, recorder, emulated)
        operator = OperatorLink(setup, controller, rig, stages, reporter, environment.lockstep, signals)
        ahead = TicksAhead(setup, rig, stages, monitor, logbook, missed, outliers, operator, recorder, wait)
        hand = HandCalibration(setup) if stage is Stage.CALIBRATE else None
        return RunParts(
            setup, environment, stage, plan, facts, monitor, controller, table, recorder, reporter, outliers, missed,
            dispatch, rig, stages, logbook, operator, ahead, hand,
        )  # fmt: skip
    except BaseException as error:
        if isinstance(recorder, Recorder):
            recorder.__exit__(type(error), error, error.__traceback__)
        raise


def _rig(
    setup: RigSetup, environment: Environment, stage: Stage, dispatch: Dispatch, plan: RunPlan, estimating: bool
) -> AheadRig:
    values, hold = setup.settings.values, plan.hold(setup.start.q, setup.start.v)
    return AheadRig(
        dispatch,
        setup.drives,
        setup.sensors,
        setup.sensing,
        setup.start,
        values.period,
        sends=stage not in UNPOWERED,
        prediction=setup.prediction if values.prediction else None,
        truth=environment.truth,
        asks=stage is Stage.CALIBRATE,
        holding=hold.u.tolist(),
        let_go=let_go(hold, setup.sensing.displacements.units),
        evenly=estimating,
    )
