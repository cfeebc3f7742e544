"""What a rig is like, in sentences, for `servoctl check`."""

import numpy as np

from hil.assembly.prepare import RigSetup, stop_damping
from hil.drives import Drive


def describe(prepared: RigSetup) -> list[str]:
    """One sentence per bus, drive and encoder node, and on what is seen and held."""
    settings, plant = prepared.settings, prepared.run.system.model.plant
    values, safety = settings.values, settings.values.safety
    lines = [f"period {1e3 * values.period:g} ms ({1 / values.period:.6g} Hz)"]
    for name, load in settings.loads.items():
        lines.append(f"bus {name}: {settings.buses[name]['interface']}, {load.frames:.0f} frames/s, {load.sentence}")
    damping = stop_damping(settings, prepared.run.system.model, prepared.start)
    for node in (*prepared.drives, *prepared.sensors):
        each, quantum = node.settings, node.quantum()
        where = f"{each.protocol} node {each.node} on {each.bus}"
        if not isinstance(node, Drive):
            lines.append(f"encoder {each.name}: {where}, resolution {quantum[0]:.3g} {plant.coordinates[each.name]}")
            continue
        unit, drive = plant.actuators[each.name], node.settings
        lower, upper = drive.position_limits
        lines.append(
            f"drive {each.name}: {where}, gear {each.gear:g}, |u| <= {drive.torque_limit:g} {unit} in steps of "
            f"{quantum[2]:.3g}, position {lower:.4g} to {upper:.4g} in steps of {quantum[0]:.3g}, "
            f"speed <= {drive.speed_limit:g}, stop damping {damping[prepared.drives.index(node)]:.3g}"
            + (", brake" if drive.brake else "")
        )
    reach = prepared.sensing.coordinates.accuracy(prepared.start.t, prepared.start.q)
    worst = int(np.argmax(reach))
    names = list(plant.coordinates)
    lines.append(
        f"coordinates are seen to {reach[worst]:.3g} {plant.coordinates[names[worst]]} (worst: {names[worst]})"
    )
    watched = any(drive.watchdog for drive in prepared.drives)
    lines.append(
        f"stops when a sample is {1e3 * max(safety.stale, 3 * values.period):g} ms old, drives off at "
        f"{1e3 * max(safety.lost, 10 * values.period):g} ms"
        + (f"; drives stop by themselves after {1e3 * safety.drive_watchdog:g} ms" if watched else "")
    )
    return lines + [f"note: {note}" for note in prepared.notes]
