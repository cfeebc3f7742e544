"""What the docs build adds to mkdocs: pictures, reference pages, equations, and a search index for pages on disk."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import made
import reference
import shown
from equations import Equations
from made import ROOT, has_gaps, name_of, pages, pictures, stills
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

EQUATIONS = Equations()
FILLED: dict[str, Path] = {}
"""Path of a page in the docs -> the file with what its commands print."""

FILM = ROOT / ".readme" / "two_arms_box.gif"
"""The film of the README, also on the start page; a test compares it with what its command makes."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds pictures and reference pages to the files of the build.

    Raises:
        PluginError: A block of a page does not do what the page says; the build ends.
    """
    needed = [page for page in pages() if pictures(page) or has_gaps(page)]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        folders = list(workers.map(_made, needed))
    for page, folder in zip(needed, folders, strict=True):
        FILLED[f"{name_of(page)}.md"] = folder / made.FILLED
        for picture in [*pictures(page), *stills(page)]:
            files.append(File.generated(config, f"{name_of(page)}/{picture}", abs_src_path=str(folder / picture)))
    files.append(File.generated(config, FILM.name, abs_src_path=str(FILM)))
    for name, content in reference.written().items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Writes the tables and the grid of pictures, sets commands apart from output, and takes the equations out.

    Raises:
        PluginError: An equation cannot be set; the build ends.
    """
    if (told := FILLED.get(page.file.src_uri)) is not None:
        markdown = told.read_text()
    try:
        if "<!-- table of stops -->" in markdown:
            markdown = markdown.replace("<!-- table of stops -->", reference.stops())
            markdown = markdown.replace("<!-- table of gauges -->", reference.gauges())
        markdown = markdown.replace("<!-- table of metrics -->", reference.metrics())
        markdown = markdown.replace("<!-- grid of pictures -->", shown.grid())
        return EQUATIONS.hide(shown.apart(markdown))
    except ValueError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from None


def on_page_content(html: str, **_: Any) -> str:
    """Puts the equations back as SVG."""
    return EQUATIONS.show(html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Loads the script that lets the search work on pages from disk; it must come before the theme's own script."""
    script = get_relative_url("search_from_files.js", page.url)
    return output.replace("</head>", f'<script src="{script}"></script></head>', 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Writes the search index as a script too: a page that is opened from disk may not fetch JSON."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text()
    (folder / "search_index.js").write_text(f"var __index = {index}")


def _made(page: Path) -> Path:
    """Folder with the pictures and outputs of a page, made in a separate process."""
    command = [sys.executable, str(Path(__file__).with_name("made.py")), name_of(page)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PluginError(done.stderr)
    return Path(done.stdout.splitlines()[-1])
