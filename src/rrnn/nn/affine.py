"""Affine recurrences c_t = M_{x_t} c_{t−1} + u_t: one matrix per symbol, chosen by the input; the op and its layers.

Their units mix, so they are no programs of the compiler: the recurrence has kernels of its own, behind one function.

* On the CPU, C walks each sequence with its state at hand; no matrix is gathered.
* Elsewhere, and with the reference backend, torch multiplies step by step; the reference's ops are differentiable to
  any order.
* `chunk=L` cuts time into chunks whose affine maps are composed in parallel. Then the maps are applied one after
  another to find the state before each chunk, and all chunks walk side by side: 2·L + T/L steps instead of T, for d
  times the arithmetic. It pays where steps wait for the device rather than for arithmetic.

The gradient is such a recurrence too, backwards in time with transposed matrices. That of the matrices is one product
per symbol, over all the steps that read it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rrnn.backends.interface import compute_dtype
from rrnn.backends.native.backend import MAX_SIZE
from rrnn.backends.native.backend import affine_scan as native_scan
from rrnn.backends.registry import chosen, get_backend
from rrnn.errors import BackendError, ShapeError
from rrnn.nn.arguments import positive
from rrnn.nn.sequences import OneStep, TimeFirst

IDENTITY = -1
"""The symbol that stands for the identity matrix: what padding reads."""


def affine_scan(
    symbols: Tensor, matrices: Tensor, u: Tensor, first: Tensor, *, chunk: int | None = None
) -> Tensor:
    """Return the states c_1 … c_T, (T, B, d), of symbols (T, B), matrices (S, d, d), u (T, B, d) and first (B, d), all
    of one dtype, float32 or float64. Symbols are int64, from −1 (the identity) to S − 1; they are trusted."""
    if chunk is not None and 1 <= chunk < symbols.shape[0]:
        return _chunked(symbols, matrices, u, first, chunk)
    name = chosen()
    transformed = not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
    if name == "reference" or transformed:
        return _walk(symbols, matrices.mT, u, first, False)
    return torch.ops.rrnn.affine_scan(symbols, matrices, u, first, name)


def _chunked(symbols: Tensor, matrices: Tensor, u: Tensor, first: Tensor, chunk: int) -> Tensor:
    """Run chunks of time side by side, as further sequences."""
    steps, batch, size = u.shape
    count = -(-steps // chunk)
    missing = count * chunk - steps  # the last chunk is filled up with steps that change nothing
    x = torch.cat([symbols, symbols.new_full((missing, batch), IDENTITY)])
    u = torch.cat([u, u.new_zeros(missing, batch, size)])
    x = x.view(count, chunk, batch).transpose(0, 1).reshape(chunk, count * batch)
    u = u.view(count, chunk, batch, size).transpose(0, 1).reshape(chunk, count * batch, size)
    # Each chunk is one affine map c ↦ P c + p. The last chunk needs none, since nothing follows it.
    inner = (count - 1) * batch
    product, offset = _compose(x[:, :inner], matrices, u[:, :inner])
    starts, c = [first], first
    for k in range(count - 1):
        of_k = slice(k * batch, (k + 1) * batch)
        c = torch.baddbmm(offset[of_k].unsqueeze(-1), product[of_k], c.unsqueeze(-1)).squeeze(-1)
        starts.append(c)
    out = affine_scan(x, matrices, u, torch.cat(starts))
    return out.view(chunk, count, batch, size).transpose(0, 1).reshape(count * chunk, batch, size)[:steps]


def _compose(x: Tensor, matrices: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return P (N, d, d) and p (N, d) with c_L = P c_0 + p, of x (L, N) and u (L, N, d), in plain torch ops."""
    eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    with_identity = torch.cat([matrices, eye.unsqueeze(0)])  # −1 is the last
    product, offset = eye.expand(x.shape[1], -1, -1), torch.zeros_like(u[0])
    for t in range(x.shape[0]):
        m = with_identity[x[t]]
        product = m @ product
        offset = torch.baddbmm(u[t].unsqueeze(-1), m, offset.unsqueeze(-1)).squeeze(-1)
    return product, offset


