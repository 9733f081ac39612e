"""The recurrence of one hidden unit over any arithmetic: on floats what a layer computes, on intervals what is true.

The weights of a layer are taken as the exact numbers that they are. Cells run their own programs; layers whose units
mix and layers that are not rational are written here once more, over an arithmetic, and tested against torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from rrnn.arithmetic import FLOATS, Arithmetic, Op
from rrnn.automata.unroll import is_wide, unroll
from rrnn.errors import AutomatonError, ShapeError
from rrnn.ir.interpreter import interpret
from rrnn.ir.lower import bias_name, lower
from rrnn.nn import RationalRNN
from rrnn.nn.layer import RationalLayer
from rrnn.semirings import Semiring, get_semiring
from rrnn.zoo.controls import SCRN, SRUv2, StateRCNN
from rrnn.zoo.mixing import ISAN, LinearElman

Vectors = Mapping[Any, Tensor]
Number = Callable[[float], Any]
Vector = list[Any]


class Recurrence(ABC):
    """A state that starts somewhere, is moved by symbols, and has a value: an element of `semiring`."""

    semiring: Semiring

    def __init__(self, s: Arithmetic = FLOATS, number: Number = float) -> None:
        self.s, self.number = s, number

    @abstractmethod
    def start(self) -> Any:
        """Return the state before the first symbol."""

    @abstractmethod
    def step(self, state: Any, symbol: Any) -> Any:
        """Return the state after one more symbol."""

    @abstractmethod
    def value(self, state: Any) -> Any:
        """Return the value in a state."""

    def numbers(self, tensor: Tensor) -> Any:
        """Return a tensor as nested lists of numbers of the arithmetic."""
        values = tensor.detach().double().cpu().tolist()

        def made(x: Any) -> Any:
            return [made(y) for y in x] if isinstance(x, list) else self.number(x)

        return made(values)

    def dot(self, row: Sequence[Any], vector: Sequence[Any]) -> Any:
        """Return the sum of products."""
        total = self.number(0.0)
        for x, y in zip(row, vector, strict=True):
            total = self.s.add(total, self.s.mul(x, y))
        return total

    def affine(self, matrix: Sequence[Sequence[Any]], vector: Sequence[Any], added: Sequence[Any]) -> Vector:
        """Return matrix · vector + added."""
        return [self.s.add(self.dot(row, vector), x) for row, x in zip(matrix, added, strict=True)]


def recurrence_of(
    model: nn.Module, unit: int, vectors: Vectors, s: Arithmetic = FLOATS, number: Number = float
) -> Recurrence:
    """Return the recurrence of one unit of a layer's first layer, in forward direction, over an arithmetic.

    `vectors` maps symbols to input vectors; for an ISAN, symbols to numbers.
    """
    for kind, make in _KINDS:
        if isinstance(model, kind):
            return make(model, unit, vectors, s, number)
    raise AutomatonError(
        "expected a layer of the zoo (a RationalRNN, ISAN, LinearElman, SCRN, StateRCNN, SRUv2 or torch's LSTM, GRU "
        f"or RNN); got {type(model).__name__}. For anything else, pass a Python function of strings."
    )


class CellUnit(Recurrence):
    """A unit of a cell, run by the cell's own program. The state is the stored numbers and the window of symbols."""

    def __init__(
        self, model: RationalRNN, unit: int, vectors: Vectors, s: Arithmetic, number: Number
    ) -> None:
        super().__init__(s, number)
        layer = model.layers[0]
        assert isinstance(layer, RationalLayer)
        cell, column = layer.locate(unit)
        kind = layer.cell_types[cell]
        self.semiring = kind.semiring
        # Families are written out: the numbers of one unit are few.
        self.program = lower(unroll(kind)).program.flat if is_wide(kind) else layer.programs[cell].flat
        symbols = {a: self.numbers(v) for a, v in vectors.items()}
        self.adds: list[
            list[dict[Any, Any]]
        ] = []  # projection → lag → symbol → what the input of that step adds
        places, values = layer.numbers_of(cell, column)
        learned = {name: value.item() for name, value in values.items()}
        for name in self.program.projections:
            projection, place = places[name]
            p = layer.projection(cell, projection)
            rows = [self.numbers(p.weight(k)[place]) for k in range(p.window)]
            self.adds.append([{a: self.dot(row, v) for a, v in symbols.items()} for row in rows])
            if p.bias is not None:
                learned[bias_name(name)] = p.bias.flatten()[place].item()
        self.parameters = [number(learned[name]) for name in self.program.parameters]
        self.input: dict[Any, Any] = {}
        if self.program.uses_input:
            own = layer.own_projection("input")
            row = None if own is None else self.numbers(own.weight()[unit])
            self.input = {a: v[unit] if row is None else self.dot(row, v) for a, v in symbols.items()}
        self.window = max((len(lags) for lags in self.adds), default=1)

    def start(self) -> Any:
        values = self._leaves({})
        interpret(
            self.program.instructions,
            self.program.needed_for(self.program.initial),
            values,
            self.s,
            self.number,
        )
        first = [values[n] for n in self.program.initial]
        # The score reads new states and per-unit values only, so with the first states in place of new ones it is the
        # score of the empty string.
        values = self._leaves({}) | dict(zip(self.program.of_kind("state").values(), first, strict=True))
        return first, (), self._score(values)

    def step(self, state: Any, symbol: Any) -> Any:
        stored, history, _ = state
        window = (symbol, *history)[: self.window]
        preact = []
        for lags in self.adds:
            total = lags[0][symbol]
            for by_symbol, a in list(zip(lags, window, strict=False))[1:]:
                total = self.s.add(total, by_symbol[a])
            preact.append(total)
        values = self._leaves({Op.STATE: stored, Op.PREACT: preact, Op.INPUT: [self.input.get(symbol)]})
        score = self._score(values)
        new = self.program.of_kind("state").values()
        interpret(self.program.instructions, self.program.needed_for(new), values, self.s, self.number)
        return [values[n] for n in new], window[: self.window - 1], score

    def value(self, state: Any) -> Any:
        return state[2]

    def _leaves(self, given: Mapping[Op, Sequence[Any]]) -> dict[int, Any]:
        given = {Op.PARAM: self.parameters, **given}
        return {
            n: given[op][int(attr or 0)]
            for n, (op, _, attr) in enumerate(self.program.instructions)
            if op in given
        }

    def _score(self, values: dict[int, Any]) -> Any:
        """Return the score, given leaves and perhaps new states, and keep what was computed for it in `values`."""
        scores = list(self.program.of_kind("score").values())
        todo, wanted = list(scores), set()
        while todo:  # what the score needs, down to what is known
            n = todo.pop()
            if n not in values and n not in wanted:
                wanted.add(n)
                todo += self.program.instructions[n].args
        interpret(self.program.instructions, wanted, values, self.s, self.number)
        return self.semiring.element(values[n] for n in scores)


