"""CasADi functions in C equal the virtual machine, and every lane equals the scalar code."""

import ctypes
from pathlib import Path
from typing import Any

import casadi as ca
import mpmath
import numpy as np
import pytest

from servoctl.engine import compiler, decomposition, linalg, step
from servoctl.engine.ccode import Program
from servoctl.engine.decomposition import decompose_function
from servoctl.engine.emit import emit, emitted, over_numbers
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.ops import op_of, repeat
from servoctl.engine.step import StepFunctions
from servoctl.errors import CompileError
from servoctl.types import Array

pytestmark = [
    pytest.mark.optimised,
    pytest.mark.skipif(compiler.compiler() is None or compiler.is_tcc(), reason="no C compiler on the path"),
]

RNG = np.random.default_rng(7)


def kernel_of(function: Any) -> Kernel:
    """A kernel of a CasADi function."""
    shapes = {f"x{i}": function.size_in(i) for i in range(function.n_in())}
    return Kernel(function, shapes, {f"y{i}": function.size_out(i) for i in range(function.n_out())})


def in_c(function: Any, *values: Array) -> list[Array]:
    """A CasADi function's value, in C."""
    kernel = kernel_of(function)
    kernel.run_on(Program([kernel]).load())
    return kernel(*values)


def on_vm(function: Any, *values: Any) -> list[Array]:
    """A CasADi function's values on the virtual machine."""
    return [value.full() for value in function.call([ca.DM(value) for value in values])]


def both(function: Any, *values: Array) -> Array:
    """The first value in C and on the virtual machine, shape (2, rows, columns)."""
    return np.stack([in_c(function, *values)[0], on_vm(function, *values)[0]])


def in_lanes(function: Any, values: Array, folder: Path, lanes: int) -> Array:
    """A CasADi function of one vector at `lanes` vectors side by side, shape (lanes, outputs)."""
    size = function.numel_out(0)
    width = values.shape[1]
    call = f"""
void call(const double* x, double* y) {{
  V given[{width}], taken[{size}];
  for (int i = 0; i < {width}; ++i) for (int k = 0; k < LANES; ++k) LANE(given[i], k) = x[k * {width} + i];
  f_{function.name()}(given, taken);
  for (int i = 0; i < {size}; ++i) for (int k = 0; k < LANES; ++k) y[k * {size} + i] = LANE(taken[i], k);
}}"""
    built = folder / f"{function.name()}{lanes}.so"
    if not built.exists():
        head = over_numbers(lanes)
        compiler.build(head + emit([function]) + call, built)
    x, y = np.ascontiguousarray(values), np.empty((lanes, size))
    ctypes.CDLL(str(built)).call(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
    return y


def every_operation() -> Any:
    """A function of a vector x in which each operation stands once."""
    x = ca.SX.sym("x", 4)
    a, b, c, d = ca.vertsplit(x)
    inside = a / (1 + ca.fabs(a))  # in (-1, 1)
    unary = [ca.sin(a), ca.cos(a), ca.tan(a), ca.exp(inside), ca.sinh(inside), ca.cosh(inside), ca.tanh(a)]
    unary += [ca.asin(inside), ca.acos(inside), ca.atan(a), ca.asinh(a), ca.acosh(1 + a * a), ca.atanh(inside)]
    unary += [ca.sqrt(a * a + 1), ca.log(a * a + 1), ca.log1p(a * a), ca.expm1(inside), ca.floor(a), ca.ceil(a)]
    unary += [ca.fabs(a), ca.sign(a), ca.erf(a), -a, a**2, 2 * a, 1 / a, ca.SX(0.1), ca.SX(np.inf), ca.SX(np.nan)]
    binary = [a + b, a - b, a * b, a / b, c / b, ca.atan2(a, b), ca.hypot(a, b), ca.fabs(a) ** b, ca.fabs(a) ** 2.5]
    binary += [ca.fmin(a, b), ca.fmax(a, b), ca.fmod(a, b), ca.copysign(a, b), a < b, a <= b, ca.eq(a, b), ca.ne(a, b)]
    choice = [ca.if_else(ca.logic_and(a < b, c < d), a, b), ca.if_else(ca.logic_or(a < b, c < d), c, d)]
    choice += [ca.if_else(ca.logic_not(a < b), c, d), (a < b) * c, ca.if_else(c, a, b), ca.logic_not(d)]
    return ca.Function("everything", [x], [ca.densify(ca.vertcat(*unary, *binary, *choice))])


ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -5e-324, 1e6]


