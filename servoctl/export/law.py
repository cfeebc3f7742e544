"""Writes `NAME_law.c`: one public function around the generated code."""

from servoctl.export.interface import comment
from servoctl.export.source import Facts, literal


def law(facts: Facts) -> str:
    """`NAME_law.c`."""
    border, name = facts.border, facts.border.name
    slices, size, count = facts.loop.layout.slices, facts.loop.size, len(border.values)
    n, memory, row = len(border.coordinates), len(border.memory), facts.loop.layout.command_size
    parameters = "\n".join(
        f"  parameters[{i}] = {source or literal(value)};"
        for i, (source, value) in enumerate(zip(border.sources, border.values, strict=True))
    )
    remember = f"  for (i = 0; i < {memory}; ++i) x[{2 * n} + i] = memory[i];\n" if memory else ""
    active, lack = slices["bound_active"], slices["bound_lack"]
    held = f"""  for (i = 0; i < {active.stop - active.start}; ++i) {{
    out->bound_active[i] = row[{active.start} + i] > 0;
    out->bound_lack[i] = row[{lack.start} + i];
  }}
"""
    held = held if active.stop > active.start else ""
    search = slices["search"]
    proven = f"  out->proven = row[{search.start} + 1] < number(0.5);\n" if search.stop > search.start else ""
    start = slices["memory_rate"].start
    rates = f"  for (i = 0; i < {memory}; ++i) out->memory_rate[i] = row[{start} + i];\n" if memory else ""
    return f"""/* {comment(f"The control law of {facts.title}: see {name}_law.h.")} */
#include "{name}_law.h"

#include <math.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "-ffast-math: the law could not tell numbers that are not finite"
#endif

const {name}_parameters {name}_defaults = {{
{facts.initialiser(border.values)}
}};

{facts.source.text}
{facts.signature}
{{
  V x[{size}], parameters[{max(1, count)}], row[{row}];
  int i, sound = isfinite(t) ? 1 : 0;

  if (!p) p = &{name}_defaults;
  for (i = 0; i < {n}; ++i) {{
    x[i] = q[i];
    x[{n} + i] = {"v[i]" if border.period is None else "0"};
  }}
{remember}{parameters}
  for (i = {0 if border.period is None else n}; i < {size}; ++i) if (!isfinite(x[i])) sound = 0;
  for (i = 0; i < {count}; ++i) if (isnan(parameters[i])) sound = 0;
  if (sound) {facts.source.entry}(&t, x, parameters, row);
  else {{
    for (i = 0; i < {row}; ++i) row[i] = NAN;
    row[{slices["rank"].start}] = 0;
    row[{slices["pivot_min"].start}] = 0;
    row[{slices["status"].start}] = {name.upper()}_NON_FINITE;
  }}
  for (i = 0; i < {len(border.actuators)}; ++i) out->u[i] = row[i];
  out->rank = (int) row[{slices["rank"].start}];
  out->residual = row[{slices["residual"].start}];
  out->pivot = row[{slices["pivot_min"].start}];
  out->status = ({name}_status) (int) row[{slices["status"].start}];
{held}{proven}{rates}  return (int) out->status;
}}
"""
