"""Graph algorithms on state indices: reachability, strongly connected components, shortest cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence


def successors(n: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the targets of the edges that leave each of n nodes."""
    follows: list[list[int]] = [[] for _ in range(n)]
    for source, target in edges:
        follows[source].append(target)
    return follows


def reachable(follows: Sequence[Sequence[int]], start: Iterable[int]) -> set[int]:
    """Return the nodes that can be reached from the nodes `start`, these included."""
    seen = set(start)
    stack = list(seen)
    while stack:
        for target in follows[stack.pop()]:
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def components(follows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected components in topological order (edges lead to later ones), each sorted.

    This is Tarjan's algorithm with its own stack, since a long chain of states would exhaust Python's.
    """
    n = len(follows)
    number, low, on_stack = [-1] * n, [0] * n, [False] * n
    stack: list[int] = []
    found: list[list[int]] = []
    counter = 0
    for root in range(n):
        if number[root] >= 0:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            node, edge = work.pop()
            if edge == 0:
                number[node] = low[node] = counter
                counter += 1
                stack.append(node)
                on_stack[node] = True
            else:
                low[node] = min(low[node], low[follows[node][edge - 1]])
            while edge < len(follows[node]):
                target = follows[node][edge]
                edge += 1
                if number[target] < 0:
                    work += [(node, edge), (target, 0)]
                    break
                if on_stack[target]:
                    low[node] = min(low[node], number[target])
            else:
                if low[node] == number[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack[part[-1]] = False
                    found.append(sorted(part))
    return found[::-1]


def cycle_through(follows: Sequence[Sequence[int]], start: int, inside: Iterable[int]) -> list[int]:
    """Return a shortest cycle start → … → start among the nodes `inside`, which must be strongly connected."""
    allowed = set(inside)
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for target in follows[node]:
            if target == start:
                cycle = [start]
                while node != start:
                    cycle.append(node)
                    node = came_from[node]
                return [start, *reversed(cycle)]
            if target in allowed and target not in came_from:
                came_from[target] = node
                queue.append(target)
    raise AssertionError("no cycle: the states are not strongly connected")
