"""A law that Python calls without a layer between: what it takes, what it leaves to others, and what it keeps alive."""

import ctypes
import gc
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servoctl.engine import python_call as module
from servoctl.engine.ccode import CSource, Program
from servoctl.engine.compiler import compiler
from servoctl.engine.kernel import BufferedCall, Kernel
from servoctl.engine.python_call import LawCall, python_call
from servoctl.engine.symbol import symbols
from servoctl.engine.templates import template
from servoctl.errors import CompileError

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")


def kernel() -> Kernel:
    """The law u = (t + q0 - v1, q1 v0) in C."""
    t, q, v = symbols("t", 1), symbols("q", 2), symbols("v", 2)
    law = Kernel.compile("law", {"t": t, "q": q, "v": v}, {"u": np.array([t[0] + q[0] - v[1], q[1] * v[0]])})
    law.run_on(Program([law.function]).load())
    return law


def made() -> tuple[LawCall, dict[str, Any]]:
    """The same as a call, and its arrays."""
    call = BufferedCall(kernel())
    arrays = {**call.inputs, **call.outputs}
    function = python_call(call.evaluate, *arrays.values())
    assert function is not None
    return function, arrays


def test_it_evaluates_the_law_and_gives_a_copy() -> None:
    law, arrays = made()
    first = law(0.5, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    second = law(-1.0, np.array([1.0, 0.5]), np.array([2.0, 0.0]))  # -1 is also what Python's conversion fails with
    np.testing.assert_array_equal(first, [0.5 + 1.0 - 4.0, 6.0])
    np.testing.assert_array_equal(second, [0.0, 1.0])
    assert arrays["t"][0] == -1.0 and arrays["q"].tolist() == [1.0, 0.5] and arrays["v"].tolist() == [2.0, 0.0]
    for time in (2, np.float64(2.0), np.float32(2.0), np.int64(2)):
        np.testing.assert_array_equal(law(time, np.zeros(2), np.zeros(2)), [2.0, 0.0])


GOOD = np.array([1.0, 2.0])
NOT_VECTORS_OF_DOUBLES = {
    "list": [1.0, 2.0],
    "integers of the same size": np.array([1, 2], dtype=np.int64),
    "single": GOOD.astype(np.float32),
    "other byte order": GOOD.astype(">f8" if sys.byteorder == "little" else "<f8"),
    "strided": np.array([1.0, 9.0, 2.0, 9.0])[::2],
    "backwards": GOOD[::-1],
    "too short": GOOD[:1],
    "too long": np.zeros(3),
    "two axes": GOOD.reshape(1, 2),
    "number": np.array(1.0),
    "complex": np.array([1.0 + 0j]),
    "bytes": GOOD.tobytes(),
    "None": None,
}


@pytest.mark.parametrize("value", NOT_VECTORS_OF_DOUBLES.values(), ids=NOT_VECTORS_OF_DOUBLES)
def test_anything_but_a_vector_of_floats_is_left_to_others(value: Any) -> None:
    law, _ = made()
    assert law(0.0, value, GOOD) is None and law(0.0, GOOD, value) is None


def test_a_time_that_is_no_number_and_missing_arguments_are_left_to_others() -> None:
    law, _ = made()
    anything: Any = law
    assert anything("1", GOOD, GOOD) is None and anything(None, GOOD, GOOD) is None
    assert anything() is None and anything(0.0, GOOD) is None and anything(0.0, GOOD, GOOD, GOOD) is None


def test_it_keeps_alive_what_it_writes_to_and_nothing_that_it_reads() -> None:
    law, arrays = made()
    del arrays
    gc.collect()
    filled = [np.full(5, np.nan) for _ in range(1000)]  # takes memory that would have become free
    q, none = np.array([1.0, 2.0]), None
    before = sys.getrefcount(q), sys.getrefcount(none)
    for _ in range(1000):
        np.testing.assert_array_equal(law(0.5, q, GOOD), [0.5 + 1.0 - 2.0, 2.0])
        assert law(0.5, q, filled[0]) is None
    assert sys.getrefcount(q) == before[0]
    assert sys.getrefcount(none) >= before[1]


def test_without_a_compiler_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: CSource) -> None:
        raise CompileError("no C compiler")

    _, arrays = made()
    law = BufferedCall(kernel())
    monkeypatch.setattr(CSource, "opened", fails)
    monkeypatch.setattr(module, "_library", module._library.__wrapped__)
    assert python_call(law.evaluate, *arrays.values()) is None


def test_a_law_on_another_engine_has_none() -> None:
    assert python_call(lambda: None, *np.zeros((4, 1))) is None


LAYOUT = """
const size_t layout[] = {sizeof(Py_buffer), offsetof(Py_buffer, buf), offsetof(Py_buffer, ndim),
  offsetof(Py_buffer, format), offsetof(Py_buffer, shape), sizeof(PyMethodDef), METH_FASTCALL, FORMAT_AND_ND};
"""


def layout(folder: Path, name: str, text: str, *flags: str) -> list[int]:
    """Sizes and places as C sees them."""
    code, library = folder / f"{name}.c", folder / f"{name}.so"
    code.write_text(text + "#include <stddef.h>\n" + LAYOUT)
    flags = ("-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", *flags)
    done = subprocess.run([*(compiler() or []), *flags, "-o", library, code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list((ctypes.c_size_t * 8).in_dll(ctypes.PyDLL(str(library)), "layout"))


def test_its_declarations_are_those_of_python_and_c99(tmp_path: Path) -> None:
    ours = layout(tmp_path, "ours", template("python_call.c"), "-std=c99", "-pedantic")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        pytest.skip("no headers of Python")
    theirs = "#include <Python.h>\nenum { FORMAT_AND_ND = PyBUF_FORMAT | PyBUF_ND };\n"
    assert ours == layout(tmp_path, "theirs", theirs, f"-I{include}")
