"""The build: runs what makes the pictures, and writes the pages that the program itself knows best."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import reference
from made import made, name_of, pages, pictures


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds pictures and reference pages to what mkdocs has found.

    Raises:
        BlockError: A page that shows pictures does not do what it says; the build ends.
    """
    shown = [page for page in pages() if pictures(page)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as workers:
        folders = list(workers.map(made, shown))
    for page, folder in zip(shown, folders, strict=True):
        for picture in pictures(page):
            files.append(File.generated(config, f"{name_of(page)}/{picture}", abs_src_path=str(folder / picture)))
    for name, content in reference.written().items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files
