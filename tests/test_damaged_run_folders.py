"""Damaged run folders: one sentence names the problem, and the exit code is 2."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servoctl.cli import main
from servoctl.errors import RunFolderError
from servoctl.run_folder import load_run
from tests.faces import exit_code

WRONG = ["text", 5, True, [1], {"a": 1}, {"a": {"b": []}}, [[]]]
"""Values one of which at least is of the wrong kind, whatever the key."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "sound"
    assert exit_code("run", "two_mass_spring", "--set", "run.duration=0.05", "--engine", "vm", "--out", place) == 0
    return place


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "run")


def summary_with(key: str, value: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    return edit


def metadata_with(key: str, text: bytes) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        table = pq.read_table(folder / "trajectory.parquet")
        table = table.replace_schema_metadata(table.schema.metadata | {f"servoctl.{key}".encode(): text})
        pq.write_table(table, folder / "trajectory.parquet")

    return edit


def column_of(name: str, value: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        table = pq.read_table(folder / "trajectory.parquet")
        place = table.column_names.index(name)
        pq.write_table(table.set_column(place, name, pa.array([value] * len(table))), folder / "trajectory.parquet")

    return edit


def without_times(folder: Path) -> None:
    table = pq.read_table(folder / "trajectory.parquet")
    pq.write_table(table.drop_columns(["t"]), folder / "trajectory.parquet")


def drawing_with(name: str, array: Any) -> Callable[[Path], None]:
    return lambda folder: np.savez(folder / "drawing.npz", t=np.zeros(4), **{name: array})


@pytest.mark.parametrize("key", ["left_out", "realtime"])  # both are lists of sentences
@pytest.mark.parametrize("value", [[], ["first sentence", "second sentence"]])
def test_sentences_about_a_run_on_drives_are_read_back(folder: Path, key: str, value: list[str]) -> None:
    summary_with(key, value)(folder)
    assert load_run(folder).metadata[key] == value


SENTENCES = [
    (summary_with("settling_band", "x"), 'summary.json: settling_band: expected a number, got "x" (restore it from a'),
    (summary_with("duration", [1]), "summary.json: duration: expected a number, got [1]"),
    (summary_with("status", 5), "summary.json: status: expected text, got 5"),
    (summary_with("task_span", [1]), "summary.json: task_span: expected two times, or none, got [1]"),
    (summary_with("events", [5]), "summary.json: events.0: expected an object, got 5"),
    (summary_with("tasks", {"a": {"b": []}}), "summary.json: tasks.a.b: expected a number or null, got []"),
    (metadata_with("run", b'{"tasks": 5}'), "trajectory.parquet: tasks: expected an object, got 5"),
    (metadata_with("run", b'{"settling_band": {}}'), "trajectory.parquet: settling_band: expected a number, got {}"),
    (metadata_with("units", b'{"t": 5}'), "trajectory.parquet: units.t: expected text, got 5"),
    (metadata_with("status", b'{"x": ["OK", ""]}'), "trajectory.parquet: status.x: expected a code and its name"),
    (metadata_with("status", b'{"0": 5}'), "trajectory.parquet: status.0: expected a code and its name, as in"),
    (column_of("t", "a"), "trajectory.parquet: column t: expected numbers, got object"),
    (column_of("t", True), "trajectory.parquet: column t: expected numbers, got bool"),
    (column_of("status", None), "trajectory.parquet: column status: expected numbers, got object"),
    (column_of("q.x1", [1.0]), "trajectory.parquet: column q.x1: expected numbers, got object"),
    (without_times, "trajectory.parquet: column t is missing (restore it from a copy, or run again)"),
    (drawing_with("rod", np.zeros(3)), "drawing.npz: is damaged: rod: unexpected shape (3,) for 4 frames (delete it"),
    (drawing_with("rod", np.array(["a"] * 4)), "drawing.npz: is damaged: rod: expected numbers, got <U1"),
    (drawing_with("energy", np.zeros((4, 2))), "drawing.npz: is damaged: energy: unexpected shape (4, 2) for 4"),
]


@pytest.mark.parametrize(("edit", "sentence"), SENTENCES)
def test_every_problem_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], edit: Callable[[Path], None], sentence: str
) -> None:
    edit(folder)
    with pytest.raises(RunFolderError) as found:
        load_run(folder)
    assert str(found.value).startswith(f"{folder}/{sentence}")
    for command in (["report", str(folder)], ["replay", str(folder)], ["compare", str(folder), str(folder)]):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith(f"{folder}")


def test_every_kind_of_value_under_every_key_is_accepted_or_refused_with_a_sentence(folder: Path) -> None:
    whole = json.loads((folder / "summary.json").read_text())
    refused = 0
    for key in [*whole, "task_span", "settling_band", "error", "timing", "drives", "faults", "left_out"]:
        for value in WRONG:
            (folder / "summary.json").write_text(json.dumps(whole | {key: value}))
            try:
                json.dumps(load_run(folder).summary(), allow_nan=False)
            except RunFolderError as error:
                refused += 1
                assert re.search(rf"summary\.json: {key}(\.\w+)*: expected ", str(error))
    assert refused > 100


@pytest.mark.parametrize("name", ["summary.json", "config.yaml", "trajectory.parquet", "drawing.npz", "events.jsonl"])
@pytest.mark.parametrize("kind", ["loop", "dangling", "folder", "fifo", "empty", "deep", "bytes"])
def test_any_file_may_be_of_another_kind(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    if kind == "loop":
        path.symlink_to(name)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes({"empty": b"", "deep": b"[" * 100_000, "bytes": bytes(range(256))}[kind])
    code = exit_code("report", folder, "--html")
    said = capsys.readouterr().err
    assert code in (0, 2) and "this is a bug" not in said
    assert code == 0 or said.startswith(f"{path}: ")


def test_a_folder_that_links_to_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to("run")
    with pytest.raises(RunFolderError, match="run: "):
        load_run(tmp_path / "run")
