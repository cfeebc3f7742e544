"""A user's file imports files of its own folder, in runs, tasks, processes and clusters; no module stays loaded.

Files that are edited during a study count from the next run on, as in `servoctl run`.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.classes import load_class
from servoctl.errors import ConfigError
from servoctl.mechanics.model import Model
from servoctl.study.batch import batch, run_at
from servoctl.study.cluster import pack, unpack
from tests.config_texts import plant_text

PLANT = """
from dataclasses import dataclass
import numpy as np
import servoctl as sc
from drag import Drag
from shared.inertia import mass

@dataclass(frozen=True)
class Puck(Drag):
    m: float = 1.0
    coordinates = {"x": "m"}
    actuators = {"F": "N"}

    def mass_matrix(self, q, t):
        return np.array([[mass(self.m)]])

    def actuation(self, q, t):
        return np.eye(1)
"""
DRAG = """
from __future__ import annotations
from dataclasses import dataclass
import servoctl as sc

@dataclass(frozen=True)
class Drag(sc.Plant):
    d: float = {d}

    def force(self, q, v, t):
        return -self.d * v
"""
TASK = """
from dataclasses import dataclass
import numpy as np
import servoctl as sc
from drag import Drag
from puck import Puck

@dataclass(frozen=True)
class Place(sc.Holonomic):
    at: float = 0.1

    def phi(self, q, t):
        return np.array([q[0] - self.at])

class Related(Puck, Drag):
    pass
"""
CONFIG = """
plant: {class: "puck.py:Puck"}
initial: {q: 0}
task: [{name: place, class: "my_task.py:Place"}]
law: {correction: {baumgarte: {alpha: 5, beta: 5}}}
run: {duration: 0.1, output_step: 0.01}
"""


def write(folder: Path, d: float = 0.5) -> Path:
    """A config with its files; `d` is the drag that a sibling holds [N s/m]."""
    texts = {"puck.py": PLANT, "drag.py": DRAG.format(d=d), "my_task.py": TASK, "puck.yaml": CONFIG}
    texts |= {
        "shared/__init__.py": "",
        "shared/inertia.py": "from .scale import SCALE\ndef mass(m): return SCALE * m\n",
        "shared/scale.py": "SCALE = 2.0\n",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "puck.yaml"


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Search paths, finders and plain names are as they were."""
    path, finders = list(sys.path), list(sys.meta_path)
    yield
    assert sys.path == path and sys.meta_path == finders
    assert not {"drag", "puck", "shared", "shared.inertia", "gains", "json_"} & sys.modules.keys()


def test_a_plant_and_a_task_class_import_files_of_their_own_folder(tmp_path: Path) -> None:
    run = sc.load(write(tmp_path), ["law.limits={F: 100}"])
    trajectory = run.simulate()
    a = 2 * 5 * 0.0 + 5**2 * 0.1  # of the violation -0.1 at rest
    assert trajectory["u.F"][0] == pytest.approx(2.0 * a)  # the mass of the sibling's package is twice m
    assert trajectory["v.x"][-1] > 0.0


def test_two_folders_may_have_files_of_the_same_name(tmp_path: Path) -> None:
    drags = [sc.load(write(tmp_path / name, d)).system.model.plant for name, d in (("a", 0.5), ("b", 7.0))]
    assert [float(plant.force(np.zeros(1), np.ones(1), 0.0)[0]) for plant in drags] == [-0.5, -7.0]


@pytest.mark.parametrize("beside_the_script", [False, True])
def test_a_sibling_that_has_changed_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside_the_script: bool
) -> None:
    if beside_the_script:
        monkeypatch.syspath_prepend(tmp_path)
    config = write(tmp_path, 0.5)
    sc.load(config)
    write(tmp_path, 11.25)
    plant = sc.load(config).system.model.plant
    assert float(plant.force(np.zeros(1), np.ones(1), 0.0)[0]) == -11.25
    for name in [name for name in sys.modules if name.startswith("shared")]:
        del sys.modules[name]  # a package beside a script is its own


