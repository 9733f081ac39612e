"""Layers made of machines: before training a unit computes exactly a WFSA's scores, and then it can be trained.

Each pair of states that arcs connect becomes one projection of the cell: the weight of p → q at a symbol is W_pq · v
for the symbol's vector v. So a layer carries a machine exactly if and only if, for every pair, the weights of its arcs
as a function of the symbol lie in the span of the symbols' vectors. One-hot vectors span everything. Given vectors are
checked; where they do not suffice, features are appended to them: one for each symbol of the rules, and one for all
other symbols, which are those that behave alike in all machines.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.automata import Cell, linear, parameter
from rrnn.errors import AutomatonError, CellError, ShapeError
from rrnn.nn.rnn import RationalRNN
from rrnn.wfsa import OTHER, WFSA
from rrnn.wfsa.symbols import preview

Vectors = Mapping[Any, Tensor] | Tensor
MAX_ONE_HOT = 4096
"""The largest alphabet with a vector of its own for each symbol."""


def from_wfsa(
    machines: WFSA | Sequence[WFSA],
    vectors: Vectors | None = None,
    *,
    dense: bool = False,
    batch_first: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> MachineRNN:
    """Return a layer with one unit for each machine, whose outputs are the machines' scores of the string so far.

    `vectors` maps every symbol to its input vector, or is a matrix (symbols, size) in the order of the alphabet;
    several machines have the alphabet of all of them, in order. Without vectors they are one-hot. If the machines'
    weights do not lie in the span of the vectors, features are appended to these (`MachineRNN.features` names them); an
    alphabet of more than 4,096 symbols without vectors has features only. `layer.encode(("not", "good"))` returns the
    input for a string. A machine that lacks a symbol of another one reads it as `"<other>"` if it has that symbol, and
    otherwise has no arcs for it.

    Weights of arcs and final weights are trained; initial weights are fixed. `dense=True` also makes weights, zero at
    first, for all arcs and final states that a machine lacks, so that training can add them.

    ε-arcs and states on no path are removed first. Machines over a semiring without a gradient are read over the reals:
    a boolean machine is made deterministic before that, so that no string has two paths.
    """
    given = [machines] if isinstance(machines, WFSA) else list(machines)
    if not given or not all(isinstance(machine, WFSA) for machine in given):
        raise AutomatonError("from_wfsa takes a WFSA, or a list of at least one WFSA")
    parts = [_Part.of(_runnable(machine), dense, number) for number, machine in enumerate(given)]
    alphabet = tuple(dict.fromkeys(symbol for part in parts for symbol in part.machine.alphabet))
    table = torch.cat([part.table(alphabet) for part in parts], 1)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    inputs = _Inputs.of(alphabet, table, vectors, dtype)
    layer = MachineRNN([part.cell for part in parts], alphabet, inputs, batch_first, device, dtype)
    layer.write(inputs.weights, [part.final for part in parts])
    return layer


class MachineRNN(RationalRNN):
    """A layer that `from_wfsa` made of machines: a `RationalRNN` that knows its symbols.

    `vectors` (symbols, input_size) are the input vectors of `alphabet`, and `other` (input_size,) that of any symbol
    which is not in it: zeros, with the feature of all other symbols if there is one. So a new symbol behaves like
    these; without such a feature all of its arcs weigh zero.
    """

    vectors: Tensor
    other: Tensor

    def __init__(
        self,
        cells: Sequence[Cell],
        alphabet: tuple[Hashable, ...],
        inputs: _Inputs,
        batch_first: bool,
        device: torch.device | str | None,
        dtype: torch.dtype,
    ) -> None:
        size = inputs.vectors.shape[1]
        super().__init__(
            [(cell, 1) for cell in cells], size, batch_first=batch_first, device=device, dtype=dtype
        )
        self.alphabet = alphabet
        self.features: tuple[Hashable, ...] = inputs.features
        """The symbols that the last columns of the input stand for, if features were appended: `"<other>"` for those of
        no rule."""
        self.symbol_index = {symbol: i for i, symbol in enumerate(alphabet)}
        # Not stored with the weights: they follow from the machines and the given vectors.
        self.register_buffer("vectors", inputs.vectors.to(device=device, dtype=dtype), persistent=False)
        self.register_buffer("other", inputs.other.to(device=device, dtype=dtype), persistent=False)

    def encode(self, string: Iterable[Hashable]) -> Tensor:
        """Return the input (time, input_size) of one string of symbols. New symbols get the vector `other`."""
        known = len(self.alphabet)
        ids = [self.symbol_index.get(symbol, known) for symbol in string]
        table = torch.cat([self.vectors, self.other.unsqueeze(0)])
        return table[torch.tensor(ids, dtype=torch.int64, device=table.device)]

    def symbol_vectors(self) -> dict[Hashable, Tensor]:
        """Return the input vector of each symbol, which is what `rrnn.to_wfsa` asks for."""
        return dict(zip(self.alphabet, self.vectors, strict=True))

    @torch.no_grad()
    def write(self, weights: Tensor, finals: Sequence[Mapping[str, float]]) -> None:
        """Set the projections to `weights` (input_size, all pairs of states, machine by machine), and the final weights
        by name."""
        layer, column = self._all_layers()[0], 0
        for cell, final in enumerate(finals):
            for arc in layer.cell_types[cell].arcs:
                name = getattr(arc.weight, "name", "")
                layer.projection(cell, name).weight().copy_(weights[:, column].unsqueeze(0))
                column += 1
            for name, value in final.items():
                layer.parameters_of(cell)[name].fill_(value)


# ---- one machine as a cell ---------------------------------------------------------------------------------


def _runnable(machine: WFSA) -> WFSA:
    """Return a machine over a semiring with a gradient, without ε-arcs, trimmed."""
    ring = machine.semiring
    if not ring.has_gradient:
        deterministic = machine.minimise() if ring.minimised_by == "determinisation" else machine
        machine = deterministic.with_semiring("real")
    machine = machine.detach().remove_epsilon().trim()
    if machine.semiring.components:
        raise AutomatonError(
            f"a layer is made of machines whose weights are single numbers; those of {ring.name} have "
            f"{ring.size}. Convert the machine: machine.with_semiring('real')."
        )
    if not machine.num_arcs:
        raise AutomatonError(
            "a layer is made of machines that read at least one symbol; in this one no path with an arc leads from an "
            "initial to a final state"
        )
    return machine


class _Part(NamedTuple):
    """A machine, its cell, the pairs of states of the cell's arcs, and its final weights by the names in the cell."""

    machine: WFSA
    cell: Cell
    pairs: list[tuple[int, int]]
    final: dict[str, float]

    @classmethod
    def of(cls, machine: WFSA, dense: bool, number: int) -> _Part:
        ring, size = machine.semiring, machine.num_states
        arcs = zip(machine.arc_source.tolist(), machine.arc_target.tolist(), strict=True)
        pairs = sorted(product(range(size), range(size)) if dense else set(arcs))
        initials, finals = (ring.numbers(weights) for weights in machine.weights[1:])
        final = {f"end{q}": finals[q] for q in range(size) if dense or finals[q] != ring.zero}
        cell = Cell(f"machine{number}", ring)
        try:
            for q, weight in enumerate(initials):
                if weight != ring.zero:
                    cell = cell.initial(f"q{q}", weight)
            for q, p in pairs:
                cell = cell.arc(f"q{q}", f"q{p}", linear(f"w{q}_{p}"))
            for q in range(size):
                if f"end{q}" in final:
                    cell = cell.final(f"q{q}", parameter(f"end{q}"))
        except CellError as error:
            raise AutomatonError(
                f"machine {number} over {ring.name} with {size} states cannot be a cell of a layer: {error}"
            ) from error
        return cls(machine, cell, pairs, final)

    def table(self, alphabet: Sequence[Hashable]) -> Tensor:
        """Return the weights (symbols, pairs of states) of the arcs, zero where there is none."""
        machine, ring = self.machine, self.machine.semiring
        place = {pair: i for i, pair in enumerate(self.pairs)}
        ends = zip(machine.arc_source.tolist(), machine.arc_target.tolist(), strict=True)
        columns = torch.tensor([place[pair] for pair in ends])
        own = ring.zeros(
            len(machine.alphabet) + 1, len(self.pairs)
        )  # the last row is that of unknown symbols
        own[machine.arc_symbol, columns] = machine.arc_weight
        unknown = machine.symbol_index.get(OTHER, len(machine.alphabet))
        table = own[torch.tensor([machine.symbol_index.get(symbol, unknown) for symbol in alphabet])]
        if not table.isfinite().all() or not all(abs(value) < float("inf") for value in self.final.values()):
            raise AutomatonError(
                f"the arcs of a layer have finite weights, and a missing arc over {ring.name} weighs {ring.zero!r}: "
                "where an arc connects two states, every symbol must have one. Add the missing arcs, leave out "
                "dense=True, or convert the machine: machine.with_semiring('real')."
            )
        return table


