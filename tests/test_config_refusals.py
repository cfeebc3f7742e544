"""Wrong configs and plants of `refusals/*.txt`, a case a line; what shipped configs with changes are told."""

from dataclasses import replace
from pathlib import Path

import pytest

import servoctl as sc
from hil.assembly.prepare import load, notes_on
from servoctl.config import shipped_configs
from servoctl.errors import ConfigError
from tests.config_texts import CART, CART_PLANT, GRAMMAR, HEAD, HIL, REALISM, ROBOT, SHAPES
from tests.estimation.test_estimator import CONFIG as ESTIMATED
from tests.laws.test_observer import CONFIG as OBSERVED
from tests.laws.test_uncertainty import CONFIG as UNCERTAIN
from tests.laws.test_uncertainty import PLANT as UNCERTAIN_PLANT
from tests.rail_mass import RAIL_MASS
from tests.refused import Base, Case, assert_refused, cases, table
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


def told(config: str, sets: list[str]) -> tuple[bool, list[str]]:
    """Whether a config with overrides is refused, and all that it is told; `hil CONFIG`: for its drives."""
    name = config.removeprefix("hil ")
    try:
        return False, notes_on(load(name, sets, "vm")) if name != config else sc.load(name, sets, "vm").warnings
    except ConfigError as refused:
        return True, refused.problems


@pytest.mark.parametrize(
    ("refused", "words", "sentences"),
    [
        pytest.param(name == "shipped", words, sentences, id=f"{title}-{number}")
        for name in ("shipped", "notes")
        for number, (title, words, sentences) in enumerate(table(name), 1)
    ],
)
def test_a_config_with_overrides_is_told_these_sentences_and_no_others(
    refused: bool, words: list[str], sentences: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is `config or base  ->  PATH=VALUE  +  PATH=VALUE  =>  sentence`; without a sentence nothing is said."""
    config, *sets = words
    if config in BASES:
        monkeypatch.chdir(tmp_path)
        config = BASES[config].write(tmp_path)
    found, said = told(config, sets[0].split("  +  ") if sets else [])
    assert found is refused and len(said) == len(sentences), said
    for sentence in sentences:
        (line,) = [line for line in said if sentence in line]
        said.remove(line)
