"""Wrong configs and plants of `refusals/*.txt`, a case a line, and what is said about them."""

from dataclasses import replace
from pathlib import Path

import pytest

from servoctl.config import shipped_configs
from tests.config_texts import CART, CART_PLANT, GRAMMAR, HEAD, HIL, REALISM, ROBOT, SHAPES
from tests.estimation.test_estimator import CONFIG as ESTIMATED
from tests.laws.test_observer import CONFIG as OBSERVED
from tests.laws.test_uncertainty import CONFIG as UNCERTAIN
from tests.laws.test_uncertainty import PLANT as UNCERTAIN_PLANT
from tests.rail_mass import RAIL_MASS
from tests.refused import Base, Case, assert_refused, cases
from tests.small_robot import SMALL, small_urdf

CART_FILE = {"cart.py": CART_PLANT}
MORE = """

class Torn(sc.SecondOrder):
    def A(self, q, v, t):
        return np.array([[1.0, 0.0], [1.0, 0.0]])

    def b(self, q, v, t):
        return np.array([0.0, 1.0])


class Mine(sc.Holonomic):
    def phi(self, q, t):
        return q[0]
"""
RAIL = "\n    def passive_constraints(self, q, t):\n        return {'rail': q[1]}\n"
BASES = {
    "grammar": Base("".join(GRAMMAR.values()), command=()),
    "hil": Base(HEAD + HIL, command=()),
    "realism": Base(REALISM),
    "robot": Base(ROBOT, command=()),
    "cart": Base(CART, "cart.yaml", CART_FILE),
    "bounds": Base(
        CART.replace("0.02}", "0.02, period: 1*ms}") + "bounds: [{name: b, holonomic: 1 - x}]\n", "cart.yaml", CART_FILE
    ),
    "shapes": Base(SHAPES),
    "plant": Base(CART.replace("{x: 0, s: 0}", "0"), "cart.yaml", {"cart.py": f"{CART_PLANT}\n    #method\n\n#code\n"}),
    "task": Base(
        CART.replace("{correction: {baumgarte: {alpha: 10, beta: 10}}}", "{}"),
        "cart.yaml",
        {"cart.py": CART_PLANT + MORE},
    ),
    "rail": Base(CART, "cart.yaml", {"cart.py": CART_PLANT + RAIL}),
    "observed": Base(OBSERVED, beside={"mass.py": RAIL_MASS}),
    "estimated": Base(ESTIMATED, beside={"mass.py": RAIL_MASS}),
    "uncertain": Base(UNCERTAIN, beside={"cart.py": UNCERTAIN_PLANT}),
    "robots": Base(shipped_configs()["coordinated_robots"].read_text()),
    "small_robot": Base(SMALL, beside={"files/small.urdf": small_urdf()}),
}


@pytest.mark.parametrize("name, case", [pytest.param(n, *p.values, id=f"{n}-{p.id}") for n in BASES for p in cases(n)])
def test_a_wrong_config_is_refused_in_these_sentences_with_their_lines(
    name: str, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "grammar":  # the old text is the name of a section
        case = replace(case, changes=tuple((GRAMMAR[old], new and f"{new}\n") for old, new in case.changes))
    assert_refused(case, BASES[name], tmp_path, capsys)
