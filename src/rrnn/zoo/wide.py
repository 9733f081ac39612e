"""Recurrences with a family of states per unit: linear attention and its kin, Mamba, RWKV, S4D, LRU, ISAN, Elman.

What is no part of the recurrence belongs to the block around it: short convolutions, low-rank projections, output norms
and gates. Where a model has heads, give their number to the layer: `RationalRNN(gla(64), 512, 512, heads=8)`.
"""

import math

from rrnn.automata import (
    Cell,
    Expr,
    complex,
    cos,
    exp,
    family,
    index,
    input,
    linear,
    log,
    log_sigmoid,
    one,
    parameter,
    polar,
    score,
    sigmoid,
    sin,
    softplus,
    tanh,
    uniform,
)
from rrnn.automata.expressions import call
from rrnn.automata.families import Family
from rrnn.errors import CellError
from rrnn.zoo.rrnn import b_automaton


def _attention(
    name: str, h: Family, entry: Expr, loop: Expr | float, read: Expr, semiring: str = "real"
) -> Cell:
    """Build the automaton that all of them share: enter the family at any time, stay in it, read it out."""
    return Cell(name, semiring).initial("q0").loop("q0", one).arc("q0", h, entry).loop(h, loop).read(h, read)


def _keys(h: Family) -> tuple[Expr, Expr, Expr]:
    """Return keys and queries, which the units of a head share, and values, one per unit."""
    k, q = (linear(name, over=h, per="head").named(name) for name in "kq")
    return k, q, linear("v").named("v")


def _reach(gate: Expr, signed: bool) -> Expr:
    """Return a forget gate, or with `signed` one that reaches from −1 to 1, as parity needs (Grazzi et al. 2025)."""
    return 2 * gate - 1 if signed else gate


def linear_attention(states: int = 64) -> Cell:
    """Build linear attention (Katharopoulos et al. 2020): z_i = z_i' + φ(k_i) v, h = Σ φ(q_i) z_i, φ(x) = elu(x) + 1.

    The normaliser Σ φ(q_i) Σ φ(k_i) is left out, as in RetNet and its successors. Keys and queries are shared by
    the units of a head.
    """
    h = family("h", states)
    k, q, v = _keys(h)
    k, q = (
        (call("max", x, 0) + exp(call("min", x, 0))).named(name) for x, name in ((k, "phi_k"), (q, "phi_q"))
    )
    return _attention("linear_attention", h, k * v, 1.0, q)


def retnet(states: int = 32) -> Cell:
    """Build RetNet's retention (Sun et al. 2023): z_i = γ e^{iθ_i} z_i' + k̄_i v, h = Re Σ q_i z_i.

    Over the complex semiring: `states` complex numbers stand for twice as many real dimensions of keys and queries.
    γ = 1 − 2^(−5−head) and θ_i = 10000^(−i / states) are fixed (the authors' code divides i by states − 1). Rotating
    the state by θ at each step is rotating keys and queries by their position.
    """
    h = family("h", states)
    names = "k_re", "k_im", "q_re", "q_im"
    re_k, im_k, re_q, im_q = (linear(name, over=h, per="head").named(name) for name in names)
    v = linear("v").named("v")
    gamma = parameter("gamma", per="head", start=1 - exp(-math.log(2) * (5 + index("head"))), learned=False)
    theta = parameter(
        "theta", over=h, per="head", start=exp(index(h) * (-math.log(10000) / states)), learned=False
    )
    scale = (2 * states) ** -0.5
    cell = _attention(
        "RetNet",
        h,
        complex(scale * re_k * v, -scale * im_k * v),
        polar(gamma, theta),
        complex(re_q, im_q),
        "complex",
    )
    return cell.output(score.re)


def gla(states: int = 64, temperature: float = 16.0, signed: bool = False) -> Cell:
    """Build gated linear attention (Yang et al. 2024): z_i = α_i z_i' + k_i v, h = Σ q_i z_i.

    The gates α = σ(W_α x + b)^(1/16) begin near one, so that the state remembers; with `signed` they are 2α − 1.
    """
    h = family("h", states)
    k, q, v = _keys(h)
    alpha = exp(log_sigmoid(linear("alpha", over=h, per="head", bias=True)) / float(temperature))
    alpha = _reach(alpha, signed).named("alpha")
    return _attention("GLA", h, k * v, alpha, states**-0.5 * q)


