"""Equations as text: which are accepted, the messages of those refused, and their values."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from servoctl.errors import ExpressionError
from servoctl.expression import ARITY, NUMPY_FUNCTIONS, RESERVED, UNITS, check_names, constant, parse
from servoctl.expression.parser import MAX_DEPTH, MAX_LENGTH


def message(text: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-2**2", -4.0),
        ("2**-1", 0.5),
        ("2**3**2", 512.0),
        ("2**-3**2", 2.0**-9),
        ("-2**-2", -0.25),
        ("--3", 3.0),
        ("+3 - -2", 5.0),
        ("8/4/2", 1.0),
        ("8 - 4 - 2", 2.0),
        ("2 + 3*4", 14.0),
        ("(2 + 3)*4", 20.0),
        ("-2*3", -6.0),
        ("2*-3", -6.0),
        (".5 + 1. + 1e1 + 1E-1", 11.6),
        ("atan2(1, 2)", math.atan2(1, 2)),
        ("min(1, 2) + max(1, 2) + abs(-4)", 7.0),
        ("cos(pi)", -1.0),
        (" 1\n + 1\t", 2.0),
    ],
)
def test_operators_bind_as_in_mathematics(text: str, value: float) -> None:
    assert parse(text).evaluate({}) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("word", "value"),
    [("deg", math.pi / 180), ("rad", 1), ("ms", 1e-3), ("us", 1e-6), ("rpm", 2 * math.pi / 60), ("mm", 1e-3)],
)
def test_unit_words_have_si_values(word: str, value: float) -> None:
    assert UNITS[word] == value
    assert constant(f"3*{word}") == 3 * value


def test_unit_letters_that_are_not_unit_words_may_be_names() -> None:
    assert parse("m*s + g*l").names == {"m", "s", "g", "l"}


def test_an_expression_lists_the_names_it_uses() -> None:
    expression = parse("abs(der(x)) + m[1]*y - min(t, pi)*deg + max(x, abs(k)) + m[0]")
    assert expression.names == {"x", "y", "m", "k"}
    assert expression.plain == {"x", "y", "k"}
    assert expression.rates == {"x"}
    assert expression.indexed == {("m", 0), ("m", 1)}
    assert expression.uses_time
    assert expression.kinked == ("abs", "min", "max")
    assert expression.text.startswith("abs(der(x))")


def test_an_expression_reports_time_and_kinks() -> None:
    expression = parse("sin(x)")
    assert not expression.uses_time
    assert expression.kinked == ()
    assert not expression.rates
    assert not expression.indexed


def test_expressions_of_the_same_text_are_equal_and_hashable() -> None:
    assert parse("x + 1") == parse("x + 1")
    assert len({parse("x + 1"), parse("x + 1"), parse("x+1")}) == 2


def test_values_come_by_name_rates_by_der_and_tuples_by_index() -> None:
    values = {"x": 2.0, "der(x)": 3.0, "t": 5.0, "m": (7.0, 11.0), "l": 13.0}
    assert parse("x + der(x) + t + m[1] + l").evaluate(values) == 34.0


def test_arrays_are_evaluated_element_by_element() -> None:
    x = np.array([0.0, 0.5])
    np.testing.assert_allclose(parse("2*sin(x)**2 - x").evaluate({"x": x}), 2 * np.sin(x) ** 2 - x, rtol=1e-15)


class Text:
    """A scalar with operators and nothing else: it writes down what was done to it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _of(self, sign: str, other: Any) -> "Text":
        return Text(f"({self.text}{sign}{getattr(other, 'text', other)})")

    def __add__(self, other: Any) -> "Text":
        return self._of("+", other)

    def __truediv__(self, other: Any) -> "Text":
        return self._of("/", other)

    def __pow__(self, other: Any) -> "Text":
        return self._of("**", other)

    def __neg__(self) -> "Text":
        return Text(f"-{self.text}")