# ---- vectors of symbols ------------------------------------------------------------------------------------


class _Inputs(NamedTuple):
    """The vectors (symbols, size), that of other symbols, the appended features, and the weights (size, pairs)."""

    vectors: Tensor
    other: Tensor
    features: tuple[Hashable, ...]
    weights: Tensor

    @classmethod
    def of(
        cls, alphabet: tuple[Hashable, ...], table: Tensor, vectors: Vectors | None, dtype: torch.dtype
    ) -> _Inputs:
        count = len(alphabet)
        if vectors is None and count > MAX_ONE_HOT:
            vectors = torch.zeros(count, 0)
        if vectors is None:
            one_hot = torch.eye(count, dtype=torch.float64)
            other = one_hot[alphabet.index(OTHER)] if OTHER in alphabet else torch.zeros(count).double()
            return cls(one_hot, other, (), table)
        given = _matrix(alphabet, vectors)
        nothing = given[alphabet.index(OTHER)] if OTHER in alphabet else given.new_zeros(given.shape[1])
        if not given.any():  # they span nothing
            return cls._with_features(alphabet, table, given, nothing)
        weights = torch.linalg.lstsq(given, table, driver="gelsd").solution
        # As the layer will compute it: rounded to its dtype
        error = (given.to(dtype) @ weights.to(dtype) - table.to(dtype)).abs().max()
        if error <= 1000 * torch.finfo(dtype).eps * table.abs().max():
            return cls(given, nothing, (), weights)
        return cls._with_features(alphabet, table, given, nothing)

    @classmethod
    def _with_features(
        cls, alphabet: tuple[Hashable, ...], table: Tensor, given: Tensor, nothing: Tensor
    ) -> _Inputs:
        """Append a feature for each symbol, but one for all those of the largest group that behaves alike."""
        _, group, sizes = table.unique(dim=0, return_inverse=True, return_counts=True)
        largest = int(group[alphabet.index(OTHER)]) if OTHER in alphabet else int(sizes.argmax())
        alike = (group == largest).tolist()
        shared = sum(alike) > 1 or OTHER in alphabet
        own = [i for i, same in enumerate(alike) if not (same and shared)]
        column = {i: c for c, i in enumerate(own)}
        features = tuple(alphabet[i] for i in own) + ((OTHER,) if shared else ())
        extra = given.new_zeros(len(alphabet), len(features))
        weights = given.new_zeros(given.shape[1] + len(features), table.shape[1])
        for i in range(len(alphabet)):
            feature = column.get(i, len(own))
            extra[i, feature] = 1.0
            weights[given.shape[1] + feature] = table[i]
        last = given.new_zeros(len(features))
        if shared:
            last[-1] = 1.0
        return cls(torch.cat([given, extra], 1), torch.cat([nothing, last]), features, weights)


