"""What the emulator does faster in ordinary traffic leaves the same run, to the bit, as the general way."""

from hil.assembly.emulation import environment_of, make_emulator
from hil.emulator.disturbances import Disturbance, Selection
from hil.frame import Frame
from hil.recorder import InMemory
from hil.safety.plan import Stage
from hil.session.run import HilRun
from tests.faces import column_bytes
from tests.hil.faults.carts.scenario import machine
from tests.hil.rigs import renewed

Run = tuple[list[tuple[int, bool, Frame, int]], dict[str, bytes], dict[str, float]]


def run_with(general: bool) -> Run:
    """Frames, columns and bus loads of a run; `general`: no wire may assume that all stations are there and sound."""
    prepared = renewed(machine("cia402", "at speed"), (), seed=5)
    emulator = make_emulator(prepared, "vm")
    for wire in emulator.wires.values() if general else ():
        wire.power(wire.attach("without power", lambda frame: None), False)
        wire.disturbances.append(Disturbance(Selection()))  # it disturbs nothing
    run = HilRun(prepared, environment_of(prepared, emulator), Stage.FULL, 0.05)
    ended = run.run(None, lambda event: None)
    assert ended.exit_code == 0 and isinstance(run.recorder, InMemory)
    return run.recorder.frames, column_bytes(ended.trajectory), ended.trajectory.metadata["emulator"]


def test_ordinary_traffic_is_that_of_the_general_way_to_the_bit() -> None:
    frames, columns, facts = run_with(general=False)
    others, other_columns, other_facts = run_with(general=True)
    assert len(frames) > 1000 and frames == others
    assert {name for name in columns if columns[name] != other_columns[name]} == set()
    assert facts == other_facts
