"""Control steps of robots from files inside C: two arms with a box, a quadruped, spatial chains, an arm's terms.

Each law of `LAWS` is data: what makes it, the states at which it is evaluated, and the peer with the same law.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.assembly import load
from servoctl.assembly.make import make_system
from servoctl.config.load import find_config
from servoctl.engine.ccode import Program
from servoctl.engine.kernel import BufferedCall, Kernel, inputs
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.errors import CompileError
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.spatial import dynamics
from servoctl.mechanics.spatial.description import Description, JointDescription, LinkDescription
from servoctl.mechanics.spatial.placement import IDENTITY, Inertial, Placement, Vector3
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.mechanics.spatial.task.pose import Position
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.types import Array, State
from tests.benchmarks import peers
from tests.benchmarks.contest import Contest, Entry, Line, Results, line
from tests.benchmarks.inside import Inside
from tests.benchmarks.two_robots import FROM_PYTHON, INSIDE, PINOCCHIO, VM

Command = Callable[[float, Array, Array], Array]
"""(t, q, v) -> u."""

Made = tuple[Loop, Loop, Array, Array, Array, Command | None]
"""The timed loop, the one whose u is exact, t, q and v of the states in rows, and the law of a peer."""

TWO_ARMS, QUADRUPED = "two_arms_box", "quadruped_stand"
POSE_ALONE = [
    "law.preload=", "law.limits=",
    'task=[{name: box, pose: box, xyz: [0.5, 0, "0.4 + 0.1*(1 - cos(t))"], rpy: [0, 0, 0]}]',
]  # fmt: skip
"""Changes of `two_arms_box`: the pose of the box with least torques, as peers can do it."""


def file_of_robot(name: str) -> Path:
    """A URDF of a shipped config."""
    return find_config(TWO_ARMS).parent / "robots" / name


def _shipped(config: str, changes: list[str], peer: Callable[[list[str]], Command], quick: bool) -> Made:
    """The law of a shipped config with changes, at states of its own run."""
    run = load(config, [f"run.duration={0.05 if quick else 1}", "run.output_step=0.005"], "vm").simulate()
    loop = load(config, changes, "vm").loop
    command = peer([name[2:] for name in run.columns if name.startswith("u.")]) if has_pinocchio() else None
    return loop, loop, run.t, run.q, run.v, command


def has_pinocchio() -> bool:
    """Whether Pinocchio can take part."""
    return peers.installed()["pinocchio"]


def _two_arms(motors: list[str]) -> Command:
    from tests.benchmarks.peers.two_arms import PinocchioTwoArms

    return PinocchioTwoArms(file_of_robot("arm7.urdf")).command


def _quadruped(motors: list[str]) -> Command:
    from tests.benchmarks.peers.quadruped import PinocchioQuadruped

    return PinocchioQuadruped(file_of_robot("quadruped.urdf"), motors).command


LENGTH, MASS, MOMENT = 0.1, 0.5, 1e-3
"""Of a link: length along z [m], mass at half of it [kg], moment about each axis through that point [kg m^2]."""

AXES = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0))
"""Axes of the joints, in turn."""

GAIN = 10.0
"""Baumgarte's alpha = beta [1/s]."""


def chain(joints: int) -> Robot:
    """A chain of equal links, whose joints turn about z, y and x in turn."""
    names = ["base", *(f"link{i}" for i in range(1, joints + 1))]
    inertial = Inertial(MASS, (0.0, 0.0, LENGTH / 2), (MOMENT, MOMENT, MOMENT, 0.0, 0.0, 0.0))
    links = [LinkDescription(names[0]), *(LinkDescription(name, inertial) for name in names[1:])]
    place = Placement.at((0.0, 0.0, LENGTH))
    parts = [
        JointDescription(f"joint{i + 1}", "continuous", names[i], names[i + 1], place if i else IDENTITY, axis)
        for i, axis in enumerate(axes_of(joints))
    ]
    builder = RobotBuilder()
    builder.add(Description("chain", tuple(links), tuple(parts)), base="fixed")
    return builder.plant()


def axes_of(joints: int) -> list[Vector3]:
    """The axis of each joint."""
    return [AXES[i % len(AXES)] for i in range(joints)]


def target(joints: int) -> Vector3:
    """The point that the last joint follows [m]."""
    reach = 0.5 * LENGTH * joints
    return reach, 0.0, reach


def chain_loop(joints: int, q: Array, v: Array, engine: str = "auto") -> Loop:
    """The loop whose tip follows the point, from the start q, v."""
    law = ConstraintFollowing(correction=Baumgarte(GAIN, GAIN))
    task = {"tip": Position(f"link{joints}", target(joints))}
    return make_loop(make_system(chain(joints), task, law, {}, State(0.0, q, v), None, 1e-6), engine)


def _chain(joints: int, quick: bool) -> Made:
    count = 5 if quick or joints > 30 else 50
    q, v = np.random.default_rng(0).uniform(-1.0, 1.0, (2, count, joints))
    command: Command | None = None
    if has_pinocchio():
        from tests.benchmarks.peers.spatial_chain import PinocchioChain

        theirs = PinocchioChain(axes_of(joints), range(joints), LENGTH, MASS, MOMENT, target(joints), GAIN)
        command = lambda t, q, v: theirs.command(q, v)  # noqa: E731
    return (chain_loop(joints, q[0], v[0], "vm"), chain_loop(joints, q[0], v[0], "numpy"), np.zeros(count), q, v,
            command)  # fmt: skip


