"""Emulated drives on the wall clock: what they refuse to run on, and python-canopen's own master on them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import canopen
import numpy as np
import pytest
from canopen.profiles.p402 import BaseNode402

from hil.bus import BusError
from hil.bus.open import EmulatorMessage, answers_as_emulator, emulator_frame, emulator_lateness, open_bus
from hil.codecs.cia402 import Cia402State
from hil.drives.settings import DriveSettings
from hil.emulator.cia402 import CiA402
from hil.emulator.emulator import EmulatedRig, Fault
from hil.emulator.fault_script import read_faults
from hil.emulator.process import QUIET, EmulatorServer, open_for_emulation
from hil.frame import Frame
from hil.loop.clock import SECOND, WallClock
from hil.protocols.registry import emulations
from servoctl.types import State
from tests.hil.canopen_objects import node_dictionary
from tests.hil.emulation import Axes, Clockwork, drive_settings, served, system_of
from tests.hil.interfaces import EACH, keys_of
from tests.hil.wall_clock import wait_until

NODE = 1


@contextmanager
def serving(
    keys: dict[str, Any], *drives: DriveSettings, faults: Sequence[Fault] = (), hand: Any = None
) -> Iterator[EmulatorServer]:
    """Drives on a bus, served by a thread until the test is over."""
    clock = WallClock()
    buses = open_for_emulation({"main": keys}, clock, vcan=True)
    start = State(0.0, np.array([0.5, 0.0]), np.zeros(2))
    rig = EmulatedRig(system_of(Axes(), start), start, 0.002, drives, emulations(drives), faults=faults, engine="vm")
    with served(EmulatorServer(rig, buses, clock, hand=hand)) as server:
        yield server


def test_it_answers_that_it_is_an_emulator() -> None:
    with keys_of("virtual") as keys, serving(keys, drive_settings("odrive")):
        clock = WallClock()
        bus = open_bus("main", keys, clock)
        assert answers_as_emulator(bus, clock, 5.0)
        frame = bus.receive(clock.now() + 5 * SECOND)
        assert frame is not None  # its cyclic messages
        bus.close()


def test_a_new_loop_gets_the_drives_as_at_power_on_with_their_faults_to_come() -> None:
    """A fault that counts from the beginning of the task: it begins with the frame that says so, in each run anew."""
    jump = {"kind": "encoder_jump", "at": 0.0, "drive": "a", "delta": 0.5}
    faults, problems = read_faults([jump], [drive_settings("odrive")], {}, {"main": False})
    assert not problems
    with keys_of("virtual") as keys, serving(keys, drive_settings("odrive"), faults=faults) as server:
        clock = WallClock()
        bus = open_bus("main", keys, clock)
        for _ in range(2):
            assert answers_as_emulator(bus, clock, 5.0)
            first = server.emulator
            assert first.nodes["a"].encoder.jump == 0.0
            bus.send(Frame(NODE << 5 | 0x18, bytes(1)))  # Clear_Errors: a loop is at work
            wait_until(lambda: server.outlets["main"].heard > 0)
            with pytest.raises(BusError, match="bus main: another loop has the emulated drives"):
                answers_as_emulator(bus, clock, 5.0)
            assert server.emulator is first
            bus.send(emulator_frame(EmulatorMessage.BEGUN))
            wait_until(lambda: server.emulator.nodes["a"].encoder.jump == 0.5)
            time.sleep(2.0 * QUIET / SECOND)
        bus.close()


def test_it_says_how_late_it_was_and_its_hand_moves_the_machine_from_the_beginning_on() -> None:
    def hand(duration: float) -> Any:
        time.sleep(0.06)  # the process does something else while its drives have frames to send
        return lambda since: (np.array([0.5 + min(since, duration), 0.0]), np.zeros(2))

    with keys_of("udp_multicast") as keys, serving(keys, drive_settings("odrive"), hand=hand) as server:
        clock = WallClock()
        bus = open_bus("main", keys, clock)
        try:
            assert answers_as_emulator(bus, clock, 2.0)
            bus.send(emulator_frame(EmulatorMessage.HAND, 0.3))
            late = emulator_lateness(bus, clock, 2.0)
            assert late is not None
            assert 0.04 < late < 1.0
            assert server.emulator.plant.state(server.emulator.world.now)[0][0] == 0.5
            bus.send(emulator_frame(EmulatorMessage.BEGUN))
            time.sleep(0.5)
            assert server.emulator.plant.state(server.emulator.world.now)[0][0] == pytest.approx(0.8)
        finally:
            bus.close()


def test_time_stands_still_while_the_process_is_paused() -> None:
    class Jumping(WallClock):
        jump = 0

        def now(self) -> int:
            return super().now() + self.jump

    clock = Jumping()
    keys = {"interface": "virtual", "channel": "still", "bitrate": 1_000_000}
    buses = open_for_emulation({"main": keys}, clock)
    start = State(0.0, np.array([0.5, 0.0]), np.zeros(2))
    drives = [drive_settings("odrive")]
    server = EmulatorServer(
        EmulatedRig(system_of(Axes(), start), start, 0.002, drives, emulations(drives), engine="vm"), buses, clock
    )
    clock.jump = 3600 * SECOND
    turns = iter([False, True])
    server.serve(lambda: next(turns))
    assert server.emulator.world.now < SECOND
    buses["main"].close()


def test_the_machine_keeps_up_with_its_drives_that_nobody_asks() -> None:
    """Else the first frame of a loop would wait until all steps since power-on are computed: seconds after an hour."""

    class Ticking(WallClock):
        ticks = 0

        def now(self) -> int:
            self.ticks += 1
            return self.ticks * SECOND // 100

    clock, machine = Ticking(), Clockwork()
    buses = open_for_emulation({"main": {"interface": "virtual", "channel": "idle", "bitrate": 1_000_000}}, clock)
    start, drives = State(0.0, np.array([0.5, 0.0]), np.zeros(2)), [drive_settings("mit")]
    system = replace(system_of(Axes(), start), machine=machine)
    server = EmulatorServer(EmulatedRig(system, start, 0.002, drives, emulations(drives), engine="vm"), buses, clock)
    turns = iter(range(40))
    server.serve(lambda: next(turns) == 39)
    assert server.emulator.world.now > SECOND // 2
    assert machine.elapsed == pytest.approx(server.emulator.world.now / SECOND, abs=0.001)
    buses["main"].close()


@pytest.mark.slow
@pytest.mark.parametrize("interface", [EACH[0], EACH[2]])  # on udp_multicast it takes its own frames for the drive's
def test_the_master_of_python_canopen_enables_the_drive_and_stops_it(interface: str) -> None:
    with keys_of(interface) as keys, serving(keys, drive_settings("cia402")) as server:
        network = canopen.Network()
        network.connect(**keys, ignore_config=True)
        try:
            objects = node_dictionary()
            for index in (0x1400, 0x1800):
                objects.add_object(_communication(index))
                objects.add_object(_mapping(index + 0x200))
            node = BaseNode402(NODE, objects)
            network.add_node(node)
            node.nmt.state = "PRE-OPERATIONAL"
            _map(node)
            node.setup_402_state_machine(read_pdos=False)
            node.sdo[0x6060].raw = 10
            node.nmt.state = "OPERATIONAL"
            for state in ("READY TO SWITCH ON", "SWITCHED ON", "OPERATION ENABLED"):
                node.state = state
                assert node.state == state
            drive = server.emulator.nodes["a"]
            assert isinstance(drive, CiA402)
            assert drive.state is Cia402State.ENABLED
            server.emulator.world.after(0, lambda: drive.trip(0x2310))  # in the thread that serves
            wait_until(lambda: node.state == "FAULT")
            node.reset_from_fault()  # and enables it again
            assert node.state == "OPERATION ENABLED"
        finally:
            network.disconnect()


def _communication(index: int) -> canopen.objectdictionary.ODRecord:
    record = canopen.objectdictionary.ODRecord(f"PDO {index:x}", index)
    for sub, form in ((0, 5), (1, 7), (2, 5), (3, 6), (5, 6)):
        variable = canopen.objectdictionary.ODVariable(f"{sub}", index, sub)
        variable.data_type = form
        record.add_member(variable)
    return record


def _mapping(index: int) -> canopen.objectdictionary.ODRecord:
    record = canopen.objectdictionary.ODRecord(f"map {index:x}", index)
    for sub in range(9):
        variable = canopen.objectdictionary.ODVariable(f"{sub}", index, sub)
        variable.data_type = 7 if sub else 5
        record.add_member(variable)
    return record


def _map(node: BaseNode402) -> None:
    """RPDO1: controlword and target torque; TPDO1: statusword and mode; both by event, the latter every 50 ms too."""
    node.rpdo.read()
    node.tpdo.read()
    for pdo, mapped in ((node.rpdo[1], (0x6040, 0x6071)), (node.tpdo[1], (0x6041, 0x6061))):
        pdo.clear()
        for index in mapped:
            pdo.add_variable(index)
        pdo.trans_type, pdo.enabled = 255, True
        pdo.event_timer = 50 if pdo is node.tpdo[1] else 0
        pdo.save()
