"""Symbols and traces: every operation that NumPy code may do with a symbol, and what is refused."""

import linecache
import math
import threading
from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pytest
from numpy import sign as early_sign
from numpy import zeros as early_zeros

import servoctl
from servoctl.engine import numpy_call
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.linalg import is_finite
from servoctl.engine.numpy_call import NumpyCall
from servoctl.engine.symbol import Symbol, clip, from_sx, symbols, to_sx, within
from servoctl.engine.trace import trace, tracing
from servoctl.errors import TraceError
from servoctl.types import Array

EXACT = 1e-15
"""CasADi calls the same libm: an operation or two may differ by one rounding."""

X = np.array([0.3, -0.7, 1.2])
INSIDE = np.array([0.3, 0.7, 0.2])  # within the domain of every inverse function
BEYOND_ONE = np.array([1.3, 2.7, 5.2])


def traced(function: Callable[[Array], Any], x: Array = X) -> Array:
    """The function traced on symbols, then evaluated at x."""
    given = inputs({"x": x.shape})
    result = np.asarray(trace(function, given["x"]), dtype=object)
    value = Kernel.compile("f", given, {"y": np.atleast_1d(result)})(x)[0]
    return value.reshape(result.shape)


def assert_same(function: Callable[[Array], Any], x: Array = X) -> None:
    expected = np.asarray(function(x), dtype=float)
    actual = traced(function, x)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=EXACT, atol=EXACT)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: abs(a) ** b,
}


@pytest.mark.parametrize("word", OPERATORS)
@pytest.mark.parametrize("other", [2, 2.5, np.float64(-1.5), np.int64(3), True, np.array([1.5, 2.0, -0.5])], ids=repr)
def test_an_operator_gives_what_numpy_gives_with_the_symbol_on_either_side(word: str, other: Any) -> None:
    apply = OPERATORS[word]
    assert_same(lambda x: apply(x, other))
    assert_same(lambda x: apply(other, x))
    assert_same(lambda x: apply(x[0], x[2]))
    assert_same(lambda x: np.array([apply(x[0], 2.0), apply(2.0, x[0])]))


