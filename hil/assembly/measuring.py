"""How the nodes of a config measure: errors of their samples, their channels, and the sensing built from them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hil.drives.base import Drive, Node
from hil.sensing.channels import Channel
from hil.sensing.gravity import accelerations, task_errors
from hil.sensing.prediction import Prediction
from hil.sensing.sensing import Sensing
from hil.sensing.tracking import ESTIMATED, DisturbanceObserver, TrackingMonitor
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

    Args:
        values: Section `hil` of the config.
        nodes: Drives, then encoder nodes.
        inverse: Coordinates per displacement, shape (n, nodes).
    """
    spread = sample_errors(values, nodes)[0] / np.sqrt(3.0)  # of a rounding error, which is uniform
    noise: Array = np.sqrt((inverse**2) @ spread**2)
    return noise


def make_sensing(
    model: Model,
    drives: Sequence[Drive],
    sensors: Sequence[Node],
    start: State,
    values: Hil,
    prediction: Prediction,
    engine: str,
    rank_tolerance: float,
    estimated: bool = False,
) -> Sensing:
    """Builds what computes q and v from the samples of a run.

    Args:
        model: The plant.
        drives: In the order of its actuators.
        sensors: Encoder nodes.
        start: Start pose.
        values: Section `hil` of the config.
        prediction: Predicts the model's motion.
        engine: `auto`, `c`, `vm` or `numpy`.
        rank_tolerance: Tolerance of the passive constraints.
        estimated: Whether the law works with an estimate of the disturbance.

    Raises:
        ConfigError: A node fits no actuator or coordinate, or a degree of freedom is not measured.
        PlantError: The displacements of the motors are not known, or not conjugate to the actuators.
    """
    nodes, limits = (*drives, *sensors), np.array([drive.settings.torque_limit for drive in drives])
    # what friction, or an error of the model that the law meets by its estimate, may take from the model's torques
    missing = values.safety.tracking + (ESTIMATED if estimated else 0.0)
    held = _held(model, start, missing * limits, rank_tolerance)
    positions, speeds = sample_errors(values, nodes)
    channels = [replace(channel_of(node, values.period), held=held[node.settings.name]) for node in drives]
    fastest = {sensor.coordinate: sensor.speed_limit or np.inf for sensor in values.sensors}
    for node in sensors:
        channel, name = channel_of(node, values.period), node.settings.name
        leap = node.settings.start_tolerance
        channels.append(replace(channel, held=held[name], speed_limit=fastest[name], leap=leap))
    channels = [
        replace(channel, position_error=max(position, channel.visible), speed_error=0.0 if np.isnan(speed) else speed)
        for channel, position, speed in zip(channels, positions.tolist(), speeds.tolist(), strict=True)
    ]
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
        residual_tolerance=values.safety.residual_tolerance,
        motion=prediction,
        tracking=tracking,
        engine=engine,
    )
    tracking.set_errors(partial(_rate_errors, sensing, speeds))
    return sensing


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


def channel_of(node: Node, period: float) -> Channel:
    """The channel of a node, by the node alone."""
    settings = node.settings
    limit = node.settings.speed_limit if isinstance(node, Drive) else np.inf
    return Channel(
        settings.name,
        node.quantum()[0],
        encoder=not isinstance(node, Drive),
        speed_limit=limit,
        interval=period,
        feedback=node.feedback,
        visible=node.visible(),
        torque_step=float(np.nan_to_num(node.quantum()[2])),
    )


def resolved_steps(
    model: Model, sensing: Sensing, nodes: Sequence[Node], values: Hil, state: State
) -> Mapping[str, tuple[float, float]]:
    """Task row -> steps of its violation and of its rate by quantisation and noise, in the row's units.

    Each sample is moved by its error to both sides, which is one step of quantisation. The steps of all samples add up.

    Args:
        model: Plant and task.
        sensing: Sensing of the rig.
        nodes: Drives, then encoder nodes.
        values: Section `hil` of the config.
        state: State at which the steps are computed.
    """
    positions, speeds = sample_errors(values, nodes)
    inverse = sensing.coordinates.inverse(state.t, state.q)
    steps: dict[str, tuple[float, float]] = {}
    for dq, dv in [*((move, 0.0) for move in (inverse * positions).T), *((0.0, move) for move in (inverse * speeds).T)]:
        above, below = (
            task_errors(model, State(state.t, state.q + side * dq, state.v + side * dv)) for side in (1.0, -1.0)
        )
        for name, pair in above.items():
            step = np.abs(np.subtract(pair, below[name]))
            violation, rate = steps.get(name, (0.0, 0.0))
            steps[name] = violation + float(np.nan_to_num(step[0])), rate + float(np.nan_to_num(step[1]))
    return steps
