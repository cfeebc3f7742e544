"""The terms at a state by name, against the plant's own methods and the law on paper."""

import numpy as np
import pytest

import servoctl as sc
from servoctl.types import Status
from tests.textbook import Textbook


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_the_terms_at_a_state_are_those_of_plant_and_law_on_paper(engine: str) -> None:
    run = sc.load("coordinated_robots", engine=engine)
    plant = run.system.model.plant
    for state in run.system.model.samples(run.start, 3):
        at, book = sc.evaluate(run, *state), Textbook(run.system, state)
        np.testing.assert_allclose(at["M"], plant.mass_matrix(state.q, state.t), rtol=1e-12)
        np.testing.assert_allclose(at["Q"], plant.force(state.q, state.v, state.t), rtol=1e-10, atol=1e-12)
        u, _, rank = book.command()
        np.testing.assert_allclose(at["u"], u, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(at["T"], book.rows @ book.N @ book.inputs, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(at["rhs"], at["b"] - at["A"] @ at["a_c"], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(at["acceleration"], book.acceleration(u), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(at["passive_A"] @ at["a_c"], at["passive_b"], atol=1e-9)
        assert at["rank"] == rank and Status.from_code(at["status"][0]) is Status.OK


def test_a_state_of_the_wrong_size_is_refused_by_name() -> None:
    run = sc.load("two_mass_spring")
    with pytest.raises(ValueError, match=r"evaluate: v: expected shape \(2,\), got \(3,\)"):
        sc.evaluate(run, 0.0, np.zeros(2), np.zeros(3))
