"""What is known of a config's nodes before they are heard: channels, and what watches them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hil.drives import Drive, Node
from hil.sensing import Channel, DisturbanceObserver, Prediction, Sensing, TrackingMonitor, accelerations
from hil.sensing.sample_errors import sample_errors
from servoctl.config.hil import Hil
from servoctl.mechanics.model import Model
from servoctl.types import Array, State


def make_sensing(
    model: Model,
    drives: Sequence[Drive],
    sensors: Sequence[Node],
    start: State,
    values: Hil,
    prediction: Prediction,
    engine: str,
    rank_tolerance: float,
) -> Sensing:
    """Samples -> q and v, for a run.

    Args:
        model: The plant.
        drives: In the order of its actuators.
        sensors: Encoder nodes.
        start: The start pose.
        values: What the config says of the rig.
        prediction: The model's motion.
        engine: `auto`, `c`, `vm` or `numpy`.
        rank_tolerance: Of the passive constraints.

    Raises:
        ConfigError: A node fits nothing, or a freedom is not measured.
        PlantError: The displacements of the motors are not known, or not conjugate to the actuators.
    """
    nodes, limits = (*drives, *sensors), np.array([drive.settings.torque_limit for drive in drives])
    held = _held(model, start, values.safety.tracking * limits, rank_tolerance)
    channels = [replace(channel_of(node, values.period), held=held[node.settings.name]) for node in drives]
    fastest = {sensor.coordinate: sensor.speed_limit or np.inf for sensor in values.sensors}
    for node in sensors:
        channel, name = channel_of(node, values.period), node.settings.name
        leap = values.safety.start_tolerance
        channels.append(replace(channel, held=held[name], speed_limit=fastest[name], leap=leap))
    unexplained = DisturbanceObserver(model, rank_tolerance, engine)
    tracking = TrackingMonitor(unexplained, channels[: len(drives)], limits, values.safety.tracking, values.period)
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
    tracking.know(partial(_rate_errors, sensing, sample_errors(values, nodes)[1]))
    return sensing


def _held(model: Model, start: State, torques: Array, rank_tolerance: float) -> dict[str, float]:
    """Actuator or coordinate -> acceleration that friction of these sizes may take from it at the start pose."""
    motors, coordinates = accelerations(model, start, torques, rank_tolerance)
    plant = model.plant
    names = (*plant.actuators, *plant.coordinates)
    return dict(zip(names, [*motors.tolist(), *coordinates.tolist()], strict=True))


def _rate_errors(sensing: Sensing, largest: Array, t: float, q: Array) -> Array:
    """Of v at a pose by each sample's largest error of its rate [joint unit/s], shape (nodes, n)."""
    inverse = sensing.coordinates.view(t, q).seen.pseudoinverse() * sensing.displacements.weights
    errors: Array = (inverse * largest).T
    return errors


def channel_of(node: Node, period: float) -> Channel:
    """What is known of a node by itself."""
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
    )
