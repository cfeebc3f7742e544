"""The table of wrong configs: what is changed in a good config, and the sentence that refuses it."""

from pathlib import Path

import pytest
from bound_refusals import BOUND_ROWS
from config_texts import CART, CART_PLANT, CORRECTION, GRAMMAR, HEAD, HIL, LAW_FIELD, REALISM
from robot_refusals import NEEDS_ROBOT_ROWS, ROBOT, ROBOT_ROWS
from shape_refusals import SHAPE_ROWS, SHAPES

from servoctl.cli import main
from servoctl.config import load_config
from servoctl.errors import ConfigError

BASES = {
    "grammar": "".join(GRAMMAR.values()),
    "hil": HEAD + HIL,
    "realism": REALISM,
    "robot": ROBOT,
    "cart": CART,
    "shapes": SHAPES,
}
LOADED_ONLY = ("grammar", "hil", "robot")
"""Their plant does not exist, so only the grammar is checked; the others go through `servoctl run`."""

REFUSED = {
    "robot": ROBOT_ROWS,
    "shapes": SHAPE_ROWS,
    "grammar": [
        *NEEDS_ROBOT_ROWS,
        ("run", "run: {duration: -0.001}", "c.yaml:7: run.duration: expected a positive time [s], got -0.001"),
        (
            "run",
            "run: {duration: 1/0}",
            "c.yaml:7: run.duration: expected a positive time [s], got '1/0': '1/0' is not",
        ),
        ("run", "run: {duration: -2*ms}", "c.yaml:7: run.duration: expected a positive time [s], got '-2*ms' = -0.002"),
        ("run", "run: {duration: .inf}", "c.yaml:7: run.duration: expected a positive time [s], got inf"),
        ("run", "run: {duration: .nan}", "c.yaml:7: run.duration: expected a positive time [s], got nan"),
        ("run", "run: {duration: true}", "c.yaml:7: run.duration: expected a positive time [s], got true"),
        (
            "run",
            "run: {duration: 010}",
            "c.yaml:7: run.duration: expected a positive time [s], got '010': '010' starts",
        ),
        (
            "run",
            "run: {duration: l}",
            "c.yaml:7: run.duration: expected a positive time [s], got 'l': a number is expected",
        ),
        ("run", "run: {}", "c.yaml:7: run.duration: missing (time to simulate [s])"),
        ("run", "run: 5", "c.yaml:7: run: expected a mapping, got 5"),
        ("run", "", "c.yaml: run: missing (duration, sampling and integration)"),
        ("run", "run: {duration: 1, perod: 1}", "c.yaml:7: run.perod: unknown key (did you mean 'period'?)"),
        (
            "run",
            "run: {duration: 1, zzz: 1}",
            "c.yaml:7: run.zzz: unknown key (known: duration, period, integrator, outp",
        ),
        ("run", "run: {duration: 1, seed: 1.5}", "c.yaml:7: run.seed: expected an integer >= 0, got 1.5"),
        ("run", "run: {duration: 1, seed: -1}", "c.yaml:7: run.seed: expected an integer >= 0, got -1"),
        (
            "run",
            "run: {duration: 1, integrator: {method: rk5}}",
            "c.yaml:7: run.integrator.method: expected one of rk4, dop853, radau, got 'rk5' (did you mean 'rk4'?)",
        ),
        (
            "run",
            "run: {duration: 1, integrator: {method: dop853, step: 0.1}}",
            "c.yaml:7: run.integrator.step: does not fit dop853, which chooses its own step (give rtol and atol)",
        ),
        (
            "run",
            "run: {duration: 1, integrator: {rtol: 1e-3}}",
            "c.yaml:7: run.integrator.rtol: does not fit rk4, which has a fixed step (give step, or another method)",
        ),
        (
            "run",
            "run: {duration: 1, period: 0.001, integrator: {step: 0.0003}}",
            "c.yaml:7: run.integrator.step: 0.0003 does not divide run.period 0.001 (nearest step that does: 0.001/3)",
        ),
        (
            "run",
            "run: {duration: 1, period: 0.001, integrator: {step: 0.002}}",
            "c.yaml:7: run.integrator.step: 0.002 does not divide run.period 0.001 (nearest step that does: 0.001)",
        ),
        ("run", GRAMMAR["run"] + "hil: []", "c.yaml:8: hil: expected a mapping, got []"),
        ("run", GRAMMAR["run"] + "tune: 3", "c.yaml:8: tune: expected a mapping, got 3"),
        (
            "run",
            GRAMMAR["run"] + "inputs: {F: 1}",
            "c.yaml:8: inputs: cannot be used with a law (the law computes the inputs; an open",
        ),
        (
            "plant",
            "plant: {class: Cart}",
            "c.yaml:1: plant.class: expected package.module:ClassName or file.py:ClassName",
        ),
        (
            "plant",
            "plant: {class: a/b:Cart}",
            "c.yaml:1: plant.class: expected package.module:ClassName or file.py:Class",
        ),
        (
            "plant",
            "plant: {parameters: {}}",
            "c.yaml:1: plant.class: missing (package.module:ClassName, or file.py:Class",
        ),
        (
            "plant",
            "plant: {class: a:B, parameters: {m: {x: 1}}}",
            "c.yaml:1: plant.parameters.m: expected a number, text, true, false or a list of these, got a mapping (x)",
        ),
        (
            "plant",
            "plant: {class: a:B, parameters: {m: .nan}}",
            "c.yaml:1: plant.parameters.m: expected a number, text,",
        ),
        (
            "plant",
            "plant: {class: a:B, passive: {rank_tolerance: 1}}",
            "c.yaml:1: plant.passive.rank_tolerance: expected a number between 0 and 1, got 1",
        ),
        (
            "plant",
            "plant: {class: a:B, passive: {correction: {baumgarte: {alpha: {a: 1}, beta: 1}}}}",
            "c.yaml:1: plant.passive.correction.baumgarte.alpha: a mapping by task name (only law.correction has one;",
        ),
        ("initial", "initial: {}", "c.yaml:2: initial.q: missing (coordinates [units of the plant]"),
        (
            "initial",
            "initial: {q: {x: 60*dg}}",
            "c.yaml:2: initial.q.x: expected a number, got '60*dg': a number is expec",
        ),
        ("initial", "initial: {q: [1, x]}", "c.yaml:2: initial.q[1]: expected a number, got 'x'"),
        ("initial", "initial: {q: null}", "c.yaml:2: initial.q: expected a number, got nothing"),
        (
            "initial",
            "initial: {q: 0, project: yes}",
            "c.yaml:2: initial.project: expected true or false or a mapping, got",
        ),
        ("initial", "initial: {q: 0, project: {fix: x}}", "c.yaml:2: initial.project.fix: expected a list, got 'x'"),
        (
            "initial",
            "initial: {q: 0, max_violation: 0}",
            "c.yaml:2: initial.max_violation: expected a positive number, got",
        ),
        ("task", "task: {a: 1}", "c.yaml:3: task: expected a list, got a mapping (a)"),
        ("task", "", "c.yaml: task: no entry (a law follows at least one task; 'law: none' is an open-loop run)"),
        ("task", "task:", "c.yaml:3: task: expected a list, got nothing"),
        ("task", "task: []", "c.yaml:3: task: no entry (a law follows at least one task"),
        ("task", "task:\n- 5", "c.yaml:4: task[0]: expected a mapping, got 5"),
        (
            "task",
            "task:\n- {name: a}",
            "c.yaml:4: task.a: no equation (give exactly one of holonomic, nonholonomic, class",
        ),
        (
            "task",
            "task:\n- {name: a, holonomc: x}",
            "c.yaml:4: task.a.holonomc: unknown key (did you mean 'holonomic'?)",
        ),
        (
            "task",
            "task:\n- {name: a, holonomic: x, class: a:B}",
            "c.yaml:4: task.a.class: cannot be used with holonomic (a task entry has exactly one of them)",
        ),
        ("task", "task:\n- {holonomic: x}", "c.yaml:4: task[0].name: missing (name of the entry"),
        (
            "task",
            "task:\n- {name: a b, holonomic: x}",
            "c.yaml:4: task[0].name: expected a name of letters, digits and _",
        ),
        ("task", "task:\n- {name: 3, holonomic: x}", "c.yaml:4: task[0].name: expected text, got 3"),
        (
            "task",
            "task:\n- {name: a, holonomic: x}\n- {name: a, holonomic: y}",
            "c.yaml:5: task.a.name: 'a' is the name of entry 1 already (rename entry 2)",
        ),
        ("task", "task:\n- {name: a, holonomic: x^2}", "c.yaml:4: task.a.holonomic: '^' is not an operator (use **"),
        (
            "task",
            "task:\n- {name: a, holonomic: true}",
            "c.yaml:4: task.a.holonomic: expected an equation as text, got true",
        ),
        (
            "task",
            "task:\n- {name: a, holonomic: der(x)}",
            "c.yaml:4: task.a.holonomic: der(x) in a holonomic equation (write it under 'nonholonomic')",
        ),
        (
            "task",
            "task:\n- {name: a, nonholonomic: x}",
            "c.yaml:4: task.a.nonholonomic: no der() in a nonholonomic equation (write it under 'holonomic')",
        ),
        (
            "task",
            "task:\n- {name: a, holonomic: x, parameters: {}}",
            "c.yaml:4: task.a.parameters: needs a class (an equation uses the plant's parameters)",
        ),
        (
            "task",
            "task:\n- {name: a, holonomic: x, priority: 1.5}",
            "c.yaml:4: task.a.priority: expected an integer >= 1, got 1.5",
        ),
        (
            "task",
            "task:\n- {name: a, holonomic: x, correction: {p_feedback: {P: [1, 2]}}}",
            "c.yaml:4: task.a.correction.p_feedback.P: 2 values for 1 row (give one per row)",
        ),
        ("law", "law: open", "c.yaml:6: law: expected none or a mapping, got 'open'"),
        ("law", "law:", "c.yaml:6: law: expected none or a mapping, got nothing"),
        (
            "run",
            "run: {seed: null, duration: 1}",
            "run.seed: expected an integer >= 0, got nothing (leave the key out for its default)",
        ),
        ("law", "", "c.yaml: law: missing (the control law, or none: then `inputs` says what the actuators do)"),
        (
            "law",
            LAW_FIELD.format("kind: input_outpt"),
            "c.yaml:6: law.kind: expected one of constraint_following, input_output, got",
        ),
        ("law", LAW_FIELD.format("correcton: {}"), "c.yaml:6: law.correcton: unknown key (did you mean 'correction'?)"),
        (
            "law",
            LAW_FIELD.format("allocation: norm"),
            "c.yaml:6: law.allocation: expected one of minimum_norm, unprojected, constraint_force or a mapping, got",
        ),
        (
            "law",
            LAW_FIELD.format("allocation: {weighted: {u1: 0}}"),
            "c.yaml:6: law.allocation.weighted.u1: expected a positive number, got 0",
        ),
        (
            "law",
            LAW_FIELD.format("limits: {u: 0}"),
            "c.yaml:6: law.limits.u: expected a positive number or [lower, upper]",
        ),
        (
            "law",
            LAW_FIELD.format("limits: {u: [2, 1]}"),
            "c.yaml:6: law.limits.u: expected [lower, upper] with lower < upper, got [2.0, 1.0]",
        ),
        (
            "law",
            LAW_FIELD.format("limits: {u: [1]}"),
            "c.yaml:6: law.limits.u: expected [lower, upper] with lower < upper",
        ),
        ("law", LAW_FIELD.format("null_space: {u: x +}"), "c.yaml:6: law.null_space.u: the equation ends after '+'"),
        ("law", LAW_FIELD.format("damping: -1"), "c.yaml:6: law.damping: expected a number >= 0, got -1"),
        (
            "law",
            LAW_FIELD.format("on_infeasible: stop"),
            "c.yaml:6: law.on_infeasible: expected one of warn, damp, fault,",
        ),
        (
            "law",
            CORRECTION.format("{poles: [-1, -2]}"),
            "c.yaml:6: law.correction.poles: needs law.kind input_output (or use baumgarte,",
        ),
        (
            "law",
            CORRECTION.format("{}"),
            "c.yaml:6: law.correction: no kind (give exactly one of baumgarte, second_order, p_feedback, funnel)",
        ),
        (
            "law",
            CORRECTION.format("{p_feedback: {P: 1}, baumgarte: {alpha: 1, beta: 1}}"),
            "c.yaml:6: law.correction.p_feedback: cannot be used with baumgarte (a correction has exactly one kind)",
        ),
        (
            "law",
            CORRECTION.format("{baumgarte: {alpha: -1, beta: 1}}"),
            "c.yaml:6: law.correction.baumgarte.alpha: expected a number >= 0 [1/s], got -1",
        ),
        (
            "law",
            CORRECTION.format("{baumgarte: {alpha: [1, 1, 1], beta: 1}}"),
            "c.yaml:6: law.correction.baumgarte.alpha: 3 values for 2 rows (give one per row)",
        ),
        (
            "law",
            CORRECTION.format("{baumgarte: {alpha: [], beta: 1}}"),
            "c.yaml:6: law.correction.baumgarte.alpha: expected a list with at least one value, got []",
        ),
        (
            "law",
            CORRECTION.format("{second_order: {damping: 1, stiffness: {a: 1, b: -2}}}"),
            "c.yaml:6: law.correction.second_order.stiffness.b: expected a number >= 0 [1/s^2], got -2",
        ),
        (
            "law",
            CORRECTION.format("{p_feedback: {P: {a: 1, b: 1, bb: 1}}}"),
            "c.yaml:6: law.correction.p_feedback.P.bb: no task has this name (did you mean 'b'?)",
        ),
        (
            "law",
            CORRECTION.format("{p_feedback: {P: {a: 1}}}"),
            "c.yaml:6: law.correction.p_feedback.P: no value for task 'b' (name every task that has no correction of "
            "its own)",
        ),
        (
            "law",
            CORRECTION.format("{p_feedback: {P: 0}}"),
            "c.yaml:6: law.correction.p_feedback.P: expected a positive time [s], got 0",
        ),
    ],
    "hil": [
        ("period: 2.5*ms", "period: 0", "hil.period: expected a positive time [s], got 0"),
        ("torque_limit: 12, ", "", "hil.drives[0].torque_limit: missing (largest |u| [actuator unit])"),
        ("node: 1", "node: 1, gear: 0", "hil.drives[0].gear: expected a number other than 0, got 0"),
        ("node: 1", "node: 1, gear: -8", "hil.drives[0].gear: expected a positive number, got -8"),
        ("node: 1", "node: 1, sign: 2", "hil.drives[0].sign: expected one of 1, -1, got 2"),
        ("node: 1", "node: -1", "hil.drives[0].node: expected a node id, an integer >= 0, got -1"),
        ("[-170*deg, 170*deg]", "[3, 1]", "hil.drives[0].position_limits: expected [lower, upper]"),
        ("node: 1", "node: 1, stops: {uper: 3}", "hil.drives[0].stops.uper: unknown key (did you mean 'upper'?)"),
        ("hil:\n", "hil:\n  armed: true\n", "hil.armed: unknown key"),
        ("hil:\n", "hil:\n  safety: {stle: 1}\n", "hil.safety.stle: unknown key (did you mean 'stale'?)"),
        ("hil:\n", "hil:\n  safety: {stale: 0}\n", "hil.safety.stale: expected a positive time [s], got 0"),
        ("hil:\n", "hil:\n  max_bus_load: 2\n", "hil.max_bus_load: expected a number between 0 and 1, got 2"),
    ],
    "realism": [
        ("plant: {", "plant: {friction: {coulomb: {G: 1}}, ", "plant.friction.coulomb.G: there is no actuator 'G'"),
        ("plant: {", "plant: {friction: {viscous: -1}, ", "plant.friction.viscous: expected a number >= 0, got -1"),
        ("realism: {}", "realism: {delay: -1*ms}", "realism.delay: expected a time >= 0 [s], got '-1*ms' = -0.001"),
        (
            "realism: {}",
            "realism: {delay: 0.6}",
            "0.6 s is 60 periods of 0.01 s (expected at most 50; is the unit right? 5*ms)",
        ),
        (
            "realism: {}",
            "realism: {jitter: 11*ms}",
            "0.011 s is longer than run.period, 0.01 s (commands would overtake each other)",
        ),
        ("realism: {}", "realism: {noise: {q: -1}}", "realism.noise.q: expected a number >= 0, got -1"),
        ("realism: {}", "realism: {noise: {v: [1, 2, 3]}}", "realism.noise.v: expected 2 values (x1, x2), got 3"),
        (
            "realism: {}",
            "realism: {quantisation: {q: {x3: 1}}}",
            "realism.quantisation.q.x3: there is no coordinate 'x3'",
        ),
        ("realism: {}", "realism: {lag: {G: 1}}", "realism.lag.G: there is no actuator 'G' (known: F)"),
        ("realism: {}", "realism: {friction: {speed: 0}}", "realism.friction.speed: expected a positive number, got 0"),
        ("realism: {}", "realism: {friction: {dry: 1}}", "realism.friction.dry: unknown key"),
        ("realism: {}", "realism: {saturation: {F: [2, 1]}}", "expected [lower, upper] with lower < upper"),
        ("realism: {}", "realism: {saturation: {G: 2}}", "realism.saturation.G: there is no actuator 'G'"),
        (
            "realism: {}",
            "realism: {parameter_error: {m3: 0.1}}",
            "TwoMassSpring has no such parameter that is a number",
        ),
        ("realism: {}", "realism: {parameter_error: {m1: -1}}", "expected a relative error above -1"),
        (
            "realism: {}",
            "realism: {parameter_error: {m1: [0.1, 0.2]}}",
            "realism.parameter_error.m1: expected one number, got 2",
        ),
        ("realism: {}", "realism: {nois: 1}", "realism.nois: unknown key (did you mean 'noise'?)"),
    ],
    "cart": [
        *BOUND_ROWS,
        ("run:", "runn: 3\nrun:", "cart.yaml:6: runn: unknown key (did you mean 'run'?)"),
        ("correction:", "correcton:", "cart.yaml:5: law.correcton: unknown key (did you mean 'correction'?)"),
        ("0.02", "[1, 2]", "cart.yaml:6: run.duration: expected a positive time [s], got [1, 2]"),
        ("0.02", ".inf", "cart.yaml:6: run.duration: expected a positive time [s], got inf"),
        ("{x: 0, s: 0}", "[0, 0, 0]", "cart.yaml:2: initial.q: expected 2 values (x, s), got 3"),
        ("v: 0", "v: [1]", "cart.yaml:2: initial.v: expected 2 values (x, s), got 1"),
        ("{x: 0, s: 0}", "{x: 0}", "cart.yaml:2: initial.q: no value for s (give every coordinate)"),
        ("v: 0", "v: {z: 1}", "cart.yaml:2: initial.v.z: there is no coordinate 'z' (known: x, s)"),
        ("x: 0", "x: .nan", "cart.yaml:2: initial.q.x: expected a number, got nan"),
        ("v: 0", "v: 0, project: {fix: [z]}", "cart.yaml:2: initial.project.fix: there is no coordinate 'z'"),
        ("x - (1", "y - (1", "cart.yaml:4: task.follow.holonomic: unknown word 'y' (known: x, s, m1"),
        ("x - (1", "der(s) - (1", "cart.yaml:4: task.follow.holonomic: der(s) in a holonomic equation"),
        ("x - (1", "w[5] - (1", "w[5]: 'w' has 2 values (choose one: w[0] to w[1])"),
        ("x - (1 - cos(t))", "__import__('os')", "cart.yaml:4: task.follow.holonomic: unknown function '__import__'"),
        ("x - (1 - cos(t))", "x.real", "cart.yaml:4: task.follow.holonomic: '.' does not belong here"),
        ("x - (1 - cos(t))", "[x for x in t]", "cart.yaml:4: task.follow.holonomic: "),
        ("run:", "inputs: {F: 1}\nrun:", "inputs: cannot be used with a law"),
        ('Cart"', 'Cart", parameters: {m1: .nan}', "cart.yaml:1: plant.parameters.m1: expected a number"),
        ('Cart"', 'Cart", parameters: {m1: .inf}', "cart.yaml:1: plant.parameters.m1: expected a number"),
        ('Cart"', 'Cart", parameters: {m1: 1/0}', "cart.yaml:1: plant.parameters.m1: '1/0' is not a finite number"),
        (
            'Cart"',
            'Cart", parameters: {m1: abc}',
            "cart.yaml:1: plant.parameters.m1: a number is expected, 'abc' is none",
        ),
        ('Cart"', 'Cart", parameters: {m1: true}', "cart.yaml:1: plant.parameters.m1: a number is expected, got True"),
        ('Cart"', 'Cart", parameters: {w: 3}', "cart.yaml:1: plant.parameters.w: expected a list of numbers, got 3"),
        ('Cart"', 'Cart", parameters: {n: 3.5}', "cart.yaml:1: plant.parameters.n: expected an integer, got 3.5"),
        (
            'Cart"',
            'Cart", parameters: {mass: 3}',
            "cart.yaml:1: plant.parameters.mass: Cart has no such parameter (known: m1, m2, k, w, n)",
        ),
        (
            'Cart"',
            'Cart", parameters: {m1: -3.5}',
            "cart.yaml:1: plant: Cart.mass_matrix: not positive definite at q=[0. 0.] (smallest eigenvalue -2.4e+00",
        ),
        ("cart.py:Cart", "crt.py:Cart", "cart.yaml:1: plant.class: crt.py: there is no such file"),
        (
            "cart.py:Cart",
            "cart.py:Crt",
            "cart.yaml:1: plant.class: cart.py:Crt: there is no class 'Crt' in cart.py (did you mean 'Cart'?)",
        ),
        ("cart.py:Cart", "plants.nope:Cart", "cart.yaml:1: plant.class: plants.nope: there is no such module"),
        ("cart.py:Cart", "nopackage.nope:Cart", "cart.yaml:1: plant.class: nopackage.nope: there is no such module"),
        (
            "cart.py:Cart",
            "cart",
            "cart.yaml:1: plant.class: expected package.module:ClassName or file.py:ClassName, got 'cart'",
        ),
        (
            "cart.py:Cart",
            "cart.py:np",
            "cart.yaml:1: plant.class: cart.py:np: np is not a Plant (derive it from servoctl.Plant)",
        ),
        (
            "cart.py:Cart",
            "servoctl:Holonomic",
            "cart.yaml:1: plant.class: servoctl:Holonomic: Holonomic is not a Plant",
        ),
        (
            "cart.py:Cart",
            "servoctl:Plant",
            "cart.yaml:1: plant.class: Plant cannot be made: Can't instantiate abstract class",
        ),
        (
            "duration: 0.02",
            "duration: 0.02, period: 0.01, integrator: {step: 0.003}",
            "run.integrator.step: 0.003 does not divide run.period 0.01",
        ),
        (
            "duration: 0.02",
            "duration: 0.02, integrator: {rtol: 0.3}",
            "run.integrator.rtol: does not fit rk4, which has a fixed step",
        ),
        (
            "duration: 0.02",
            "duration: 0.02, integrator: {method: dop853, step: 1}",
            "run.integrator.step: does not fit dop853",
        ),
        ("duration: 0.02", "duration: 0.02, integrator: {method: euler}", "run.integrator.method: "),
        (
            "duration: 0.02",
            "duration: 0.02, period: 0.01, integrator: {method: cvodes}",
            "run.integrator.method: cvodes is gone (use radau",
        ),
    ],
}
"""Config -> (text that is replaced, or a section of `GRAMMAR`; new text; a part of the one sentence)."""

CASES = [(base, *row) for base, rows in REFUSED.items() for row in rows]


@pytest.mark.parametrize(
    ("base", "old", "new", "sentence"), CASES, ids=[f"{base}-{i}" for i, (base, *_) in enumerate(CASES)]
)
def test_a_wrong_config_is_refused_in_one_sentence_with_its_line(
    base: str,
    old: str,
    new: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if base == "grammar":
        old, new = GRAMMAR[old], f"{new}\n" if new else ""
    assert old in BASES[base]
    file = tmp_path / ("cart.yaml" if base == "cart" else "c.yaml")
    file.write_text(BASES[base].replace(old, new), encoding="utf-8")
    (tmp_path / "cart.py").write_text(CART_PLANT)
    if base in LOADED_ONLY:
        with pytest.raises(ConfigError) as caught:
            load_config(file)
        sentences = caught.value.problems
    else:
        assert main(["run", file.name]) == 2
        sentences = capsys.readouterr().err.splitlines()
    (found,) = sentences
    assert sentence in found
    assert found.startswith(file.name)
    assert not (tmp_path / "runs").exists()
