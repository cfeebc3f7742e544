"""One scenario in virtual time, checked against the true states of the emulated drives and the frames on the wire."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf

import numpy as np

from hil.assembly.emulation import environment_of, make_emulator
from hil.emulator.emulator import Emulator, HostFaults
from hil.frame import Frame
from hil.loop import SECOND, nanoseconds
from hil.rig.logbook import STAGES
from hil.safety import EventKind, Reaction
from hil.safety.plan import Phase
from hil.session.run import HilRun, RunResult
from servoctl.types import Array
from tests.hil.by_drivers import ticks
from tests.hil.command_observer import CommandObserver
from tests.hil.faults.carts.expected import GOES_ON, STALE, Expected, expected
from tests.hil.faults.carts.scenario import PERIOD, SAMPLES, WATCHDOG, Scenario, machine, simulated_plant
from tests.hil.faults.truth import TruthMonitor
from tests.hil.rigs import renewed

LOOKED_AT = 2 * PERIOD
"""Longest time between two checks of the ages: a tick that misses a sample waits for it and checks late [s]."""


class SampleTimes:
    """Records when samples reach the host's controller."""

    def __init__(self, emulator: Emulator, protocol: str) -> None:
        """Records the samples of all nodes of a machine with this protocol."""
        self._heard: dict[str, list[int]] = {name: [] for name in SAMPLES[protocol]}
        names = {identity: name for name, identity in SAMPLES[protocol].items()}
        station = emulator.buses["main"].station
        receive = station.receive

        def take(frame: Frame) -> None:
            if frame.id in names:
                self._heard[names[frame.id]].append(emulator.world.now)
            receive(frame)

        station.receive = take

    def problems(self, stale: float, since: int, until: int, subject: str | None) -> list[str]:
        """Sentences about an ending that contradicts the ages of the samples.

        Args:
            stale: Age of a sample that must stop the machine [s].
            since: Start of the fault [ns].
            until: Time of the event that ended the run, else the end of the task [ns].
            subject: The node that was reported as stale; None if the run went on.
        """
        if subject is not None:
            silent = (until - max(time for time in self._heard[subject] if time <= until)) / SECOND
            return [f"{subject} was heard {1e3 * silent:.2f} ms before"] if silent < stale else []
        return [
            f"{name} was not heard for {1e3 * silent:.2f} ms"
            for name in self._heard
            if (silent := self._longest(name, since, until)) >= stale + LOOKED_AT
        ]

    def _longest(self, name: str, since: int, until: int) -> float:
        """Longest time between two samples of a node, both after the fault [s]."""
        times = [time for time in self._heard[name] if since <= time <= until]
        return max((b - a for a, b in pairwise(times)), default=0) / SECOND


ZERO = 0.05
"""Torques at the joint up to this count as zero, because MIT frames have no exact zero [N]."""

SETTLING = WATCHDOG + 0.3
"""Drives that get no more frames must be off within this time after the run [s]."""

WATCHED = 0.05
"""Drives that are off when the run ends must still be off after this time [s]."""


@dataclass(frozen=True)
class FaultResult:
    """The result of one run.

    Attributes:
        scenario: The scenario of the run.
        expected: The reaction that it requires.
        ended_by: Kind of the event that ended the run, or `goes on`.
        reaction: Time from the fault to that event [s]; None without such an event.
        off: Time from the fault to the last drive off [s]; None if the run went on.
        problems: One sentence for each thing that was wrong.
        over_limits: Number of frames that commanded what must not be on the wire.
        enabled_again: Number of drives that were enabled again after they went off.
        ticks_in_c: Number of ticks that were done in C; results that differ in nothing else are equal.
    """

    scenario: Scenario
    expected: Expected
    ended_by: str
    reaction: float | None
    off: float | None
    problems: tuple[str, ...]
    over_limits: int = 0
    enabled_again: int = 0
    ticks_in_c: int = field(default=0, compare=False)


class Host(HostFaults):
    """Faults of the loop's own process, which a config cannot script."""

    def __init__(self, scripted: HostFaults, now: Callable[[], int], due: Callable[[], None]) -> None:
        """Wraps the scripted faults; `due` is called once when `now` has reached `at`."""
        self._scripted, self._now, self._due = scripted, now, due
        self.at: int | None = None
        self.raises = self.happened = False

    def stall(self) -> int:
        if self.at is not None and self._now() >= self.at:
            self.at, self.happened = None, True
            self._due()
        return self._scripted.stall()

    @property
    def tampers(self) -> bool:
        return self.raises or self._scripted.tampers

    def tamper(self, u: Array) -> Array:
        if self.raises:
            raise ZeroDivisionError("float division by zero")
        return self._scripted.tamper(u)