@pytest.mark.parametrize("x", [*RNG.normal(size=(6, 4)), *(np.array([value, 1.0, -2.0, 0.0]) for value in ODD)])
def test_every_operation_in_c_equals_the_virtual_machine(x: Array) -> None:
    function = every_operation()
    np.testing.assert_allclose(
        in_c(function, x.reshape(4, 1))[0].ravel(), np.array(function(x)).ravel(), rtol=4e-16, atol=1e-300
    )


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_a_lane_gives_the_bits_of_the_scalar_code(lanes: int, tmp_path: Path) -> None:
    function = every_operation()
    x = np.vstack([RNG.normal(size=(4, 4)), [[value, 1.0, -2.0, 0.0] for value in ODD]])
    for begin in range(0, len(x), lanes):
        group = x[np.arange(begin, begin + lanes) % len(x)]
        expected = np.array([in_lanes(function, row[None], tmp_path, 1)[0] for row in group])
        np.testing.assert_array_equal(in_lanes(function, group, tmp_path, lanes), expected)


def test_sine_and_cosine_are_right_to_the_last_place() -> None:
    """Against 200 digits: small and large angles, and those nearest to a multiple of a quarter turn."""
    x = ca.SX.sym("x")
    function = ca.Function("waves", [x], [ca.sin(x), ca.cos(x)])
    near = np.arange(-60000, 60000, 1999) * (np.pi / 2)
    angles = [*RNG.uniform(-10, 10, 300), *RNG.uniform(-1e5, 1e5, 300), *near, 1e-300, 1e5, 123456.7, 1e22]
    kernel = Kernel(function, {"x": (1,)}, {"sin": (1,), "cos": (1,)})
    kernel.run_on(Program([kernel]).load())
    with mpmath.workdps(200):
        for angle in angles:
            for value, exact in zip(kernel(float(angle)), (mpmath.sin, mpmath.cos), strict=True):
                wanted = exact(mpmath.mpf(float(angle)))
                assert abs(mpmath.mpf(float(value[0])) - wanted) <= 0.8 * np.spacing(abs(float(wanted)))


def test_sines_of_several_angles_are_those_of_each_alone_to_the_bit() -> None:
    """Angles that are inputs share a call, four at a time; far ones and NaN go their own way."""
    x = ca.SX.sym("x", 7)
    function = ca.Function("many_waves", [x], [ca.vertcat(ca.sin(x), ca.cos(x))])
    assert emit([function]).count("v_sines_cosines(") == 2
    one = ca.Function("wave", [x[0]], [ca.vertcat(ca.sin(x[0]), ca.cos(x[0]))])
    for angles in (RNG.uniform(-10, 10, 7), np.array([0.0, -0.0, 1e6, np.nan, np.inf, 3.0, -1e22])):
        alone = np.hstack([in_c(one, np.array([[angle]]))[0] for angle in angles])
        np.testing.assert_array_equal(in_c(function, angles[:, None])[0], alone.reshape(-1, 1))


SIZES = [(3, 6, 3), (2, 5, 1), (8, 7, 7), (12, 12, 11), (12, 12, 12), (7, 12, 7), (9, 8, 4), (1, 1, 1)]


def of_rank(rows: int, n: int, rank: int) -> Array:
    A: Array = RNG.normal(size=(rows, rank)) @ RNG.normal(size=(rank, n))
    return A / np.linalg.norm(A)


@pytest.mark.parametrize(("rows", "n", "rank"), SIZES)
def test_a_decomposition_in_c_equals_the_virtual_machine(rows: int, n: int, rank: int) -> None:
    """The same A^+, projectors, rank and pivot, and A^+ is NumPy's; R is an upper triangle."""
    function = decompose_function(rows, n)
    for _ in range(5):
        A = of_rank(rows, n, rank)
        Z, U, R, counted, pivot = in_c(function, A, np.full((1, 1), 1e-10))
        own = [np.array(value) for value in function(A, 1e-10)]
        small = 1e-13 / abs(pivot[0, 0])
        assert counted[0, 0] == own[3][0, 0] == rank
        np.testing.assert_allclose(pivot, own[4], rtol=0, atol=small)
        np.testing.assert_allclose(Z.T @ Z, own[0].T @ own[0], rtol=0, atol=small)
        np.testing.assert_allclose(U @ U.T, own[1] @ own[1].T, rtol=0, atol=small)
        np.testing.assert_array_equal(R, np.triu(R))
        inverse = Z.T @ np.linalg.solve(R, U.T)
        np.testing.assert_allclose(inverse, np.linalg.pinv(A, rcond=1e-8), rtol=0, atol=1e-10 * np.abs(inverse).max())


