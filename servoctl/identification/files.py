"""Writes the folder of an identification."""

import json
from pathlib import Path
from typing import Any

import yaml

from servoctl.assembly import Run
from servoctl.config.files import moved
from servoctl.config.load import dump
from servoctl.errors import WriteError
from servoctl.identification.excitation import Excitation
from servoctl.identification.pictures import pictures
from servoctl.identification.result import Identification
from servoctl.run_folder.files import replace

REFERENCE, CONFIG = "excite.csv", "excite.yaml"

CORRECTION = {"baumgarte": {"alpha": 10.0, "beta": 10.0}}


def save_excitation(run: Run, excitation: Excitation, folder: Path) -> list[str]:
    """Writes `excite.csv` and `excite.yaml` into an existing folder.

    Returns:
        Names of the files, the config first.

    Raises:
        RunFolderError: A file cannot be written.
    """
    rows = [",".join(["t", *excitation.coordinates])]
    rows += [",".join(f"{x:.12g}" for x in (t, *q)) for t, q in zip(excitation.t, excitation.q, strict=True)]
    table = "\n".join(rows) + "\n"
    try:
        replace(folder / REFERENCE, lambda file: file.write(table.encode()))
        replace(folder / CONFIG, lambda file: file.write(_config(run, excitation, folder).encode()))
    except OSError as error:
        raise WriteError(f"{folder}: cannot be written: {error.strerror or error} (free disk space)") from error
    return [CONFIG, REFERENCE]


def _config(run: Run, excitation: Excitation, folder: Path) -> str:
    """The config of the run with the excitation as its task; plant, realism and drives stay."""
    assert run.loaded is not None
    values: dict[str, Any] = yaml.safe_load(dump(moved(run.loaded.config, run.loaded.folder, folder)))
    path, _, name = str(values["plant"].get("class", "")).rpartition(":")
    if path.endswith(".py"):  # absolute, so that a log of this config finds the class from anywhere
        values["plant"]["class"] = f"{(folder / path).resolve()}:{name}"
    names = list(run.system.model.plant.coordinates)
    start = {name: float(x) for name, x in zip(names, run.start.q, strict=True)}
    law = values.get("law")
    limits = law.get("limits") if isinstance(law, dict) else None
    duration = float(excitation.t[-1])
    kept = {key: values[key] for key in ("plant", "realism", "estimation", "hil") if values.get(key) is not None}
    run_values, step = values["run"], float(excitation.t[1] - excitation.t[0])
    spacing = {} if run_values.get("period") else {"output_step": min(run_values.get("output_step") or step, step)}
    config = {
        **kept,
        "initial": {"q": start, "v": 0.0},
        "references": {"excite": {"file": REFERENCE, "columns": list(excitation.coordinates), "spline": "quintic"}},
        "task": [
            {"name": f"excite_{name}_task", "holonomic": f"{name} - excite_{name}"} for name in excitation.coordinates
        ],
        "law": {"correction": CORRECTION, **({} if limits is None else {"limits": limits})},
        "run": {**run_values, "duration": duration, **spacing},
    }
    text = yaml.safe_dump(config, sort_keys=False, width=10_000, allow_unicode=True)
    return f"# a motion that tells the parameters of {run.name} apart; next: servoctl run or hil, then identify\n{text}"


IDENTIFIED, MACHINE, RESULT = "identified.yaml", "machine.yaml", "identification.json"


def save(result: Identification, folder: Path) -> list[str]:
    """Writes `identified.yaml`, `machine.yaml` for a simulated log, the pictures and, last, `identification.json`.

    Args:
        result: The result.
        folder: An existing folder.

    Returns:
        Names of the files.

    Raises:
        RunFolderError: A file cannot be written. Each file is written in full or not at all.
    """
    try:
        replace(folder / IDENTIFIED, lambda file: file.write(to_paste(result).encode()))
        names = [IDENTIFIED]
        kept = {} if result.machine is None else result.machine.sections(result.numbers, result.friction is not None)
        if kept:
            content = f"# keeps the simulated machine of the log as it was\n{_as_yaml(kept)}".encode()
            replace(folder / MACHINE, lambda file: file.write(content))
            names.append(MACHINE)
        for name, figure in pictures(result):
            replace(folder / name, lambda file, figure=figure: figure.savefig(file, format="png"))  # type: ignore[misc]
            names.append(name)
        text = json.dumps(result.to_dict(), indent=2) + "\n"
        replace(folder / RESULT, lambda file: file.write(text.encode()))
    except OSError as error:
        raise WriteError(f"{folder}: cannot be written: {error.strerror or error} (free disk space)") from error
    return [*names, RESULT]


def to_paste(result: Identification) -> str:
    """The section `plant` of a config with the identified values, for `--set-file`."""
    plant: dict[str, Any] = {"parameters": result.plant_parameters} if result.plant_parameters else {}
    if result.armature is not None:
        plant["armature"] = result.armature
    if result.friction is not None:
        plant["friction"] = result.friction
    return f"# identified from {', '.join(result.runs)}: {result.verdict}\n{_as_yaml({'plant': plant})}"


def _as_yaml(values: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(values, sort_keys=False, width=10_000, default_flow_style=None)
    return text
