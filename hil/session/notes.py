"""What the operator should know before a run on drives outside this process."""

from hil.assembly.prepare import RigSetup
from hil.bus.open import is_loopback
from hil.drives import Feedback


def faults_elsewhere(setup: RigSetup) -> list[str]:
    """A note that scripted faults happen only in the emulator's process.

    Raises:
        ConfigError: A fault cannot happen there: it needs virtual time.
    """
    from hil.assembly.emulation import scripted_faults
    from hil.emulator.process import check_fault

    faults = scripted_faults(setup.settings)
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
    nodes = (*setup.drives, *setup.sensors)
    polled = [node.settings.name for node in nodes if node.feedback is not Feedback.CYCLIC]
    if polled:
        notes.append(
            f"{', '.join(polled)}: send only when they are started and asked: shadow hears them only if another master "
            "does it; --calibrate --armed does it too, and enables nothing"
        )
    return notes
