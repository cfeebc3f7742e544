"""Sentences for the operator: a rig in words for `servoctl check`, notes before a run, and the pre-flight list."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hil.assembly.prepare import notes_on
from hil.assembly.setup import RigSetup
from hil.assembly.stops import describe_bounds, describe_drops, describe_silence, describe_stops, stops_of_task
from hil.bus.open import is_loopback
from hil.drives import Feedback
from hil.drives.base import Drive, listed
from hil.drives.settings import GAUGES, Gauge, Quantity
from hil.emulator.process import check_fault
from hil.safety.plan import Phase
from hil.safety.proof import MARGIN, SHARE, zero_limits
from hil.session.by_hand import FILE
from servoctl.config.overrides import Override

ORDER = "--calibrate, then --stage zero, float, ramp, full: each with --armed, each longer than the one before"


def preflight(setup: RigSetup, stage: Phase, overrides: Sequence[Override]) -> list[str]:
    """Lines for the operator; `stage`: last stage of the run; `overrides`: what was laid over the config."""
    lines = [f"pre-flight list for --stage {stage.value} (the way to the first motion: {ORDER})", "tested:"]
    lines += [f"  [x] {each}" for each in _tested(setup)]
    lines += ["not tested, only the machine can show it:"]
    return lines + [f"  [ ] {each}" for each in _only_machine(setup, overrides)]


def _tested(setup: RigSetup) -> list[str]:
    values, drives = setup.settings.values, setup.drives
    load = max(each.load for each in setup.settings.loads.values())
    tested = [
        f"config and model: the gains are stable at {1e3 * values.period:g} ms, the bus is loaded to at most "
        f"{100 * load:.0f} %, the law's limits are within those of the drives"
    ]
    held = [np.abs(setup.gravity_compensation(at.t, at.q).u) for at in setup.task_states]
    shares = np.max(held, axis=0) / setup.torque_limits
    worst = int(np.argmax(shares))
    if shares[worst] > 0.0:
        tested.append(
            f"by the model: to hold a pose of the task takes at most {100 * shares[worst]:.0f} % of torque_limit "
            f"({drives[worst].settings.name})"
        )
    longest = max(float(stop.times.max()) for stop in stops_of_task(setup))
    takes = f"takes at most {longest:.2g} s" if np.isfinite(longest) else "does not end"
    tested.append(
        f"by the model: a controlled stop from the task {takes} (after stop_time, {values.safety.stop_time:g} s, the "
        "drives brake by themselves)"
    )
    tested.append(
        "in this run, before anything is enabled: every node answers, is what the config says, and has no fault"
    )
    skipped = _untested(setup)
    watched = [drive for drive in drives if drive.watchdog and drive.settings.name not in skipped]
    silence = f"after {1e3 * values.safety.drive_watchdog:g} ms of silence"
    tested += [
        f"in this run, {when}: the watchdog of {names} runs out once {after}"
        for enables, when, after in (
            (False, "before anything is enabled", silence),
            (True, "while the drive is enabled for it, at the start pose", "when no command comes"),
        )
        if (names := listed([drive for drive in watched if drive.test_enables is enables]))
    ]
    tolerances = [node.settings.start_tolerance for node in setup.nodes]
    within = " to ".join(dict.fromkeys(f"{end(tolerances):.3g}" for end in (min, max)))
    tested.append(f"in this run, before anything is enabled: the encoders show the start pose within {within}")
    proof = setup.proof
    most = ", ".join(dict.fromkeys(f"{a:g} {unit}" for a, unit in zip(proof.travel, proof.units, strict=True)))
    tested.append(
        f"in this run, in stage zero: sign and scale of each torque and position, by a motion of at most {most}; "
        "a drive that it cannot prove is named"
    )
    return [*tested, *_seen(drives)]


def zero_torques(setup: RigSetup) -> str:
    """The largest torque of each drive in stage zero, and what it is made of."""
    drives, plant = setup.settings.drives, setup.plant
    limits = zero_limits(drives, setup.hold.u, setup.proof.dry)
    each = ", ".join(
        f"{drive.name} {limit:.3g} {unit}"
        for drive, limit, unit in zip(drives, limits, plant.actuators.values(), strict=True)
    )
    return (
        f"stage zero: torques of at most {each}: {MARGIN:g} times what the start pose and dry friction take, "
        f"and {100 * SHARE:g} % of torque_limit"
    )


def _energy(setup: RigSetup) -> float:
    """Largest kinetic energy at the start pose with every axis at its speed_limit, whatever the signs [J]."""
    inertia = np.abs(setup.hold.inertia)
    return float(setup.speed_limits @ inertia @ setup.speed_limits) / 2


def _untested(setup: RigSetup) -> dict[str, str]:
    """Drive -> why its watchdog is not tested."""
    return {test.drive.settings.name: reason for test in setup.watchdog_tests if (reason := test.left_out)}


def _only_machine(setup: RigSetup, overrides: Sequence[Override]) -> list[str]:
    values, drives = setup.settings.values, setup.drives
    calibrated = any(isinstance(each, Path) and each.name == FILE for each in overrides)
    signs = (
        f"signs and zeros: {FILE} is laid over; is the machine mounted as it was then?"
        if calibrated
        else "signs and zeros of the encoders: not calibrated in this call (servoctl hil CONFIG --calibrate)"
    )
    left = [
        "the emergency stop cuts the power: press it once in stage zero",
        signs,
        *_swapped(drives),
        "position_limits keep the machine clear of itself, of its cables and of people",
    ]
    braked = listed([drive for drive in drives if drive.settings.brake])
    if braked:
        left.append(f"the brakes of {braked} hold the machine when the power is off")
    coasting = listed([drive for drive in drives if not drive.watchdog])
    if coasting:
        left.append(f"{coasting}: no watchdog that is tested: something else must stop the drive when the loop dies")
    left += _stops(setup)
    left += [f"the watchdog of {name}: {reason}" for name, reason in _untested(setup).items()]
    left.append(
        f"the supply absorbs what braking gives back: {_energy(setup):.3g} J if all axes brake from speed_limit"
    )
    left += _unseen(drives)
    left += [
        f"{drive.settings.name}: {note}" for drive in drives for note in (drive.unverified, drive.assumption) if note
    ]
    left.append(
        f"masses and friction: the run stops above {100 * values.safety.tracking:g} % of torque_limit "
        "(hil.safety.tracking); servoctl identify finds them from a log"
    )
    return left


def _swapped(drives: Sequence[Drive]) -> list[str]:
    kinds = Counter((drive.settings.protocol, drive.settings.bus) for drive in drives)
    alike = [drive for drive in drives if kinds[drive.settings.protocol, drive.settings.bus] > 1]
    what = "each node moves its own axis: two whose nodes are swapped look sound if their axes are alike"
    return [f"{listed(alike)}: {what} (move them one by one with --calibrate)"] if alike else []


def _stops(setup: RigSetup) -> list[str]:
    """What each protocol does when the loop does not stop the machine."""
    lines = []
    for kind in dict.fromkeys(type(drive) for drive in setup.drives):
        alike = [drive for drive in setup.drives if type(drive) is kind]
        who, steps = f"{listed(alike)} ({alike[0].settings.protocol})", kind.stop_steps
        lines += [f"{who}, own ramp: {steps.ramp}", f"{who}, without the loop or its bus: {steps.silence}"]
        if any(drive.settings.brake for drive in alike):
            lines.append(f"{who}, brake: {steps.brake}")
    return lines + describe_silence(setup) + describe_bounds(setup)


def faults_elsewhere(setup: RigSetup) -> list[str]:
    """A note that scripted faults happen only in the emulator's process.

    Raises ConfigError if a fault cannot happen there: it needs virtual time.
    """
    faults = setup.settings.faults
    for fault in faults:
        check_fault(fault)
    return ["hil.faults: happen in the emulator only (servoctl emulate must run this config)"] if faults else []


def in_shadow(setup: RigSetup) -> list[str]:
    """Notes on a run that sends nothing."""
    buses, notes = setup.settings.buses, []
    silent = [name for name, keys in buses.items() if is_loopback(keys)]
    if silent:
        notes.append(
            f"{', '.join(silent)}: no emulator answers, so drives there count as real "
            f"(start one first: servoctl emulate {setup.run.name})"
        )
    routed = [name for name, keys in buses.items() if keys["interface"] == "udp_multicast" and not is_loopback(keys)]
    if routed:
        notes.append(
            f"{', '.join(routed)}: packets may leave this machine, so drives there count as real "
            "(set hop_limit: 0 to keep them here)"
        )
    notes.append(f"shadow: nothing is sent on {', '.join(buses)}; the next step is --stage zero --armed")
    polled = listed(node for node in setup.nodes if node.feedback is not Feedback.CYCLIC)
    if polled:
        notes.append(
            f"{polled}: send only when they are started and asked: shadow hears them only if another master "
            "does it; --calibrate --armed does it too, and enables nothing"
        )
    return notes


def describe(setup: RigSetup) -> list[str]:
    """One sentence per bus, drive and encoder node, then on the accuracy of the coordinates and on the watchdogs."""
    settings, plant = setup.settings, setup.plant
    values, safety = settings.values, settings.values.safety
    lines = [f"period {1e3 * values.period:g} ms ({1 / values.period:.6g} Hz)"]
    for name, load in settings.loads.items():
        lines.append(f"bus {name}: {settings.buses[name]['interface']}, {load.frames:.0f} frames/s, {load.sentence}")
    for node in setup.nodes:
        each, quantum = node.settings, node.quantum()
        where = f"{each.protocol} node {each.node} on {each.bus}"
        if not isinstance(node, Drive):
            lines.append(f"encoder {each.name}: {where}, resolution {quantum[0]:.3g} {plant.coordinates[each.name]}")
            continue
        unit, drive, number = plant.actuators[each.name], node.settings, setup.drives.index(node)
        joint = setup.units[number]
        lower, upper = drive.position_limits
        lines.append(
            f"drive {each.name}: {where}, gear {each.gear:g}, |u| <= {drive.torque_limit:g} {unit} in steps of "
            f"{quantum[2]:.3g} {unit}, position {lower:.4g} to {upper:.4g} {joint} in steps of {quantum[0]:.3g} "
            f"{joint}, speed <= {drive.speed_limit:g} {joint}/s" + (", brake" if drive.brake else "")
        )
    accuracy = setup.sensing.coordinates.accuracy(setup.start.t, setup.start.q)
    worst = int(np.argmax(accuracy))
    name, unit = list(plant.coordinates.items())[worst]
    lines.append(f"coordinates are measured to {accuracy[worst]:.3g} {unit} (worst: {name})")
    watched = any(drive.watchdog for drive in setup.drives)
    lines.append(
        f"controlled stop when a sample is {setup.bounds.stale_age / 1e6:g} ms old, drives off at "
        f"{setup.bounds.lost_age / 1e6:g} ms"
        + (f"; drives stop by themselves after {1e3 * safety.drive_watchdog:g} ms" if watched else "")
    )
    lines.append(f"in a controlled stop speeds decay by {setup.stop_rate:.3g}/s, for at most {safety.stop_time:g} s")
    lines += describe_stops(setup) + describe_bounds(setup) + describe_drops(setup) + describe_silence(setup)
    return [*lines, *_seen(setup.drives), *_unseen(setup.drives), *(f"note: {note}" for note in notes_on(setup))]


def _seen(drives: Sequence[Drive]) -> list[str]:
    """A line on the temperatures, voltages and loads that are read; none if none is."""
    parts = [f"{gauge.meaning} of {_names(drives, shown)}" for gauge, shown, _ in _gauges(drives) if shown]
    return [f"read from the drives, with a warning (warn_at): {'; '.join(parts)}"] if parts else []


def _unseen(drives: Sequence[Drive]) -> list[str]:
    """A line on the temperatures, voltages and loads that are not read, and what shows them; none if all are."""
    parts = []
    for gauge, _, hidden in _gauges(drives):
        needs = dict.fromkeys(drive.gauge_needs.get(gauge.quantity, "") for drive in hidden)
        remedy = "; ".join(need for need in needs if need)
        if hidden and not (gauge.quantity is Quantity.WARNING and not remedy):  # most protocols have none
            parts.append(f"{gauge.meaning} of {_names(drives, hidden)}" + (f" (shown with {remedy})" if remedy else ""))
    return [f"not seen, only the drives' own limits watch them: {'; '.join(parts)}"] if parts else []


def _gauges(drives: Sequence[Drive]) -> Iterator[tuple[Gauge, list[Drive], list[Drive]]]:
    """Each gauge with the drives that show it, and those that do not."""
    for gauge in GAUGES:
        shown = [drive for drive in drives if gauge.quantity in drive.shows]
        yield gauge, shown, [drive for drive in drives if drive not in shown]


def _names(drives: Sequence[Drive], some: Sequence[Drive]) -> str:
    return "all drives" if len(some) == len(drives) else listed(some)
