"""Writes `NAME_law.h`: the interface, with units, cost and limits on use."""

import textwrap
from collections.abc import Sequence

from servoctl.export.interface import Interface, Member, comment, named
from servoctl.export.source import Facts
from servoctl.types import Status
from servoctl.version import VERSION


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
  double residual; /* largest part of a task row that the inputs cannot deliver, in the row's unit / s^2 */
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
