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
from servoctl.expression import ARITY, RESERVED, UNITS, check_names, constant, parse
from servoctl.expression.equation import MAX_DEPTH, MAX_LENGTH
from tests.refused import table


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


def test_a_missing_value_is_a_key_error_that_names_it() -> None:
    with pytest.raises(KeyError, match=r"der\(x\)"):
        parse("der(x)").evaluate({"x": 1.0})


def test_python_numbers_follow_ieee_754_where_python_would_raise() -> None:
    assert parse("1/x").evaluate({"x": 0.0}) == math.inf
    assert math.isnan(parse("x**0.5").evaluate({"x": -1.0}))
    assert parse("x**2").evaluate({"x": 1e300}) == math.inf


@pytest.mark.parametrize(("text", "expected"), [(*text, *said) for _, text, said in table("expressions")])
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


COORDINATES = ("theta", "x")
PARAMETERS = {"l": None, "m": 2}


@pytest.mark.parametrize(("text", "expected"), [(*text, said) for _, text, said in table("names")])
def test_names_are_checked_against_those_of_the_plant(text: str, expected: list[str]) -> None:
    found = check_names(parse(text), COORDINATES, PARAMETERS)
    assert [problem[: len(start)] for problem, start in zip(found, expected, strict=True)] == expected


def test_a_micro_sign_is_told_from_the_letter_that_python_makes_of_it() -> None:
    micro, mu = "\u00b5", "\u03bc"
    expected = [f"unknown word {micro!r} (did you mean {mu!r} (U+03BC)? {micro!r} has U+00B5)"]
    assert check_names(parse(f"x - {micro}*t"), ["x"], {mu: None}) == expected


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


_OF_NUMPY = {
    "atan2": np.arctan2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "abs": np.abs, "min": np.minimum,
    "max": np.maximum, "atan": np.arctan,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., float]] = {
    word: lambda *values, function=function: float(function(*values)) for word, function in _OF_NUMPY.items()
}
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
        st.tuples(st.sampled_from([word for word in FUNCTIONS if ARITY[word] == 1]), parts).map(
            lambda both: f"{both[0]}({both[1]})"
        ),
        st.tuples(st.sampled_from(["atan2", "min", "max"]), parts, parts).map(
            lambda all: f"{all[0]}({all[1]}, {all[2]})"
        ),
    )


@np.errstate(all="ignore")
@settings(max_examples=250)
@given(st.recursive(LEAVES, branches, max_leaves=25), st.floats(-3, 3), st.floats(-3, 3))
def test_random_trees_have_the_value_that_python_gives_the_same_text(text: str, x: float, y: float) -> None:
    names = {"x": x, "y_1": y, "pi": math.pi, **FUNCTIONS}
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
    value = expression.evaluate({"x": x, "y_1": y})
    assert value == expected or (math.isnan(value) and math.isnan(expected))


SYMBOLS = [*"+-*/()[]., ^=<'\"", "**", "der", "der(", "x", "t", "sin(", "atan2(", "2", "1e400", "m[0]", "deg", "é"]


@settings(max_examples=400)
@given(st.one_of(st.text(), st.lists(st.sampled_from(SYMBOLS)).map("".join)))
def test_random_text_raises_nothing_but_expression_errors(text: str) -> None:
    for read in (parse, constant):
        try:
            read(text)
        except ExpressionError as error:
            assert str(error)
            assert 0 <= error.position <= len(text)
