"""What the three files say in common."""

from dataclasses import dataclass

from servoctl.export.interface import Interface
from servoctl.export.source import StandaloneSource, double_literal, single_literal
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array


@dataclass(frozen=True)
class Facts:
    """What the texts say beside the code.

    Attributes:
        title: The config.
        version: Of servoctl.
        border: Names, units and parameters.
        source: The law.
        loop: What it was made of.
        single: Whether it computes in float.
        accuracy: How well the law agrees with the reference, one sentence.
    """

    title: str
    version: str
    border: Interface
    source: StandaloneSource
    loop: CompiledLoop
    single: bool
    accuracy: str

    @property
    def real(self) -> str:
        """The type of a number."""
        return "float" if self.single else "double"

    def literal(self, value: float) -> str:
        """A number in C."""
        return single_literal(value) if self.single else double_literal(value)

    @property
    def signature(self) -> str:
        """The law's declaration, without the semicolon."""
        name, real = self.border.name, self.real
        memory = f" const {real} *memory," if self.border.memory else ""
        given = f"const {name}_parameters *p, {real} t, const {real} *q, const {real} *v,{memory}"
        return f"int {name}_law({given}\n    {name}_command *out)"

    def initialiser(self, values: Array) -> str:
        """The initialiser of the parameters' struct."""
        groups = []
        for members in self.border.groups.values():
            entries = [[self.literal(values[place]) for place in member.places] for member in members]
            groups.append(
                ", ".join(
                    e[0] if m.length is None else f"{{{', '.join(e)}}}" for m, e in zip(members, entries, strict=True)
                )
            )
        return ",\n".join(f"  {{{group}}}" for group in groups) or "  0"