@pytest.mark.parametrize(("rows", "n"), [(3, 6), (6, 3), (4, 4)])
def test_rows_of_zeros_are_left_out_without_effect(rows: int, n: int) -> None:
    """Of masked rows, C takes those that are not zero; all results are those of all rows, to the bit."""
    masked, plain = decompose_function(rows, n, True), decompose_function(rows, n)
    for kept in range(2**rows):
        A = of_rank(rows, n, min(rows, n, 3)) * np.array([kept >> i & 1 for i in range(rows)])[:, None]
        tolerance = np.full((1, 1), 1e-10)
        for one, other in zip(in_c(masked, A, tolerance), in_c(plain, A, tolerance), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ranks", [(3, 2, 3, 1), (3, 3, 3, 3), (2, 1, 2, 1)])
def test_a_decomposition_does_not_depend_on_the_other_lanes_to_the_bit(
    ranks: tuple[int, ...], masked: bool, tmp_path: Path
) -> None:
    A = ca.SX.sym("A", 18)
    split = decompose_function(3, 6, masked)(ca.reshape(A, 3, 6), 1e-10)
    function = ca.Function("split", [A], [ca.vertcat(*map(ca.vec, split))])
    given = np.array([of_rank(3, 6, rank).ravel(order="F") for rank in ranks])
    given[0, ::3] = 0.0  # a row of zeros
    alone = [in_c(function, each[:, None])[0].ravel() for each in given]
    np.testing.assert_array_equal(in_lanes(function, given, tmp_path, 4), alone)


def factor_in_c(M: Array) -> list[Array]:
    """L and whether M is positive definite, in C."""
    n, entries = len(M), ca.SX.sym("entries", len(M) * (len(M) + 1) // 2)
    results = linalg.cholesky_function(n)(ca.SX(ca.Sparsity.lower(n), entries))
    return in_c(ca.Function(f"factor_of_{n}", [entries], results), M.T[np.triu_indices(n)][:, None])


def spread_of(n: int) -> tuple[Array, Array, Array]:
    """A lower triangle, matrices X (3, n) and Z (2, n); Z has orthonormal rows."""
    L = np.tril(RNG.normal(size=(n, n)))
    np.fill_diagonal(L, RNG.uniform(0.5, 2.0, n))
    return L, RNG.normal(size=(3, n)), np.linalg.qr(RNG.normal(size=(n, 2)))[0].T


def test_rows_longer_than_a_limit_are_kept_in_c_and_on_the_virtual_machine() -> None:
    A = RNG.normal(size=(4, 14))
    A[1], A[3] = 0.0, np.nan  # a row that is not finite is not longer
    limit = np.full((1, 1), float(np.linalg.norm(A[2])))
    A[0] *= 1.0001 * limit[0, 0] / np.linalg.norm(A[0])  # row 2 is as long as the limit, and does not count
    expected = np.zeros((4, 14))
    expected[0] = A[0]
    function = decomposition.longer_function(4, 14)
    for counted, kept in (in_c(function, A, limit), [np.array(each) for each in function(A, limit)]):
        np.testing.assert_array_equal(counted.ravel(), [1.0, 0.0, 0.0, 0.0])
        np.testing.assert_array_equal(kept, expected)


@pytest.mark.parametrize(("n", "many"), [(3, 1), (7, 1), (14, 1), (19, 1), (52, 30)])
def test_triangles_products_and_projections_are_those_of_numpy(n: int, many: int) -> None:
    """In C and on the virtual machine, which takes other functions for large matrices."""
    L, X, Z = spread_of(n)
    M = L @ L.T
    for factor, positive in (factor_in_c(M), on_vm(linalg.cholesky_function(n), ca.tril(ca.DM(M)))):
        assert positive.item() == 1.0
        np.testing.assert_array_equal(factor, np.tril(factor))
        np.testing.assert_allclose(factor, L, rtol=0, atol=1e-12 * np.linalg.cond(M))
    tall, wide = np.tile(X, (many, 1)), np.tile(Z, (many, 1))
    solved = {
        "X L^-T": (both(linalg.lower_function(3, n), L, X) @ L.T, X),
        "X L^-T from the second row": (both(linalg.lower_function(3, n, 1), L, X[:, 1:]) @ L[1:, 1:].T, X[:, 1:]),
        "X L^-1": (both(linalg.upper_function(3, n), L, X) @ L, X),
        "X Z^T": (both(linalg.product_function(3, n, 2 * many, False), X, wide.T), X @ wide.T),
        "X Z^T, transposed": (both(linalg.product_function(3, n, 2 * many, True), X, wide), X @ wide.T),
        "X (I - Z^T Z)": (both(linalg.project_function(2, n, 3 * many), Z, tall), tall - tall @ Z.T @ Z),
    }
    for name, (found, expected) in solved.items():
        small = 1e-13 * n * (np.linalg.cond(L) if "L" in name else 1.0) * np.abs(expected).max()
        for values in found:
            np.testing.assert_allclose(values, expected, rtol=0, atol=small, err_msg=name)


@pytest.mark.parametrize("n", [8, 30])
@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan])
def test_a_cholesky_factor_says_that_a_matrix_is_not_positive_definite(n: int, bad: float) -> None:
    M = np.eye(n)
    M[5, 5] = bad
    for factor, positive in (factor_in_c(M), on_vm(linalg.cholesky_function(n), ca.tril(ca.DM(M)))):
        assert positive.item() == 0.0
        assert np.isfinite(factor).all() or np.isnan(bad)


