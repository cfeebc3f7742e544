"""Writes `NAME_law_example.c`: how to call an exported law.

Design: `Makefile` and `README.txt` of `templates` are the same for every law, so that several laws can share a folder.
Everything else is in the law's header and in its example, a program that compiles and runs.
"""

from servoctl.export.facts import Facts
from servoctl.export.header import named, rates
from servoctl.export.interface import comment
from servoctl.types import Array


def example(facts: Facts, t: float, x: Array) -> str:
    """`NAME_law_example.c`.

    Args:
        facts: Facts about the law.
        t: Time of the start [s].
        x: q, v and memory at the start.
    """
    border, name, real = facts.border, facts.border.name, facts.real
    n, k = len(border.coordinates), len(border.memory)
    parts = {"q": (x[:n], named(border.coordinates)), "v": (x[n : 2 * n], named(rates(border.coordinates)))}
    if k:
        parts["memory"] = (x[2 * n :], comment(", ".join(border.memory)))
    lines = [
        f"  {real} {word}[{len(values)}] = {{{', '.join(map(facts.literal, values))}}}; /* {remark} */"
        for word, (values, remark) in parts.items()
    ]
    memory = " memory," if k else ""
    shown = [
        f'  printf("{_text(actuator)} = %.9g {_text(unit)}\\n", (double) out.u[{i}]);'
        for i, (actuator, unit) in enumerate(border.actuators.items())
    ]
    body = "\n".join([*lines, f"  {real} t = {facts.literal(t)}; /* [s] */"])
    return f"""/* {comment(f"The smallest program that calls the law of {facts.title}: the command at its start.")} */
#include "{name}_law.h"

#include <stdio.h>

int main(void)
{{
  {name}_command out;
{body}

  if ({name}_law(0, t, q, v,{memory} &out) >= {name.upper()}_NOT_POSITIVE) {{
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
