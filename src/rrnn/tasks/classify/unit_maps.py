"""Show at which words the paths of a classifier's strongest units enter, for the output after every word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rrnn.draw import SVG
from rrnn.draw.heat_maps import MAX_WORDS, heat_map
from rrnn.interpret import Reading, attention_map, entry_map
from rrnn.interpret.attention import shared_head


@dataclass(frozen=True)
class UnitMap:
    """An entry map of one unit, or the attention that the units of a head share."""

    units: tuple[int, ...]
    cell: str
    head: int | None
    """The number of the head whose attention it is; None for a unit's own entry map."""
    direction: str
    rows: tuple[tuple[float, ...], ...]
    """Shares between −1 and 1: a row for the output after each word, a column for the word at which paths enter."""

    @property
    def title(self) -> str:
        back = ", backward" if self.direction == "backward" else ""
        if self.head is None:
            return f"Unit {self.units[0]} ({self.cell}{back})"
        return f"Head {self.head} ({self.cell}{back}), units {self.units[0]} to {self.units[-1]}"

    @property
    def says(self) -> str:
        """One sentence on what the map shows."""
        whose = (
            "the paths to that output that enter at each word"
            if self.head is None
            else "that output’s attention to each word, which the head’s units share"
        )
        return (
            f"Each row is the output after the word at its end, each column the word at its top: the share of {whose}. "
            "Blue is positive, red negative."
        )

    def picture(self, words: Sequence[str], *, alone: bool = False) -> SVG:
        """Draw the map; `alone` as a file of its own, and else for a page that has the style."""
        return heat_map(
            self.rows, words, title=self.title, backward=self.direction == "backward", alone=alone
        )


def unit_maps(
    readings: Sequence[Reading], units: Sequence[tuple[str, int]], most: int
) -> tuple[UnitMap, ...]:
    """Return up to `most` maps of units, given as (direction, number) with the most important first.

    Units of one head share one map, and a text of more than `MAX_WORDS` words has none.
    """
    by_direction = {"backward" if reading.backward else "forward": reading for reading in readings}
    found: list[UnitMap] = []
    if readings and max(readings[0].lengths) > MAX_WORDS:
        return ()
    for direction, unit in units:
        seen = any(unit in each.units and each.direction == direction for each in found)
        if len(found) < most and not seen:
            found.append(_map_of(by_direction[direction], unit, direction))
    return tuple(found)


def _map_of(reading: Reading, unit: int, direction: str) -> UnitMap:
    alone, shared = reading.of_units([unit]), shared_head(reading, unit)
    rows = entry_map(alone).rows(unit) if shared is None else attention_map(alone).rows(0)
    head, units = shared or (None, (unit,))
    return UnitMap(units, alone.parts[0].cell.name, head, direction, tuple(map(tuple, rows)))
