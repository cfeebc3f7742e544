"""The table of wrong configs of shapes and clearances: old text, new text, and the sentence that refuses it."""

SHAPES = """\
plant:
  class: plants.chain:Chain
  parameters: {N: 2}
  shapes: {arm_1: {capsule: {from: [0, 0, 0], to: [0.9, 0, 0], radius: 0.05}}, arm_2: {sphere: {radius: 0}}}
  obstacles: {pillar: {sphere: {at: [1.2, 0.8, 0], radius: 0.1}}, dot: {sphere: {radius: 0}}}
initial: {q: [0, 0]}
task: [{name: level, holonomic: "theta1"}]
bounds:
  - {name: free, clearance: [arm_1, pillar], at_least: 0.02}
law: {correction: {baumgarte: {alpha: 5, beta: 5}}}
run: {duration: 0.1, period: 0.01}
"""
"""A config whose only bound is a clearance."""

SPHERE = "sphere: {at: [1.2, 0.8, 0], radius: 0.1}"

SHAPE_ROWS = [
    (
        "[arm_1, pillar]",
        "[arm_1, pilar]",
        "c.yaml:9: bounds.free.clearance: there is no shape or obstacle 'pilar' (did you mean 'pillar'?)",
    ),
    (
        "[arm_1, pillar]",
        "[arm_1, arm_1]",
        "c.yaml:9: bounds.free.clearance: has 'arm_1' twice (give two shapes)",
    ),
    (
        "[arm_1, pillar]",
        "[dot, pillar]",
        "c.yaml:9: bounds.free.clearance: both are obstacles, which never move (give a shape of a link)",
    ),
    (
        "[arm_1, pillar]",
        "[arm_1]",
        "c.yaml:9: bounds.free.clearance: expected two shapes [first, second], got ['arm_1']",
    ),
    ("[arm_1, pillar]", "arm_1", "c.yaml:9: bounds.free.clearance: expected a list, got 'arm_1'"),
    ("at_least: 0.02", "at_least: -0.02", "c.yaml:9: bounds.free.at_least: expected a clearance >= 0 [m], got -0.02"),
    (
        "at_least: 0.02",
        "at_most: 0.02",
        "c.yaml:9: bounds.free.at_most: does not fit clearance (it takes at_least, margin, rate)",
    ),
    (
        "arm_2: {sphere",
        "amr_2: {sphere",
        "c.yaml:4: plant.shapes.amr_2: there is no link 'amr_2' (links: arm_0, arm_1, arm_2, arm)",
    ),
    (
        "arm_2: {sphere",
        "world: {sphere",
        "c.yaml:4: plant.shapes.world: the world is no link (write what does not move under plant.obstacles)",
    ),
    (
        "radius: 0.05",
        "radius: -0.05",
        "c.yaml:4: plant.shapes.arm_1.capsule.radius: expected a radius >= 0 [m], got -0.05",
    ),
    ("from: [0, 0, 0]", "from: [0, 0]", "c.yaml:4: plant.shapes.arm_1.capsule.from: expected [x, y, z], three numbers"),
    ("from: [0, 0, 0], ", "", "c.yaml:4: plant.shapes.arm_1.capsule.from: missing (first end of the line"),
    (
        SPHERE,
        f"{SPHERE}, capsule: {{from: [0, 0, 0], to: [1, 0, 0], radius: 1}}",
        "c.yaml:5: plant.obstacles.pillar.capsule: cannot be used with sphere (a shape has exactly one kind)",
    ),
    (SPHERE, "box: {size: [1, 1, 1]}", "c.yaml:5: plant.obstacles.pillar.box: unknown key (known: sphere, capsule)"),
    (f"{{{SPHERE}}}", "{}", "c.yaml:5: plant.obstacles.pillar: no kind (give sphere or capsule)"),
    ("dot: {", "big-dot: {", "plant.obstacles.big-dot: expected a name of letters, digits and _, got 'big-dot'"),
    ("dot: {", "arm_2: {", "plant.obstacles.arm_2: 'arm_2' is a name in shapes already (rename the obstacle)"),
    (
        "[arm_1, pillar], at_least: 0.02",
        "[arm_2, dot]",
        "c.yaml:9: bounds.free.at_least: expected a distance above 0, because neither shape has a radius",
    ),
    (
        "[arm_1, pillar]",
        "[arm_1, ground]",
        "c.yaml:9: bounds.free.clearance: there is no shape or obstacle 'ground' (known: arm_1, arm_2, pillar, dot)",
    ),
]  # fmt: skip
