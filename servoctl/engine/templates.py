"""The C files of this package, and which of them is the code of a matrix operation."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from servoctl.engine.cost import Cost, decomposition_cost, decomposition_numbers

_FOLDER = Path(__file__).parent / "c"


def template(name: str) -> str:
    """A C file of this package."""
    return (_FOLDER / name).read_text()


@dataclass(frozen=True)
class Loops:
    """A matrix operation in loops."""

    file: str  # name of its C file; the function is named by the file's name in capitals
    sizes: tuple[str, ...]  # what the file calls the sizes, in the order of the numbers in the operation's name
    cost: Callable[..., Cost]  # sizes -> operations in the worst case
    numbers: Callable[..., int]  # sizes -> numbers on the stack
    defined: Callable[..., dict[str, object]] = lambda *sizes: {}  # further definitions: name -> formula in sizes


def _cholesky(n: int) -> Cost:
    below = n * (n - 1) // 2
    changed = (n + 1) * n * (n - 1) // 6  # entries that the columns before them change
    return Cost(4 * n + below + 2 * changed + 2 * n + below + 2, 2 * n)


def _triangle(rows: int, n: int) -> Cost:
    return Cost(n + rows * n * n, n)


def _inverse(n: int) -> Cost:
    panels = [(i, first) for i in range(n) for first in range(0, i + 1, 16)]
    return Cost(n + sum(32 * (i - first) + 16 for i, first in panels), n)


def _product(rows: int, n: int, columns: int) -> Cost:
    return Cost(2 * rows * n * columns)


def _part_of_product(rows: int, n: int, columns: int) -> int:
    return rows * (n + 1)


LOOPS = {
    "cholesky": Loops("cholesky.h", ("N",), _cholesky, lambda n: n * n + 2 * n),
    "inverse": Loops("inverse.h", ("N",), _inverse, lambda n: n * (n + 15) // 16 * 16),
    "back": Loops("back.h", ("N",), lambda n: Cost(2 * n + n * (n - 1), n), lambda n: n + 3),
    "lower": Loops("lower.h", ("ROWS", "N"), _triangle, lambda rows, n: rows * n, lambda *sizes: {"FIRST": 0}),
    "lower_from": Loops(
        "lower.h", ("ROWS", "N", "FIRST"), lambda rows, n, first: _triangle(rows, n - first),
        lambda rows, n, first: rows * (n - first),
    ),
    "upper": Loops("upper.h", ("ROWS", "N"), _triangle, lambda rows, n: rows * n),
    "product": Loops(
        "product.h", ("ROWS", "N", "COLUMNS"), _product, _part_of_product, lambda *sizes: {"TRANSPOSED": 0}
    ),
    "product_transposed": Loops(
        "product.h", ("ROWS", "N", "COLUMNS"), _product, _part_of_product, lambda *sizes: {"TRANSPOSED": 1}
    ),
    "project": Loops(
        "project.h", ("K", "N", "ROWS"), lambda k, n, rows: Cost(4 * k * n * rows), lambda k, n, rows: (k + n) * rows
    ),
    "dots": Loops("dots.h", ("COLUMNS", "N"), lambda columns, n: Cost(columns * (2 * n + 3)), lambda columns, n: 4),
    "squares": Loops("squares.h", ("COUNT",), lambda count: Cost(2 * count + 7), lambda count: 8),
    "total": Loops("total.h", ("COUNT",), lambda count: Cost(count + 7), lambda count: 8),
    "largest": Loops("largest.h", ("COUNT",), lambda count: Cost(2 * count + 7), lambda count: 8),
    "longer": Loops("longer.h", ("ROWS", "N"), lambda rows, n: Cost(rows * (3 * n + 3), rows), lambda rows, n: 3),
    "sizes": Loops("sizes.h", ("ROWS", "N"), lambda rows, n: Cost(2 * rows * n), lambda rows, n: 3),
    "divided": Loops("divided.h", ("COUNT",), lambda count: Cost(count + 1, 1), lambda count: 2),
    "decompose": Loops(
        "decompose.h", ("ROWS", "N"), decomposition_cost, decomposition_numbers,
        lambda rows, n: {"K": min(rows, n), "COLUMNS": f"columns_{rows}x{n}", "MASKED": 0},
    ),
    "decompose_masked": Loops(
        "decompose.h", ("ROWS", "N"), decomposition_cost, decomposition_numbers,
        lambda rows, n: {"K": min(rows, n), "COLUMNS": f"columns_masked_{rows}x{n}", "MASKED": 1},
    ),
}  # fmt: skip
"""Kind of operation -> its loops."""


def over_numbers(lanes: int) -> str:
    """C of the number V, that holds so many doubles, and of rows of it."""
    rows = ["#if defined(PACKED)\n", template("packs.h"), "#else\n", template("rows.h"), "#endif\n"]
    near_zero = template("sine_near_zero.h")
    sine = ["#define T V\n#define OF(name) name\n", near_zero]
    sine += ["#if defined(PACKED)\n#define T Pack\n#define OF(name) pack_##name\n", near_zero, "#endif\n"]
    return "".join([f"#define LANES {lanes}\n", template("numbers.h"), *rows, *sine, template("sine.h")])


def loops_of(name: str) -> tuple[Loops, tuple[int, ...]] | None:
    """The loops of the operation that a CasADi function of this name does, and their sizes; None if it is none."""
    found = re.fullmatch(r"([a-z_]+)_([0-9]+(?:x[0-9]+)*)", name)
    if found is None or found[1] not in LOOPS:
        return None
    return LOOPS[found[1]], tuple(map(int, found[2].split("x")))


def definition(name: str, loops: Loops, sizes: tuple[int, ...]) -> str:
    """The C code of a matrix operation as function `f_<name>`."""
    names: dict[str, object] = {loops.file.removesuffix(".h").upper(): f"f_{name}"}
    names |= dict(zip(loops.sizes, sizes, strict=True)) | loops.defined(*sizes)
    return "".join(f"#define {key} {value}\n" for key, value in names.items()) + template(loops.file)
