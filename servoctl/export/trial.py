"""Writes `NAME_law_test.c`, which compares the law with its reference vectors, and the example of its use."""

from collections.abc import Sequence

from servoctl.export.header import named, rates
from servoctl.export.interface import comment
from servoctl.export.source import Facts, literal
from servoctl.export.vectors import Vector
from servoctl.types import Array


def test(facts: Facts, vectors: Sequence[Vector], tolerance: float) -> str:
    """`NAME_law_test.c`."""
    border, name = facts.border, facts.border.name
    n, m, memory = len(border.coordinates), len(border.actuators), len(border.memory)
    keep = f"  double memory[{memory}];\n" if memory else ""
    given = ", c->memory" if memory else ""
    estimates = border.period is not None
    state = "c->q" if estimates else "c->q, c->v"
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
  int i, status = {name}_law(&c->p, c->t, {state}{given}, &out);
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
  status = {name}_law(0, c.t, {state.replace("c->", "c.")}{given.replace("c->", "c.")}, &out);
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


def example(facts: Facts, t: float, x: Array) -> str:
    """`NAME_law_example.c`.

    Args:
        facts: Facts about the law.
        t: Time of the start [s].
        x: q, v and memory at the start.
    """
    border, name = facts.border, facts.border.name
    n, k = len(border.coordinates), len(border.memory)
    parts = {"q": (x[:n], named(border.coordinates))}
    if border.period is None:
        parts["v"] = x[n : 2 * n], named(rates(border.coordinates))
    if k:
        parts["memory"] = (x[2 * n :], comment(", ".join(border.memory)))
    lines = [
        f"  double {word}[{len(values)}] = {{{', '.join(map(literal, values))}}}; /* {remark} */"
        for word, (values, remark) in parts.items()
    ]
    given = "".join(f" {word}," for word in parts)
    shown = [
        f'  printf("{_text(actuator)} = %.9g {_text(unit)}\\n", (double) out.u[{i}]);'
        for i, (actuator, unit) in enumerate(border.actuators.items())
    ]
    body = "\n".join([*lines, f"  double t = {literal(t)}; /* [s] */"])
    return f"""/* {comment(f"The smallest program that calls the law of {facts.title}: the command at its start.")} */
#include "{name}_law.h"

#include <stdio.h>

int main(void)
{{
  {name}_command out;
{body}

  if ({name}_law(0, t,{given} &out) >= {name.upper()}_NOT_POSITIVE) {{
    printf("no command: status %d\\n", (int) out.status); /* stop the machine here */
    return 1;
  }}
{chr(10).join(shown)}
  return 0;
}}
"""


def _text(word: str) -> str:
    """A name or a unit, safe in a format of printf."""
    plain = comment(word)
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