def test_triangles_do_not_depend_on_the_other_lanes_to_the_bit(tmp_path: Path) -> None:
    M, X = ca.SX.sym("M", 49), ca.SX.sym("X", 21)
    L, _ = linalg.cholesky_function(7)(ca.reshape(M, 7, 7))
    Y = linalg.lower_function(3, 7)(L, ca.reshape(X, 3, 7))
    T = linalg.product_function(3, 7, 3, True)(Y, linalg.upper_function(3, 7)(L, Y))
    parts = [Y, T, L, linalg.lower_function(3, 7, 2)(L, Y[:, :5])]
    function = ca.Function("weighed", [ca.vertcat(M, X)], [ca.vertcat(*map(ca.vec, parts))])
    given = [spread_of(7) for _ in range(4)]
    values = np.array([np.concatenate([(L @ L.T).ravel(), X.ravel(order="F")]) for L, X, _ in given])
    alone = [in_c(function, each[:, None])[0].ravel() for each in values]
    np.testing.assert_array_equal(in_lanes(function, values, tmp_path, 4), alone)


def test_the_derivative_of_a_cholesky_factor_has_c() -> None:
    M = ca.SX.sym("M", 3, 3)
    slope = ca.Function("slope", [M], [ca.densify(ca.jacobian(linalg.cholesky_function(3)(M)[0], M))])
    at = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
    np.testing.assert_allclose(in_c(slope, at)[0], np.array(slope(at)), rtol=0, atol=1e-14)


def test_a_matrix_of_nan_has_rank_zero() -> None:
    A = np.full((12, 12), np.nan)
    _, _, R, rank, pivot = in_c(decompose_function(12, 12), A, np.full((1, 1), 1e-10))
    assert (rank[0, 0], pivot[0, 0]) == (0.0, 0.0)
    np.testing.assert_array_equal(np.diag(R), np.ones(12))


def halving(most: int) -> Any:
    """x is halved until it is at most 1; state: x, done, steps."""
    state, factor = ca.SX.sym("state", 3), ca.SX.sym("factor")
    x = state[0] * factor
    step = ca.Function(f"halve_{most}", [state, factor], [ca.vertcat(x, x <= 1, state[2] + 1)], {"never_inline": True})
    return repeat(f"halvings_{most}", step, most, done=1)


def inlined(function: Any) -> Any:
    x = ca.SX.sym("x")
    return ca.Function("whole", [x], [ca.densify(function(ca.vertcat(x, 0, 0), 0.5))])


@pytest.mark.parametrize("x", [1.5, 20.0, 1e9])
def test_a_repeated_function_stops_when_it_is_done(x: float) -> None:
    function = inlined(halving(8))
    expected = min(8, int(np.ceil(np.log2(x))))
    for found in (in_c(function, np.full((1, 1), x))[0].ravel(), np.array(function(x)).ravel()):
        np.testing.assert_array_equal(found, [x / 2**expected, float(x / 2**expected <= 1), expected])