def play(scenario: Scenario, tick: str = "c", engine: str = "vm") -> FaultResult:
    """Runs a scenario and checks its reaction; `tick`: one of `TICKS`, `engine` as of `machine`.

    Raises:
        KeyboardInterrupt: A signal came that is not part of the scenario.
    """
    made = machine(scenario.protocol, scenario.motion, engine, scenario.estimation)
    prepared = renewed(made, scenario.faults, scenario.seed)
    emulator = make_emulator(prepared, "vm", simulated_plant(scenario.protocol))
    observer = CommandObserver(emulator, prepared.settings.drives)
    truth, samples = TruthMonitor(emulator), SampleTimes(emulator, scenario.protocol)
    host = Host(emulator.host_faults, emulator.clock.now, lambda: _happen(scenario.host, host, emulator))

    def engaged() -> None:
        emulator.engaged()
        if scenario.at is not None:
            truth.begin(nanoseconds(scenario.at))
            host.at = truth.onset if scenario.host else None

    environment = replace(environment_of(prepared, emulator), engaged=engaged, faults=host)
    stage = Phase.FLOAT if scenario.motion == "floating" else Phase.FULL
    run = HilRun(prepared, environment, stage)
    with ticks(tick):
        ended = run.run(None, lambda event: None)
    if run.operator.stop_reason and not (scenario.host in signal.Signals.__members__ and host.happened):
        raise KeyboardInterrupt  # the signal was meant for this process, not for the run
    emulator.clock.sleep_until(emulator.clock.now() + nanoseconds(SETTLING if truth.on else WATCHED))
    return _checked(scenario, truth, samples, observer, ended)


def play_on(kinds: Sequence[str], scenario: Scenario) -> tuple[FaultResult, ...]:
    """Runs a scenario on each of these ticks; a result that differs from the first is a problem.

    The law runs on one engine for all: between two engines torques differ by rounding, and frames by their stuff bits.

    Args:
        kinds: `TICKS`, or one of them.
        scenario: The scenario.
    """
    results: list[FaultResult] = []
    for tick in kinds:
        result = play(scenario, tick, "auto")
        if results and result != results[0]:
            said = f"the tick in C ended by {result.ended_by}, that in Python by {results[0].ended_by}"
            times = f"off after {_shown(result.off)} and {_shown(results[0].off)}"
            result = replace(result, problems=(*result.problems, f"{said}; {times}"))
        results.append(result)
    return tuple(results)


def _shown(seconds: float | None) -> str:
    return "no time" if seconds is None else f"{1e3 * seconds:.2f} ms"


def _happen(what: str, host: Host, emulator: Emulator) -> None:
    if what == "law raises":
        host.raises = True
    elif what == "bus closed":
        emulator.buses["main"].close()
    else:
        signal.raise_signal(signal.Signals[what])


def _checked(
    scenario: Scenario, truth: TruthMonitor, samples: SampleTimes, observer: CommandObserver, ended: RunResult
) -> FaultResult:
    wanted = expected(scenario)
    first = next((event for event in ended.events if event.kind.reaction >= Reaction.STOP), None)
    ended_by = GOES_ON if first is None else first.kind.name.lower()
    reaction = None if first is None else (first.time - truth.onset) / SECOND
    off = None if first is None or truth.all_off is None else (truth.all_off - truth.onset) / SECOND
    fed = wanted.fed and bool(ended.unconfirmed)
    problems = truth.problems(truth.names if fed else ())
    if scenario.at is None:
        problems += [f"{fault['drive']} was enabled" for fault in scenario.faults if fault["drive"] in truth.enabled]
    violations = observer.report()
    problems += [f"the observer saw {each.what} to {each.drive}" for each in violations[:3]]
    if ended_by not in wanted.endings:
        problems.append(f"{ended_by}{'' if first is None else f' ({first})'}, expected {_either(wanted.endings)}")
    if ended_by == GOES_ON and wanted.told and wanted.told not in {each.kind.name.lower() for each in ended.events}:
        problems.append(f"goes on without a word, expected the event {wanted.told}")
    if wanted.by_age and ended_by in wanted.endings:
        until = nanoseconds(float(ended.trajectory.columns["t"][-1])) if first is None else first.time
        problems += samples.problems(STALE, truth.onset, until, None if first is None else first.subject)
    if reaction is not None and reaction > wanted.within:
        problems.append(f"{ended_by} after {1e3 * reaction:.2f} ms, at most {1e3 * wanted.within:.2f} ms")
    if first is not None and scenario.at is not None and not fed:
        most = wanted.off_within(scenario, ended_by)
        if off is None or off > most:
            shown = "never" if off is None else f"after {1e3 * off:.2f} ms"
            problems.append(f"all drives off {shown}, at most {1e3 * most:.2f} ms")
    if ended.unconfirmed and not wanted.mute:
        problems.append(f"not confirmed to be off: {', '.join(ended.unconfirmed)}")
    code = wanted.exit_code(ended_by, not any(event.kind is EventKind.NOT_CONFIRMED for event in ended.events))
    if ended.exit_code != code:
        problems.append(f"exit code {ended.exit_code}, expected {code}")
    if (misled := _misled(ended, inf if first is None else first.time / SECOND)) > wanted.misled:
        problems.append(f"the law got a position that is wrong by {misled:.3g} m, at most {wanted.misled:g} m")
    if scenario.at is None and max(observer.findings.largest.values()) > ZERO:
        problems.append("a torque was commanded")
    return FaultResult(
        scenario, wanted, ended_by, reaction, off, tuple(problems), len(violations), len(truth.enabled_again),
        ended.trajectory.metadata.get("ticks_in_c", 0),
    )  # fmt: skip


def _misled(ended: RunResult, until: float) -> float:
    """Largest difference between a coordinate that the law got and the true one, until a time [s]."""
    columns = ended.trajectory.columns
    rows = (columns["t"] <= until) & (columns["stage"] != STAGES.index("over"))  # nothing is measured after the end
    return max(
        float(np.nanmax(np.abs(columns[f"q.{x}"] - columns[f"true_q.{x}"])[rows], initial=0.0)) for x in ("x1", "x2")
    )


def _either(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))