class _Real(Recurrence):
    """A recurrence of real vectors: the state is a list of lists, and `place` says which number is the unit's."""

    states = 1
    place = (0,)

    def __init__(self, model: Any, unit: int, vectors: Vectors, s: Arithmetic, number: Number) -> None:
        super().__init__(s, number)
        self.semiring, self.unit = get_semiring("real"), unit
        if not isinstance(unit, int) or isinstance(unit, bool) or not 0 <= unit < model.hidden_size:
            raise ShapeError(f"unit must be a number from 0 to {model.hidden_size - 1}; got {unit!r}")
        self.units = model.hidden_size
        self.prepare(model, vectors)

    @abstractmethod
    def prepare(self, model: Any, vectors: Vectors) -> None:
        """Read the weights."""

    def start(self) -> Any:
        return [[self.number(0.0)] * self.units for _ in range(self.states)]

    def value(self, state: Any) -> Any:
        return state[-1][self.unit]

    def split(self, values: Vector) -> list[Vector]:
        """Return a vector cut into parts of as many numbers as there are units."""
        return [values[i : i + self.units] for i in range(0, len(values), self.units)]

    def each(self, function: Callable[..., Any], *vectors: Vector) -> Vector:
        return [function(*values) for values in zip(*vectors, strict=True)]

    def mix(self, gate: Any, a: Any, b: Any) -> Any:
        """Return gate · a + (1 − gate) · b."""
        s = self.s
        return s.add(s.mul(gate, a), s.mul(s.sub(1.0, gate), b))


class _Affine(_Real):
    """ISAN and the linear Elman network: c = W c' + b, with W and b of the symbol."""

    def prepare(self, model: ISAN | LinearElman, vectors: Vectors) -> None:
        if isinstance(model, ISAN):
            weight, bias = self.numbers(model.weight), self.numbers(model.bias)
            self.maps = {a: (weight[int(i)], bias[int(i)]) for a, i in vectors.items()}
            return
        weight, inner = self.numbers(model.weight_hh), self.numbers(model.weight_ih)
        zero = [self.number(0.0)] * self.units
        bias = zero if model.bias is None else self.numbers(model.bias)
        self.maps = {a: (weight, self.affine(inner, self.numbers(v), bias)) for a, v in vectors.items()}

    def step(self, state: Any, symbol: Any) -> Any:
        matrix, bias = self.maps[symbol]
        return [self.affine(matrix, state[0], bias)]


class _Torch(_Real):
    """One of torch's layers: what the inputs add to each gate, and the recurrent matrix."""

    def prepare(self, model: Any, vectors: Vectors) -> None:
        if model.proj_size:
            raise AutomatonError("an LSTM with proj_size has no recurrence here; use one without")
        rows = self.numbers(model.weight_ih_l0)
        self.recurrent = self.numbers(model.weight_hh_l0)
        zero = [self.number(0.0)] * len(rows)
        self.bias_hh = self.numbers(model.bias_hh_l0) if model.bias else zero
        bias = self.numbers(model.bias_ih_l0) if model.bias else zero
        self.given = {a: self.affine(rows, self.numbers(v), bias) for a, v in vectors.items()}

    def gates(self, state: Vector, symbol: Any) -> tuple[list[Vector], list[Vector]]:
        """Return what the input and what the state adds to each gate."""
        return self.split(self.given[symbol]), self.split(self.affine(self.recurrent, state, self.bias_hh))