def test_lanes_that_are_done_wait_for_the_others(tmp_path: Path) -> None:
    x = np.array([[1.5], [20.0], [1e9], [3.0]])
    found = in_lanes(inlined(halving(8)), x, tmp_path, 4)
    np.testing.assert_array_equal(found[:, 2], [1, 5, 8, 2])
    np.testing.assert_array_equal(found[:, 0], x[:, 0] / 2.0 ** found[:, 2])


def test_an_operation_without_c_is_refused_by_name() -> None:
    x = ca.SX.sym("x")
    with pytest.raises(CompileError, match=r"inverse_error: no C code for the operation erfinv \(take --engine vm\)"):
        Program([kernel_of(ca.Function("inverse_error", [x], [ca.erfinv(x)]))]).load()


def test_a_function_of_matrices_is_refused_by_name() -> None:
    x = ca.MX.sym("x", 3)
    with pytest.raises(CompileError, match=r"matrices: no C code for a function of matrices \(make it of scalars"):
        Program([kernel_of(ca.Function("matrices", [x], [2 * x]))]).load()


def test_a_part_of_a_kernel_computes_only_what_it_needs() -> None:
    given = inputs({"x": (3,)})
    whole = Kernel.compile("whole", given, {"sum": np.array([given["x"].sum()]), "waves": np.sin(given["x"])})
    part = whole.only("part", "sum")
    operations = {part.function.instruction_id(i) for i in range(part.function.n_instructions())}
    assert ca.OP_SIN not in operations and list(part.outputs) == ["sum"]
    np.testing.assert_array_equal(part(np.arange(3.0))[0], [3.0])


def test_derivatives_of_a_decomposition_have_no_c() -> None:
    """Its factors in C are not those that CasADi differentiates: where pivots tie, they differ."""
    A = ca.SX.sym("A", 2, 3)
    Z = decompose_function(2, 3)(A, 1e-10)[0]
    emit([ca.Function("factors", [A], [Z])])
    moved = ca.Function("moved", [A], [ca.jacobian(ca.vec(Z), ca.vec(A))])
    with pytest.raises(CompileError, match=r"no C code for the derivative of a rank decomp.*\(take --engine vm\)"):
        emit([moved])


def test_a_step_whose_functions_are_long_takes_rates_from_the_function_that_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    t, x, p = ca.SX.sym("t"), ca.SX.sym("x", 2), ca.SX.sym("p", 1)
    rates = ca.vertcat(x[1], -p * x[0] + ca.sin(t))
    outputs = {"own": [rates], "logged": [rates, ca.vertcat(x, t)]}
    kernels = [kernel_of(ca.Function(name, [t, x, p], values)) for name, values in outputs.items()]
    whole = Program([], StepFunctions(None, *kernels))
    assert "rest1" not in whole.source
    monkeypatch.setattr(step, "MANY", 0)
    short = Program([], StepFunctions(None, *kernels))
    assert "f_logged(x0, x1, x2, y0, rest1);" in short.source
    start, times, nothing = np.array([1.0, 0.5]), np.linspace(0.0, 1.0, 11), np.zeros(0)
    found, expected = (each.load().steps(start, times, np.array([4.0]), 0, nothing) for each in (short, whole))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(found[0]) == 11


def test_two_functions_of_one_name_have_no_c_code() -> None:
    """C knows functions by name, so the second would be taken for the first."""
    x = ca.SX.sym("x")
    double, twice, square = (ca.Function("same", [x], [y]) for y in (2 * x, 2 * x, x * x))
    assert list(emitted([double, twice])) == ["same"]
    with pytest.raises(CompileError, match="two functions are named same, so C would take one for the other"):
        emitted([double, square])


def test_two_repetitions_of_one_name_are_refused() -> None:
    x = ca.SX.sym("x", 2)
    up, down = (ca.Function("turn", [x], [ca.vertcat(x[0] + by, x[1])], {"never_inline": True}) for by in (1, -1))
    repeat("turns", up, 4, done=1)
    repeat("turns", up, 4, done=1)
    # the steps nested in it have names of their own, which are those of no operation
    nested = [each.name() for each in repeat("turns", up, 4, done=1).find_functions()]
    assert "turns_2" in nested and [name for name in nested if op_of(name) is not None] == []
    for turn, most in ((down, 4), (up, 8)):
        with pytest.raises(AssertionError, match="two operations are named turns"):
            repeat("turns", turn, most, done=1)
