"""The table of wrong configs of robots from files: old text, new text, and the sentence that refuses it."""

ROBOT = """\
plant:
  robots: {left: {urdf: arm7.urdf, at: {xyz: [0, 0.5, 0]}}, right: {urdf: arm7.urdf, base: fixed, motors: all}}
  bodies: {box: {m: 5, size: [0.3, 0.4, 0.2], on: left_tool}}
  frames: {grip: {on: right_tool, at: {rpy: [90*deg, 0, 0]}}}
  loops: {hold: {weld: [box, grip]}}
initial: {q: {left_joint4: -2.2}, solve: {box: {xyz: [0.5, 0, 0.4]}}}
task:
  - {name: box, pose: box, xyz: [0.5, 0, "0.4 + 0.1*(1 - cos(t))"], rpy: [0, 0, 0]}
  - {name: rest, posture: initial, priority: 2}
law: {limits: robot, preload: {hold: {y: -30}}}
run: {duration: 1}
references: {path: {file: path.csv}, guided: {file: guided.csv}}
"""
"""A config whose files do not exist, for tests of the grammar alone."""

POSE = '{name: box, pose: box, xyz: [0.5, 0, "0.4 + 0.1*(1 - cos(t))"], rpy: [0, 0, 0]}'
REST = "{name: rest, posture: initial, priority: 2}"
SIZE = "size: [0.3, 0.4, 0.2]"
NEEDS = "needs plant.robot or plant.robots"

PLANT_ROWS = [
    (
        "  bodies:",
        "  class: a:B\n  bodies:",
        "c.yaml:2: plant.robots: cannot be used with class (a plant has exactly one of class, robot, robots)",
    ),
    (
        "  bodies:",
        "  robot: {urdf: a.urdf}\n  bodies:",
        "c.yaml:2: plant.robots: cannot be used with robot (a plant has exactly one of class, robot, robots)",
    ),
    ("left: {urdf: arm7.urdf,", "left: {", "c.yaml:2: plant.robots.left: no file (give urdf or mjcf)"),
    (
        "left: {urdf: arm7.urdf,",
        "left: {urdf: arm7.urdf, mjcf: arm7.xml,",
        "c.yaml:2: plant.robots.left.mjcf: cannot be used with urdf (a robot has exactly one file)",
    ),
    ("{left: {urdf: arm7.urdf,", "{left: {urdf: 3,", "c.yaml:2: plant.robots.left.urdf: expected text, got 3"),
    ("left: {", "le-ft: {", "c.yaml:2: plant.robots.le-ft: expected a name of letters, digits and _, got 'le-ft'"),
    ("base: fixed", "base: planar", "c.yaml:2: plant.robots.right.base: expected one of fixed, free, got 'planar'"),
    (
        "motors: all",
        "motors: none",
        "c.yaml:2: plant.robots.right.motors: expected all or a list of joints, got 'none'",
    ),
    ("motors: all", "motor: all", "c.yaml:2: plant.robots.right.motor: unknown key (did you mean 'motors'?)"),
    (
        "[0, 0.5, 0]",
        "[0, 0.5]",
        "c.yaml:2: plant.robots.left.at.xyz: expected [x, y, z], three numbers, got [0.0, 0.5]",
    ),
    ("[0, 0.5, 0]", "0.5", "c.yaml:2: plant.robots.left.at.xyz: expected a list, got 0.5"),
    ("[0, 0.5, 0]", "[0, y, 0]", "c.yaml:2: plant.robots.left.at.xyz[1]: expected a number, got 'y'"),
    (
        "at: {xyz: [0, 0.5, 0]}",
        "at: [0, 0.5, 0]",
        "c.yaml:2: plant.robots.left.at: expected a mapping, got [0, 0.5, 0]",
    ),
    ("m: 5", "m: 0", "c.yaml:3: plant.bodies.box.m: expected a positive number, got 0"),
    ("m: 5, ", "", "c.yaml:3: plant.bodies.box.m: missing (mass [kg])"),
    (", on: left_tool", "", "c.yaml:3: plant.bodies.box.on: missing (link or frame that carries the body)"),
    (SIZE, "size: [0.3, 0.4]", "c.yaml:3: plant.bodies.box.size: expected three lengths along x, y, z, got [0.3, 0.4]"),
    (SIZE, "size: [0.3, 0.4, 0]", "c.yaml:3: plant.bodies.box.size[2]: expected a positive number, got 0"),
    (SIZE, SIZE + ", com: [0, 0, 0]", "c.yaml:3: plant.bodies.box.com: cannot be used with size (a uniform box has"),
    (
        SIZE,
        SIZE + ", inertia: [1, 1, 1, 0, 0, 0]",
        "c.yaml:3: plant.bodies.box.inertia: cannot be used with size (a uniform box has its own centre and inertia)",
    ),
    (
        SIZE,
        "inertia: [1, 1, 1]",
        "c.yaml:3: plant.bodies.box.inertia: expected [ixx, iyy, izz, ixy, ixz, iyz], six num",
    ),
    ("grip: {on", "box: {on", "c.yaml:4: plant.frames.box: 'box' is a name in bodies already (rename one)"),
    ("{grip: {on", "{world: {on", "c.yaml:4: plant.frames.world: 'world' is a frame already (rename it)"),
    ("weld: [box, grip]", "wled: [box, grip]", "c.yaml:5: plant.loops.hold.wled: unknown key (did you mean 'weld'?)"),
    (
        "{weld: [box, grip]}",
        "{}",
        "c.yaml:5: plant.loops.hold: no kind (give exactly one of weld, hinge, slide, point)",
    ),
    (
        "weld: [box, grip]",
        "weld: [box, grip], point: [box, grip]",
        "c.yaml:5: plant.loops.hold.point: cannot be used with weld (a loop has exactly one kind)",
    ),
    ("[box, grip]", "[box]", "c.yaml:5: plant.loops.hold.weld: expected two frames [first, second], got ['box']"),
    ("[box, grip]", "[box, box]", "c.yaml:5: plant.loops.hold.weld: has the frame 'box' twice (give two frames)"),
    (
        "initial:",
        "  gravity: [0, 0]\ninitial:",
        "c.yaml:6: plant.gravity: expected [x, y, z], three numbers, got [0.0, 0.0]",
    ),
    (
        "initial:",
        "  gravity: [0, 0, -1]\n  parameters: {gravity: [0, 0, -2]}\ninitial:",
        "c.yaml:7: plant.parameters.gravity: cannot be used with plant.gravity (give one of them)",
    ),
]

