"""The affine recurrence c_t = M_{x_t} c_{t−1} + u_t, with one matrix per symbol: one op, and its gradient.

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

from typing import Any

import torch
from torch import Tensor

from rrnn.backends.native.backend import MAX_SIZE
from rrnn.backends.native.backend import affine_scan as native_scan
from rrnn.backends.registry import chosen, get_backend
from rrnn.errors import BackendError

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


def scan(symbols: Tensor, columns: Tensor, u: Tensor, first: Tensor, reverse: bool, name: str) -> Tensor:
    """Return the states of a recurrence, without a graph. `columns` are the matrices transposed."""
    run = native_scan if _runs_natively(name, u) else _walk_in_place
    with torch.no_grad():
        return run(symbols, columns.contiguous(), u.contiguous(), first.contiguous(), reverse)


@torch.library.custom_op("rrnn::affine_scan", mutates_args=())
def _forward_op(symbols: Tensor, matrices: Tensor, u: Tensor, first: Tensor, backend: str) -> Tensor:
    return scan(symbols, matrices.mT, u, first, False, backend)


@torch.library.custom_op("rrnn::affine_scan_backward", mutates_args=())
def _backward_op(
    symbols: Tensor, matrices: Tensor, first: Tensor, states: Tensor, grad: Tensor, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of matrices, u and first."""
    return gradients(symbols, matrices, first, states, grad, backend)


def gradients(
    symbols: Tensor, matrices: Tensor, first: Tensor, states: Tensor, grad: Tensor, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of matrices, u and first, from that of the states."""
    if not symbols.numel():
        return torch.zeros_like(matrices), torch.zeros_like(grad), torch.zeros_like(first)
    # The gradient of c_t goes back through the matrix of step t + 1; after the last step there is none.
    later = torch.cat([symbols[1:], symbols.new_full((1, symbols.shape[1]), IDENTITY)])
    whole = scan(later, matrices, grad, torch.zeros_like(first), True, backend)
    to_first = scan(symbols[:1], matrices, torch.zeros_like(grad[:1]), whole[0], False, backend)[0]
    before = torch.cat([first.unsqueeze(0), states[:-1]])
    return (
        outer_sums(symbols.flatten(), whole.flatten(0, 1), before.flatten(0, 1), matrices),
        whole,
        to_first,
    )


def outer_sums(symbols: Tensor, left: Tensor, right: Tensor, like: Tensor) -> Tensor:
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
