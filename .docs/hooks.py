"""The build: runs what makes the pictures, and writes the pages that the program itself knows best."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import reference
from made import name_of, pages, pictures
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds pictures and reference pages to what mkdocs has found.

    Raises:
        PluginError: A page that shows pictures does not do what it says; the build ends.
    """
    shown = [page for page in pages() if pictures(page)]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        folders = list(workers.map(_made, shown))
    for page, folder in zip(shown, folders, strict=True):
        for picture in pictures(page):
            files.append(File.generated(config, f"{name_of(page)}/{picture}", abs_src_path=str(folder / picture)))
    for name, content in reference.written().items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def _made(page: Path) -> Path:
    """The folder with a page's pictures, made in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("made.py")), name_of(page)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PluginError(done.stderr)
    return Path(done.stdout.splitlines()[-1])