class _Elman(_Torch):
    def prepare(self, model: Any, vectors: Vectors) -> None:
        self.function = self.s.tanh if model.nonlinearity == "tanh" else self.s.relu
        super().prepare(model, vectors)

    def step(self, state: Any, symbol: Any) -> Any:
        (x,), (h,) = self.gates(state[0], symbol)
        return [self.each(lambda a, b: self.function(self.s.add(a, b)), x, h)]


class _LSTM(_Torch):
    """The state is (h, c); its value is c."""

    states = 2

    def step(self, state: Any, symbol: Any) -> Any:
        s, (h, c) = self.s, state
        i, f, g, o = (self.each(s.add, a, b) for a, b in zip(*self.gates(h, symbol), strict=True))

        def cell(f: Any, c: Any, i: Any, g: Any) -> Any:
            return s.add(s.mul(s.sigmoid(f), c), s.mul(s.sigmoid(i), s.tanh(g)))

        c = self.each(cell, f, c, i, g)
        return [self.each(lambda o, c: s.mul(s.sigmoid(o), s.tanh(c)), o, c), c]


class _GRU(_Torch):
    def step(self, state: Any, symbol: Any) -> Any:
        s, (h,) = self.s, state
        (xr, xz, xn), (hr, hz, hn) = self.gates(h, symbol)
        r = self.each(lambda a, b: s.sigmoid(s.add(a, b)), xr, hr)
        z = self.each(lambda a, b: s.sigmoid(s.add(a, b)), xz, hz)
        n = self.each(lambda x, r, h: s.tanh(s.add(x, s.mul(r, h))), xn, r, hn)
        return [self.each(self.mix, z, h, n)]


class _SRUv2(_Real):
    def prepare(self, model: Any, vectors: Vectors) -> None:
        update = model.layers[0]
        rows, zero = self.numbers(update.weight[: 2 * self.units]), [self.number(0.0)] * 2 * self.units
        self.given = {a: self.affine(rows, self.numbers(v), zero) for a, v in vectors.items()}
        self.peephole, self.bias = self.numbers(update.peephole[0]), self.numbers(update.bias[0])

    def step(self, state: Any, symbol: Any) -> Any:
        s, (c,), (new, f) = self.s, state, self.split(self.given[symbol])

        def gate(f: Any, v: Any, c: Any, b: Any) -> Any:
            return s.sigmoid(s.add(s.add(f, s.mul(v, c)), b))

        return [self.each(self.mix, self.each(gate, f, self.peephole, c, self.bias), c, new)]


class _StateRCNN(_Real):
    def prepare(self, model: Any, vectors: Vectors) -> None:
        update = model.layers[0]
        rows = self.numbers(update.weight)
        self.states, zero = update.states, [self.number(0.0)] * len(rows)
        self.given = {a: self.affine(rows, self.numbers(v), zero) for a, v in vectors.items()}
        self.recurrent, self.bias = self.numbers(update.recurrent), self.numbers(update.bias[0])

    def step(self, state: Any, symbol: Any) -> Any:
        s, (decay, *inputs) = self.s, self.split(self.given[symbol])
        seen = self.affine(self.recurrent, state[-1], self.bias)
        decay = self.each(lambda a, b: s.sigmoid(s.add(a, b)), decay, seen)
        before = [[self.number(1.0)] * self.units, *state]
        return [
            self.each(self.mix, decay, c, self.each(s.mul, before[j], inputs[j])) for j, c in enumerate(state)
        ]


class _SCRN(_Real):
    """The state is the states of the context units, and h."""

    def prepare(self, model: SCRN, vectors: Vectors) -> None:
        self.context = [
            CellUnit(model.context, unit, vectors, self.s, self.number) for unit in range(model.context_size)
        ]
        rows, zero = self.numbers(model.A), [self.number(0.0)] * self.units
        self.given = {a: self.affine(rows, self.numbers(v), zero) for a, v in vectors.items()}
        self.inner, self.recurrent = self.numbers(model.P), self.numbers(model.R)

    def start(self) -> Any:
        return [[unit.start() for unit in self.context], [self.number(0.0)] * self.units]

    def step(self, state: Any, symbol: Any) -> Any:
        context = [unit.step(s, symbol) for unit, s in zip(self.context, state[0], strict=True)]
        seen = [unit.value(s) for unit, s in zip(self.context, context, strict=True)]
        given = self.affine(self.inner, seen, self.given[symbol])
        return [context, self.each(self.s.sigmoid, self.affine(self.recurrent, state[1], given))]


_KINDS: tuple[tuple[Any, Any], ...] = (
    (RationalRNN, CellUnit),
    ((ISAN, LinearElman), _Affine),
    (SCRN, _SCRN),
    (StateRCNN, _StateRCNN),
    (SRUv2, _SRUv2),
    (nn.LSTM, _LSTM),
    (nn.GRU, _GRU),
    (nn.RNN, _Elman),
)
