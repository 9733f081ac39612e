"""Elementary functions that Triton lacks or computes with cancellation. Generated kernels import them."""

import triton
import triton.language as tl


@triton.jit
def log1p_unit(y):
    """Return log(1 + y) for 0 ≤ y ≤ 1 as 2 artanh(y / (2 + y)), good to 2·10⁻⁷, without a logarithm's branches."""
    s = y / (y + 2.0)
    z = s * s
    tail = 0.22222222 + z * (0.18181818 + z * (0.15384615 + z * 0.13333333))
    return s * (2.0 + z * (0.66666667 + z * (0.4 + z * (0.28571429 + z * tail))))


@triton.jit
def tanh(x):
    """Return 2σ(2x) − 1, and a series where that would cancel."""
    z = x * x
    small = x * (1.0 - z * (0.33333333 - z * (0.13333333 - z * (0.053968254 - z * 0.021869488))))
    return tl.where(z < 0.0625, small, 2.0 * tl.sigmoid(2.0 * x) - 1.0)


@triton.jit
def softplus(x):
    return tl.maximum(x, 0.0) + log1p_unit(tl.exp(-tl.abs(x)))


@triton.jit
def log_sigmoid(x):
    return tl.minimum(x, 0.0) - log1p_unit(tl.exp(-tl.abs(x)))


@triton.jit
def logaddexp(a, b):
    hi = tl.maximum(a, b)
    lo = tl.minimum(a, b)
    gap = tl.where(lo == float("-inf"), float("-inf"), lo - hi)
    return hi + log1p_unit(tl.exp(gap))


@triton.jit
def share(a, total):
    """Return exp(a − total), 0 where a is −∞: what a contributed to a logaddexp."""
    return tl.where(a == float("-inf"), 0.0, tl.exp(a - total))
