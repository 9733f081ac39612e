"""Components and cycles, against reachability."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rrnn.wfsa.graph import components, cycle_through, reachable, successors

GRAPHS = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=16)
    )
)


@given(GRAPHS)
def test_components(graph: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = graph
    follows = successors(n, edges)
    reach = [reachable(follows, [q]) for q in range(n)]
    parts = components(follows)
    assert sorted(q for part in parts for q in part) == list(range(n))
    number = {q: i for i, part in enumerate(parts) for q in part}
    for q in range(n):
        for p in range(n):
            assert (number[q] == number[p]) == (p in reach[q] and q in reach[p])
    assert all(number[q] <= number[p] for q, p in edges)


@given(GRAPHS)
def test_cycles(graph: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = graph
    follows = successors(n, edges)
    for part in components(follows):
        for q in part:
            if len(part) > 1 or q in follows[q]:
                cycle = cycle_through(follows, q, part)
                assert cycle[0] == cycle[-1] == q and len(cycle) > 1
                assert all(step in set(edges) for step in pairwise(cycle))


def test_a_chain_longer_than_the_recursion_limit() -> None:
    n = 20_000
    assert components(successors(n, ((i, i + 1) for i in range(n - 1)))) == [[i] for i in range(n)]
