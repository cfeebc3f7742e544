"""The law's function in C99 that needs only the C library, and what a call of it costs."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from servoctl.engine.emit import emitted
from servoctl.engine.ops import FUNCTIONS, Cost, Operation, literal, op_of, template
from servoctl.errors import CompileError
from servoctl.export.interface import Interface, comment
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array

FRAME = 96  # stack of a call besides its variables [byte]: return address and saved registers
NUMBER = POINTER = 8  # [byte] size of a number, and of a pointer on a 64-bit machine


class StandaloneSource:
    """A CasADi function in C over the number V; all its functions are static."""

    def __init__(self, function: Any) -> None:
        """Writes the code.

        Args:
            function: CasADi function of scalars.

        Raises:
            CompileError: An operation has no C.
        """
        self._function = function
        self.entry = f"f_{function.name()}"  # name of the function in it
        try:
            self._functions = emitted([function])
        except CompileError:  # derivatives of a decomposition need it without loops
            self._functions = emitted([function], unrolled=True)
        body = "\n".join(each.text for each in self._functions.values())
        used = [name for name in FUNCTIONS if re.search(rf"\bv_{name}\(", body)]
        head = ["typedef double V; /* a number */", "typedef int M; /* of a comparison: 1 or 0 */"]
        names = [f"#define v_{name} {name}" for name in used if name != "sign"]
        if "sign" in used:
            names.append("#define v_sign(x) ((x) < number(0.0) ? number(-1.0) : (x) > number(0.0) ? number(1.0) : (x))")
        if any(isinstance(op_of(name), Operation) for name in self._functions):
            names += ["", template("rows.h").strip()]
        self.text = "\n".join([*head, template("standalone.h").strip(), *names, "", body])  # the code

    @cached_property
    def cost(self) -> Cost:
        """Operations of a call in the worst case, called functions included."""
        total: dict[str, Cost] = {}
        for name, each in self._functions.items():  # each stands behind those that it calls
            total[name] = sum((total[called] for called in each.calls), each.cost)
        return total[self._function.name()]

    @cached_property
    def stack(self) -> int:
        """Approximate stack [byte] without optimisation: all variables of the deepest chain of calls."""
        need: dict[str, int] = {}
        for name, each in self._functions.items():
            need[name] = FRAME + NUMBER * each.numbers + max((need[called] for called in each.calls), default=0)
        inputs = sum(self._function.numel_in(i) for i in range(self._function.n_in()))
        caller: int = FRAME + 4 * POINTER + NUMBER * (inputs + self._function.numel_out(0))
        return caller + need[self._function.name()]


@dataclass(frozen=True)
class Facts:
    """Facts about an exported law."""

    title: str  # name of the config
    border: Interface  # names, units and parameters
    source: StandaloneSource  # C code of the law
    loop: Loop  # the compiled loop that has the law
    accuracy: str  # agreement of the law with the reference, one sentence

    @property
    def signature(self) -> str:
        """Declaration of the law's function, without the semicolon."""
        name = self.border.name
        arrays = "".join(f" const double *{word}," for word in self.border.takes)
        return f"int {name}_law(const {name}_parameters *p, double t,{arrays}\n    {name}_command *out)"

    def initialiser(self, values: Array) -> str:
        """C initialiser of the struct of parameters, from all parameters of the loop."""
        groups = []
        for members in self.border.groups.values():
            entries = [[literal(values[place]) for place in member.places] for member in members]
            groups.append(
                ", ".join(
                    e[0] if m.length is None else f"{{{', '.join(e)}}}" for m, e in zip(members, entries, strict=True)
                )
            )
        return ",\n".join(f"  {{{group}}}" for group in groups) or "  0"


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

#if defined(__FAST_MATH__) || defined(_M_FP_FAST) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error "-ffast-math, -ffinite-math-only: the law could not tell numbers that are not finite"
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
    x[{n} + i] = {"v[i]" if "v" in border.takes else "0"};
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