def test_a_file_that_is_written_again_at_once_with_the_same_length_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's bytecode tells files apart by their length and by whole seconds."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for d in (0.5, 0.7):
        config = write(tmp_path, d)
        (tmp_path / "puck.py").write_text(PLANT.replace("m: float = 1.0", f"m: float = {d}"))
        for file in tmp_path.glob("*.py"):
            os.utime(file, ns=(round(1e18), round(1e18 + 1e6 * d)))
        plant = sc.load(config).system.model.plant
        assert (plant.m, plant.d) == (d, d)
    assert not list(tmp_path.rglob("__pycache__"))


def test_plant_and_task_share_a_sibling_and_the_plant_itself(tmp_path: Path) -> None:
    write(tmp_path)
    puck = load_class("puck.py:Puck", tmp_path, sc.Plant)
    related = load_class("my_task.py:Related", tmp_path, sc.Plant)
    assert related.__mro__[-4:] == puck.__mro__[-4:]  # Drag, Plant, ABC, object
    assert related.__mro__[1] is puck is load_class("puck.py:Puck", tmp_path, sc.Plant)


def test_a_file_never_replaces_a_module_of_python_or_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('taken for the module of Python')\n")
    (tmp_path / "yaml.py").write_text("raise RuntimeError('taken for the package')\n")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('taken for the module of Python')\n")
    (tmp_path / "p.py").write_text("import json, yaml, colorsys\nimport servoctl as sc\nclass P(sc.Plant): pass\n")
    sys.modules.pop("colorsys", None)  # one that is not imported yet
    assert load_class("p.py:P", tmp_path, sc.Plant).__name__ == "P"


def test_a_sibling_that_fails_is_named_with_its_line_and_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "gains.py").write_text("G = 1 / 0\n")
    (tmp_path / "p.py").write_text("import servoctl as sc\nfrom gains import G\nclass P(sc.Plant): pass\n")
    with pytest.raises(ConfigError, match=r"p\.py: cannot be imported: ZeroDivisionError: .* \(line 1 of gains\.py\)"):
        load_class("p.py:P", tmp_path, sc.Plant)
    (tmp_path / "gains.py").write_text("G = 1.0\n")
    assert load_class("p.py:P", tmp_path, sc.Plant).__name__ == "P"