START_AND_LAW_ROWS = [
    ("{box: {xyz: [0.5, 0, 0.4]}}", "{box: {}}", "c.yaml:6: initial.solve.box: no pose (give xyz, rpy or both)"),
    ("{box: {xyz: [0.5, 0, 0.4]}}", "{box: {xyz: [1]}}", "c.yaml:6: initial.solve.box.xyz: expected [x, y, z], three"),
    ("{box: {xyz: [0.5, 0, 0.4]}}", "{box: {xzy: 1}}", "c.yaml:6: initial.solve.box.xzy: unknown key (did you mean 'x"),
    ("limits: robot", "limits: robt", "c.yaml:10: law.limits: expected robot or a mapping, got 'robt' (did you mean"),
    ("hold: {y: -30}", "hld: {y: -30}", "c.yaml:10: law.preload.hld: there is no loop 'hld' (did you mean 'hold'?)"),
    ("hold: {y: -30}", "hold: {}", "c.yaml:10: law.preload.hold: no component (give one of x, y, z [N], rx, ry, rz [N"),
    ("hold: {y: -30}", "hold: {fy: -30}", "c.yaml:10: law.preload.hold.fy: unknown key (did you mean 'y'?)"),
    ("limits: robot,", "kind: input_output,", "c.yaml:10: law.preload: does not fit law.kind input_output (use constr"),
]  # fmt: skip

