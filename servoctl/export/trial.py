"""Reference vectors of the law, and `NAME_law_test.c`, which compares it with them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.ops import literal
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.trace import mismatch
from servoctl.errors import ServoctlError
from servoctl.export.interface import Interface, comment
from servoctl.export.source import Facts
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.types import Array, State

COUNT = 20  # number of vectors of an export
TRIALS = 200  # most states tried to find them

AGREEMENT = 1e-10
"""Largest relative difference of engines numpy and vm; above it a state is ill-conditioned, and left out."""

SPREAD = 0.2  # standard deviation of the states about the start, in their units
VARIATION = 0.05  # largest relative change of a parameter


@dataclass(frozen=True)
class Vector:
    """One reference."""

    t: float  # [s] time
    x: Array  # q, v and memory
    parameters: Array  # all parameters of the loop
    command: Array  # of engine `numpy`, as in the command part of a row


@np.errstate(all="ignore")
def vectors(loop: Loop, start: State, border: Interface) -> tuple[list[Vector], int]:
    """The vectors, and the number of states left out because rounding decides their rank, status or digits.

    Args:
        loop: The compiled loop.
        start: State of the first vector; the others are near it.
        border: Names and values of the parameters.
    """
    reference = Loop(loop.system, in_numpy=True)
    random, n, chosen = np.random.default_rng(0), loop.system.model.n, list[Vector]()
    left_out = 0
    for trial in range(TRIALS):
        if len(chosen) == COUNT:
            break
        t, x = float(start.t), loop.x_at(start)
        if trial:
            t += random.random()
            x = x + SPREAD * random.standard_normal(len(x)) * np.where(np.arange(len(x)) < n, 1.0, 2.0)
            if border.period is not None:
                x = _measured(x, n, border.memory, trial)
        p = _varied(loop.system, border, random) if trial % 2 else border.values
        command = reference.control_kernel(t, x, p)[0]
        compiled = loop.control_kernel(t, x, p)[0]
        if _agree(loop, command, compiled):
            chosen.append(Vector(t, x, p, command))
        else:
            left_out += 1
    return chosen, left_out


def _measured(x: Array, n: int, memory: tuple[str, ...], trial: int) -> Array:
    """A random state as an estimator sees it: running, with readings near its prediction; every third lacks one."""
    x, at = x.copy(), {name: 2 * n + i for i, name in enumerate(memory)}
    x[at["commands.running"]] = 1.0
    x[at["estimation.elapsed"]] = abs(x[at["estimation.elapsed"]]) * 1e-2
    for i, name in enumerate(name for name in memory if name.startswith("estimation.q.")):
        x[i] = x[at[name]] + 1e-3 * x[i]
    for name in memory:
        if name.startswith("estimation.outliers."):
            x[at[name]] = float(trial % 5)
    if trial % 3 == 0:
        x[trial % n] = np.nan
    return x


def _agree(loop: Loop, command: Array, other: Array) -> bool:
    """Whether two engines give the same rank and status, and the same numbers up to rounding."""
    at, size = loop.layout.slices, np.abs(np.nan_to_num(command))
    # a rate is a difference over a period
    scales = {"u": size[at["u"]].max(initial=1.0), "memory_rate": 1e3 * np.maximum(size[at["memory_rate"]], 1.0)}
    scales |= dict.fromkeys(("rank", "status"), 1.0)
    return all(mismatch(command[at[key]], other[at[key]], scale, AGREEMENT) is None for key, scale in scales.items())


def _varied(system: System, border: Interface, random: np.random.Generator) -> Array:
    """Random parameters near those of the config, where plant and task accept them; tolerances stay."""
    values = border.values.copy()
    for member in border.members:
        if not member.name.endswith("tolerance"):
            for place in member.places:
                values[place] *= 1.0 + VARIATION * random.uniform(-1.0, 1.0)
    position = 0
    for thing in (system.model.plant, *system.model.task.values(), *system.model.bounds.values()):
        part = slice(position, position + len(parameter_values(thing)))
        if not _allowed(thing, values[part]):
            values[part] = border.values[part]
        position = part.stop
    return values


def _allowed(thing: Any, values: Array) -> bool:
    if not dataclasses.is_dataclass(thing) or isinstance(thing, type):
        return True
    try:
        dataclasses.replace(with_parameters(thing, values.tolist()))
    except (ServoctlError, ValueError, TypeError):
        return False
    return True


def test(facts: Facts, vectors: Sequence[Vector], tolerance: float) -> str:
    """`NAME_law_test.c`."""
    border, name = facts.border, facts.border.name
    n, m, memory = len(border.coordinates), len(border.actuators), len(border.memory)
    keep = f"  double memory[{memory}];\n" if memory else ""
    state, estimates = ", ".join(f"c->{word}" for word in border.takes), border.period is not None
    next_memory, compared = _next(facts)
    places = f"  else if (place <= {n}) c.q[place - 1] = bad;\n  else c.v[place - 1 - {n}] = bad;"
    places = "  else c.memory[place - 1] = bad;" if estimates else places
    title = comment(f"Reference vectors of {facts.title}, computed by servoctl's NumPy engine: see {name}_law.h.")
    return f"""/* {title} */
