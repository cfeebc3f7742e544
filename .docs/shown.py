"""How a page shows its blocks: commands and their output apart, and the gallery as a grid of pictures."""

import re

from blocks import FENCE, Block, blocks
from made import PAGES

OUTPUT = "``` {{.text .output .no-copy{title}}}\n{text}```"
"""A block of output: it has no button that copies it."""


def apart(markdown: str) -> str:
    """Puts the commands of each console block in blocks of their own, so that copying one gives commands alone."""
    shown, end = [], 0
    found = blocks(markdown)
    for match, block in zip(FENCE.finditer(markdown), found, strict=True):
        before = markdown[end : match.start()]
        after_code = len(shown) > 1 and shown[-1][0] == "python" and not before.strip()
        text = match[0]
        if block.language == "console":
            text = _console(block)
        elif after_code and block.language in ("", "text"):
            text = OUTPUT.format(title="", text=block.text)
        shown += [("prose", before), (block.language, text)]
        end = match.end()
    return "".join(text for _, text in shown) + markdown[end:]


def _console(block: Block) -> str:
    """Blocks of commands and of output, in turn."""
    parts: list[str] = []
    commands: list[str] = []
    for command, code, printed in block.commands:
        commands.append(command)
        printed = "" if printed.strip() == "..." else printed
        if code or printed.strip():
            title = f' title="ends with exit code {code}"' if code else ""
            parts += [_shell(commands), OUTPUT.format(title=title, text=printed or "...\n")]
            commands = []
    return "\n\n".join([*parts, *([_shell(commands)] if commands else [])])


def _shell(commands: list[str]) -> str:
    return "\n".join(["```sh", *commands, "```"])


def grid(folder: str = "gallery") -> str:
    """One picture, name and line for each entry of the gallery's pages, with a link to it."""
    parts = []
    for page in re.findall(rf"{folder}/(\w+)\.md", (PAGES.parent / "mkdocs.yml").read_text()):
        if page != "index":
            parts.append(_cards(page, (PAGES / folder / f"{page}.md").read_text()))
    return "\n\n".join(parts)


def _cards(page: str, text: str) -> str:
    title, cards = re.findall(r"^# (.*)$", text, re.MULTILINE)[0], []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, picture = part.partition("\n")[0], re.search(r"!\[([^\]]*)\]\((\S+?)/overview\.png\)", part)
        if picture is not None:
            link = f"{page}.md#{name}"
            image = f"![{picture[1]}]({picture[2]}/still.png){{ loading=lazy }}"
            label = name.replace("_", "_<wbr>")
            cards.append(f"-   [{image}]({link})\n\n    [**{label}**]({link})\n\n    {picture[1]}")
    return "\n\n".join([f"## {title}", '<div class="grid cards pictures" markdown>', *cards, "</div>"])
