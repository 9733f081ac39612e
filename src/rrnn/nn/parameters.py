"""The parameters of a cell in a layer, one number per unit each, under the names that the cell gives them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rrnn.ir import Program

BIAS = ".bias"  # how programs call the bias of a projection: "f.bias"


class NamedParameters(nn.Module):
    """A table of parameters by name. Names may be anything ("half", "type"), so parameters are items here, not
    attributes."""

    def add(self, name: str, value: nn.Parameter) -> None:
        self._parameters[name] = value

    def __getitem__(self, name: str) -> Tensor:
        value = self._parameters[name]
        assert value is not None
        return value

    def get(self, name: str) -> Tensor | None:
        return self._parameters.get(name)

    def train(self, mode: bool = True) -> NamedParameters:
        object.__setattr__(self, "training", mode)  # nn.Module would take it for a parameter of that name
        return self

    def __repr__(self) -> str:
        return ", ".join(self._parameters)


class CellParameters(nn.Module):
    """The parameters of one cell: biases of its projections, and its own learned parameters, (units,) each."""

    def __init__(
        self,
        program: Program,
        units: int,
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.units = units
        self.names = tuple((name.endswith(BIAS), name.removesuffix(BIAS)) for name in program.parameters)
        self.bias, self.parameter = NamedParameters(), NamedParameters()
        for is_bias, name in self.names:
            if bias or not is_bias:
                value = nn.Parameter(torch.empty(units, device=device, dtype=dtype))
                (self.bias if is_bias else self.parameter).add(name, value)

    def rows(self, like: Tensor) -> list[Tensor] | Tensor:
        """P rows (units,) in the program's order; biases that the layer does not have are zeros."""
        if not self.names:
            return like.new_zeros(0, self.units)
        biases, learned = self.bias.get, self.parameter.get  # once: attributes of modules are slow to look up
        rows = [biases(name) if is_bias else learned(name) for is_bias, name in self.names]
        return [like.new_zeros(self.units) if row is None else row for row in rows]
