"""Writes `Makefile`, `README.txt` and `NAME_law_example.c`: how to build and call an exported law.

Design: `Makefile` and `README.txt` are the same for every law, so that several laws can share a folder. Everything else
is in the law's header and in its example, a program that compiles and runs.
"""

from servoctl.export.facts import Facts
from servoctl.export.header import named, rates
from servoctl.export.interface import comment
from servoctl.types import Array

MAKEFILE = """\
# Builds every law of this folder: `make` the objects and examples, `make test` builds and runs the tests.
CC ?= cc
CFLAGS ?= -std=c99 -O2 -Wall -Wextra
LDLIBS ?= -lm

LAWS := $(wildcard *_law.c)
OBJECTS := $(LAWS:.c=.o)
EXAMPLES := $(LAWS:.c=_example)
TESTS := $(LAWS:.c=_test)

.PHONY: all test clean
.SECONDARY: $(OBJECTS)

all: $(OBJECTS) $(EXAMPLES)

test: $(TESTS)
\t@for each in $(TESTS); do echo "$$each"; ./$$each || exit 1; done

%_law.o: %_law.c %_law.h
\t$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

%_law_example: %_law_example.c %_law.o
\t$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

%_law_test: %_law_test.c %_law.o
\t$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

clean:
\trm -f $(OBJECTS) $(EXAMPLES) $(TESTS)
"""

README = """\
Control laws in C99, exported by servoctl. NAME is the name of the config.

  NAME_law.h          what to include: parameters, command, status, units, cost, limits on use
  NAME_law.c          the law; needs only the math functions of the C library
  NAME_law_test.c     compares the law with reference vectors
  NAME_law_example.c  the smallest program that calls it
  Makefile            builds all of these

Build

  make                                     object files and examples
  make test                                builds and runs the tests
  make CC=arm-none-eabi-gcc NAME_law.o     the law alone, for another processor

  Without make:
  cc -std=c99 -O2 -c NAME_law.c
  cc -std=c99 -O2 -o NAME_law_test NAME_law_test.c NAME_law.c -lm && ./NAME_law_test

  Do not compile with -ffast-math: the law tests for numbers that are not finite.

Call once per period, with coordinates and velocities measured at time t

  #include "NAME_law.h"

  NAME_command out;
  if (NAME_law(0, t, q, v, &out) >= NAME_NOT_POSITIVE) {
    ... there is no command, out.u is NaN: stop the machine ...
  } else {
    ... apply out.u, in the order and units that NAME_law.h states ...
  }

  The constants of the status are in capitals: MY_ARM_NOT_POSITIVE for the law my_arm.
  The first argument 0 selects the parameters of the config. For others, copy NAME_defaults, change the copy and pass
  its address. A law with a memory has one more argument before &out: after each call, add the elapsed time [s] times
  out.memory_rate to the memory.
"""


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
