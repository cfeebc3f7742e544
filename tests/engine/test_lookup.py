"""Tables of rows over time as compiled functions: values, derivatives, C."""

import casadi as ca
import numpy as np
import pytest

from servoctl.engine import compiler
from servoctl.engine.ccode import Program
from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.engine.ops import LookupTable, is_lookup_derivative
from servoctl.engine.symbol import from_sx
from servoctl.engine.trace import tracing

in_c = pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path")


def table(count: int = 40, width: int = 7, seed: int = 0) -> LookupTable:
    random = np.random.default_rng(seed)
    return LookupTable(np.cumsum(random.uniform(1e-3, 1.0, count)), random.normal(size=(count + 1, width)))


def times(of: LookupTable) -> np.ndarray:
    """Breaks, their neighbours among the floats, and times between and beyond them."""
    at = of.breaks
    between = np.random.default_rng(1).uniform(at[0] - 1, at[-1] + 1, 200)
    return np.concatenate([at, np.nextafter(at, -np.inf), np.nextafter(at, np.inf), between, [-1e300, 1e300]])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 9, 40])
def test_the_compiled_row_is_the_row_to_the_bit(count: int) -> None:
    rows = table(count)
    for t in times(rows):
        expected = rows.rows[np.count_nonzero(rows.breaks <= t)]
        assert np.array_equal(np.asarray(rows.function(t)).ravel(), expected), t
        assert np.array_equal(rows.at(t), expected)


@in_c
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 9, 40])
def test_the_row_in_c_is_the_row_to_the_bit(count: int) -> None:
    rows = table(count)
    given = inputs({"t": (1,)})
    kernel = Kernel.compile("row", given, {"row": from_sx(rows.function(given["t"][0].sx))})
    kernel.run_on(Program([kernel]).load())
    for t in times(rows):
        assert np.array_equal(kernel(t)[0], rows.at(t)), t


def test_rows_that_are_not_numbers_do_not_spoil_their_neighbours() -> None:
    rows = LookupTable(np.array([0.0, 1.0, 2.0]), np.array([[np.nan], [1.0], [2.0], [np.nan]]))
    assert [float(rows.function(t)) for t in (0.0, 0.5, 1.0, 1.999)] == [1.0, 1.0, 2.0, 2.0]
    assert np.isnan(float(rows.function(-1e-9))) and np.isnan(float(rows.function(2.0)))


def test_polynomials_of_a_row_have_exact_derivatives_by_every_mode_of_differentiation() -> None:
    rows, t = table(width=4), ca.SX.sym("t")
    c = rows.function(t)
    value = c[0] + t * (c[1] + t * (c[2] + t * c[3]))
    chains = {
        "jacobian": lambda y: ca.jacobian(y, t),
        "forward": lambda y: ca.jtimes(y, t, 1),
        "reverse": lambda y: ca.jtimes(y, t, 1, True),
    }
    for mode, differentiate in chains.items():
        chain = [value]
        for _ in range(3):
            chain.append(differentiate(chain[-1]))
        both = [ca.jtimes(ca.jtimes(ca.jtimes(value, t, 1), t, 1, True), t, 1)]
        found = ca.Function("f", [t], [*chain, *both])
        for at in (rows.breaks[3], 0.5 * (rows.breaks[7] + rows.breaks[8]), -1.0, rows.breaks[-1] + 5.0):
            polynomial = np.polynomial.Polynomial(rows.at(at))
            expected = [polynomial.deriv(k)(at) if k else polynomial(at) for k in (0, 1, 2, 3, 3)]
            assert np.allclose([float(each) for each in found(at)], expected, rtol=1e-13, atol=1e-13), (mode, at)


@in_c
def test_derivatives_have_c_that_equals_the_virtual_machine() -> None:
    rows, given = table(width=4), inputs({"t": (1,), "x": (2,)})
    c, t = from_sx(rows.function(given["t"][0].sx)), given["t"][0]
    value = np.array([(c[0] + t * (c[1] + t * c[2])) * given["x"][0], c[3] * given["x"][1]])
    rate = directional(value, given["t"], np.ones(1))
    outputs = {"value": value, "rate": rate, "rows": jacobian(rate, np.concatenate([given["t"], given["x"]]))}
    kernel = Kernel.compile("derived", given, outputs)
    numbers = [(at, np.array([0.3, -2.0])) for at in times(rows)[:-2]]
    before = [kernel(*each) for each in numbers]
    kernel.run_on(Program([kernel]).load())
    for each, expected in zip(numbers, before, strict=True):
        for found, wanted in zip(kernel(*each), expected, strict=True):
            assert np.allclose(found, wanted, rtol=1e-14, atol=1e-14)


def test_tables_are_equal_by_content() -> None:
    assert table() == table() and hash(table()) == hash(table()) and table().name == table().name
    rows = table().rows.copy()
    rows[3, 2] = np.nextafter(rows[3, 2], 9.0)
    assert LookupTable(table().breaks, rows) != table()
    assert LookupTable(np.zeros(1), np.zeros((2, 3))) != LookupTable(np.zeros(1), np.zeros((3, 2)))


def test_a_table_that_is_made_while_a_function_is_traced_holds_floats() -> None:
    with tracing():
        traced = LookupTable(np.zeros(1), np.ones((2, 3)))
    assert traced == LookupTable(np.zeros(1), np.ones((2, 3))) and traced.rows.dtype == float


def test_only_derivatives_of_lookups_count_as_zero() -> None:
    name = table().name
    assert is_lookup_derivative(f"fwd1_{name}") and is_lookup_derivative(f"fwd1_adj1_{name}")
    assert not is_lookup_derivative(name) and not is_lookup_derivative("fwd1_decompose_2x3")
