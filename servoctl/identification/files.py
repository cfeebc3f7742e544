"""Writes the folder of an identification."""

import json
from pathlib import Path
from typing import Any

import yaml

from servoctl.errors import WriteError
from servoctl.identification.pictures import pictures
from servoctl.identification.result import Identification
from servoctl.run_folder.files import replace

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
