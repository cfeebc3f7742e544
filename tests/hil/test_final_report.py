"""What a run reports about its drives at the end: the true state, as an alarm only if a drive may be on."""

import dataclasses
import signal

import pytest

from hil.assembly.emulation import environment_of, make_emulator
from hil.frame import Frame
from hil.safety import EventKind
from hil.safety.plan import Phase
from hil.session.run import HilRun, RunResult
from tests.faces import on_rig
from tests.hil.faults.carts.scenario import machine
from tests.hil.rigs import renewed
from tests.hil.test_one_story import Law


def run(protocol: str, *faults: dict[str, object]) -> RunResult:
    return on_rig(renewed(machine(protocol, "at speed"), faults))


def kinds(ended: RunResult) -> list[tuple[EventKind, str]]:
    return [
        (event.kind, event.subject) for event in ended.events if event.kind not in (EventKind.STAGE, EventKind.PROVED)
    ]


def test_a_drive_that_cannot_be_configured_says_over_sdo_that_it_is_off() -> None:
    ended = run("cia402", {"kind": "sdo_abort", "drive": "a", "index": 0x6060, "since": "power_on", "at": 0.0})
    assert (ended.exit_code, ended.unconfirmed) == (3, ())
    assert kinds(ended) == [(EventKind.HANDSHAKE, "a")]
    assert ended.trajectory.metadata["drives"]["a"]["confirmed_off"] is True


def test_a_drive_that_never_answered_was_never_on() -> None:
    """That is no reason to reach for the emergency stop."""
    ended = run("cia402", {"kind": "silent", "drive": "a", "since": "power_on", "at": 0.0})
    assert (ended.exit_code, ended.unconfirmed) == (3, ())
    assert (EventKind.HANDSHAKE, "a") in kinds(ended) and (EventKind.NEVER_ENABLED, "a") in kinds(ended)
    assert EventKind.NOT_CONFIRMED not in [kind for kind, _ in kinds(ended)]
    said = next(str(event) for event in ended.events if event.kind is EventKind.NEVER_ENABLED)
    assert said.startswith("a: this run never enabled the drive and sent it no torque; the drive did not report")
    drives = ended.trajectory.metadata["drives"]
    assert drives["a"]["confirmed_off"] is None


def test_a_bus_that_is_dead_at_the_start_is_named_beside_the_drives_that_do_not_answer() -> None:
    ended = run("cia402", {"kind": "bus_off", "since": "power_on", "at": 0.0})
    assert {(EventKind.HANDSHAKE, "a"), (EventKind.BUS, "main")} <= set(kinds(ended)) and ended.exit_code == 3


def test_a_drive_that_falls_silent_while_on_is_reported_loudly() -> None:
    ended = run("cia402", {"kind": "silent", "drive": "a", "at": 0.1})
    assert (ended.exit_code, ended.unconfirmed) == (3, ("a",))
    (said,) = [str(event) for event in ended.events if event.kind is EventKind.NOT_CONFIRMED]
    assert said.startswith("a: ") and "use the emergency stop" in said
    assert ended.trajectory.metadata["drives"]["a"]["confirmed_off"] is False
    assert ended.trajectory.metadata["drives"]["b"]["confirmed_off"] is True


def test_a_drive_that_warns_and_stays_on_is_damped_until_it_is_off() -> None:
    """Its emergency is no fault of its own state machine: left alone it would go on with its last torque."""
    warning = {"kind": "foreign_frames", "id": 0x081, "data": "2081110000000000", "period": 10.0, "at": 0.4}
    prepared = renewed(machine("cia402", "at speed"), [warning])
    emulator = make_emulator(prepared, "vm")
    onset: list[int] = []
    heard: list[int] = []
    emulator.wires["main"].taps.append(lambda frame, sender: heard.append(frame.time) if frame.id == 0x201 else None)
    ended = on_rig(prepared, emulator, engaged=lambda: onset.append(emulator.clock.now() + 400_000_000))
    off = next(event.time for event in ended.events if event.detail == "disabling")
    assert (ended.exit_code, ended.unconfirmed) == (3, ())
    assert (EventKind.DRIVE_FAULT, "a") in kinds(ended)
    assert not emulator.drives["a"].motor.enabled
    told = [time for time in heard if onset[0] < time < off]
    assert off - onset[0] > 20_000_000
    assert len(told) >= (off - onset[0]) // 2_500_000 - 2, "one command a period"


def fail() -> None:
    raise ZeroDivisionError("float division by zero")


def test_when_the_loop_itself_fails_drives_brake_first_where_they_can() -> None:
    prepared = renewed(machine("cia402", "at speed"), ())
    emulator, broken = make_emulator(prepared, "vm"), Law(fail)

    def engaged() -> None:
        emulator.world.after(380_000_000, lambda: setattr(broken, "engaged", True))

    words: list[int] = []
    emergencies: list[bytes] = []

    def tap(frame: Frame, sender: object) -> None:
        if frame.id == 0x201 and broken.engaged and words[-1:] != [frame.data[0]]:
            words.append(frame.data[0])
        if frame.id == 0x081 and broken.engaged and 0x00 not in words:
            emergencies.append(frame.data)

    emulator.wires["main"].taps.append(tap)
    ended = on_rig(prepared, emulator, engaged=engaged, faults=broken)
    assert [kind for kind, _ in kinds(ended)] == [EventKind.EXCEPTION]
    assert (ended.exit_code, ended.unconfirmed) == (3, ())
    assert next(word for word in words if word != 0x0F) == 0x02, "quick stop comes before voltage is disabled"
    assert not emergencies, "it brakes by our word, and not because we fell silent"
    assert not any(emulator.drives[name].motor.enabled for name in "ab")


@pytest.mark.parametrize(("lockstep", "handled"), [(True, False), (False, True)])
def test_ctrl_z_is_a_controlled_stop_where_drives_would_not_wait(lockstep: bool, handled: bool) -> None:
    prepared, seen = renewed(machine("odrive", "at speed"), ()), list[object]()
    place = dataclasses.replace(environment_of(prepared, make_emulator(prepared, "vm")), lockstep=lockstep)
    HilRun(prepared, place, Phase.ZERO).run(None, lambda event: seen.append(signal.getsignal(signal.SIGTSTP)))
    assert seen and all((handler is not signal.SIG_DFL) is handled for handler in seen)
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL


def test_later_events_are_listed_after_the_fault() -> None:
    for protocol in ("odrive", "cia402"):
        ended = run(protocol, {"kind": "drive_fault", "drive": "a", "at": 0.1})
        times = [event.time for event in ended.events]
        assert times == sorted(times)
        said = [event.kind.name if event.kind is not EventKind.STAGE else event.detail for event in ended.events]
        assert said.index("DRIVE_FAULT") < said.index("stopping")