def _matrix(alphabet: tuple[Hashable, ...], vectors: Vectors) -> Tensor:
    """Return given vectors as a matrix (symbols, size), or raise."""
    if isinstance(vectors, Mapping):
        missing = [symbol for symbol in alphabet if symbol not in vectors]
        if missing:
            raise AutomatonError(
                f"every symbol of the alphabet needs a vector; {preview(missing)} have none. Add them to vectors=."
            )
        rows = [vectors[symbol] for symbol in alphabet]
        shapes = {tuple(row.shape) if isinstance(row, Tensor) else type(row).__name__ for row in rows}
        if len(shapes) > 1 or not isinstance(rows[0], Tensor) or rows[0].dim() != 1:
            raise ShapeError(f"the vectors of symbols must be 1-d tensors of one size; got {preview(shapes)}")
        vectors = torch.stack(rows)
    if not isinstance(vectors, Tensor) or vectors.dim() != 2 or vectors.shape[0] != len(alphabet):
        got = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
        raise ShapeError(
            f"vectors must map each of the {len(alphabet)} symbols to a vector, or be a matrix of so many rows; "
            f"got {got}"
        )
    matrix = vectors.detach().double().cpu()
    if not matrix.isfinite().all():
        raise ShapeError("the vectors of symbols must be finite; some are NaN or infinite")
    return matrix
