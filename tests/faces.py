"""The ways of tests into the product's rooms, so that a room that changes changes them here alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hil.assembly.emulation import environment_of, make_emulator
from hil.assembly.setup import RigSetup
from hil.emulator.emulator import Emulator
from hil.recorder import InMemory
from hil.safety.plan import Phase
from hil.session.run import HilRun, RunResult
from hil.session.start import Request, start
from servoctl.cli import main
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.terms import assemble
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array, Command, State
from tests.hil.emulation import SHORT


def exit_code(*words: object) -> int:
    """The exit code of `servoctl WORDS...`, run in this process."""
    try:
        return int(main([str(word) for word in words]) or 0)
    except SystemExit as end:
        return int(end.code or 0)


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `servoctl WORDS...`."""
    capsys.readouterr()
    code = exit_code(*words)
    return code, *capsys.readouterr()


def rows_of(plant: Plant, task: Any, at: State) -> Rows:
    """The rows `A q'' = b` of a task at a state."""
    return Model(plant, task, at).matrices(at).task


def command_at(law: AttachedLaw, model: Model, at: State, memory: Array | None = None) -> Command:
    """The command of a law at a state, on numbers."""
    terms = assemble(at, model.matrices(at), law.passive_rank_tolerance)
    return law.command(terms, np.array(list(law.memory.values())) if memory is None else memory)


def passive_rows_of(plant: Plant, at: State) -> Rows:
    """The rows of the plant's own constraints at a state."""
    return Model(plant, {}, at).matrices(at).passive


def on_drives(config: str | Path, *sets: str | Path, out: Path | None = None, **asked: Any) -> RunResult:
    """A run of a config on its drives, begun in 0.12 s and over when they are off, where no override says else.

    Args:
        config: Name or file.
        sets: Overrides `PATH=VALUE`, or files.
        out: Run folder; None: in memory.
        asked: Fields of a `Request`; by default `engine="vm"`, on which no law is compiled.
    """
    return start(Request(config, (*SHORT, *sets), **{"engine": "vm", **asked})).run(out, lambda event: None)


def with_frames(config: str | Path, *sets: str | Path, **asked: Any) -> tuple[RunResult, list[Any]]:
    """As `on_drives` in memory, and the frames of the run."""
    return frames_of(lambda: on_drives(config, *sets, **asked))


def frames_of(run: Callable[[], RunResult]) -> tuple[RunResult, list[Any]]:
    """The result of a run in memory, and its frames."""
    kept: list[InMemory] = []
    usual = InMemory.close

    def close(self: InMemory, *arguments: Any) -> Trajectory:
        kept.append(self)
        return usual(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InMemory, "close", close)
        result = run()
    (recorder,) = kept
    return result, recorder.frames


def on_rig(
    setup: RigSetup,
    emulator: Emulator | None = None,
    stage: Phase = Phase.FULL,
    duration: float | None = None,
    out: Path | None = None,
    engaged: Callable[[], Any] = lambda: None,
    **environment: Any,
) -> RunResult:
    """A run of a rig that is prepared, in virtual time.

    Args:
        setup: The rig.
        emulator: Its drives and machine; None: those of its config.
        stage: Last stage.
        duration: Time in the last stage [s]; None: that of the config.
        out: Run folder; None: in memory.
        engaged: Called when the task begins.
        environment: Fields of the `Environment` that differ.
    """
    emulator = make_emulator(setup, "vm") if emulator is None else emulator

    def begin() -> None:
        emulator.engaged()
        engaged()

    place = replace(environment_of(setup, emulator), engaged=begin, **environment)
    return HilRun(setup, place, stage, duration).run(out, lambda event: None)


def column_bytes(run: Trajectory) -> dict[str, bytes]:
    """The columns of a run, to compare them to the bit."""
    return {name: np.ascontiguousarray(column).tobytes() for name, column in run.columns.items()}
