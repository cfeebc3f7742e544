"""Wrong bounds of the cart of `config_texts`: an entry of `bounds`, and the sentence that refuses it."""

ENTRIES = [
    ("holonomic: 1 - x, nonholonomic: 1 - der(x)", "bounds.b.nonholonomic: cannot be used with holonomic (a bound has"),
    ("rate: 3", "bounds.b: no bound (give exactly one of holonomic, nonholonomic, position, velocity, "),
    ("holonomic: 1 - y", "bounds.b.holonomic: unknown word 'y'"),
    ("holonomic: 1 - der(x)", "bounds.b.holonomic: der(x) in a holonomic bound (write it under 'nonholonomic')"),
    ("nonholonomic: 1 - x", "bounds.b.nonholonomic: no der() in a nonholonomic equation"),
    ("holonomic: 1 - x, rate: -1", "bounds.b.rate: expected a positive number, got -1"),
    ("holonomic: 1 - x, rate: 5000", "bounds.b.rate: 5000 1/s times run.period of 0.001 s is 5, beyond which samples"),
    ("holonomic: 1 - x, margin: -1", "bounds.b.margin: expected a margin >= 0 [unit of h], or auto, got -1"),
    ("holonomic: 1 - x, margin: auto", "bounds.b.margin: auto needs estimation.kind: model (give it, or a number)"),
    ("reaction: x, at_most: 0, margin: 1", "bounds.b.margin: does not fit reaction (it takes at_least, at_most, rate)"),
    ("holonomic: 1 - x, at_most: 3", "bounds.b.at_most: does not fit holonomic (it takes margin, rate)"),
    ("position: {y: [0, 1]}, acceleration: 1", "bounds.b.position.y: there is no coordinate 'y' (known: x, s)"),
    ("position: {x: [1, 0]}, acceleration: 1", "bounds.b.position.x: expected [lower, upper] with lower < upper"),
    ("position: {x: [-1, 1]}", "bounds.b: no acceleration to brake with (give acceleration [unit/s^2], or law.limits)"),
    ("position: {x: [-1, 1]}, acceleration: {s: 1}", "bounds.b.acceleration.s: no position of this bound"),
    ("position: {}, acceleration: 1", "bounds.b.position: no coordinate (give coordinate -> limits)"),
    ("position: robot, acceleration: 1", "bounds.b.position: needs plant.robot or plant.robots (for a class, give coo"),
    ("velocity: robot", "bounds.b.velocity: needs plant.robot or plant.robots"),
    ("velocity: {y: 1}", "bounds.b.velocity.y: there is no coordinate 'y'"),
    (
        "distance: [a, b], at_least: 1",
        "bounds.b.distance: needs plant.robot or plant.robots (for a class, give cle",
    ),
    ("reaction: cable, at_most: 0", "bounds.b.reaction: there is no mechanism row 'cable'"),
    ("reaction: cable", "bounds.b: no limit (give at_least or at_most)"),
    ("reaction: cable, at_most: 0, at_least: 1", "bounds.b.at_most: cannot be used with at_least (give the other"),
    ("holonomic: 1 - t", "bounds.b: no input changes the second derivative of b: its degree is above 2 or no actuator"),
]

PAIRS = [
    (
        "{name: a, position: {x: [1, 2]}, acceleration: 1}, {name: b, position: {x: [-1, 9*deg]}, acceleration: 1}",
        "bounds.b.position: an earlier entry keeps x above 1 (nothing is left: move one of the limits)",
    ),
    (
        "{name: a, velocity: {x: 1}}, {name: b, velocity: {x: [2, 3]}}",
        "bounds.b.velocity: an earlier entry keeps x below 1 (nothing is left: move one of the limits)",
    ),
]
"""Pairs of entries that leave nothing between them."""

FINE = "{name: b, holonomic: 1 - x}"

BOUND_ROWS = [
    *(
        ("run: {duration: 0.02}", f"bounds:\n  - {{name: b, {entry}}}\nrun: {{duration: 0.02, period: 1*ms}}", sentence)
        for entry, sentence in ENTRIES
    ),
    *(("run:", f"bounds: [{pair}]\nrun:", sentence) for pair, sentence in PAIRS),
    ("run:", f"bounds:\n  - {FINE}\n  - {FINE}\nrun:", "'b' is the name of entry 1 already (rename entry 2)"),
    ("run:", f"bounds:\n  - {FINE[:-1]}, rat: 1}}\nrun:", "bounds.b.rat: unknown key (did you mean 'rate'?)"),
]
