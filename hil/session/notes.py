"""What a person should know before a run begins on drives that are not in this process."""

from hil.assembly.prepare import RigSetup
from hil.bus.open import is_loopback
from hil.drives import Feedback


def faults_elsewhere(prepared: RigSetup) -> list[str]:
    """Who makes the faults of drives in another process.

    Raises:
        ConfigError: Nobody does: one is of the wire, or of the loop in lock-step.
    """
    from hil.emulator.faults import read_faults
    from hil.emulator.process import check_fault
    from hil.emulator.targets import targets

    settings = prepared.settings
    nodes = targets((*settings.drives, *settings.sensors))
    faults, _ = read_faults(settings.values.faults, nodes, settings.buses)
    for fault in faults:
        check_fault(fault)
    return ["hil.faults: happen in the emulator alone (servoctl emulate must have been given them)"] if faults else []


def in_shadow(prepared: RigSetup) -> list[str]:
    """What a person should know who sees nothing move."""
    buses, notes = prepared.settings.buses, []
    silent = [name for name, keys in buses.items() if is_loopback(keys)]
    if silent:
        notes.append(
            f"{', '.join(silent)}: no emulator answers, so drives there count as real "
            f"(start one first: servoctl emulate {prepared.run.name})"
        )
    beyond = [name for name, keys in buses.items() if keys["interface"] == "udp_multicast" and not is_loopback(keys)]
    if beyond:
        what = "may leave this machine, so drives there count as real (hop_limit: 0 keeps it here)"
        notes.append(f"{', '.join(beyond)}: {what}")
    notes.append(f"shadow: nothing is sent on {', '.join(buses)}; --stage zero --armed comes next")
    nodes = (*prepared.drives, *prepared.sensors)
    mute = [node.settings.name for node in nodes if node.feedback is not Feedback.CYCLIC]
    if mute:
        what = "speak only when spoken to: in shadow they are heard only beside another master"
        notes.append(f"{', '.join(mute)}: {what}")
    return notes
