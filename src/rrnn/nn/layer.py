"""One direction of one layer: one matrix product for all projections, then one kernel for all cells.

x (T, B, I) ── × weightᵀ ──▶ pre-activations (T, B, rows) ── cells ──▶ h ── skip ── norm ──▶ output (T, B, H)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from rrnn.automata import Cell
from rrnn.errors import CellError
from rrnn.ir import Program, lower
from rrnn.nn.init import SATURATED, is_forget_gate, uniform_rows
from rrnn.nn.masks import Window, zero_padding
from rrnn.nn.product import in_one_node, linear
from rrnn.nn.rows import Rows, add_columns, count, rows_of
from rrnn.nn.state import LayerState
from rrnn.ops import Params, initial_states, rational

Skip = Literal["highway", "residual"]
Norm = Literal["layer"] | Callable[[int], nn.Module]
Drop = Callable[[Tensor], Tensor]

BIAS = ".bias"  # how programs call the bias of a projection: "f.bias"


class Named(nn.Module):
    """Parameters under the names that a cell gives them. Those may be anything ("half", "type"), so they are no
    attributes, and are read as items."""

    def add(self, name: str, value: nn.Parameter) -> None:
        self._parameters[name] = value

    def __getitem__(self, name: str) -> Tensor:
        value = self._parameters[name]
        assert value is not None
        return value

    def get(self, name: str) -> Tensor | None:
        return self._parameters.get(name)

    def train(self, mode: bool = True) -> Named:
        object.__setattr__(self, "training", mode)  # nn.Module would take it for a parameter of that name
        return self

    def __repr__(self) -> str:
        return ", ".join(self._parameters)


class CellParameters(nn.Module):
    """The numbers per unit of one cell: biases of its projections, and its own learned parameters."""

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
        self.bias, self.parameter = Named(), Named()
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

    def of(self, name: str) -> Tensor | None:
        """A parameter by the program's name for it ("f.bias", "r"); None for a bias fixed at zero."""
        kind, key = (self.bias, name.removesuffix(BIAS)) if name.endswith(BIAS) else (self.parameter, name)
        return kind.get(key)