def hgrn2(states: int = 64, gamma: float = 0.0) -> Cell:
    """Build HGRN2 (Qin et al. 2024): z_i = f_i z_i' + (1 − f_i) v, h = Σ q_i z_i with f = γ + (1 − γ) σ(W_f x + b).

    The lower bound γ, which grows from layer to layer, is a number.
    """
    if not 0 <= gamma < 1:
        raise CellError(f"HGRN2's gamma must be a number from 0 to below 1; got {gamma!r}")
    h = family("h", states)
    f = sigmoid(linear("f", over=h, per="head", bias=True))
    f = (gamma + (1 - gamma) * f).named("f") if gamma else f
    _, q, v = _keys(h)
    return _attention("HGRN2", h, (1 - f) * v, f, q)


def _step_size(low: float = 0.001, high: float = 0.1) -> Expr:
    """Return the first value of a bias after which softplus is log-uniform between two step sizes."""
    dt = exp(uniform(math.log(low), math.log(high)))
    return dt + log(1 - exp(-dt))  # the inverse of softplus


def mamba(states: int = 16, signed: bool = False) -> Cell:
    """Build Mamba's selective scan (Gu and Dao 2023): z_i = exp(Δ A_i) z_i' + Δ B_i x, h = Σ C_i z_i + D x.

    Δ = softplus(W_Δ x + b) per unit; B and C are shared by all units of a head (Mamba-1 has one); A = −exp(A_log) is
    −1, −2, … at first. With `signed` the decay is 2 exp(Δ A) − 1.
    """
    h = family("h", states)
    delta = softplus(linear("delta", bias=True, start=_step_size())).named("delta")
    a = (-exp(parameter("A_log", over=h, start=log(index(h) + 1)))).named("A")
    b, c = (linear(name, over=h, per="head").named(name) for name in "BC")
    cell = _attention("Mamba", h, delta * b * input(), _reach(exp(delta * a), signed), c)
    return cell.output(score + parameter("D", start=1) * input())


def mamba2(states: int = 64, signed: bool = False) -> Cell:
    """Build Mamba-2's recurrence (Dao and Gu 2024): z_i = exp(Δ A) z_i' + Δ B_i x, h = Σ C_i z_i + D x.

    Δ, A and D belong to a head, B and C to a group of heads. With `signed` the decay is 2 exp(Δ A) − 1.
    """
    h = family("h", states)
    delta = softplus(linear("delta", per="head", bias=True, start=_step_size())).named("delta")
    a = (-exp(parameter("A_log", per="head", start=log(uniform(1, 16))))).named("A")
    b, c = (linear(name, over=h, per="group").named(name) for name in "BC")
    cell = _attention("Mamba2", h, delta * b * input(), _reach(exp(delta * a), signed), c)
    return cell.output(score + parameter("D", per="head", start=1) * input())


def mamba3(states: int = 32) -> Cell:
    """Build Mamba-3's recurrence (Lahoti et al. 2026), single-input: z_i = α e^{−iθ_i} (z_i' + (1 − λ) Δ e_i')
    + λ Δ e_i with e_i = B_i x, and e_i' that of the symbol before; h = Re Σ conj(C_i) z_i + D x.

    Over the complex semiring: `states` complex numbers stand for twice as many real dimensions, all of which turn by
    θ = π Δ tanh(W_θ x). α = exp(Δ A) with A = −softplus(W_A x), at most −10⁻⁴. A second family holds e'. Δ, A, λ and D
    belong to a head, B, C and θ to a group of heads; B and C have a bias per head, 1 at first. Their norm belongs to
    the block.
    """
    h, last = family("h", states), family("g", states)
    delta = softplus(linear("delta", per="head", bias=True, start=_step_size())).named("delta")
    decay = exp(delta * call("min", -softplus(linear("A", per="head")), -1e-4)).named("alpha")
    trap = sigmoid(linear("lambda_", per="head")).named("lambda_")
    turn = (-math.pi * delta * tanh(linear("theta", over=h, per="group"))).named("turn")
    b_re, b_im, c_re, c_im = (
        (linear(name, over=h, per="group") + parameter(f"{name}_1", over=h, per="head", start=1)).named(name)
        for name in ("B_re", "B_im", "C_re", "C_im")
    )
    x = linear("x").named("x")
    now = (trap * delta * x).named("now")
    cell = Cell("Mamba3", "complex").initial("q0").loop("q0", one)
    cell = cell.arc("q0", h, complex(now * b_re, now * b_im)).loop(h, polar(decay, turn))
    cell = cell.arc("q0", last, complex(x * b_re, x * b_im))
    cell = cell.arc(last, h, polar((1 - trap) * delta * decay, turn)).read(h, complex(c_re, -c_im))
    return cell.output(score.re + parameter("D", per="head", start=1) * x)