@dataclass(frozen=True)
class Law:
    """A law that is timed inside C."""

    work: str
    make: Callable[[bool], Made]  # (quick) -> what is timed
    tolerance: float  # largest difference of u that counts as equal, relative to the largest u


# states of a run violate the rows by 1e-10, times gains of 100
LAWS = {
    "two_arms": (Law("two seven-joint arms with a box", partial(_shipped, TWO_ARMS, POSE_ALONE, _two_arms), 1e-7),),
    "quadruped": (
        Law("a quadruped with 12 motors", partial(_shipped, QUADRUPED, ["law.limits="], _quadruped), 1e-7),
        Law("a quadruped with limits", partial(_shipped, QUADRUPED, [], _quadruped), 1e-7),
    ),
    "spatial_chain": tuple(
        Law(f"a chain of {joints} hinges", partial(_chain, joints), 1e-8) for joints in (7, 30)
    ),
}  # fmt: skip
"""Name of a benchmark -> its laws."""


def laws_inside(name: str, quick: bool) -> Results:
    """The control steps of `LAWS[name]` inside C, and the compiler's processor time."""
    for law in LAWS[name][:1] if quick else LAWS[name]:
        loop, exact_loop, t, q, v, peer = law.make(quick)
        contest, x, u = Contest(len(t)), np.hstack([q, v]), loop.layout.slices["u"]
        compiling = None
        if isinstance(loop, Loop):
            try:
                inside = Inside(loop.control_kernel, t, x, loop.parameters)
                contest.enter_inside(INSIDE, inside, u)
                compiling = inside.compiling
            except CompileError:
                pass
        contest.enter(VM, lambda k, t=t, x=x, loop=loop, u=u: loop.control(t[k], x[k])[u])
        if peer is not None:
            contest.enter(PINOCCHIO, lambda k, t=t, q=q, v=v, peer=peer: peer(t[k], q[k], v[k]))
        exact = np.array([exact_loop.control(t[k], x[k])[exact_loop.layout.slices["u"]] for k in range(len(t))])
        entries = contest.entries(exact, law.tolerance, quick or len(t) < 10, float(np.abs(exact).max()))
        ours = next(iter(entries))
        where = "inside C" if ours == INSIDE else "on the virtual machine"
        yield line(f"control step of {law.work}, {where}", entries, ours, PINOCCHIO,
                   note="Pinocchio gives the terms, NumPy the algebra; difference of u, relative")  # fmt: skip
        if compiling is not None:
            yield Line(f"the same, processor time to compile {law.work}", (Entry("C compiler", compiling),))


TOOL = "tool"


def terms(robot: Robot, q: Array, v: Array) -> Array:
    """M, bias, rotation, position, Jacobian and drift of the tool in one vector, on numbers or symbols."""
    bodies = robot.body_moments()
    tool = robot.frame_motions([TOOL], q, v)[TOOL]
    parts = [
        dynamics.mass_matrix(robot.tree, bodies, q), dynamics.bias(robot.tree, bodies, robot.gravity, q, v),
        tool.rotation, tool.position, tool.linear, tool.angular, tool.drift, tool.angular_drift,
    ]  # fmt: skip
    return np.concatenate([np.asarray(part).ravel() for part in parts])


def robots_from_files(quick: bool) -> Results:
    """The terms of a seven-joint arm from its URDF: mass matrix, bias, pose, Jacobian and drift of the tool."""
    from tests.benchmarks.peers.urdf_arm import MujocoArm, PinocchioArm

    path = file_of_robot("arm7.urdf")
    robot = Robot.from_urdf(path)
    n, p = len(robot.coordinates), parameter_values(robot)
    q, v = np.random.default_rng(0).uniform(-2.0, 2.0, (2, 20 if quick else 500, n))
    symbols = inputs({"t": (1,), "x": (2 * n,), "p": (len(p),)})
    x = symbols["x"]
    own = terms(with_parameters(robot, symbols["p"]), x[:n], x[n:])
    kernel = Kernel.compile("terms", symbols, {"terms": own})
    ours = VM
    try:
        kernel.run_on(Program([kernel]).load())
        ours = FROM_PYTHON
    except CompileError:
        pass
    call = BufferedCall(kernel)
    call.inputs["p"][:] = p
    rows = np.hstack([q, v])

    def at(k: int) -> Array:
        call.inputs["x"][:] = rows[k]
        call.evaluate()
        return call.outputs["terms"]

    contest = Contest(len(q))
    contest.enter(ours, at)
    installed = peers.installed()
    arms: list[Any] = [PinocchioArm(path, TOOL)] if installed["pinocchio"] else []
    arms += [MujocoArm(path)] if installed["mujoco"] else []
    for arm in arms:
        contest.enter(arm.name, lambda k, arm=arm: arm(q[k], v[k]), lambda k, arm=arm: arm.full(q[k], v[k]))
    exact = np.array([terms(robot, *state) for state in zip(q, v, strict=True)])
    entries = contest.entries(exact, 1e-10, quick, float(np.abs(exact).max()))
    yield line("M, bias and tool of a seven-joint arm", entries, ours, *(arm.name for arm in arms),
               note="MuJoCo evaluates mass matrix and bias, and nothing of the tool")  # fmt: skip