def test_any_scalar_with_operators_can_be_evaluated_with_the_callers_functions() -> None:
    functions = {"sin": lambda value: Text(f"SIN[{value.text}]")}
    result = parse("sin(-x)/2 + x**2").evaluate({"x": Text("x")}, functions)
    assert result.text == "((SIN[-x]/2.0)+(x**2.0))"


def test_a_missing_value_is_a_key_error_that_names_it() -> None:
    with pytest.raises(KeyError, match=r"der\(x\)"):
        parse("der(x)").evaluate({"x": 1.0})


def test_python_numbers_follow_ieee_754_where_python_would_raise() -> None:
    assert parse("1/x").evaluate({"x": 0.0}) == math.inf
    assert math.isnan(parse("x**0.5").evaluate({"x": -1.0}))
    assert parse("x**2").evaluate({"x": 1e300}) == math.inf


REFUSED = {
    "": "empty (an equation is expected)",
    "  ": "empty (an equation is expected)",
    "x^2": "'^' is not an operator (use ** for powers)",
    "der(der(x))": "'der' inside 'der' (second derivatives are not part of an equation: give the position- or "
    "velocity-level equation)",
    "x.real": "'.' does not belong here (there are no attributes, and a number has one decimal point)",
    "__import__('os')": "unknown function '__import__'",
    "__class__": "'__class__' is not a name",
    "'x'": "quotation mark ' does not belong here",
    "x < 1": "'<' does not belong here (an equation has no comparison)",
    "x != 1": "'!=' does not belong here (an equation has no comparison)",
    "x = 1": "'=' does not belong here (an equation is written as its left-hand side minus its right-hand side)",
    "x == 1": "'==' does not belong here (an equation is written as its left-hand side minus its right-hand side)",
    "sn(x)": "unknown function 'sn' (did you mean 'sin'?)",
    "x(2)": "unknown function 'x' (known: sin, cos,",
    "(x": "')' is missing after 'x' (a parenthesis or an index is not closed)",
    "x)": "')' closes nothing",
    "()": "')' follows nothing (a value is expected before it)",
    "x 1": "no operator between 'x' and '1' (to multiply, write x*1)",
    "5ms": "no operator between '5' and 'ms' (to multiply, write 5*ms)",
    "2(x)": "no operator between '2' and '(' (to multiply, write 2*()",
    "x if y else z": "no operator between 'x' and 'if'",
    "sin": "'sin' is a function (write sin(...))",
    "sin()": "'sin' takes 1 value, got 0",
    "sin(x, y)": "'sin' takes 1 value, got 2",
    "atan2(y)": "'atan2' takes 2 values, got 1",
    "min(1, 2, 3)": "'min' takes 2 values, got 3",
    "x, y": "',' does not belong here (it separates the values of a function: atan2(y, x))",
    "1e400": "'1e400' is not a finite number",
    "x + 1/0": "'1/0' is not a finite number (check divisors, roots, logarithms, powers)",
    "sqrt(-1)*x": "'sqrt(-1)' is not a finite number",
    "(-8)**(1/3)": "'(-8)**(1/3)' is not a finite number",
    "010": "'010' starts with a zero (write it without)",
    "1_000": "no operator between '1' and '_000'",
    "0x1F": "no operator between '0' and 'x1F'",
    "x²": "'x²' is not a name (letters, digits and _, as in theta_1; powers are written **)",
    "m[-1]": "'-' is no index of 'm' (a whole number, counted from 0: m[0])",
    "m[i]": "'i' is no index of 'm' (a whole number, counted from 0: m[0])",
    "m[0][1]": "'[' does not belong here (an index follows the name of a tuple parameter: m[0])",
    "m[0": "']' is missing after '0'",
    "t[0]": "'[' does not belong here",
    "der": "'der' without parentheses (write der(x) for the rate of x)",
    "der(2*x)": "'der' takes the name of one coordinate (write der(x) for the rate of x)",
    "der(__x)": "'der' takes the name of one coordinate",
    "der(t)": "'der' takes the name of one coordinate",
    "der(x": "')' is missing after 'x'",
    "x +": "the equation ends after '+' (a value is expected)",
    "x + *y": "'*' has no value before it",
    "x // y": "'//' is not an operator (use / to divide)",
    "x % y": "'%' is not an operator (there is no remainder)",
    "lambda: 0": "':' does not belong in an equation",
    "x; y": "';' does not belong in an equation",
    "x \\ y": "'\\\\' does not belong in an equation",
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.items(), ids=range(len(REFUSED)))
def test_a_text_that_is_not_an_equation_is_refused_with_the_wrong_word(text: str, expected: str) -> None:
    assert message(text).startswith(expected)


