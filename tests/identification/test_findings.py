"""Findings about logs: planted faults are named, clean logs have none."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.types import Array
from tests.identification import recorded
from tests.identification.test_tables import config_of, done, rows, written

LOGS = int(os.environ.get("SERVOCTL_LOGS", "1"))  # planted faults and clean logs that are tried, up to 20

Fault = Callable[[Array, Array, Array], tuple[Array, Array, Array]]


def position(j: int, change: Callable[[Array], Array]) -> Fault:
    def planted(t: Array, q: Array, u: Array) -> tuple[Array, Array, Array]:
        return t, np.column_stack([change(x) if i == j else x for i, x in enumerate(q.T)]), u

    return planted


def torque(j: int, factor: float) -> Fault:
    return lambda t, q, u: (t, q, u * np.where(np.arange(u.shape[1]) == j, factor, 1.0))


def swapped(x: Array, i: int, j: int) -> Array:
    order = np.arange(x.shape[1])
    order[[i, j]] = order[[j, i]]
    return x[:, order]


def every(scale_t: float = 1.0, scale_q: float = 1.0, scale_u: float = 1.0) -> Fault:
    return lambda t, q, u: (scale_t * t, scale_q * q, scale_u * u)


def reversed_axis(j: int) -> Fault:
    return lambda t, q, u: torque(j, -1.0)(*position(j, np.negative)(t, q, u))


FAULTS: list[tuple[str, str, Fault]] = [
    ("torque_sign", "joint3", torque(2, -1.0)),
    ("torque_sign", "joint5", torque(4, -1.0)),
    ("torque_scale", "joint1", torque(0, 3.0)),
    ("torque_scale", "joint4", torque(3, 1 / 22.0)),
    ("torque_scale", "joint5", torque(4, 1.6)),
    ("torque_scale", "joint2", every(scale_u=1e-3)),
    ("torque_order", "joint1,joint3", lambda t, q, u: (t, q, swapped(u, 0, 2))),
    ("torque_order", "joint5,joint6", lambda t, q, u: (t, q, swapped(u, 4, 5))),
    ("position_unit", "joint2", every(scale_q=1 / (2.0 * np.pi))),
    ("position_unit", "joint4", position(3, np.degrees)),
    ("position_zero", "joint3", position(2, lambda x: x + 0.15)),
    ("position_zero", "joint5", position(4, lambda x: x - 0.7)),
    ("position_sign", "joint3", position(2, np.negative)),
    ("position_sign", "joint4", position(3, np.negative)),
    ("position_order", "joint3,joint4", lambda t, q, u: (t, swapped(q, 2, 3), u)),
    ("position_order", "joint2,joint5", lambda t, q, u: (t, swapped(q, 1, 4), u)),
    ("time_unit", "time", every(scale_t=0.5)),
    ("delay", "joint4", lambda t, q, u: late(t, q, u, 0.03, range(u.shape[1]))),
    ("delay", "joint2", lambda t, q, u: late(t, q, u, 0.1, [1])),
    ("axis", "joint4", reversed_axis(3)),
]
"""Faults, and machines as of `recorded.foreign`, on which no threshold was chosen."""


def late(t: Array, q: Array, u: Array, delay: float, actuators: Sequence[int]) -> tuple[Array, Array, Array]:
    shift = round(delay / (t[1] - t[0]))
    columns = [x[:-shift] if j in actuators else x[shift:] for j, x in enumerate(u.T)]
    return t[shift:], q[shift:], np.column_stack(columns)


def found_in(folder: Path, seed: int, fault: Fault | None) -> list[tuple[str, str]]:
    """Kinds and places of the findings about a log of an arm whose bodies differ from its file."""
    t, q, u = recorded.foreign(folder, seed)
    urdf = recorded.ARM7 if q.shape[1] == 7 else recorded.ARM6
    log, config = recorded.write(folder, *(fault(t, q, u) if fault else (t, q, u)), urdf)
    result = sc.identify(log, config=config)
    assert result.verdict.startswith("do not use them until the log is mended") == bool(result.findings)
    return [(one.kind, one.where) for one in result.findings]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, 20, 20 // LOGS))
def test_planted_faults_are_named(number: int, tmp_path: Path) -> None:
    """All twenty: `SERVOCTL_LOGS=20 pytest tests/identification/test_findings.py`, 15 s each."""
    kind, where, fault = FAULTS[number]
    found = found_in(tmp_path, number, fault)
    assert (kind, where) in found
    assert len({found_kind for found_kind, _ in found}) <= 2  # two where the log cannot tell them apart


def test_a_clean_log_has_no_finding_and_a_planted_sign_is_named_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, table, out = config_of(tmp_path), rows(), tmp_path / "found"
    assert sc.identify(written(tmp_path / "clean.csv", table), config=config).findings == ()
    table[:, 4] *= -1.0
    done("identify", str(written(tmp_path / "log.csv", table)), "--config", config, "--out", str(out))
    said = capsys.readouterr().out
    assert said.startswith("finding: torque_sign of u2: the torque has the other sign than in the plant (multiply log.")
    assert said.rstrip().endswith("next: mend `log` of the config as the findings say, and identify again")
    page = (out / "report.html").read_text()
    assert page.index("torque_sign of u2") < page.index("do not use them until") < page.index("friction.coulomb.u2")
    assert page.index("friction.coulomb.u2") < page.index("on rows not used") and "<td>N m s/rad</td>" in page
    assert "\ntorques act 4 ms after their rows; positions are filtered at " in said
    assert page.count("data:image/png;base64,") == 2
    written_result = json.loads((out / "identification.json").read_text())
    [finding] = [one for one in written_result["findings"] if one["kind"] == "torque_sign"]
    assert finding["where"] == "u2"
    assert 0.03 < finding["cost"] <= 1.0
    assert finding["text"].startswith("u2: the torque has the other sign")
    assert written_result["verdict"].startswith("do not use them until the log is mended: torque_sign of u2")
    assert not written_result["good"]
    assert written_result["parameters"]["friction.coulomb.u2"]["value"] == pytest.approx(0.8, rel=0.01)  # mended


@pytest.mark.parametrize(
    ("kind", "where", "change"),
    [
        ("position_unit", ["q1", "q2"], lambda x: x * [1.0, 180 / np.pi, 180 / np.pi, 1.0, 1.0]),
        ("position_sign", ["q1"], lambda x: x * [1.0, -1.0, 1.0, 1.0, 1.0]),
        ("position_zero", ["q1"], lambda x: x + np.array([0.0, np.pi / 2, 0.0, 0.0, 0.0])),
        ("time_unit", ["time"], lambda x: x * [1e3, 1.0, 1.0, 1.0, 1.0]),
        ("torque_scale", ["u2"], lambda x: x * [1.0, 1.0, 1.0, 1.0, 1 / 14.87]),
        ("torque_order", ["u1,u2"], lambda x: x[:, [0, 1, 2, 4, 3]]),
        ("position_order", ["q1,q2"], lambda x: x[:, [0, 2, 1, 3, 4]]),
        ("delay", ["u1", "u2"], lambda x: np.hstack([x[10:, :3], x[:-10, 3:]])),
    ],
)
def test_faults_of_an_arm_with_two_joints_are_named(
    kind: str, where: list[str], change: Callable[[Array], Array], tmp_path: Path
) -> None:
    log = written(tmp_path / "log.csv", change(rows()))
    found = sc.identify(log, config=config_of(tmp_path)).findings
    assert [one.where for one in found if one.kind == kind] == where
    assert len({one.kind for one in found}) <= 2  # two where the log cannot tell them apart
