"""How the nodes of a config measure, and how its drives brake by themselves."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np

from hil.assembly.settings import HilSettings
from hil.drives.base import Drive, Node
from hil.drives.settings import DriveSettings, Quantity
from hil.sensing.channels import Channel
from hil.sensing.gravity import Hold, accelerations
from hil.sensing.prediction import Prediction
from hil.sensing.sensing import Sensing
from hil.sensing.tracking import ESTIMATED, DisturbanceObserver, TrackingMonitor
from servoctl.assembly.run import Run
from servoctl.config.hil import Hil
from servoctl.mechanics.model import Model
from servoctl.types import Array, State


def sample_errors(values: Hil, nodes: Sequence[Node]) -> tuple[Array, Array]:
    """Largest errors of displacements [joint unit] and rates [joint unit/s] of nodes, shape (nodes,) each."""
    # three standard deviations at the motor, divided by the gear for the joint
    noise = np.array([3.0 * values.emulation.encoder_noise / node.settings.gear for node in nodes])
    steps = np.array([node.quantum()[:2] for node in nodes])
    positions = steps[:, 0] / 2 + noise
    differenced = 2.0 * positions / values.period
    measured = steps[:, 1] / 2 + noise / values.period  # NaN: the node sends no velocity
    if values.velocity == "filter":
        return positions, differenced
    return positions, np.where(np.isnan(measured), differenced, measured)


def position_noise(values: Hil, nodes: Sequence[Node], inverse: Array) -> Array:
    """Standard deviation of each coordinate by the quantisation and noise of all nodes, shape (n,).

    `inverse`: coordinates per displacement, shape (n, nodes).
    """
    spread = sample_errors(values, nodes)[0] / np.sqrt(3.0)  # of a rounding error, which is uniform
    noise: Array = np.sqrt((inverse**2) @ spread**2)
    return noise


def make_sensing(
    run: Run,
    start: State,
    values: Hil,
    drives: Sequence[Drive],
    sensors: Sequence[Node],
    prediction: Prediction,
    engine: str,
) -> Sensing:
    """Builds what computes q and v from the samples of a run.

    Raises ConfigError if a node fits no actuator or coordinate, or a degree of freedom is not measured. PlantError if
    the displacements of the motors are not known, or not conjugate to the actuators.
    """
    model, rank_tolerance = run.system.model, run.system.passive.rank_tolerance
    # whether the law works with an estimate of the disturbance
    estimated = run.system.estimator is not None and run.system.estimator.has_model
    nodes, limits = (*drives, *sensors), np.array([drive.settings.torque_limit for drive in drives])
    # what friction, or an error of the model that the law meets by its estimate, may take from the model's torques
    missing = values.safety.tracking + (ESTIMATED if estimated else 0.0)
    held = _held(model, start, missing * limits, rank_tolerance)
    positions, speeds = sample_errors(values, nodes)
    fastest = {sensor.coordinate: sensor.speed_limit or np.inf for sensor in values.sensors}
    channels = []
    for node, position, speed in zip(nodes, positions.tolist(), speeds.tolist(), strict=True):
        settings, quantum, encoder = node.settings, node.quantum(), not isinstance(node, Drive)
        channels.append(
            Channel(
                settings.name, quantum[0], encoder,
                fastest[settings.name] if encoder else cast(DriveSettings, settings).speed_limit,
                leap=settings.start_tolerance if encoder else np.inf,
                interval=values.period,
                feedback=node.feedback,
                visible=node.visible(),
                held=held[settings.name],
                torque_step=float(np.nan_to_num(quantum[2])),
                torque_every=_torque_every(node),
                position_error=max(position, node.visible()),
                speed_error=float(np.nan_to_num(speed)) * (2.0 if node.rounds_down else 1.0),
            )
        )  # fmt: skip
    observer = DisturbanceObserver(model, rank_tolerance, engine)
    tracking = TrackingMonitor(
        observer, channels[: len(drives)], limits, values.safety.tracking, values.period, estimated
    )
    sensing = Sensing(
        model,
        channels,
        start,
        values.period,
        rank_tolerance=rank_tolerance,
        filtered=values.velocity == "filter",
        filter_time=values.velocity_filter,
        carried=values.safety.lost,
        residual_tolerance=values.safety.residual_tolerance,
        motion=prediction,
        tracking=tracking,
        engine=engine,
    )
    tracking.set_errors(partial(_rate_errors, sensing, speeds))
    return sensing


def _torque_every(node: Node) -> float:
    """Time from one torque in the frames of a node to the next [s]; 0: one in each tick, or none at all."""
    messages = () if (wire := node.wire()) is None else wire.messages
    brings = (each.every for each in messages if Quantity.TORQUE in {reads.quantity for reads in each.reads})
    return max(brings, default=0.0)


def _held(model: Model, start: State, torques: Array, rank_tolerance: float) -> dict[str, float]:
    """Actuator or coordinate -> largest acceleration that friction of these sizes can prevent at the start pose."""
    motors, coordinates = accelerations(model, start, torques, rank_tolerance)
    plant = model.plant
    names = (*plant.actuators, *plant.coordinates)
    return dict(zip(names, [*motors.tolist(), *coordinates.tolist()], strict=True))


def _rate_errors(sensing: Sensing, largest: Array, t: float, q: Array) -> Array:
    """Errors of v at a pose by each sample's largest rate error `largest` [joint unit/s], shape (nodes, n)."""
    errors: Array = (sensing.coordinates.inverse(t, q) * largest).T
    return errors


SHARE = 0.5  # part of what gravity leaves of each torque limit that a ramp uses: the inertia differs from pose to pose
FASTEST_STOP = 0.02  # shortest time from all speed limits to standstill [s]: a ramp of fewer samples is a blow
SLOWEST_STOP = 1.0  # longest such time [s]: a drive that needs longer brakes with all its torque


@np.errstate(over="ignore")  # a torque limit may be tiny
def with_decelerations(settings: HilSettings, start: Hold) -> HilSettings:
    """The rig with the deceleration of each drive; all drives take the same time from their speed limits to rest.

    With that time T each motor i needs the torque sum_j |W_ij| v_j / T at the start pose while all brake at once.

    `start`: what holds the start pose, and the inertia W that the motors see there.
    """
    speeds = np.array([drive.speed_limit for drive in settings.drives])
    limits = np.array([drive.torque_limit for drive in settings.drives])
    left = SHARE * (limits - np.abs(start.u))
    if not (left > 0.0).all():
        return settings
    time = float(np.max(np.abs(start.inertia) @ speeds / left))
    if not np.isfinite(time):
        return settings
    time = min(SLOWEST_STOP, max(FASTEST_STOP, time))
    drives = tuple(replace(drive, deceleration=drive.speed_limit / time) for drive in settings.drives)
    return replace(settings, drives=drives)