def test_the_error_points_at_the_first_wrong_character() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("x + y^2")
    assert caught.value.position == 5


@pytest.mark.parametrize("opening", ["(", "-", "2**", "sin(", "2**-("])
def test_nesting_has_a_limit_and_never_exhausts_the_stack(opening: str) -> None:
    assert f"nested deeper than {MAX_DEPTH} levels (split the equation)" in message(opening * 1500 + "x")


def test_a_long_sum_is_read_and_evaluated_without_recursion() -> None:
    assert parse("+".join(["x"] * 4900)).evaluate({"x": 1.0}) == 4900.0


def test_a_text_that_is_too_long_is_refused() -> None:
    assert message("1+" * 6000 + "1") == f"12001 characters (an equation has at most {MAX_LENGTH})"


def test_reserved_words_are_the_words_of_every_equation() -> None:
    assert {"t", "pi", "der", "deg", "rad", "ms", "us", "rpm", "mm", *ARITY} == RESERVED
    assert set(ARITY) == set(NUMPY_FUNCTIONS)


COORDINATES = ("theta", "x")
PARAMETERS = {"l": None, "m": 2}


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("l*cos(theta) - der(x)*m[1] + t*deg", []),
        ("thta", ["unknown word 'thta' (did you mean 'theta'?)"]),
        ("sen + x", ["unknown word 'sen' (did you mean 'sin'?)"]),
        ("der(l)", ["der(l): 'l' is a parameter (known: theta, x)"]),
        ("der(thet)", ["der(thet): 'thet' is not a coordinate (did you mean 'theta'?)"]),
        ("m*x", ["'m' has 2 values (choose one: m[0] to m[1])"]),
        ("m[2]", ["m[2]: 'm' has 2 values (choose one: m[0] to m[1])"]),
        ("l[0]", ["l[0]: 'l' is one number and has no index (write l)"]),
        ("x[0]", ["x[0]: 'x' is a coordinate and has no index (write x)"]),
        ("k[0]", ["k[0]: unknown word 'k' (known: l, m)"]),
        ("a + der(b)", ["der(b): 'b' is not a coordinate (known: theta, x)", "unknown word 'a' (known: theta, x, l,"]),
    ],
)
def test_names_are_checked_against_those_of_the_plant(text: str, problems: list[str]) -> None:
    found = check_names(parse(text), COORDINATES, PARAMETERS)
    assert len(found) == len(problems)
    assert all(a.startswith(b) for a, b in zip(found, problems, strict=True))


def test_a_coordinate_named_like_a_function_or_a_parameter_is_reported() -> None:
    assert check_names(parse("1"), ["sin", "l"], PARAMETERS) == [
        "'sin' is the name of a coordinate or parameter, but a word of every equation (rename it)",
        "'l' is the name of a coordinate and of a parameter (rename one of them)",
    ]