#include "{name}_law.h"

#include <math.h>
#include <stdio.h>

#define TOLERANCE {literal(tolerance)} /* of u, relative to its largest entry or to 1 */

typedef struct {{
  {name}_parameters p;
  double t, q[{n}], v[{n}];
{keep}{next_memory}  double u[{m}];
  int rank, status;
}} vector;

static const vector vectors[] = {{
{_vectors(facts, vectors)}
}};

static int agrees(const vector *c)
{{
  {name}_command out;
  double scale = 1.0;
  int i, status = {name}_law(&c->p, c->t, {state}, &out);
  if (status != c->status || (int) out.status != c->status || out.rank != c->rank) return 0;
  for (i = 0; i < {m}; ++i) if (fabs(c->u[i]) > scale) scale = fabs(c->u[i]);
  for (i = 0; i < {m}; ++i) {{
    if (isnan(c->u[i]) && isnan(out.u[i])) continue;
    if (!(fabs((double) out.u[i] - c->u[i]) <= TOLERANCE * scale)) return 0;
  }}
{compared}  return 1;
}}

/* Whether an input that is not finite is refused: place 0 is t, then {"the memory" if estimates else "q, then v"}. */
static int refuses(int place, double bad)
{{
  {name}_command out;
  vector c = vectors[0];
  int i, status;
  if (place == 0) c.t = bad;
{places}
  status = {name}_law(0, c.t, {state.replace("c->", "c.")}, &out);
  if (status != {name.upper()}_NON_FINITE || out.status != {name.upper()}_NON_FINITE || out.rank != 0) return 0;
  for (i = 0; i < {m}; ++i) if (!isnan(out.u[i])) return 0;
  return 1;
}}

int main(void)
{{
  int i, passed = 0, failed = 0;
  for (i = 0; i < (int) (sizeof vectors / sizeof vectors[0]); ++i) {{
    if (agrees(&vectors[i])) ++passed;
    else {{
      ++failed;
      printf("vector %d differs\\n", i);
    }}
  }}
  for (i = 0; i <= {memory if estimates else 2 * n}; ++i) {{
    if (refuses(i, (double) NAN) && refuses(i, (double) INFINITY)) ++passed;
    else {{
      ++failed;
      printf("input %d: not refused where it is not finite\\n", i);
    }}
  }}
  printf("%d passed, %d failed\\n", passed, failed);
  return failed ? 1 : 0;
}}
"""


def _next(facts: Facts) -> tuple[str, str]:
    """What the test of a law with an estimator compares besides u: the memory after the call."""
    size, h = len(facts.border.memory), facts.border.period
    if h is None:
        return "", ""
    return (
        f"  double after[{size}];\n",
        f"""  for (i = 0; i < {size}; ++i) {{
    double now = c->memory[i] + {literal(h)} * out.memory_rate[i];
    if (isnan(c->u[0])) continue;
    if (!(fabs(now - c->after[i]) <= TOLERANCE * (fabs(c->after[i]) > 1.0 ? fabs(c->after[i]) : 1.0))) return 0;
  }}
""",
    )


def _vectors(facts: Facts, vectors: Sequence[Vector]) -> str:
    slices, n = facts.loop.layout.slices, len(facts.border.coordinates)
    lines = []
    for vector in vectors:
        parameters = " ".join(facts.initialiser(vector.parameters).split())
        state = [vector.x[:n], vector.x[n : 2 * n]] + ([vector.x[2 * n :]] if facts.border.memory else [])
        parts = [f"{{{', '.join(map(literal, part))}}}" for part in state]
        if (h := facts.border.period) is not None:
            after = vector.x[2 * n :] + h * vector.command[slices["memory_rate"]]
            parts.append(f"{{{', '.join(literal(value) for value in after)}}}")
        u = ", ".join(literal(value) for value in vector.command[slices["u"]])
        rank, status = (int(vector.command[slices[key]][0]) for key in ("rank", "status"))
        lines.append(f"  {{{{{parameters}}}, {literal(vector.t)}, {', '.join(parts)}, {{{u}}}, {rank}, {status}}}")
    return ",\n".join(lines)