TASK_ROWS = [
    (
        "pose: box, ",
        "pose: box, position: box, ",
        "c.yaml:8: task.box.position: cannot be used with pose (a task entry has exactly one of them)",
    ),
    ("pose: box, ", "pos: box, ", "c.yaml:8: task.box.pos: unknown key (did you mean 'pose'?)"),
    (
        POSE,
        "{name: box, pose: box, rpy: [0, 0, 0]}",
        "c.yaml:8: task.box.xyz: missing (position [m], [x, y, z]; or reference: NAME, with columns x, y, z)",
    ),
    (
        POSE,
        "{name: box, pose: box, xyz: [0, 0, 0]}",
        "c.yaml:8: task.box.rpy: missing (roll, pitch, yaw [rad]; or reference: NAME, with columns qx, qy, qz, qw)",
    ),
    (
        "rpy: [0, 0, 0]}",
        "rpy: [0, 0, 0], reference: path}",
        "c.yaml:8: task.box.reference: cannot be used with xyz and rpy (leave one of them out)",
    ),
    ("rpy: [0, 0, 0]}", "rpy: [0, 0]}", "c.yaml:8: task.box.rpy: expected [roll, pitch, yaw], three numbers or equat"),
    ("rpy: [0, 0, 0]}", "rpy: [0, 0, 2^2]}", "c.yaml:8: task.box.rpy[2]: '^' is not an operator (use **"),
    (
        POSE,
        "{name: box, position: box, reference: pth}",
        "c.yaml:8: task.box.reference: there is no reference 'pth' (did you mean 'path'?)",
    ),
    (POSE, "{name: box, position: box}", "c.yaml:8: task.box.xyz: missing (position [m], [x, y, z]; or reference"),
    (
        POSE,
        "{name: box, position: box, xyz: [0, 0, 0], rpy: [0, 0, 0]}",
        "c.yaml:8: task.box.rpy: does not fit position (it takes xyz, reference, relative_to)",
    ),
    (POSE, "{name: box, orientation: box}", "c.yaml:8: task.box.rpy: missing (roll, pitch, yaw [rad]; or reference"),
    (
        POSE,
        "{name: box, orientation: box, rpy: [0, 0, 0], reference: path}",
        "c.yaml:8: task.box.reference: cannot be used with rpy (leave one of them out)",
    ),
    (
        POSE,
        "{name: box, orientation: box, rpy: [0, 0, 0], xyz: [0, 0, 0]}",
        "c.yaml:8: task.box.xyz: does not fit orientation (it takes rpy, reference, relative_to)",
    ),
    (POSE, "{name: box, axis: [box, z]}", "c.yaml:8: task.box.along: missing (direction, [x, y, z])"),
    (
        POSE,
        "{name: box, axis: box, along: [0, 0, 1]}",
        "c.yaml:8: task.box.axis: expected [frame, x], or y, z or three",
    ),
    (POSE, "{name: box, axis: [box, w], along: [0, 0, 1]}", "c.yaml:8: task.box.axis: expected x, y, z, -x, -y, -z or"),
    (
        POSE,
        "{name: box, axis: [box, [0, 0, 0]], along: [0, 0, 1]}",
        "c.yaml:8: task.box.axis: expected a direction, got [0.0, 0.0, 0.0]",
    ),
    (
        POSE,
        "{name: box, distance: [box, grip]}",
        "c.yaml:8: task.box.value: missing (value [m], a number or an equation)",
    ),
    (
        POSE,
        "{name: box, distance: box, value: 1}",
        "c.yaml:8: task.box.distance: expected [frame, frame] or [frame, [x,",
    ),
    (
        POSE,
        "{name: box, distance: [box, grip], value: [1, 2]}",
        "c.yaml:8: task.box.value: 2 values for distance (a distance is one number)",
    ),
    (POSE, "{name: box, com: [x, y]}", "c.yaml:8: task.box.value: missing (value [m], a number or an equation)"),
    (
        POSE,
        "{name: box, com: [x, y], value: 1}",
        "c.yaml:8: task.box.value: 1 value for com (give one per coordinate: 2",
    ),
    (POSE, "{name: box, com: [x, w], value: [1, 2]}", "c.yaml:8: task.box.com[1]: expected one of x, y, z, got 'w'"),
    (
        POSE,
        "{name: box, com: [x, x], value: [1, 2]}",
        "c.yaml:8: task.box.com: has x twice (name each coordinate once)",
    ),
    (
        POSE,
        "{name: box, com: [], value: 1}",
        "c.yaml:8: task.box.com: expected a list with at least one value, got []",
    ),
    (
        REST,
        "{name: rest, posture: here}",
        "c.yaml:9: task.rest.posture: expected one of initial, reference or a mapping",
    ),
    (
        REST,
        "{name: rest, posture: {}}",
        "c.yaml:9: task.rest.posture: no joint (give initial, reference, or joint -> co",
    ),
    (
        REST,
        "{name: rest, posture: reference}",
        "c.yaml:9: task.rest.reference: missing (name of a reference, with columns named as joints)",
    ),
    (
        REST,
        "{name: rest, posture: initial, reference: path}",
        "c.yaml:9: task.rest.reference: does not fit this posture (write posture: reference)",
    ),
    (
        REST,
        "{name: rest, holonomic: left_joint1, value: 3}",
        "c.yaml:9: task.rest.value: does not fit holonomic (it belongs to tasks on frames)",
    ),
    (
        "rpy: [0, 0, 0]}",
        "rpy: [0, 0, 0], correction: {baumgarte: {alpha: [1, 2], beta: 1}}}",
        "c.yaml:8: task.box.correction.baumgarte.alpha: 2 values for 6 rows (give one per row)",
    ),
    (
        "law: {",
        "law: {correction: {baumgarte: {alpha: {box: 1}, beta: 1}}, ",
        "c.yaml:10: law.correction.baumgarte.alpha: no value for task 'rest' (name every task that has no corre",
    ),
]