@pytest.mark.parametrize(
    ("value", "number"),
    [("60*deg", math.pi / 3), ("2*pi", 2 * math.pi), ("5*ms", 0.005), ("1e3", 1000.0), (3, 3.0), (np.float64(2), 2.0)],
)
def test_a_constant_is_a_number_or_an_expression_of_numbers(value: Any, number: float) -> None:
    assert constant(value) == pytest.approx(number, rel=1e-15)
    assert type(constant(value)) is float


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2*x", "a number is expected, 'x' is no constant (known: pi, deg, rad, ms, us, rpm, mm)"),
        ("5*dg", "a number is expected, 'dg' is no constant (did you mean 'deg'?)"),
        ("5 s", "'s' is no unit word (write 5 alone, in the unit of the key)"),
        ("6 seconds", "'seconds' is no unit word (write 6 alone, in the unit of the key)"),
        ("t", "a number is expected, 't' is no constant"),
        ("der(x)", "a number is expected, 'x' is no constant"),
        ("1/0", "'1/0' is not a finite number"),
        ("exp(1000)", "'exp(1000)' is not a finite number"),
        (True, "a number is expected, got True"),
        (None, "a number is expected, got None"),
        ([1], "a number is expected, got [1]"),
        (1j, "a number is expected, got 1j"),
        (math.nan, "a finite number is expected, got nan"),
        (10**400, "a finite number is expected, got inf"),
    ],
)
def test_a_value_that_is_not_a_constant_is_refused(value: Any, expected: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        constant(value)
    assert str(caught.value).startswith(expected)


PYTHON_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "atan2": math.atan2,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "abs": math.fabs,
}
PYTHON_FUNCTIONS |= {"min": min, "max": max, "atan": math.atan}
LEAVES = st.one_of(
    st.floats(0, 10, allow_nan=False).map(repr), st.sampled_from(["x", "y_1", "2", "3.", ".5", "1e-1", "pi"])
)


def branches(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operation = st.tuples(parts, st.sampled_from(["+", "-", "*", "/", " - ", "*-"]), parts).map("".join)
    power = st.tuples(parts, st.sampled_from(["**2", "**-1", "**2**-1", "**3**2"])).map("".join)
    return st.one_of(
        operation,
        power,
        parts.map(lambda part: f"({part})"),
        parts.map(lambda part: f"-{part}"),
        st.tuples(st.sampled_from([word for word in PYTHON_FUNCTIONS if ARITY[word] == 1]), parts).map(
            lambda both: f"{both[0]}({both[1]})"
        ),
        st.tuples(st.sampled_from(["atan2", "min", "max"]), parts, parts).map(
            lambda all: f"{all[0]}({all[1]}, {all[2]})"
        ),
    )


@settings(max_examples=500)
@given(st.recursive(LEAVES, branches, max_leaves=25), st.floats(-3, 3), st.floats(-3, 3))
def test_random_trees_have_the_value_that_python_gives_the_same_text(text: str, x: float, y: float) -> None:
    names = {"x": x, "y_1": y, "pi": math.pi, **PYTHON_FUNCTIONS}
    decimal = re.sub(
        r"(?<![\w.])(?<!e[-+])(\d+)(?![\w.])", r"\1.0", text
    )  # nested powers of integers would fill the memory
    try:
        expected = eval(decimal, {"__builtins__": {}}, names)
    except (ArithmeticError, ValueError, TypeError):  # where IEEE 754 has inf or nan, or Python turns complex
        return
    assume(not isinstance(expected, complex))
    try:
        expression = parse(text)
    except ExpressionError as error:
        assert "is not a finite number" in str(error)  # a constant part that Python lets overflow in silence
        return
    value = expression.evaluate({"x": x, "y_1": y}, PYTHON_FUNCTIONS)
    assert value == expected or (math.isnan(value) and math.isnan(expected))


SYMBOLS = [*"+-*/()[]., ^=<'\"", "**", "der", "der(", "x", "t", "sin(", "atan2(", "2", "1e400", "m[0]", "deg", "é"]


@settings(max_examples=1000)
@given(st.one_of(st.text(), st.lists(st.sampled_from(SYMBOLS)).map("".join)))
def test_random_text_raises_nothing_but_expression_errors(text: str) -> None:
    for read in (parse, constant):
        try:
            read(text)
        except ExpressionError as error:
            assert str(error)
            assert 0 <= error.position <= len(text)
