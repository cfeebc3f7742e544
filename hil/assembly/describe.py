"""Describes a rig in sentences, for `servoctl check`."""

from collections.abc import Iterator, Sequence

import numpy as np

from hil.assembly.prepare import RigSetup, stop_rate
from hil.assembly.stops import describe_drops, describe_silence, describe_stops
from hil.drives.base import Drive
from hil.drives.quantities import GAUGES, Gauge, Quantity


def describe(setup: RigSetup) -> list[str]:
    """One sentence per bus, drive and encoder node, then on the accuracy of the coordinates and on the watchdogs."""
    settings, plant = setup.settings, setup.run.system.model.plant
    values, safety = settings.values, settings.values.safety
    lines = [f"period {1e3 * values.period:g} ms ({1 / values.period:.6g} Hz)"]
    for name, load in settings.loads.items():
        lines.append(f"bus {name}: {settings.buses[name]['interface']}, {load.frames:.0f} frames/s, {load.sentence}")
    for node in (*setup.drives, *setup.sensors):
        each, quantum = node.settings, node.quantum()
        where = f"{each.protocol} node {each.node} on {each.bus}"
        if not isinstance(node, Drive):
            lines.append(f"encoder {each.name}: {where}, resolution {quantum[0]:.3g} {plant.coordinates[each.name]}")
            continue
        unit, drive, number = plant.actuators[each.name], node.settings, setup.drives.index(node)
        joint = setup.sensing.displacements.units[number]
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
    lines.append(f"in a controlled stop speeds decay by {stop_rate(setup):.3g}/s, for at most {safety.stop_time:g} s")
    lines += describe_stops(setup) + describe_drops(setup) + describe_silence(setup)
    lines += [line for line in (seen(setup.drives), unseen(setup.drives)) if line]
    return lines + [f"note: {note}" for note in setup.notes]


def seen(drives: Sequence[Drive]) -> str:
    """Which temperatures, voltages and loads are read; empty for none."""
    parts = [f"{gauge.meaning} of {_names(drives, shown)}" for gauge, shown, _ in _gauges(drives) if shown]
    return f"read from the drives, with a warning (warn_at): {'; '.join(parts)}" if parts else ""


def unseen(drives: Sequence[Drive]) -> str:
    """Which temperatures, voltages and loads are not read, and what shows them; empty for none."""
    parts = []
    for gauge, _, hidden in _gauges(drives):
        needs = dict.fromkeys(drive.gauge_needs.get(gauge.quantity, "") for drive in hidden)
        remedy = "; ".join(need for need in needs if need)
        if hidden and not (gauge.quantity is Quantity.WARNING and not remedy):  # most protocols have none
            parts.append(f"{gauge.meaning} of {_names(drives, hidden)}" + (f" (shown with {remedy})" if remedy else ""))
    return f"not seen, only the drives' own limits watch them: {'; '.join(parts)}" if parts else ""


def _gauges(drives: Sequence[Drive]) -> Iterator[tuple[Gauge, list[Drive], list[Drive]]]:
    """Each gauge with the drives that show it, and those that do not."""
    for gauge in GAUGES:
        shown = [drive for drive in drives if gauge.quantity in drive.shows]
        yield gauge, shown, [drive for drive in drives if drive not in shown]


def _names(drives: Sequence[Drive], some: Sequence[Drive]) -> str:
    return "all drives" if len(some) == len(drives) else ", ".join(drive.settings.name for drive in some)
