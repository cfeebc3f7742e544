"""The facts that the exported files share."""

from dataclasses import dataclass

from servoctl.export.interface import Interface
from servoctl.export.source import StandaloneSource, literal
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array


@dataclass(frozen=True)
class Facts:
    """Facts about an exported law."""

    title: str  # name of the config
    version: str  # version of servoctl
    border: Interface  # names, units and parameters
    source: StandaloneSource  # C code of the law
    loop: CompiledLoop  # the compiled loop that has the law
    accuracy: str  # agreement of the law with the reference, one sentence

    @property
    def signature(self) -> str:
        """Declaration of the law's function, without the semicolon."""
        name = self.border.name
        memory = " const double *memory," if self.border.memory else ""
        speeds = "" if self.border.period is not None else " const double *v,"
        inputs = f"const {name}_parameters *p, double t, const double *q,{speeds}{memory}"
        return f"int {name}_law({inputs}\n    {name}_command *out)"

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
