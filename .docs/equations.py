"""How equations get onto a page: set at build time as inline SVG in the colour of the text, with no network.

Design: ``$`...`$`` in a line and ```` ```math ```` blocks hold the part of TeX that Matplotlib knows. A block has an
equation per line, and `&` separates its columns. Equations become tokens before Markdown reads a page, and SVG after.
"""

import html
import re
from collections.abc import Callable

from matplotlib import rc_context
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

SIZE = 10.0
"""Size at which an equation is set [pt]."""

EM = 9.0
"""Part of it that becomes 1 em of the page: a little less, since the letters of equations are smaller than text."""

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"\$`(?P<text>[^`]+)`\$")

COMMANDS = {Outline.MOVETO: ("M", 1), Outline.LINETO: ("L", 1), Outline.CURVE3: ("Q", 2), Outline.CURVE4: ("C", 3)}
"""Code of an outline -> the command of an SVG path, and how many points it has."""


class Equations:
    """The equations of the pages: `hide` puts a token in the place of each, `show` puts the SVG there."""

    def __init__(self) -> None:
        self._html: dict[str, str] = {}

    def hide(self, text: str) -> str:
        """A page's Markdown with a token for each equation outside its code blocks.

        Raises:
            ValueError: Matplotlib cannot set an equation.
        """
        parts, end = [], 0
        for fence in FENCE.finditer(text):
            parts.append(self._inline(text[end : fence.start()]))
            parts.append(self._token(fence["text"], block) if fence["info"] == "math" else fence[0])
            end = fence.end()
        return "".join([*parts, self._inline(text[end:])])

    def show(self, page: str) -> str:
        """A page's HTML with the equations in place of their tokens."""
        return re.sub(r"(<p>)?(EQUATION\d+X)(?(1)</p>)", lambda token: self._html[token[2]], page)

    def _inline(self, text: str) -> str:
        return INLINE.sub(lambda equation: self._token(equation["text"], svg), text)

    def _token(self, tex: str, set_equation: Callable[[str], str]) -> str:
        token = f"EQUATION{len(self._html)}X"
        self._html[token] = set_equation(tex)
        return token


def block(text: str) -> str:
    """Equations below each other as an HTML table, a row per line."""
    rows = [
        "".join(f"<td>{svg(cell.strip()) if cell.strip() else ''}</td>" for cell in line.split("&"))
        for line in text.strip().splitlines()
    ]
    return f'<table class="equations">{"".join(f"<tr>{row}</tr>" for row in rows)}</table>'


def svg(tex: str) -> str:
    """One equation as SVG, which stands on the line of the text around it.

    Raises:
        ValueError: Matplotlib cannot set it.
    """
    with rc_context({"mathtext.fontset": "cm"}):
        outline = TextPath((0.0, 0.0), f"${tex}$", size=SIZE)
    (left, bottom), (right, top) = outline.get_extents().get_points()
    width, height = right - left, top - bottom
    return (
        f'<svg class="equation" role="img" aria-label="{html.escape(tex)}" '
        f'viewBox="{left:.2f} {-top:.2f} {width:.2f} {height:.2f}" '
        f'style="width:{width / EM:.3f}em;height:{height / EM:.3f}em;vertical-align:{bottom / EM:.3f}em">'
        f'<path d="{_path(outline)}"/></svg>'
    )


def _path(outline: Outline) -> str:
    """An outline as the `d` of an SVG path; y points down there."""
    parts = []
    for points, code in outline.iter_segments(simplify=False):
        if code == Outline.CLOSEPOLY:
            parts.append("Z")
            continue
        command, count = COMMANDS[code]
        pairs = points.reshape(-1, 2)[:count]
        parts.append(command + " ".join(f"{x:.2f} {-y:.2f}" for x, y in pairs))
    return "".join(parts)