def _walk(symbols: Tensor, columns: Tensor, u: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """Run step by step in torch ops. `columns` are the matrices transposed: states are rows here, which torch
    multiplies three times as fast as columns."""
    steps, c = u.shape[0], first
    kept, states = (symbols < 0).unsqueeze(-1), []
    for t in range(steps - 1, -1, -1) if reverse else range(steps):
        if columns.shape[0] == 1:
            new = torch.addmm(u[t], c, columns[0])
        else:
            chosen_ones = columns.index_select(0, symbols[t].clamp_min(0))
            new = torch.baddbmm(u[t].unsqueeze(1), c.unsqueeze(1), chosen_ones).squeeze(1)
        c = torch.where(kept[t], c + u[t], new)
        states.append(c)
    if not states:
        return torch.zeros_like(u)
    return torch.stack(states[::-1] if reverse else states)


def _walk_in_place(symbols: Tensor, columns: Tensor, u: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """Run as `_walk` does, without a graph: nothing is allocated in a step, which on a CPU takes most of its time."""
    (steps, batch, size), out, c = u.shape, torch.empty_like(u), first
    chosen_ones = u.new_empty(batch, size, size)
    kept = symbols < 0
    # On a GPU, looking at values would wait for the device.
    any_kept = kept.any(1).tolist() if u.device.type == "cpu" else [True] * steps
    places = symbols.clamp_min(0)
    for t in range(steps - 1, -1, -1) if reverse else range(steps):
        if columns.shape[0] == 1:
            torch.addmm(u[t], c, columns[0], out=out[t])
        else:
            torch.index_select(columns, 0, places[t], out=chosen_ones)
            torch.baddbmm(u[t].unsqueeze(1), c.unsqueeze(1), chosen_ones, out=out[t].unsqueeze(1))
        if any_kept[t]:
            out[t] = torch.where(kept[t].unsqueeze(-1), c + u[t], out[t])
        c = out[t]
    return out


# ---- the op ----------------------------------------------------------------------------------------------------


def _runs_natively(name: str, u: Tensor) -> bool:
    """Return whether the native backend runs this recurrence; raise if it was asked for by name and cannot."""
    if name not in ("auto", "native"):
        return False
    why = get_backend("native").why_not(u.device, u.dtype)
    if why is None and u.shape[-1] > MAX_SIZE:
        why = f"its affine recurrence has at most {MAX_SIZE} units, not {u.shape[-1]}"
    if why is not None and name == "native":
        raise BackendError(f"the native backend cannot run an affine recurrence here: {why}")
    return why is None


def _scan(symbols: Tensor, columns: Tensor, u: Tensor, first: Tensor, reverse: bool, name: str) -> Tensor:
    run = native_scan if _runs_natively(name, u) else _walk_in_place
    with torch.no_grad():
        return run(symbols, columns.contiguous(), u.contiguous(), first.contiguous(), reverse)


@torch.library.custom_op("rrnn::affine_scan", mutates_args=())
def _forward_op(symbols: Tensor, matrices: Tensor, u: Tensor, first: Tensor, backend: str) -> Tensor:
    return _scan(symbols, matrices.mT, u, first, False, backend)


@torch.library.custom_op("rrnn::affine_scan_backward", mutates_args=())
def _backward_op(
    symbols: Tensor, matrices: Tensor, first: Tensor, states: Tensor, grad: Tensor, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of matrices, u and first."""
    if not symbols.numel():
        return torch.zeros_like(matrices), torch.zeros_like(grad), torch.zeros_like(first)
    # The gradient of c_t goes back through the matrix of step t + 1; after the last step there is none.
    later = torch.cat([symbols[1:], symbols.new_full((1, symbols.shape[1]), IDENTITY)])
    whole = _scan(later, matrices, grad, torch.zeros_like(first), True, backend)
    to_first = _scan(symbols[:1], matrices, torch.zeros_like(grad[:1]), whole[0], False, backend)[0]
    before = torch.cat([first.unsqueeze(0), states[:-1]])
    return (
        _outer_sums(symbols.flatten(), whole.flatten(0, 1), before.flatten(0, 1), matrices),
        whole,
        to_first,
    )


def _outer_sums(symbols: Tensor, left: Tensor, right: Tensor, like: Tensor) -> Tensor:
    """Return Σ left rightᵀ over the places of each symbol: places are sorted by symbol, with one product a symbol."""
    total = torch.zeros_like(like, memory_format=torch.contiguous_format)
    order = symbols.argsort()
    counts = torch.bincount(symbols + 1, minlength=like.shape[0] + 1).tolist()
    left, right, start = left.index_select(0, order), right.index_select(0, order), counts[0]
    for symbol, count in enumerate(counts[1:]):
        if count:
            places = slice(start, start + count)
            torch.mm(left[places].T, right[places], out=total[symbol])
        start += count
    return total


@_forward_op.register_fake
def _(symbols: Tensor, matrices: Tensor, u: Tensor, first: Tensor, backend: str) -> Tensor:
    return torch.empty_like(u, memory_format=torch.contiguous_format)


@_backward_op.register_fake
def _(
    symbols: Tensor, matrices: Tensor, first: Tensor, states: Tensor, grad: Tensor, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty_like(matrices, memory_format=torch.contiguous_format),
        torch.empty_like(grad, memory_format=torch.contiguous_format),
        torch.empty_like(first, memory_format=torch.contiguous_format),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    symbols, matrices, _, first, ctx.backend = inputs
    ctx.save_for_backward(symbols, matrices, first, output)


def _grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    symbols, matrices, first, states = ctx.saved_tensors
    gm, gu, gf = torch.ops.rrnn.affine_scan_backward(symbols, matrices, first, states, grad, ctx.backend)
    return None, gm, gu, gf, None


_forward_op.register_autograd(_grad, setup_context=_setup)


class AffineRNN(nn.Module, ABC):
    """One layer of an affine recurrence. A subclass defines the symbols, the matrices and u_t.

    Layouts, masks, lengths and streaming are those of `RationalRNN`. The state is one tensor, (batch, units).
    """

    features: int
    """Dimensions of one step of one sequence: 0 for symbols, 1 for vectors."""

    def __init__(self, hidden_size: int, batch_first: bool, chunk: int | None) -> None:
        super().__init__()
        self.hidden_size, self.batch_first = positive(hidden_size, "hidden_size"), bool(batch_first)
        self.chunk = None if chunk is None else positive(chunk, "chunk")

    @abstractmethod
    def affine(self, input: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return (symbols (T, B) without those of padding, matrices (S, d, d), u (T, B, d)) of a checked input, time
        first. Whatever padding holds must reach none of them."""

    @abstractmethod
    def check_input(self, input: Tensor, mask: Tensor | None) -> None:
        """Raise a `ShapeError` for an input that is not this layer's."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters, and so of the output."""

    def init_state(self, batch_size: int | None = None) -> Tensor:
        """Return c_0: zeros (batch, units), or (units,) for unbatched input."""
        shape = (self.hidden_size,) if batch_size is None else (batch_size, self.hidden_size)
        return next(self.parameters()).new_zeros(shape, dtype=compute_dtype(self.dtype))

    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return (states c_1 … c_T, the last state) of a batch, time first unless `batch_first`, or of one sequence.

        `hx` is a state that an earlier call returned. `lengths` (B) or `mask` (True at valid steps) mark padding: it
        changes no state, outputs zeros, and nothing depends on what it holds.
        """
        dims = input.dim() if isinstance(input, Tensor) else -1
        if dims - self.features not in (1, 2):
            got = tuple(input.shape) if isinstance(input, Tensor) else type(input).__name__
            raise ShapeError(
                f"expected a tensor with {self.features + 1} or {self.features + 2} dimensions; got {got}"
            )
        given = TimeFirst(input, self.features, self.batch_first, lengths, mask)
        x, mask = given.x, given.mask
        self.check_input(x, mask)
        first = self._first(hx, given)
        symbols, matrices, u = self.affine(x, mask)
        if mask is not None:
            symbols, u = torch.where(mask, symbols, IDENTITY), torch.where(mask.unsqueeze(-1), u, 0.0)
        work = first.dtype
        states = affine_scan(symbols, matrices.to(work), u.to(work), first, chunk=self.chunk)
        final = states[-1] if x.shape[0] else first
        out = states if mask is None else torch.where(mask.unsqueeze(-1), states, 0.0)
        return given.output(out.to(self.dtype)), given.state_out(final)

    def step(self, x_t: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return (output, state) of one step, for streaming."""
        if not isinstance(x_t, Tensor) or x_t.dim() - self.features not in (0, 1):
            got = tuple(x_t.shape) if isinstance(x_t, Tensor) else type(x_t).__name__
            raise ShapeError(
                f"expected one step, a tensor with {self.features} or {self.features + 1} dimensions; got {got}"
            )
        given = OneStep(x_t, self.features)
        self.check_input(given.x, None)
        first = self._first(state, given)
        symbols, matrices, u = self.affine(given.x, None)
        m, u = matrices[symbols[0]].to(first.dtype), u[0].to(first.dtype)
        final = torch.baddbmm(u.unsqueeze(-1), m, first.unsqueeze(-1)).squeeze(-1)
        final = given.state_out(final)
        return final.to(self.dtype), final

    def _first(self, hx: Tensor | None, given: TimeFirst) -> Tensor:
        """Return the first state, (B, d), in the dtype that states have."""
        if hx is None:
            return self.init_state(given.x.shape[1])
        expected = (*given.batch, self.hidden_size)
        if not isinstance(hx, Tensor) or not hx.is_floating_point() or tuple(hx.shape) != expected:
            got = f"{hx.dtype} {tuple(hx.shape)}" if isinstance(hx, Tensor) else type(hx).__name__
            names = "(batch, units)" if given.batched else "(units,)"
            raise ShapeError(
                f"expected a state of shape {expected}, numbers of {names}; got {got}. "
                "Pass a state that this layer returned, or init_state."
            )
        return given.state_in(hx).to(compute_dtype(self.dtype))
