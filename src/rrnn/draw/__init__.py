"""Draw automata as SVG in the style of the paper's figures, without any other program, or write them as dot text.

`rrnn.to_svg(cell)` and `rrnn.to_dot(cell)` take a cell, a WFSA, or a `Diagram` of your own. (`rrnn.draw` is this
package, not a function.) Charts of curves are in `rrnn.draw.charts`.
"""

from rrnn.draw.automaton_diagrams import diagram_of
from rrnn.draw.diagram import Diagram, Edge, Node
from rrnn.draw.richtext import name_text, roman
from rrnn.draw.svg import SVG, save, to_dot, to_svg

__all__ = ["SVG", "Diagram", "Edge", "Node", "diagram_of", "name_text", "roman", "save", "to_dot", "to_svg"]
