"""Equations become SVG at build time; pages make no request to another host, and search works from files."""

import re

import pytest
from pages import DOCS, equations, made

TEXT = "Here $`\\dot q`$.\n\n```math\na & b = 1\nc & d = 2\n```\n\n```yaml\ncost: $`x`$\n```\n"


def test_an_equation_becomes_svg_and_code_blocks_stay() -> None:
    page = equations.Equations()
    hidden = page.hide(TEXT)
    assert hidden.count("EQUATION") == 2
    assert "cost: $`x`$" in hidden
    shown = page.show(hidden)
    assert shown.count("<svg") == 5
    assert 'aria-label="\\dot q"' in shown
    assert shown.count("<tr>") == 2


def test_an_equation_stands_on_the_line_of_the_text() -> None:
    """The part of `q` below the line moves the picture down by as much; `x` stands on the line."""
    drop = {tex: float(re.findall(r"vertical-align:(\S+?)em", equations.svg(tex))[0]) for tex in ("x", "q")}
    assert drop["q"] < -0.15 < drop["x"] < 0.02


def test_an_equation_that_cannot_be_set_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\\nothing"):
        equations.svg(r"\nothing")


@pytest.mark.parametrize("path", made.pages(), ids=made.name_of)
def test_every_equation_of_the_pages_can_be_set(path) -> None:  # type: ignore[no-untyped-def]
    hidden = equations.Equations().hide(path.read_text())
    assert "```math" not in hidden
    assert not re.search(r"\$`[^`]+`\$", hidden)


def test_pages_ask_no_other_host() -> None:
    for name in ("mkdocs.yml", "pages/style.css", "pages/search_from_files.js"):
        assert not re.search(r"https?://", (DOCS / name).read_text()), name
