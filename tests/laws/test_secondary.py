"""Named secondary aims: met as well as the task allows, without an effect on the task."""

import numpy as np

import servoctl as sc

TASK = ("object_x", "object_y", "level")


def run(*overrides: str) -> sc.Trajectory:
    return sc.load("coordinated_robots", ["run.duration=0.5", *overrides]).simulate()


def test_a_preload_shifts_the_inputs_in_the_null_space_alone() -> None:
    plain, loaded = run(), run("law.secondary={preload: {u1: 2}}")
    assert max(loaded.violation(name).max() for name in TASK) < 1e-9
    assert np.abs(loaded.q - plain.q).max() < 1e-9
    shift = loaded.u - plain.u
    assert np.abs(shift[:, 0]).min() > 0.1
    # the shift is the projection of the preload: shorter than it, and at right angles to what is left of it
    preload = np.array([2.0, 0, 0, 0, 0, 0])
    assert np.abs(np.sum(shift * (preload - shift), axis=1)).max() < 1e-9


def test_centring_seeks_the_middle_of_the_limits() -> None:
    limits = "law.limits={u1: [0, 40], u2: [-20, 20], u3: [-20, 20], u4: [-20, 20], u5: [-20, 20], u6: [-20, 20]}"
    plain, centred = run(limits), run(limits, "law.secondary={centre: true}")
    middle = np.array([20.0, 0, 0, 0, 0, 0])
    assert np.linalg.norm(centred.u - middle, axis=1).max() < np.linalg.norm(plain.u - middle, axis=1).min() - 1
    assert max(centred.violation(name).max() for name in TASK) < 1e-9


def test_damping_takes_energy_out_of_the_free_motion() -> None:
    start = [
        "initial.v=0.5",
        "initial.project={fix: [theta1]}",
        "task=[{name: tip, holonomic: theta1 - 1.0471975512 - 0.5*t}]",
    ]
    trajectories = []
    for damping in (0, 20):
        overrides = ["plant.parameters.g=0", *start, f"law.secondary={{damping: {damping}}}", "run.duration=1"]
        trajectories.append(sc.load("coordinated_robots", overrides).simulate())
    speeds = [np.linalg.norm(t.v[-1]) for t in trajectories]
    assert speeds[1] < 0.9 * speeds[0]
    assert max(t.violation("tip").max() for t in trajectories) < 1e-9
