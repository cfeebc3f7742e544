"""Every block of every page of the docs runs, in order, and prints what the page says."""

import re
import time
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks, equations, made, shown

PAGES = {made.name_of(page): page for page in made.pages()}
SLOW = (
    "servoctl hil", "servoctl sweep", "servoctl run four_bars", "servoctl run swarm_50", "servoctl run two_arms_box",
    "python -m tests",
)  # fmt: skip
"""Commands that make a page slow."""

NOT_RUN = {
    ("drives", "needs a CAN adapter"),
    ("drives", "needs drives on a real bus"),
    ("drives", "needs drives on a real bus, armed"),
    ("drives", "two terminals"),
    ("howto/damiao", "needs a CAN adapter"),
    ("howto/fifteen_minutes", "needs drives on a real bus, armed"),
    ("index", "makes an environment"),
    ("howto/moteus", "needs a CAN FD adapter"),
    ("howto/moteus", "needs a drive"),
    ("howto/moteus", "needs drives on a real bus"),
    ("howto/robstride", "needs a CAN adapter"),
    ("howto/robstride", "needs drives on a real bus"),
    ("sweeps", "machines of a cluster; tests start one of their own"),
}
"""Page and reason of every block that does not run."""


MINUTES = 15.0  # longest time of a page, and what the how-to of this name promises


def is_slow(page: Path) -> bool:
    return any(re.search(rf"^\$ {command}\b", page.read_text(), re.MULTILINE) for command in SLOW)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if is_slow(page) else []) for n, page in PAGES.items()]
)
def test_the_blocks_of_a_page_run_as_described(name: str) -> None:
    started = time.monotonic()
    folder = made.made(PAGES[name])
    assert time.monotonic() - started < MINUTES * 60.0
    for picture in made.pictures(PAGES[name]):
        assert (folder / picture).stat().st_size > 10_000


def test_your_arm_in_fifteen_minutes_has_at_most_five_commands() -> None:
    page = PAGES["howto/fifteen_minutes"].read_text()
    assert len(re.findall(r"^(?:\$ )?servoctl ", page, re.MULTILINE)) == 5


def test_every_picture_is_made_by_a_command_that_the_page_shows() -> None:
    for name, page in PAGES.items():
        for picture in made.pictures(page):
            folder = picture.partition("/")[0]
            command = rf"^\$ (servoctl (report|compare|sweep|tune|identify)|python -m [\w.]+)\b.*\b{folder}\b"
            if "_and_" in folder:
                command = rf"^\$ servoctl compare {folder.replace('_and_', ' ')}\b"
            if "/" not in picture:
                command = rf"(sc.plot|savefig)\(.*\"{picture}\""
            assert re.search(command, page.read_text(), re.MULTILINE), f"{name}: {picture}"


def test_every_block_that_does_not_run_has_a_reason() -> None:
    found = {(n, b.reason) for n, page in PAGES.items() for b in blocks.blocks(page.read_text()) if b.reason}
    assert found == NOT_RUN


def test_commands_for_real_drives_say_what_they_mean() -> None:
    """On a real bus `hil` sends nothing without a stage, and refuses a stage or a calibration without --armed."""
    shown_commands = [
        command
        for page in PAGES.values()
        for block in blocks.blocks(page.read_text())
        if block.reason
        for command, _, _ in block.commands
        if command.startswith("servoctl hil ")
    ]
    assert len(shown_commands) > 10
    for command in shown_commands:
        assert ("--armed" in command) == bool(re.search(r"--stage \w|--calibrate", command)), command


def test_no_block_escapes() -> None:
    """The runner knows the kind of each block, and no block is inside a list or a tab, where it does not look."""
    for name, page in PAGES.items():
        found = blocks.blocks(page.read_text())
        fences = page.read_text().count("```")
        assert fences == 2 * len(found), f"{name}: a block inside a list, or one that is not closed"
        assert not re.search(r"^ {4,}servoctl ", page.read_text(), re.MULTILINE), f"{name}: a command without a fence"
        for block in found:
            known = block.language in ("console", "python", "text", "math") or block.file or block.reason
            assert known or block.mark.startswith("over: "), f"{name}:{block.line}: {block.language} cannot run"


def test_every_shipped_config_is_in_the_gallery() -> None:
    from servoctl.config import shipped_configs

    shown = "\n".join(page.read_text() for name, page in PAGES.items() if name.startswith("gallery/"))
    assert sorted(shipped_configs()) == sorted(set(re.findall(r"^## (\w+)$", shown, re.MULTILINE)))


def test_the_grid_of_the_gallery_has_a_picture_and_a_line_for_each_entry_with_a_picture() -> None:
    grid = shown.grid()
    for name, page in PAGES.items():
        for still in made.stills(page):
            entry = still.removesuffix("/still.png")
            card = re.search(rf"!\[(.+)\]\({name.partition('/')[2]}/{entry}/still.png\)", grid)
            assert card is not None and len(card[1]) < 110, f"{name}: {entry}"
            assert f"({name.partition('/')[2]}.md#{entry})" in grid
    assert grid.count("still.png") == sum(len(made.stills(page)) for page in PAGES.values()) > 35


def test_copying_a_block_of_commands_gives_commands_alone() -> None:
    page = "a\n\n```console\n$ one\n$ two  # ends with 3\nprinted\n$ three\n...\n```\n\nb\n"
    output = '``` {.text .output .no-copy title="ends with exit code 3"}\nprinted\n```'
    assert shown.apart(page) == f"a\n\n```sh\none\ntwo\n```\n\n{output}\n\n```sh\nthree\n```\n\nb\n"


def test_what_python_code_prints_has_no_button_that_copies_it() -> None:
    page = '```python\nprint("x")\n```\n\n```text\nx\n```\n\n```text\ny\n```\n'
    assert shown.apart(page).count(".no-copy") == 1


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"(\S+)\.md", (DOCS / "mkdocs.yml").read_text()))
    assert set(PAGES) <= named
    assert {name for name in named - set(PAGES)} == {"reference/config", "reference/commands", "reference/python"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```console\n$ servoctl run no_such_config\n```\n", "page:1: servoctl run no_such_config: ends with 2, not 0"),
        ("```console\n$ servoctl list\nno such thing\n```\n", "the page says\nno such thing"),
        ("\n```python\nprint(1)\n```\n\n```text\n2\n```\n", "page:2: the code: the page says\n2"),
        (
            "<!-- over: crane -->\n```yaml\nrun:\n  duration: -1\n```\n",
            "page:2: over crane: .* a positive time",
        ),
    ],
)
def test_a_block_that_does_something_else_is_found(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(blocks.BlockError, match=said):
        blocks.run("page", blocks.blocks(text), tmp_path)


@pytest.mark.parametrize(
    ("says", "prints", "shown"),
    [
        ("x  m  0.1...  ...\n", "x   m   0.123  4e-5\n", "x  m  0.123  4e-5\n"),
        ("a\n...\nb  ...\n", "a\nmore\nlines\nb    3\n", "a\n...\nb  3\n"),
        ("done; ...\n", "done; 2 s simulated in 1 s\n", "done; ...\n"),
        ("first ...\nlast\n", "first 1\n2\nlast\n", "first ...\nlast\n"),
        ("none\n", "none\n", "none\n"),
    ],
)
def test_shown_outputs_have_the_numbers_of_the_build(says: str, prints: str, shown: str) -> None:
    assert blocks.filled(says, prints) == shown


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
