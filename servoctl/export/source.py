"""The two files of a law in C99 that needs only the C library, `NAME_law.h` and `NAME_law.c`, and what a call costs."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from servoctl.engine.emit import emitted
from servoctl.engine.ops import FUNCTIONS, Cost, Operation, literal, op_of, template
from servoctl.errors import CompileError
from servoctl.export.interface import Interface, Member, comment, named
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, Status
from servoctl.version import VERSION

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


def header(facts: Facts) -> str:
    """`NAME_law.h`."""
    name, border = facts.border.name, facts.border
    guard = f"{name.upper()}_LAW_H"
    memory, takes = _memory(facts), border.takes
    speeds = f"    v    {takes['v']}\n" if "v" in takes else ""
    return f"""/*
{_lines(_about(facts))}
*/
#ifndef {guard}
#define {guard}

#ifdef __cplusplus
extern "C" {{
#endif

{_complex_unit(border)}#define {name.upper()}_COORDINATES {len(border.coordinates)}
#define {name.upper()}_INPUTS {len(border.actuators)}

/* Result of a call; a higher number is worse. */
typedef enum {{
{_statuses(name)}
}} {name}_status;

/*
{_lines([f"Parameters; {name}_defaults has the values of the config.", *_fixed(border)])}
*/
typedef struct {{
{_structs(facts)}
}} {name}_parameters;

extern const {name}_parameters {name}_defaults;

typedef struct {{
  double u[{len(border.actuators)}]; /* {named(border.actuators)}; NaN if there is no command */
  int rank; /* independent directions of the task that the inputs serve */
  double residual; /* largest part of a task row that the inputs cannot deliver, in the row's unit / s^degree */
  double pivot; /* [-] smallest pivot counted in the rank: near the rank tolerance the task is nearly singular */
  {name}_status status;
{_bounds(facts)}{memory[0]}}} {name}_command;

/*
  Computes the command at a state. Returns out->status.

    p    parameters; 0 for the defaults
    t    [s] time of the task
    q    {takes["q"]}{"" if border.period is None else "; NAN: no reading"}
{speeds}{memory[1]}    out  the command
*/
{facts.signature};

#ifdef __cplusplus
}}
#endif

#endif
"""


def _complex_unit(border: Interface) -> str:
    """A refusal of the macro I of complex.h, if a parameter has that name, as an inertia often has."""
    if not any(member.name == "I" for member in border.members):
        return ""
    remedy = "undefine I before this header: complex.h defines it, and a parameter here has that name"
    return f'#ifdef I\n#error "{remedy}"\n#endif\n\n'


def _about(facts: Facts) -> list[str]:
    cost, name = facts.source.cost, facts.border.name
    law = facts.loop.system.law
    assert law is not None
    stops = [status.name for status in Status if status.code in law.stops_on]
    measured = "q and v are" if facts.border.period is None else "q is"
    lines = [
        f"The control law of {facts.title}, exported by servoctl {VERSION}.",
        "",
        f"Compile: cc -std=c99 -O2 -c {name}_law.c, or make",
        f"Test:    cc -std=c99 -O2 -o {name}_law_test {name}_law_test.c {name}_law.c -lm && ./{name}_law_test",
        "Call:    once per period:",
        f"         if ({name}_law(0, t, {', '.join(facts.border.takes)}, &out) < {name.upper()}_NOT_POSITIVE)",
        "         apply out.u; else stop the machine.",
        "",
        f"Cost:    at most {cost.operations} operations a call, counted from its instructions, called functions",
        f"         included; of these {cost.divisions} divisions and square roots, {cost.functions} sines, powers and",
        "         the like",
        f"Memory:  at most about {facts.source.stack} bytes of stack without optimisation, much less with -O2;",
        "         nothing is allocated, nothing kept between calls",
        f"Numbers: {facts.accuracy}",
        "",
        "Limits on use:",
        "- The command is right for the plant of the config only: its equations and its parameters.",
        f"- {measured} measured at time t, in the order and units below; t is the time in the equations of the task.",
        "- q is near the plant's own constraints, if it has any; the law does not move it there.",
        "- From NOT_POSITIVE on there is no command: u is NaN, and the caller decides what the drives do.",
        "- Inputs that are not finite, and parameters that are not a number, give NON_FINITE.",
        "- Do not compile with -ffast-math or -ffinite-math-only: the law tests for numbers that are not finite.",
        "- Limits of torque, speed and position belong to the drive; the law only keeps those of law.limits.",
    ]
    if stops:
        lines.append(f"- The config has on_infeasible: fault; stop also at {', '.join(stops)}.")
    if (h := facts.loop.memory_period) is not None:
        lines.append(f"- Call the law every {h:g} s; after each call add {h:g} times memory_rate to the memory.")
    if facts.border.period is not None:
        lines += [
            "- The law estimates speeds and the disturbance from positions. After each call put the time to the next",
            "  one into the entry estimation.elapsed of the memory, where it is not the period.",
        ]
    if facts.loop.system.commands is not None:
        lines += [
            "- The memory has the commands under way, commands.sent1 the newest. After each call put the torques that",
            "  the drives really got into commands.sent1, where they differ from the command.",
        ]
    return lines


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(
        f"  {comment(line) if line.strip() == line and '  ' not in line else line}".rstrip() for line in lines
    )


def _fixed(border: Interface) -> list[str]:
    text = f"No influence on the command, and left out: {', '.join(border.fixed)}."
    return textwrap.wrap(text, 110) if border.fixed else []


def _memory(facts: Facts) -> tuple[str, str]:
    names = facts.border.memory
    if not names:
        return "", ""
    starts = ", ".join(f"{name} = {value:g}" for name, value in zip(names, facts.loop.memory_start, strict=True))
    time = "elapsed time [s]" if facts.loop.memory_period is None else f"{facts.loop.memory_period:g} s"
    rate = f"  double memory_rate[{len(names)}]; /* add {time} times this to the memory */\n"
    return rate, f"    memory  {comment(starts)} at the start\n"


def _bounds(facts: Facts) -> str:
    law = facts.loop.system.acting
    if not law.searches:
        return ""
    proven = "  int proven; /* 1 if u is the best within limits and bounds; 0: only within limits */\n"
    if not law.bounded:
        return proven
    names, count = comment(", ".join(law.bounded)), len(law.bounded)
    return proven + (
        f"  int bound_active[{count}]; /* {names}: 1 while the bound holds the inputs, else 0 */\n"
        f"  double bound_lack[{count}]; /* what inputs within their limits cannot give it, in its unit / s^2, "
        "or / s of a bound on velocities */\n"
    )


def _statuses(name: str) -> str:
    return "\n".join(
        f"  {name.upper()}_{status.name} = {status.code}{',' if status is not Status.NON_FINITE else ''}"
        f" /* {comment(status.value)} */"
        for status in Status
        if status.code <= Status.NON_FINITE.code
    )


def _structs(facts: Facts) -> str:
    lines = []
    for group, members in facts.border.groups.items():
        lines.append("  struct {")
        lines += [f"    double {_declared(member)}; /* {_remark(member, facts)} */" for member in members]
        lines.append(f"  }} {group};")
    return "\n".join(lines or ["  int none; /* there are no parameters */"])


def _declared(member: Member) -> str:
    return member.name if member.length is None else f"{member.name}[{member.length}]"


def _remark(member: Member, facts: Facts) -> str:
    values = ", ".join(f"{facts.border.values[place]:g}" for place in member.places)
    return comment(f"{member.remark or '[unit not stated]'}; default {values}")


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