def rwkv6(states: int = 64) -> Cell:
    """Build RWKV-6's time mixing (Peng et al. 2024): z_i = w_i z_i' + k_i v, h = Σ r_i (z_i' + u_i k_i v).

    The read-out sees the states before the symbol: arcs lead from the family into a final state. The symbol itself is
    read from a second family, with the bonus u. w = exp(−exp(W_w x + b)) begins between e^(−e^−6) and e^(−e^−1), rising
    with the index. Token shift, low-rank projections, group norm and gate belong to the block.
    """
    h, now = family("h", states), family("g", states)
    k, r = (linear(name, over=h, per="head").named(name) for name in "kr")
    v = linear("v").named("v")
    start = -6 + 5 * exp(0.7 * log(index(h) / max(1, states - 1)))
    w = exp(-exp(linear("w", over=h, per="head", bias=True, start=start))).named("w")
    cell = (
        Cell("RWKV6").initial("q0").loop("q0", one).arc("q0", h, k * v).loop(h, w).arc(h, "y", r).final("y")
    )
    return cell.arc("q0", now, k * v).read(now, (r * parameter("u", over=h, per="head")).named("bonus"))


def _delta_rule(name: str, states: int, signed: bool, decay: Expr | None) -> Cell:
    """Build z = decay (I − β k kᵀ) z' + β k v, read out by q: what the state holds under the key k moves to v by β."""
    h = family("h", states)
    k, q, v = _keys(h)
    beta = sigmoid(linear("beta", per="head"))
    beta = (2 * beta if signed else beta).named("beta")
    forget = -beta * k.source * k.target
    loop, forget = (1.0, forget) if decay is None else (decay, decay * forget)
    return _attention(name, h, beta * k * v, loop, q).mix(h, h, forget)


def delta_net(states: int = 16, signed: bool = False) -> Cell:
    """Build DeltaNet (Schlag et al. 2021): z = (I − β k kᵀ) z' + β k v, h = Σ q_i z_i with β = σ(W_β x).

    Keys of length one keep the state bounded; normalise them in the block. With `signed` β reaches from 0 to 2, so that
    the state may change its sign along a key, as parity needs.
    """
    return _delta_rule("DeltaNet", states, signed, None)


def gated_delta_net(states: int = 16, signed: bool = False) -> Cell:
    """Build Gated DeltaNet (Yang et al. 2025): z = α (I − β k kᵀ) z' + β k v, h = Σ q_i z_i.

    α = exp(−exp(A_log) softplus(W_α x + b)) belongs to a head, as in Mamba-2; the rest is DeltaNet.
    """
    step = softplus(linear("alpha", per="head", bias=True, start=_step_size()))
    alpha = exp(-exp(parameter("A_log", per="head", start=log(uniform(1e-6, 16)))) * step).named("alpha")
    return _delta_rule("GatedDeltaNet", states, signed, alpha)


def _mixing(name: str, units: int, entry: Expr, matrix: Expr, h: Family) -> Cell:
    """Build c = M c' + b of `units` numbers, of which unit j returns number j: the paper's D_j. All units have the same
    states and arcs; the final weight of unit j is one in state j and zero in all others."""
    apart = index(h) - index("unit")
    own = parameter("own", over=h, start=call("max", 1 - call("max", apart, -apart), 0), learned=False)
    cell = Cell(name).initial("q0").loop("q0", one).arc("q0", h, entry).mix(h, h, matrix)
    return cell.read(h, own).output(score)


