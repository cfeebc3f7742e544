"""Measures the error of the law in float: compiles it here and compares it with the reference."""

import ctypes
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from servoctl.engine import compiler
from servoctl.errors import CompileError
from servoctl.export.interface import Interface
from servoctl.export.vectors import Vector, relative_error
from servoctl.types import Array

SHIM = """
int measure(const float *numbers, float t, const float *q, const float *v, const float *memory, float *row)
{{
  {name}_parameters p;
  {name}_command out;
  int i;
  (void) memory;
  (void) v;
{fill}
  {name}_law(&p, t, q{speeds}{memory}, &out);
  for (i = 0; i < {m}; ++i) row[i] = out.u[i];
  row[{m}] = (float) out.rank;
  row[{m} + 1] = (float) out.status;
  return 0;
}}
"""


@dataclass(frozen=True)
class FloatError:
    """Difference between the law in float and the reference.

    Attributes:
        error: Largest difference of u, relative to its largest entry or to 1, over the vectors in `same`.
        same: For each vector whether rank and status equal the reference.
    """

    error: float
    same: tuple[bool, ...]


def measure(header: str, law: str, border: Interface, references: Sequence[Vector]) -> FloatError:
    """Compiles the law and compares it with the reference vectors.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    places = [place for member in border.members for place in member.places]
    fill = "\n".join(
        f"  {(border.sources[place] or '').replace('p->', 'p.')} = numbers[{i}];" for i, place in enumerate(places)
    )
    m, n = len(border.actuators), len(border.coordinates)
    speeds, kept = ", v" if border.period is None else "", ", memory" if border.memory else ""
    shim = SHIM.format(name=border.name, fill=fill, m=m, speeds=speeds, memory=kept)
    body = law.replace(f'#include "{border.name}_law.h"\n', "")
    with tempfile.TemporaryDirectory(prefix="servoctl-", ignore_cleanup_errors=True) as folder:
        built = Path(folder) / "law.so"
        compiler.build(header + body + shim, built)
        try:
            function = ctypes.CDLL(str(built)).measure
        except OSError as error:
            raise CompileError(f"the compiled law cannot be loaded: {error}") from error
        errors, same = [0.0], []
        for vector in references:
            row = np.zeros(m + 2, dtype=np.float32)
            parts = [vector.parameters[places], vector.x[:n], vector.x[n : 2 * n], vector.x[2 * n :]]
            p, q, v, memory = (np.ascontiguousarray(part, dtype=np.float32) for part in parts)
            function(_pointer(p), ctypes.c_float(vector.t), _pointer(q), _pointer(v), _pointer(memory), _pointer(row))
            same.append(bool(np.array_equal(row[m:], vector.command[[m, m + 3]].astype(np.float32))))
            if same[-1]:
                errors.append(relative_error(vector.command[:m], row[:m].astype(float)))
    return FloatError(max(errors), tuple(same))


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