class RationalLayer(nn.Module):
    """One direction of one layer of a `RationalRNN`, time first. It trusts its arguments."""

    def __init__(
        self,
        cells: Sequence[tuple[Cell, int]],
        input_size: int,
        *,
        bias: bool = True,
        skip: Skip | None = None,
        norm: Norm | None = None,
        forget_bias: float = 0.0,
        zoneout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.cell_types, self.widths = tuple(cell for cell, _ in cells), tuple(width for _, width in cells)
        self.input_size, self.hidden_size = input_size, sum(self.widths)
        self.skip, self.forget_bias, self.zoneout = skip, forget_bias, zoneout
        lowered = [lower(cell) for cell in self.cell_types]
        self.programs = tuple(each.program for each in lowered)
        self.uses_input = any(program.uses_input for program in self.programs)

        projected = input_size != self.hidden_size
        extra = {
            "input": self.uses_input and projected,
            "skip": skip and projected,
            "gate": skip == "highway",
        }
        self.rows = rows_of(lowered, self.widths, [name for name, wanted in extra.items() if wanted])
        self.columns = max((r.stop for r in self.rows if r.cell >= 0), default=0)  # those that cells read
        self.own_rows = tuple(r for r in self.rows if r.cell < 0)
        self.forget_rows = tuple(r for r in self.rows if r.cell >= 0 and is_forget_gate(r.name))
        self.window = max((r.window for r in self.rows), default=1)
        # Whether all that is done with the input is to project it: no history, no cell's input(), no skip past it
        self.only_projects = self.window == 1 and (projected or not (self.uses_input or skip))

        total = max((r.stop for r in self.rows), default=0)
        self.weight = nn.Parameter(torch.empty(total, input_size, device=device, dtype=dtype))
        self.lagged = Named()
        for k in range(1, self.window):
            matrix = torch.empty(count(self.lag_rows(k)), input_size, device=device, dtype=dtype)
            self.lagged.add(str(k), nn.Parameter(matrix))
        self.cells = nn.ModuleList(
            CellParameters(p, w, bias, device, dtype) for p, w in zip(self.programs, self.widths, strict=True)
        )
        gate_bias = skip == "highway" and bias
        self.gate_bias = (
            nn.Parameter(torch.empty(self.hidden_size, device=device, dtype=dtype)) if gate_bias else None
        )
        if norm == "layer":
            self.norm = nn.LayerNorm(self.hidden_size, device=device, dtype=dtype)
        else:
            self.norm = None if norm is None else norm(self.hidden_size)
        self.reset_parameters()

    # ---- parameters ----------------------------------------------------------------------------------------------

    def lag_rows(self, k: int) -> list[Rows]:
        """The projections that see the input k steps earlier: the rows of `lagged.k`, in this order."""
        return [r for r in self.rows if r.window > k]

    def _lags(self) -> list[tuple[int, Tensor]]:
        return [(k, self.lagged[str(k)]) for k in range(1, self.window)]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the default initialisation anew (see `rrnn.nn.init`)."""
        for r in self.rows:
            uniform_rows(self.weight[r.start : r.stop], self.input_size, r.window)
        for k, weight in self._lags():
            start = 0
            for r in self.lag_rows(k):
                uniform_rows(weight[start : start + r.stop - r.start], self.input_size, r.window)
                start += r.stop - r.start
        found = False
        for cell in self.cells:
            for name, value in cell.named_parameters():
                forget = name.startswith("bias.") and is_forget_gate(name.removeprefix("bias."))
                value.fill_(self.forget_bias if forget else 0.0)
                found = found or forget
        if self.forget_bias and not found:
            raise CellError(
                f"forget_bias={self.forget_bias} sets the bias of projections called f, f1, f2, … or forget…, and "
                f"{', '.join(cell.name for cell in self.cell_types)} has none with a bias. Leave forget_bias out."
            )
        if self.gate_bias is not None:
            self.gate_bias.zero_()
        reset = getattr(self.norm, "reset_parameters", None)
        if reset is not None:
            reset()

    def numbers(self, cell: int) -> CellParameters:
        """Biases and parameters of one of the cells."""
        found = self.cells[cell]
        assert isinstance(found, CellParameters)
        return found

    def parameter_rows(self, like: Tensor) -> list[Params]:
        """Per cell (P, units): what the kernel reads."""
        return [cell.rows(like) for cell in self.cells]  # pyright: ignore[reportCallIssue]

    def initial(self, batch: int) -> LayerState:
        """λ of every cell, and a history of zeros."""
        states = initial_states(self.programs, self.parameter_rows(self.weight), batch)
        return LayerState(states, self._no_history(batch))

    def _no_history(self, batch: int) -> Tensor | None:
        return self.weight.new_zeros(self.window - 1, batch, self.input_size) if self.window > 1 else None

    def state_shapes(self, batch: tuple[int, ...]) -> tuple[list[tuple[int, ...]], tuple[int, ...] | None]:
        """Shapes of the states and of the history; `batch` is () for an unbatched state."""
        history = (self.window - 1, *batch, self.input_size) if self.window > 1 else None
        return [(len(p.states), *batch, w) for p, w in zip(self.programs, self.widths, strict=True)], history

    # ---- running -------------------------------------------------------------------------------------------------

    def project(
        self, x: Tensor, history: Tensor | None, mask: Tensor | None, prefix: bool, drop: Drop | None
    ) -> tuple[Tensor, Tensor | None]:
        """(pre-activations (T, B, rows) without biases, the next history)."""
        if self.window == 1:
            return linear(x if drop is None else drop(x), self.weight), None
        assert history is not None
        window = Window(x, history, mask, prefix)
        inputs = window.inputs if drop is None else drop(window.inputs)
        y = linear(inputs[window.reach :], self.weight)
        for k, weight in self._lags():
            y = add_columns(y, linear(window.lag(k, inputs), weight), self.lag_rows(k))
        return y, window.latest()

    def _zone_out(self, y: Tensor) -> Tensor:
        """Pre-activations with forget gates that are fully open at random: f ← 1 − dropout(1 − f), without scaling."""
        parts, end = [], 0
        for r in self.forget_rows:
            here = y[..., r.start : r.stop]
            kept = torch.rand(here.shape, device=y.device) < self.zoneout
            parts += [y[..., end : r.start], here.masked_fill(kept, SATURATED)]
            end = r.stop
        return torch.cat([*parts, y[..., end:]], -1)

    def recur(
        self,
        x: Tensor,
        state: LayerState | None = None,
        mask: Tensor | None = None,
        prefix: bool = False,
        drop: Drop | None = None,
        programs: Sequence[Program] | None = None,
    ) -> tuple[Tensor, LayerState, dict[str, Tensor]]:
        """The cells alone: (their output, the next state, pre-activations of the layer's own rows). `programs` stand in
        for the cells' own, to read other values than their output."""
        weight, zoneout, inside = self.weight, self.zoneout if self.training else 0.0, None
        states, history = (None, self._no_history(x.shape[1])) if state is None else state
        if self.window == 1 and not (self.own_rows or zoneout) and in_one_node(x, weight):
            y, inside = x if drop is None else drop(x), weight
        else:
            y, history = self.project(x, history, mask, prefix, drop)
            y = self._zone_out(y) if zoneout else y
        own = {r.name: y[..., r.start : r.stop] for r in self.own_rows}
        inp = own.get("input", x.to(y.dtype)) if self.uses_input else None
        cells, params = y[..., : self.columns] if own else y, self.parameter_rows(weight)
        programs = programs or self.programs
        out, finals = rational(cells, params, states, programs, mask=mask, inp=inp, weight=inside)
        return out, LayerState(tuple(finals), history), own

    def forward(
        self,
        x: Tensor,
        state: LayerState | None = None,
        mask: Tensor | None = None,
        prefix: bool = False,
        drop: Drop | None = None,
    ) -> tuple[Tensor, LayerState]:
        """x (T, B, I), zeros at padded steps; mask (T, B); `prefix`: valid steps come before all padding; `drop`
        is done to what projections see."""
        out, state, own = self.recur(x, state, mask, prefix, drop)
        if self.skip:
            carried = own.get("skip", x.to(out.dtype))
            if self.skip == "highway":
                bias = 0 if self.gate_bias is None else self.gate_bias.to(out.dtype)
                out = carried + (own["gate"] + bias).sigmoid() * (out - carried)
            else:
                out = out + carried
        if self.norm is not None:
            out = zero_padding(self.norm(out), mask)
        return out, state

    def extra_repr(self) -> str:
        cells = ", ".join(f"{c.name} × {w}" for c, w in zip(self.cell_types, self.widths, strict=True))
        skip = f", skip={self.skip!r}" if self.skip else ""
        return f"{self.input_size}, {self.hidden_size}, {cells}{skip}"
