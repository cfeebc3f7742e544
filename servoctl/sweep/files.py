"""The folder of a sweep: the config, the table of all runs, the picture, the summary."""

import json
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from servoctl.run_folder.files import CONFIG, SUMMARY, replace, study_folder, unwritable
from servoctl.sweep.picture import draw
from servoctl.sweep.study import Study

TABLE, PICTURE = "sweep.parquet", "sweep.png"


def save(study: Study, folder: str | PathLike[str], metric: str) -> Path:
    """Writes `config.yaml`, `sweep.parquet`, `sweep.png` and, last, `summary.json`; each file in full or not at all.

    Args:
        study: The sweep.
        folder: Created if it is missing; files of these names are replaced.
        metric: The metric in the picture.

    Raises:
        ConfigError: The folder holds a single run, whose files would be overwritten.
        RunFolderError: A file cannot be written.
    """
    path, summary = make_folder(folder), json.dumps(study.summary(), indent=2) + "\n"
    try:
        replace(path / CONFIG, lambda file: file.write(study.config_text.encode()))
        replace(path / TABLE, lambda file: _write_table(study, file))
        replace(path / PICTURE, lambda file: draw(study, metric, file))
        replace(path / SUMMARY, lambda file: file.write(summary.encode()))
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def make_folder(folder: str | PathLike[str]) -> Path:
    """Creates the folder of a sweep, and removes an earlier summary, which would contradict the new files.

    Raises:
        ConfigError: The folder holds a single run, whose files would be overwritten.
        RunFolderError: The folder cannot be created.
    """
    path = study_folder(folder)
    try:
        (path / SUMMARY).unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def _write_table(study: Study, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"run": pa.int64(), "status": pa.string(), "error": pa.string(), "engine": pa.string()}
    arrays = {name: pa.array(values, kinds.get(name, pa.float64())) for name, values in study.columns.items()}
    pq.write_table(pa.table(arrays), file)
