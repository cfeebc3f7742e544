"""Functions of a state and of the plant's matrices there, compiled."""

from collections.abc import Callable, Mapping
from typing import Any

from servoctl.engine.kernel import BufferedCall, Kernel
from servoctl.engine.select_engine import run_fast
from servoctl.engine.symbol import symbols
from servoctl.engine.trace import trace
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

Function = Callable[..., Any]  # (state, matrices, *further arrays) -> a tuple of arrays, on numbers or symbols


def traced_kernel(
    name: str,
    model: Model,
    function: Function,
    outputs: tuple[str, ...],
    further: Mapping[str, int] | None = None,
    in_numpy: bool = False,
) -> Kernel:
    """The function as a kernel of t, q, v, the parameters and the further inputs (name -> length).

    The matrices come from the plant's NumPy code if `in_numpy`, or if the plant cannot be traced.
    """
    inputs = {each: symbols(each, size) for each, size in (further or {}).items()}
    variables = {**model.symbols(), **inputs}
    state = State(variables["t"][0], variables["q"], variables["v"])
    results = trace(function, state, model.symbolic_matrices(variables, in_numpy), *inputs.values())
    return Kernel.compile(name, variables, dict(zip(outputs, results, strict=True)))


class StateFunction:
    """The function at a state, compiled.

    Args:
        name: Name of the kernel.
        function: What is evaluated.
        outputs: Names of its results.
        further: Further inputs: name -> length.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        function: Function,
        outputs: tuple[str, ...],
        engine: str = "auto",
        further: Mapping[str, int] | None = None,
    ) -> None:
        self._model = model
        self._kernel = traced_kernel(name, model, function, outputs, further, engine == "numpy")
        run_fast(self._kernel, engine if model.opaque is None else "vm")

    def buffered(self) -> BufferedCall:
        """A call with buffers of its own, which hold the parameters."""
        call = BufferedCall(self._kernel)
        _, _, _, parameters, *_ = call.inputs.values()
        parameters[...] = self._model.parameters
        return call

    def __call__(self, state: State, *further: Array) -> tuple[Array, ...]:
        """The results at a state."""
        return tuple(self._kernel(state.t, state.q, state.v, self._model.parameters, *further))