def test_a_module_that_is_nowhere_is_still_an_error(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("from nowhere_at_all import G\n")
    with pytest.raises(ConfigError, match=r"p\.py: cannot be imported: ModuleNotFoundError: No module named 'nowhere"):
        load_class("p.py:P", tmp_path, sc.Plant)


def test_processes_of_a_batch_import_them_too(tmp_path: Path) -> None:
    run = sc.load(write(tmp_path), engine="numpy")
    values = {"task.place.parameters.at": [0.1, 0.2]}
    alone, together = batch(run, values), batch(run, values, jobs=2)
    assert together["status"] == ["done", "done"]
    assert together["rms_violation"] == alone["rms_violation"]


def test_a_parcel_for_a_cluster_holds_them(tmp_path: Path) -> None:
    parcel = pack(sc.load(write(tmp_path / "here"), engine="numpy"), "vm")
    assert {"drag.py", "shared/__init__.py", "shared/inertia.py", "shared/scale.py"} <= {
        name for name, _ in parcel.files
    }
    there = unpack(parcel, tmp_path / "there")
    assert there.simulate()["u.F"][0] == pytest.approx(5.0)


CART = "from lead import SIZE\n" + plant_text(
    "Cart", "m: float = 1.0; size = SIZE", "x", "F", "np.array([[SIZE * self.m]])", "-v"
)
CART_CONFIG = """
plant: {class: 'cart.py:Cart'}
initial: {q: {x: 0}}
task: [{name: a, holonomic: 'x - 0.1*t**2'}]
law: {correction: {baumgarte: {alpha: 4, beta: 4}}}
run: {duration: 0.1, period: 0.01}
"""


def test_a_series_of_runs_traces_a_plant_in_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of an installed package: the class stays the same until its file, or a sibling of it, changes."""
    (tmp_path / "lead.py").write_text("SIZE = 2.0\n")
    (tmp_path / "cart.py").write_text(CART)
    (tmp_path / "cart.yaml").write_text(CART_CONFIG)
    traces = []
    traced = Model.__init__
    monkeypatch.setattr(Model, "__init__", lambda self, *a, **k: (traces.append(1), traced(self, *a, **k))[1])
    table = batch(sc.load(tmp_path / "cart.yaml", engine="vm"), {"plant.parameters.m": [1.0, 2.0, 3.0]})
    assert table["status"] == ["done"] * 3
    assert len(traces) == 1
    first = load_class("cart.py:Cart", tmp_path, sc.Plant)
    (tmp_path / "lead.py").write_text("SIZE = 3.25\n")
    again = load_class("cart.py:Cart", tmp_path, sc.Plant)
    assert (first.size, again.size) == (2.0, 3.25)
    (tmp_path / "cart.py").write_text(CART.replace("m: float = 1.0", "m: float = 4.25"))
    assert load_class("cart.py:Cart", tmp_path, sc.Plant)().m == 4.25


EMPTY_CART = plant_text("Cart", "", "x", "F", "np.array([[2.0]])")

LINK = """<robot name="arm">
  <link name="base"/>
  <link name="arm"><inertial><mass value="2.0"/><inertia ixx="1" iyy="1" izz="2.0" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="x" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/></joint>
</robot>"""  # noqa: E501

MESHED = """<mujoco><compiler autolimits="true"/><asset><mesh name="block" file="block.obj"/></asset>
<worldbody><body><joint name="x" type="slide" axis="1 0 0"/>
<geom type="mesh" mesh="block" density="2.0"/></body></worldbody>
<actuator><motor joint="x"/></actuator></mujoco>"""

BLOCK = "".join(f"v {x} {y} {z}\n" for x in (0.0, 1.0) for y in (0.0, 1.0) for z in (0.0, 1.0)) + "".join(
    f"f {a} {b} {c}\n"
    for a, b, c in (
        (1, 2, 4), (1, 4, 3), (5, 7, 8), (5, 8, 6), (1, 5, 6), (1, 6, 2), (3, 4, 8), (3, 8, 7), (1, 3, 7), (1, 7, 5),
        (2, 6, 8), (2, 8, 4),
    )
)  # fmt: skip

EDITED = """
plant: {PLANT}
initial: {q: [0.0]}
task: [{name: place, holonomic: x}]
law: {correction: {baumgarte: {alpha: 5, beta: 5}}}
run: {duration: 0.01}
"""


@pytest.mark.parametrize(
    ("plant", "name", "text", "other"),
    [
        ("{class: 'cart.py:Cart'}", "cart.py", EMPTY_CART, EMPTY_CART.replace("2.0", "3.0")),
        ("{robot: {urdf: arm.urdf}}", "arm.urdf", LINK, LINK.replace("2.0", "3.0")),
        ("{robot: {mjcf: meshed.xml}}", "block.obj", BLOCK, BLOCK.replace("v 1.0", "v 1.5")),
    ],
    ids=["class", "robot", "mesh of a robot"],
)
def test_a_file_of_the_plant_that_changes_during_a_study_counts_from_the_next_run_on(
    plant: str, name: str, text: str, other: str, tmp_path: Path
) -> None:
    (tmp_path / "meshed.xml").write_text(MESHED)
    (tmp_path / name).write_text(text)
    (tmp_path / "c.yaml").write_text(EDITED.replace("{PLANT}", plant))
    run = sc.load(tmp_path / "c.yaml", engine="vm")

    def inertia() -> float:
        again = run_at(run, {"law.correction.baumgarte.alpha": 6.0})
        return float(again.system.model.matrices(again.start).M[0, 0])

    assert inertia() == pytest.approx(2.0)
    (tmp_path / name).write_text(other)
    os.utime(tmp_path / name, ns=(1, 1))  # the clock of a file system may stand still between two writes
    assert inertia() == pytest.approx(3.0)
