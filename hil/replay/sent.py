"""Whether the torques that a run logged as sent agree with its law and with the frames on the bus.

Design: a torque is known three times: from the law, after the limits, and in the frame. In stage `full` the second
equals the first, or the value that a limit gives. In every working stage the frame is the second, as the drive's codec
encodes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np

from hil.drives import Drive
from hil.drives.settings import DriveSettings
from hil.loop import SECOND
from hil.recorder import read_frames
from hil.recorder.columns import STAGES
from hil.safety.plan import WORKING, Phase
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

_FULL = STAGES.index(Phase.FULL.value)
_WORKING = [STAGES.index(mode.value) for mode in WORKING]


@dataclass(frozen=True)
class Sent:
    """Result of the comparison."""

    torques: int  # number of torques of stage `full` that were compared with the law's
    other_torques: int  # number of those that neither the law nor a limit explains
    frames: int  # number of torque frames that were compared with the logged torques
    other_frames: int  # number of those that hold another torque
    first: str  # the first difference; empty: no difference


def compare_sent(run: Trajectory, folder: str | PathLike[str], drives: Sequence[Drive], buses: Sequence[str]) -> Sent:
    """Compares the law's torques, the torques sent, and the frames.

    Args:
        run: A run on drives.
        folder: Its folder, with `can.blf`.
        drives: Fresh drives as the config makes them.
        buses: Names of the buses, in the order of their numbers.
    """
    period = float(run.metadata.get("timing", {}).get("nominal_period_s", 0.0)) or float(np.min(run["elapsed"]))
    torques = other_torques = 0
    first: list[tuple[int, str]] = []
    for drive in drives:
        compared, wrong = _compare_torques(run, drive.settings, period)
        torques, other_torques = torques + int(compared.sum()), other_torques + int(wrong.sum())
        name = drive.settings.name
        first += [
            (
                k,
                f"{name} was sent {run[f'u.{name}'][k]:.9g}, the law gave {run[f'law.{name}'][k]:.9g}, "
                "and no limit explains the difference",
            )
            for k in np.flatnonzero(wrong)[:1].tolist()
        ]
    frames, differing = _compare_frames(run, folder, drives, buses)
    first += differing[:1]
    k, text = min(first, default=(0, ""))
    return Sent(torques, other_torques, frames, len(differing), text and f"row {k}, t = {run.t[k]:.6g} s: {text}")


def _compare_torques(run: Trajectory, drive: DriveSettings, period: float) -> tuple[Array, Array]:
    """Which rows are compared, and which of their torques neither the law nor a limit explains, shape (rows,) each."""
    law, sent = (run[f"{group}.{drive.name}"] for group in ("law", "u"))
    stage = run["stage"]
    compared = stage == _FULL
    compared[:1] = False
    before = np.concatenate([[0.0], sent[:-1]])
    limit = drive.torque_limit
    wanted = np.clip(law, -limit, limit)
    # the previous torque was held for a period, or for less after a late tick
    now = run.t + run["read"]
    held = np.minimum(np.diff(now, prepend=now[0] - period), period)
    shortest = held if run.metadata.get("lockstep") else held / 2
    most = drive.torque_rate_limit * period * (1 + 1e-9)
    limited = np.abs(wanted - before) >= drive.torque_rate_limit * shortest * (1 - 1e-9)
    stepped = limited & (np.abs(sent - before) <= most) & ((sent - before) * (wanted - before) >= 0)
    explained = (sent == wanted) | (stepped & (np.abs(sent) <= limit))
    return compared, compared & ~explained


def _compare_frames(
    run: Trajectory, folder: str | PathLike[str], drives: Sequence[Drive], buses: Sequence[str]
) -> tuple[int, list[tuple[int, str]]]:
    """Number of compared torque frames; row and explanation of each frame that differs from its row."""
    for fresh in drives:
        fresh.take_as_enabled()
    sender = {
        (buses.index(drive.settings.bus), drive.command_bits, drive.command(0.0).id & drive.command_bits): drive
        for drive in drives
    }
    masks = sorted({drive.command_bits for drive in drives})
    torques = {drive.settings.name: run[f"u.{drive.settings.name}"] for drive in drives}
    began, decided = np.round(run.t * SECOND), np.round((run.t + run["read"]) * SECOND)
    stage = run["stage"]
    working = np.isin(stage, _WORKING)
    working[1:] &= working[:-1]  # in the first such tick the drives may not be enabled yet
    compared, differing = 0, []
    for bus, sent, frame, time in read_frames(folder):
        senders = (sender.get((bus, mask, frame.id & mask)) for mask in masks if sent)
        drive = next((each for each in senders if each is not None), None)
        in_frame = None if drive is None else drive.torque_bytes(frame)
        k = int(np.searchsorted(decided, time, "right")) - 1
        if drive is None or in_frame is None or k < 1 or not working[k] or (k + 1 < len(run) and time >= began[k + 1]):
            continue
        compared += 1
        torque = float(torques[drive.settings.name][k])
        try:
            same = in_frame == drive.torque_bytes(drive.command(torque))
        except ValueError:  # the logged torque is not finite, or above the limit
            same = False
        if not same:
            differing.append((k, f"{drive.settings.name} was sent {torque:.9g}, frame {frame} holds another torque"))
    return compared, differing
