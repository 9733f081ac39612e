"""One direction of one layer: one matrix product for all projections, then one kernel for all cells.

x (T, B, I) ── × weightᵀ ──▶ pre-activations (T, B, rows) ── cells ──▶ h ── skip ── norm ──▶ output (T, B, H)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from rrnn.automata import Cell
from rrnn.backends.extents import by_index
from rrnn.errors import CellError
from rrnn.ir import Program, lower
from rrnn.ir.affine import share_states
from rrnn.nn.layer_weights import (
    SATURATED,
    CellParameters,
    NamedParameters,
    Projection,
    add_columns,
    is_forget_gate,
    lay_out_rows,
    row_count,
    uniform_rows,
)
from rrnn.nn.packed import Packed, PackedWindow
from rrnn.nn.product import in_one_node, linear
from rrnn.nn.sequences import LayerState, Window, zero_padding
from rrnn.ops import Params, initial_states, rational

Skip = Literal["highway", "residual"]
Norm = Literal["layer"] | Callable[[int], nn.Module]
Drop = Callable[[Tensor], Tensor]


class RationalLayer(nn.Module):
    """One direction of one layer of a `RationalRNN`, time first. It trusts its arguments. `project_input`: whether a
    projection stands in for input() where sizes are equal, too."""

    def __init__(
        self,
        cells: Sequence[tuple[Cell, int]],
        input_size: int,
        *,
        bias: bool = True,
        skip: Skip | None = None,
        norm: Norm | None = None,
        forget_bias: float = 0.0,
        output_bias: float = 0.0,
        zoneout: float = 0.0,
        heads: int = 1,
        groups: int = 1,
        low_rank: Mapping[str, int] | None = None,
        project_input: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.cell_types, self.widths = tuple(cell for cell, _ in cells), tuple(width for _, width in cells)
        self.input_size, self.hidden_size = input_size, sum(self.widths)
        self.skip, self.zoneout = skip, zoneout
        self.gate_biases = {"forget": forget_bias, "output": output_bias}
        lowered = [lower(cell) for cell in self.cell_types]
        headed = (each.program.with_heads(heads, groups) for each in lowered)
        self.programs = tuple(map(share_states, headed, self.widths))
        self.uses_input = any(program.uses_input for program in self.programs)

        pairs = zip(self.programs, self.widths, strict=True)
        self.output_size = sum(program.output_count * width for program, width in pairs)

        inputs_differ, outputs_differ = (
            project_input or input_size != self.hidden_size,
            input_size != self.output_size,
        )
        extra = {
            "input": self.hidden_size if self.uses_input and inputs_differ else 0,
            "skip": self.output_size if skip and outputs_differ else 0,
            "gate": self.output_size if skip == "highway" else 0,
        }
        extra = {name: size for name, size in extra.items() if size}
        self.rows = lay_out_rows(lowered, self.programs, self.widths, extra, low_rank or {})
        self.low_rank_rows = tuple(r for r in self.rows if r.rank)
        # The pre-activations that cells read come first.
        self.columns = max((r.stop for r in self.rows if r.cell >= 0), default=0)
        self.own_rows = tuple(r for r in self.rows if r.cell < 0)
        self.forget_rows = tuple(r for r in self.rows if r.cell >= 0 and is_forget_gate(r.name))
        self.window = max((r.window for r in self.rows), default=1)
        # For each lag, the projections that see the input that many steps earlier, in the order of the matrix's rows
        self.lag_rows = tuple([r for r in self.rows if r.window > k] for k in range(self.window))
        # Whether the input is only projected: no history, no cell that reads input(), no skip connection past it
        reads = (self.uses_input and not inputs_differ) or (skip and not outputs_differ)
        self.only_projects = self.window == 1 and not reads

        total = max((r.of_lag(0).stop for r in self.rows), default=0)
        self.weight = nn.Parameter(torch.empty(total, input_size, device=device, dtype=dtype))
        self.lagged = NamedParameters()
        for k in range(1, self.window):
            matrix = torch.empty(row_count(self.lag_rows[k]), input_size, device=device, dtype=dtype)
            self.lagged.add(str(k), nn.Parameter(matrix))
        self.cells = nn.ModuleList(
            CellParameters(cell, p, w, bias, [r for r in self.low_rank_rows if r.cell == c], device, dtype)
            for c, (cell, p, w) in enumerate(zip(self.cell_types, self.programs, self.widths, strict=True))
        )
        gate_bias = skip == "highway" and bias
        self.gate_bias = (
            nn.Parameter(torch.empty(self.output_size, device=device, dtype=dtype)) if gate_bias else None
        )
        if norm == "layer":
            self.norm = nn.LayerNorm(self.output_size, device=device, dtype=dtype)
        else:
            self.norm = None if norm is None else norm(self.output_size)
        self.reset_parameters()

    # ---- parameters ----------------------------------------------------------------------------------------------

    def _matrices(self) -> tuple[Tensor, ...]:
        """Return the matrices: `weight`, `lagged.1`, …"""
        return self.weight, *(self.lagged[str(k)] for k in range(1, self.window))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the default initialisation anew (see `rrnn.nn.layer_weights`)."""
        for k, weight in enumerate(self._matrices()):
            for r in self.lag_rows[k]:
                uniform_rows(weight[r.of_lag(k)], self.input_size, r.window)
        found = set[str]().union(*(self._cell(c).reset(self.gate_biases) for c in range(len(self.cells))))
        for kind, first in self.gate_biases.items():
            if first and kind not in found:
                k = kind[0]
                raise CellError(
                    f"{kind}_bias={first} sets the bias of projections called {k}, {k}1, {k}2, … or {kind}…, and "
                    f"{', '.join(cell.name for cell in self.cell_types)} has none with a bias. Leave {kind}_bias out."
                )
        if self.gate_bias is not None:
            self.gate_bias.zero_()
        reset = getattr(self.norm, "reset_parameters", None)
        if reset is not None:
            reset()

    def parameter_rows(self, like: Tensor) -> list[Params]:
        """Return the parameters that the kernel reads, (P, units) or P rows, for each cell."""
        return [cell.rows(like) for cell in self.cells]  # pyright: ignore[reportCallIssue]

    def initial(self, batch: int) -> LayerState:
        """Return the first state: λ of every cell, and a history of zeros."""
        states = initial_states(self.programs, self.parameter_rows(self.weight), batch, self.widths)
        return LayerState(states, self.no_history(batch))

    def no_history(self, batch: int) -> Tensor | None:
        """Return a history of zeros, or None for a layer without windows."""
        return self.weight.new_zeros(self.window - 1, batch, self.input_size) if self.window > 1 else None

    def state_shapes(self, batch: tuple[int, ...]) -> tuple[list[tuple[int, ...]], tuple[int, ...] | None]:
        """Return the shapes of the states and of the history; `batch` is () for an unbatched state."""
        history = (self.window - 1, *batch, self.input_size) if self.window > 1 else None
        return [
            (p.flat.state_count, *batch, w) for p, w in zip(self.programs, self.widths, strict=True)
        ], history

    # ---- weights by name -----------------------------------------------------------------------------------------

    def locate(self, unit: int) -> tuple[int, int]:
        """Return (cell, column): which cell a unit of the layer belongs to, and its place among that cell's units."""
        cell, unit = 0, range(self.hidden_size)[unit]
        while unit >= self.widths[cell]:
            cell, unit = cell + 1, unit - self.widths[cell]
        return cell, unit

    def projection(self, cell: int, name: str) -> Projection:
        """Return the weights of a cell's projection, `linear(name)`, to read or to write."""
        cell = range(len(self.programs))[cell]
        program = self.programs[cell]
        if name not in program.projections:
            raise CellError(
                f"the projections of {program.name} in a layer are {', '.join(program.projections) or 'none'}; "
                f"got {name!r}"
            )
        return self._projection(cell, name, self._cell(cell).bias.get(name))

    def own_projection(self, name: Literal["input", "skip", "gate"]) -> Projection | None:
        """Return the weights of a projection of the whole layer: "input" stands in for input(), "skip" is the input
        that a skip connection carries, "gate" is the highway's. None where the layer has none."""
        if not any(r.name == name for r in self.own_rows):
            return None
        return self._projection(-1, name, self.gate_bias if name == "gate" else None)

    def parameters_of(self, cell: int) -> dict[str, Tensor]:
        """Return the parameters of a cell, `parameter(name)`, by name: (units,) each, to read or to write."""
        return dict(self._cell(cell).parameter.named_parameters())

    def numbers_of(self, cell: int, column: int) -> tuple[dict[str, tuple[str, int]], dict[str, Tensor]]:
        """Return what one unit of a cell reads, by the names that a cell without families would have: its projections,
        each as (the projection's name, the row of its matrix and bias), and the values of its parameters."""
        program, width, own = self.programs[cell], self.widths[cell], self._cell(cell)
        wide = program.wide
        rows: dict[str, tuple[str, int]] = {}
        for k, name in enumerate(program.projections):
            places = {"": column} if wide is None else wide.places(wide.projections[k], width, column)
            rows |= {name + end: (name, place) for end, place in places.items()}
        values: dict[str, Tensor] = {}
        for k, (is_bias, name) in enumerate(own.names):
            if not is_bias:
                places = {"": column} if wide is None else wide.places(wide.parameters[k], width, column)
                values |= {name + end: own.parameter[name].flatten()[at] for end, at in places.items()}
        return rows, values

    def _projection(self, cell: int, name: str, bias: Tensor | None) -> Projection:
        """Return the weights of a projection of a cell, or of the layer itself (−1)."""
        (rows,) = (r for r in self.rows if (r.cell, r.name) == (cell, name))
        left = self._cell(cell).low_rank[name] if rows.rank else None
        return Projection(rows, self._matrices(), bias, left)

    def matrix(self) -> Tensor:
        """Return W (rows, inputs) of the present input: `weight`, with projections of low rank multiplied out."""
        if not self.low_rank_rows:
            return self.weight
        return torch.cat([self._projection(r.cell, r.name, None).weight() for r in self.rows])

    def _cell(self, cell: int) -> CellParameters:
        """Return the parameters of a cell."""
        found = self.cells[cell]
        assert isinstance(found, CellParameters)
        return found

    def leaf_values(
        self,
        x: Tensor,
        history: Tensor | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> list[dict[str, Tensor]]:
        """Return for each cell what its expressions read, by name: projections of x (T, B, I) with their biases, (T, B,
        units), parameters (units,), and where the cell reads input(), "input" (T, B, units). Names are those of the
        cell written without families: B_0, B_1, ….

        `history` (K − 1, B, I) is what windows see before x, zeros if it is None. Products are the layer's; then values
        are taken to `dtype` and `device`, and biases are added there."""
        y, _ = self.project(x, self.no_history(x.shape[1]) if history is None else history, None, True, None)

        def taken(value: Tensor) -> Tensor:
            return value.to(device=device, dtype=dtype)

        y, found, first = taken(y), [], 0
        columns = {(r.cell, r.name): y[..., r.start : r.stop] for r in self.rows}
        for c, (program, width) in enumerate(zip(self.programs, self.widths, strict=True)):
            values = {}
            for name, value in self.parameters_of(c).items():
                place = program.parameters.index(name)
                values |= by_index(program, "parameters", place, taken(value).flatten(), width)
            for place, name in enumerate(program.projections):
                bias = self._cell(c).bias.get(name)
                value = columns[c, name] if bias is None else columns[c, name] + taken(bias).flatten()
                values |= by_index(program, "projections", place, value, width)
            if program.uses_input:
                whole = columns[-1, "input"] if (-1, "input") in columns else taken(x)
                values["input"] = whole[..., first : first + width]
            found.append(values)
            first += width
        return found

    # ---- running -------------------------------------------------------------------------------------------------

    def project(
        self,
        x: Tensor,
        history: Tensor | None,
        mask: Tensor | None,
        prefix: bool,
        drop: Drop | None,
        packed: Packed | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return (pre-activations (T, B, rows) without biases, the next history)."""
        if self.window == 1:
            return self._product(x if drop is None else drop(x)), None
        assert history is not None
        window = Window(x, history, mask, prefix) if packed is None else PackedWindow(x, history, packed)
        inputs = window.inputs if drop is None else drop(window.inputs)
        y = self._product(inputs[window.reach :])
        for k in range(1, self.window):
            y = add_columns(y, linear(window.lag(k, inputs), self.lagged[str(k)]), self.lag_rows[k])
        return y, window.latest()

    def _product(self, x: Tensor) -> Tensor:
        """Return x Wᵀ: one product with `weight`, and a second, narrow one for each projection of low rank."""
        y = linear(x, self.weight)
        if not self.low_rank_rows:
            return y
        parts, end = [], 0
        for r in self.low_rank_rows:
            own = r.of_lag(0)
            parts += [y[..., end : own.start], linear(y[..., own], self._cell(r.cell).low_rank[r.name])]
            end = own.stop
        return torch.cat([*parts, y[..., end:]], -1)

    def _zone_out(self, y: Tensor) -> Tensor:
        """Return pre-activations with forget gates that are fully open at random: f ← 1 − dropout(1 − f), without
        scaling."""
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
        packed: Packed | None = None,
    ) -> tuple[Tensor, LayerState, dict[str, Tensor]]:
        """Run the cells alone; return (their output, the next state, pre-activations of the layer's own rows).
        `programs` stand in for the cells' own, to read other values than their output."""
        zoneout = self.zoneout if self.training else 0.0
        if packed is not None and drop is not None:
            drop = partial(packed.shared_dropout, drop)  # a mask for each sequence
        if state is None:
            states, history = None, self.no_history(x.shape[1] if packed is None else packed.count)
        else:
            states, history = state
        plain = self.window == 1 and not (self.own_rows or self.low_rank_rows or zoneout)
        inside = (
            plain and x.is_cuda and in_one_node(x, self.weight)
        )  # in this order: modules' attributes are slow
        if inside:
            y = x if drop is None else drop(x)
        else:
            y, history = self.project(x, history, mask, prefix, drop, packed)
            y = self._zone_out(y) if zoneout else y
        out, finals, own = self.run_cells(y, x, states, mask, inside, programs, packed)
        return out, LayerState(finals, history), own

    def run_cells(
        self,
        y: Tensor,
        x: Tensor,
        states: Sequence[Tensor] | None,
        mask: Tensor | None = None,
        inside: bool = False,
        programs: Sequence[Program] | None = None,
        packed: Packed | None = None,
    ) -> tuple[Tensor, tuple[Tensor, ...], dict[str, Tensor]]:
        """Return (output, next states, pre-activations of the layer's own rows) of pre-activations y (T, B, rows) of an
        input x (T, B, I); `inside`: y is the input, and the cells compute the product with the matrix."""
        own, inp, weight = {r.name: y[..., r.start : r.stop] for r in self.own_rows}, None, self.weight
        if self.uses_input:
            inp = own.get("input", x.to(y.dtype))
        out, finals = rational(
            y[..., : self.columns] if own else y,
            self.parameter_rows(weight),
            states,
            programs or self.programs,
            mask=mask,
            inp=inp,
            weight=weight if inside else None,
            widths=self.widths,
            sequences=None if packed is None else packed.table,
        )
        return out, tuple(finals), own

    def forward(
        self,
        x: Tensor,
        state: LayerState | None = None,
        mask: Tensor | None = None,
        prefix: bool = False,
        drop: Drop | None = None,
        packed: Packed | None = None,
    ) -> tuple[Tensor, LayerState]:
        """Return (output, next state) of x (T, B, I) with zeros at padded steps, and mask (T, B). `prefix` says that
        valid steps come before all padding; `drop` is applied to what projections see; `packed` says where sequences
        lie in x (total, 1, I)."""
        out, state, own = self.recur(x, state, mask, prefix, drop, packed=packed)
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