def isan(units: int) -> Cell:
    """Build ISAN (Foerster et al. 2017): c = W c' + b, with a matrix W and a vector b of the symbol.

    Where inputs are one-hot vectors, W and b are columns of the layer's matrix. Give the layer as many units, in one
    head; with fewer it reads only the first numbers, and more are an error.
    """
    h = family("h", units)
    matrix = linear("W", over=(h.source, h.target), per="head")
    return _mixing("ISAN", units, linear("b", over=h, per="head"), matrix, h)


def linear_elman(units: int, bias: bool = True) -> Cell:
    """Build an Elman network without its nonlinearity: c = W c' + U v + b, with a learned matrix W.

    W starts uniformly in ±1/√units. Give the layer as many units, in one head; with fewer it reads only the first
    numbers, and more are an error.
    """
    h = family("h", units)
    start = uniform(-(units**-0.5), units**-0.5)
    matrix = parameter("W", over=(h.source, h.target), per="head", start=start)
    return _mixing("linear_Elman", units, linear("U", over=h, per="head", bias=bias), matrix, h)


def _normal(variance: float) -> Expr:
    """Return a first value that is normally distributed around 0 (by Box and Muller)."""
    return call("sqrt", -2 * variance * log(uniform(1e-30, 1))) * cos(uniform(0, 2 * math.pi))


def s4d(states: int = 32) -> Cell:
    """Build S4D-Lin (Gu et al. 2022) with zero-order hold: z_i = Ā_i z_i' + B̄_i u, h = 2 Re Σ C_i z_i + D u.

    Ā = exp(Δ A) and B̄ = (Ā − 1) / A, with A_i = −1/2 + iπ·index at first, Δ log-uniform from 0.001 to 0.1, and C and D
    normally distributed.
    """
    h = family("h", states)
    delta = exp(parameter("log_delta", start=uniform(math.log(0.001), math.log(0.1)))).named("delta")
    decay = exp(parameter("A_re", over=h, start=math.log(0.5))).named("decay")  # −Re A
    turn = parameter("A_im", over=h, start=math.pi * index(h)).named("turn")
    radius, angle = exp(-delta * decay).named("radius"), (delta * turn).named("angle")
    above_re, above_im = (radius * cos(angle) - 1).named("above_re"), (radius * sin(angle)).named("above_im")
    size = (decay * decay + turn * turn).named("size")  # (Ā − 1) / A = (Ā − 1) conj(A) / |A|²
    re, im = (above_im * turn - above_re * decay) / size, -(above_im * decay + above_re * turn) / size
    start = _normal(0.5)  # of each part, so that |C|² has the mean 1
    c = complex(2 * parameter("C_re", over=h, start=start), 2 * parameter("C_im", over=h, start=start))
    cell = _attention(
        "S4D",
        h,
        complex((re * input()).named("B_re"), (im * input()).named("B_im")),
        polar(radius, angle),
        c,
        "complex",
    )
    return cell.output(score.re + parameter("D", start=_normal(1.0)) * input())


def lru(radius: tuple[float, float] = (0.9, 0.999), angle: float = 2 * math.pi) -> Cell:
    """Build LRU (Orvieto et al. 2023): z = λ z' + γ (B u), one complex state per unit, λ = exp(−exp ν + i exp θ).

    λ starts uniformly on a ring, γ as √(1 − |λ|²). A unit returns Re z and Im z; the matrices C and D follow in the
    block.
    """
    low, high = radius if isinstance(radius, (tuple, list)) and len(radius) == 2 else (1, 1)
    if not 0 <= low < high < 1:
        raise CellError(
            f"LRU's radius is a pair, (smallest, largest), with 0 ≤ smallest < largest < 1; got {radius!r}"
        )
    inside = low * low + uniform(0, 1, draw=1) * (high * high - low * low)  # |λ|²
    nu = parameter("nu", start=log(-0.5 * log(inside)))
    theta = parameter("theta", start=log(uniform(1e-4, angle)))
    gamma = exp(parameter("gamma", start=0.5 * log(1 - inside)))
    entry = complex(gamma * linear("B_re"), gamma * linear("B_im"))
    return b_automaton(
        "LRU", entry, polar(exp(-exp(nu)).named("radius"), exp(theta).named("angle")), semiring="complex"
    ).output(score.re, score.im)