ROBOT_ROWS = [*PLANT_ROWS, *START_AND_LAW_ROWS, *TASK_ROWS]

NEEDS_ROBOT_ROWS = [
    ("plant", "plant: {class: a:B, gravity: [0, 0, 0]}", f"c.yaml:1: plant.gravity: {NEEDS} (a class has"),
    ("plant", "plant: {class: a:B, bodies: {b: {m: 1, on: a}}}", f"c.yaml:1: plant.bodies: {NEEDS} (a class has"),
    ("plant", "plant: {class: a:B, frames: {b: {on: a}}}", f"c.yaml:1: plant.frames: {NEEDS} (a class has"),
    ("plant", "plant: {class: a:B, loops: {b: {weld: [a, c]}}}", f"c.yaml:1: plant.loops: {NEEDS} (a class has"),
    ("plant", "plant: {robots: {}}", "c.yaml:1: plant.robots: no robot (give name: {urdf: FILE})"),
    ("plant", "plant: {robot: {}}", "c.yaml:1: plant.robot: no file (give urdf or mjcf)"),
    ("plant", "plant: {class: null}", "c.yaml:1: plant.class: expected text, got nothing"),
    ("plant", "plant: 3", "c.yaml:1: plant: expected a mapping, got 3"),
    (
        "initial",
        "initial: {q: 0, solve: {tool: {xyz: [0, 0, 0]}}}",
        f"c.yaml:2: initial.solve: {NEEDS} (for a class, give q and initial.project: true)",
    ),
    ("law", "law: {limits: robot}", f"c.yaml:6: law.limits: {NEEDS} (for a class, give actuator -> limit)"),
    ("law", "law: {preload: {a: {x: 1}}}", f"c.yaml:6: law.preload: {NEEDS}, with plant.loops"),
    *(
        ("task", f"task:\n- {{name: a, {form}}}", f"c.yaml:4: task.a.{form.partition(':')[0]}: {NEEDS} (for a class")
        for form in (
            "pose: tool, xyz: [0, 0, 0], rpy: [0, 0, 0]",
            "position: tool, xyz: [0, 0, 0]",
            "orientation: tool, rpy: [0, 0, 0]",
            "axis: [tool, z], along: [0, 0, 1]",
            "distance: [tool, world], value: 1",
            "com: [x], value: 1",
            "posture: initial",
        )
    ),
]  # fmt: skip
"""Rows of the base `grammar`, whose plant is a class."""