UNARY = [
    *("sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "exp", "expm1", "sign", "fabs", "floor"),
    *("ceil", "deg2rad", "radians", "rad2deg", "degrees", "absolute", "negative", "positive", "square", "reciprocal"),
    "conjugate",
]
POSITIVE = ["sqrt", "log", "log1p", "log10", "arcsin", "arccos", "arctanh"]


@pytest.mark.parametrize(
    ("name", "x"), [*((n, X) for n in UNARY), *((n, INSIDE) for n in POSITIVE), ("arccosh", BEYOND_ONE)]
)
def test_a_function_of_one_argument_gives_what_numpy_gives(name: str, x: Array) -> None:
    assert_same(lambda x: getattr(np, name)(x), x)
    assert_same(lambda x: getattr(np, name)(x[1]), x)


@pytest.mark.parametrize("name", ["arctan2", "hypot", "maximum", "minimum", "fmax", "fmin"])
def test_a_function_of_two_arguments_takes_a_symbol_on_either_side(name: str) -> None:
    function = getattr(np, name)
    assert_same(lambda x: getattr(np, name)(x, x[::-1]))
    assert_same(lambda x: getattr(np, name)(x[:, None], np.array([0.1, -2.0])))
    assert_same(lambda x: getattr(np, name)(0.5, x[0]))
    assert_same(lambda x: getattr(np, name)(x[0], 0.5))
    assert function is getattr(np, name)


def test_an_array_may_mix_numbers_and_symbols() -> None:
    def function(x: Array) -> Array:
        z = np.zeros(3)
        z[0] = x[0]
        return np.sin(z) + np.cos(np.full(3, 0.5)) + np.sqrt(np.ones(3))

    assert_same(function)


def test_a_random_generator_in_a_traced_function_fills_arrays_of_its_own() -> None:
    def function(x: Array) -> Array:
        z = np.zeros(3)
        z[0] = x[0]
        return z + x * np.random.default_rng(3).uniform(1, 2, 3) + np.random.default_rng(4).dirichlet([1.0, 2.0, 3.0])

    assert_same(function)


BRANCHES: dict[str, Callable[[Array], Any]] = {
    "where": lambda x: np.where(x[0] > 0.1, x, -x),
    "where both ways": lambda x: np.array([servoctl.where(x[i] > x[2 - i], 1.0, x[0]) for i in range(3)]),
    "where and": lambda x: servoctl.where((x[0] > 0) & (x[1] < 0), x, 0.0),
    "where or, not": lambda x: servoctl.where((x[0] < 0) | ~(x[1] < 0), x, 7.0),
    "where equal": lambda x: np.array([servoctl.where(x[0] == 0.3, 1.0, 2.0), servoctl.where(x[0] != 0.3, 1.0, 2.0)]),
    "where on numbers": lambda x: np.where(np.array([True, False, True]), x, 0.5),
    "comparison as a number": lambda x: 1 + (x[0] > 0) - 2.0 * (x[1] > 0) * (x[2] > 0) + ((x[0] > 0) & ~(x[1] > 0)),
    "clip": lambda x: np.clip(x, -0.5, 0.5),
    "servoctl.clip": lambda x: servoctl.clip(x, np.array([0.0, -1.0, 0.0]), 1.0),
    "sign": lambda x: np.sign(x) * np.sign(np.zeros(3)) + np.sign(x),
    "maximum": lambda x: np.maximum(x, 0.0) + np.minimum(0.1, x),
    "largest of numbers": lambda x: x * np.max(np.array([1.0, 4.0, 2.0])),
}
CONSTRUCTORS: dict[str, Callable[[Array], Any]] = {
    "zeros": lambda x: _filled(np.zeros((2, 2)), x),
    "zeros of float": lambda x: _filled(np.zeros((2, 2), dtype=float), x),
    "ones": lambda x: _filled(np.ones((2, 2)), x),
    "empty": lambda x: _filled(np.empty((2, 2)), x)[0, 0],
    "full": lambda x: np.full((2, 3), x[1]),
    "eye": lambda x: np.eye(3) * x,
    "identity": lambda x: _filled(np.identity(2), x),
    "zeros_like": lambda x: np.zeros_like(x) + x,
    "ones_like": lambda x: np.ones_like(x) * x,
    "full_like": lambda x: np.full_like(np.ones(2), x[0]),
    "array": lambda x: np.array([[x[0], 0.0], [1, x[1]]]),
    "diag": lambda x: np.diag(x),
    "stack": lambda x: np.stack([x, np.ones(3)]) + np.concatenate([x[:1], [1.0, 2.0]]),
}
ALGEBRA: dict[str, Callable[[Array], Any]] = {
    "matmul": lambda x: np.outer(x, x) @ x,
    "dot of nothing": lambda x: np.zeros(0) @ np.zeros(0) + x,
    "einsum": lambda x: np.einsum("i,ij,j->", x, np.eye(3), x),
    "cross": lambda x: np.cross(x, np.array([1.0, 2.0, 3.0])),
    "norm of a vector": lambda x: np.linalg.norm(x),
    "norm of rows": lambda x: np.linalg.norm(np.outer(x, x), axis=1),
    "norm of a matrix": lambda x: np.linalg.norm(np.outer(x, x)),
    "norm of numbers": lambda x: x * np.linalg.norm(np.array([3.0, 4.0])),
    "moments": lambda x: np.array([np.mean(x), np.var(x), np.sum(x), np.prod(x), np.trace(np.diag(x))]),
}


def _filled(M: Array, x: Array) -> Array:
    M[0, 0] = x[0] * x[1]
    return M


@pytest.mark.parametrize("case", [*BRANCHES.values(), *CONSTRUCTORS.values(), *ALGEBRA.values()], ids=[
    *BRANCHES, *CONSTRUCTORS, *ALGEBRA])  # fmt: skip
def test_ordinary_numpy_code_is_followed(case: Callable[[Array], Any]) -> None:
    assert_same(case)


def test_arrays_keep_their_order_on_the_way_to_casadi_and_back() -> None:
    A = symbols("A", 2, 3)
    there = to_sx(A)
    assert [[str(there[i, j]) for j in range(3)] for i in range(2)] == [[str(a.sx) for a in row] for row in A]
    assert [str(a.sx) for a in from_sx(there).ravel()] == [str(a.sx) for a in A.ravel()]


def _assign_early(x: Array) -> Array:
    z = early_zeros(3)
    z[0] = x[0]
    return z


def _assign_integer(x: Array) -> Array:
    z = np.zeros(3, dtype=int)
    z[0] = x[0]
    return z


REFUSED: dict[str, Callable[[Array], Any]] = {
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "bool": lambda x: 1.0 if x[0] > 0 else 2.0,
    "equality": lambda x: 1.0 if x[0] == 0.3 else 2.0,
    "index": lambda x: [1.0, 2.0, 3.0][x[0]],
    "array index": lambda x: np.ones(3)[x[0]],
    "complex": lambda x: complex(x[0]),
    "math.cos": lambda x: math.cos(x[0]),
    "math.floor": lambda x: math.floor(x[0]),
    "max": lambda x: max(x),
    "and": lambda x: x[0] and x[1],
    "array of float": lambda x: np.array([x[0], 1.0], dtype=float),
    "astype": lambda x: x.astype(float),
    "zeros imported early": _assign_early,
    "zeros of int": _assign_integer,
    "sign imported early": lambda x: early_sign(x),
    "sort": lambda x: np.sort(x),
    "argmax": lambda x: np.argmax(x),
    "largest": lambda x: np.max(x),
    "round": lambda x: np.round(x),
    "remainder": lambda x: x % 2.0,
    "comparison of arrays": lambda x: np.where(x > 0, x, 0.0),
    "sum of comparisons": lambda x: (x[0] > 0) + (x[1] > 0) * (x[2] > 0),
    "difference of comparisons": lambda x: (x[0] > 0) - ~(x[1] > 0),
    "minus a comparison": lambda x: -((x[0] > 0) | (x[1] > 0)),
    "sum of an array of comparisons": lambda x: np.sum([x[0] > 0, x[1] > 0]),
    "interpolation": lambda x: np.interp(x, np.array([0.0, 1.0]), np.array([0.0, 1.0])),
    "isnan": lambda x: np.isnan(x),
}


def test_linear_systems_are_traced() -> None:
    A = np.array([[2.0, 1.0, 0.5], [0.3, 3.0, -1.0], [1.0, 0.2, 4.0]])
    coupled = lambda x: A + np.outer(x, x)  # noqa: E731
    np.testing.assert_allclose(
        traced(lambda x: np.linalg.solve(coupled(x), x)), np.linalg.solve(coupled(X), X), atol=1e-15
    )
    np.testing.assert_allclose(
        traced(lambda x: np.linalg.inv(coupled(x)) @ x), np.linalg.solve(coupled(X), X), atol=1e-14
    )


@pytest.mark.parametrize("name", REFUSED)
def test_code_that_symbols_cannot_follow_is_refused_with_its_line(name: str) -> None:
    function = REFUSED[name]
    with pytest.raises(TraceError) as caught:
        trace(function, symbols("x", 3))
    location = caught.value.location
    assert location is not None
    file, line = location.split(" ")[0].rsplit(":", 1)
    assert file == __file__
    first = function.__code__.co_firstlineno
    assert first <= int(line) <= first + 3
    assert linecache.getline(__file__, int(line)).strip() in str(caught.value)


def test_the_refusal_names_the_replacement() -> None:
    with pytest.raises(TraceError, match=r"the truth of a symbol is not known \(use servoctl\.where or servoctl\.clip"):
        trace(REFUSED["bool"], symbols("x", 3))
    with pytest.raises(TraceError, match=r"the value of a symbol is not known .*use numpy\.sin, not math\.sin"):
        trace(REFUSED["math.cos"], symbols("x", 3))
    with pytest.raises(TraceError, match="index or a count cannot depend on the state"):
        trace(REFUSED["index"], symbols("x", 3))


def test_a_symbol_also_refuses_outside_of_a_trace() -> None:
    with pytest.raises(TraceError, match="the truth"):
        bool(Symbol(symbols("x")[0].sx))


def test_numpy_is_restored_after_a_trace_even_after_an_error() -> None:
    names = ["zeros", "ones", "empty", "full", "eye", "identity", "zeros_like", "ones_like", "full_like", "maximum"]
    names += ["minimum", "sign", "clip", "where", "sin", "arctan2", "sqrt"]
    before = [*(getattr(np, name) for name in names), np.linalg.norm]
    with pytest.raises(ZeroDivisionError), tracing(), tracing():
        assert np.zeros(2).dtype == object
        raise ZeroDivisionError
    with pytest.raises(TraceError):
        trace(REFUSED["bool"], symbols("x", 3))
    after = [*(getattr(np, name) for name in names), np.linalg.norm]
    assert [a is b for a, b in zip(before, after, strict=True)] == [True] * len(before)
    assert np.zeros(2).dtype == float


def test_another_thread_gets_float_arrays_during_a_trace() -> None:
    # generated C writes doubles into an array that another thread makes: one of objects would be overwritten
    made: list[np.ndarray] = []
    with tracing():
        worker = threading.Thread(target=lambda: made.extend([np.empty((3, 2)), np.zeros(3)]))
        worker.start()
        worker.join()
        assert np.zeros(3).dtype == object
    assert [array.dtype for array in made] == [np.dtype(float), np.dtype(float)]
    assert np.zeros(3).dtype == float


def test_a_kernel_that_is_made_while_a_function_is_traced_works_on_numbers() -> None:
    given = inputs({"x": (2,)})

    def doubled(x: Array) -> Array:
        kernel = Kernel.compile("doubled", given, {"y": 2.0 * given["x"]})
        return x + kernel(np.array([1.5, -2.0]))[0]

    x = inputs({"x": (2,)})["x"]
    found = Kernel.compile("found", {"x": x}, {"y": trace(doubled, x)})
    np.testing.assert_array_equal(found(np.array([1.0, 1.0]))[0], [4.0, -3.0])


a, b = ca.SX.sym("a"), ca.SX.sym("b")
x, y = Symbol(a), Symbol(b)

PAIRS = {
    "sum": (x + y, a + b), "difference": (x - y, a - b), "product": (x * y, a * b), "quotient": (x / y, a / b),
    "power": (x**y, a**b), "square": (x**2, a**2), "root": (x**0.5, a**0.5), "inverse": (x**-1, a**-1),
    "number to a power": (2**x, 2**a), "number less": (2 - x, 2 - a), "number over": (3 / x, 3 / a),
    "times zero": (x * 0, a * 0), "times one": (x * 1, a * 1), "plus zero": (0 + x, 0 + a),
    "itself off": (x - x, a - a),
    "negative": (-x, -a), "minus a negative": (x - (-y), a - (-b)), "size": (abs(x), ca.fabs(a)),
    "less": (x < y, a < b), "at most": (x <= y, a <= b), "more": (x > y, a > b), "at least": (x >= y, a >= b),
    "equal": (x == y, a == b), "unequal": (x != y, a != b), "more than a number": (x > 1, a > 1),
    "and": (x & y, ca.logic_and(a, b)), "or": (x | y, ca.logic_or(a, b)), "not": (~x, ca.logic_not(a)),
    "angle": (x.arctan2(y), ca.atan2(a, b)), "length": (x.hypot(y), ca.hypot(a, b)),
    "larger": (x.fmax(y), ca.fmax(a, b)), "smaller": (x.fmin(y), ca.fmin(a, b)),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_an_operation_is_that_of_casadi_with_its_simplifications(name: str) -> None:
    ours, expected = PAIRS[name]
    assert str(ours.sx) == str(expected)


def test_maximum_minimum_and_clip_keep_nan_as_numpy_does() -> None:
    """C's fmax and fmin give the other one, so a limit would take the place of a NaN."""

    def kinks(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        one = [np.maximum(p, q), np.minimum(p, q), np.clip(p, -1.0, q), np.maximum(p, 0.5), np.minimum(0.5, q)]
        return np.array([*one, clip(q, p, 2.0), within(p, -1.0, 1.0), np.maximum(p, np.nan)])

    numbers = [np.nan, 0.25, -3.0, np.inf, -np.inf]
    p, q = (np.array([Symbol(each)], dtype=object) for each in (a, b))
    function = ca.Function("kinks", [a, b], [to_sx(trace(kinks, p, q))])
    for one in numbers:
        for other in numbers:
            expected = kinks(np.array([one]), np.array([other]))
            np.testing.assert_array_equal(np.array(function(one, other)), expected, str((one, other)))


def test_equal_calls_and_operations_remain_once_in_a_kernel_and_values_keep_their_bits() -> None:
    inputs = ca.SX.sym("x", 2)
    called = ca.Function("norm_and_mean", [inputs], [ca.norm_2(inputs), ca.sum1(inputs) / 2], {"never_inline": True})

    def expression() -> ca.SX:
        size, mean = called(ca.sin(inputs) * 0.3)
        return ca.vertcat(size * inputs[0], mean - inputs[1], ca.if_else(mean > 0, 1.5, -0.0))

    repeated = ca.vertcat(expression(), 2.0 * expression(), called(ca.sin(inputs) * 0.3)[1])
    before = ca.Function("before", [inputs], [repeated])
    kernel = Kernel.compile("after", {"x": from_sx(inputs)}, {"y": from_sx(repeated)})
    counts = [
        [sum(each.instruction_id(i) == code for i in range(each.n_instructions())) for code in (ca.OP_CALL, ca.OP_SIN)]
        for each in (before, kernel.function)
    ]
    assert counts == [[3, 6], [1, 2]]
    for point in np.random.default_rng(0).standard_normal((20, 2)):
        assert np.array(before(point)).tobytes() == kernel(point)[0].tobytes()


SOUND = (np.zeros(0), np.zeros((0, 2)), np.array(0.1), np.eye(3)[1:, ::2], np.array([[1, 2]]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_entry_that_is_not_finite_is_found_wherever_it_is(bad: float) -> None:
    for i in range(6):
        array = np.ones(6)
        array[i] = bad
        for view in (array, array.reshape(2, 3), array.reshape(2, 3).T, array[::-1]):
            assert not is_finite(*SOUND, view)
    assert not is_finite(bad)


def test_infinities_that_cancel_are_found() -> None:
    assert not is_finite(np.array([np.inf, -np.inf]))


@pytest.mark.parametrize("large", [1e155, 1e300, np.finfo(float).max])
def test_numbers_whose_squares_overflow_are_finite(large: float) -> None:
    assert is_finite(*SOUND, np.full((2, 3), large), -large)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1.0])
def test_among_symbols_only_numbers_that_are_not_finite_count(number: float) -> None:
    x = inputs({"x": (2,)})["x"]
    tested = is_finite(np.array([x[0], number, x[1]], dtype=object))
    finite = Kernel.compile("finite", {"x": x}, {"finite": np.array([tested])})
    assert finite(np.array([1.0, 2.0]))[0] == [float(number == 1.0)]
    assert finite(np.array([1.0, np.nan]))[0] == [0.0]


def doubling(work: Any) -> tuple[Kernel, NumpyCall]:
    call = NumpyCall("doubling", work, [(2,)], [(2,)])
    x = ca.MX.sym("x", 2)
    function = ca.Function("f", [x], [call(x)])
    return Kernel(function, {"x": (2,)}, {"y": (2,)}), call


def test_it_gives_what_the_code_gives() -> None:
    kernel, _ = doubling(lambda x: [2.0 * x])
    np.testing.assert_array_equal(kernel(np.array([1.0, -3.0]))[0], [2.0, -6.0])


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_what_the_code_raises_is_raised(error: BaseException) -> None:
    def failing(x: Any) -> Any:
        raise error

    kernel, _ = doubling(failing)
    with pytest.raises(type(error)):
        kernel(np.zeros(2))


def test_an_interrupt_between_casadi_and_the_code_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(buffer: Any, shape: Any) -> Any:
        raise KeyboardInterrupt

    kernel, _ = doubling(lambda x: [x])
    kernel(np.zeros(2))
    monkeypatch.setattr(numpy_call, "_numbers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernel(np.zeros(2))
