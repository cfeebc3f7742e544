"""The house: rooms and their walls, what an import costs, what the wheel holds, and that nothing named is dead."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import servoctl

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# The rooms from the ground up. A room imports itself and the rooms of the lines above its own, nothing else.
LEVELS = (
    ("servoctl.types", "servoctl.version"),
    ("servoctl.errors",),
    ("servoctl.input_file", "servoctl.expression", "servoctl.engine", "servoctl.run_folder"),
    ("servoctl.tree",),
    ("servoctl.mechanics", "servoctl.reference"),
    ("servoctl.laws", "servoctl.estimation", "servoctl.report", "plants"),
    ("servoctl.simulation",),
    ("servoctl.config",),
    ("servoctl.assembly",),
    ("servoctl.linear",),
    ("servoctl.check", "servoctl.study", "servoctl.export", "servoctl.identification"),
    ("hil.frame", "hil.loop"),
    ("hil.codecs",),
    ("hil.bus",),
    ("hil.drives",),
    ("hil.core",),
    ("hil.emulator", "hil.sensing"),
    ("hil.safety", "hil.protocols"),
    ("hil.recorder",),
    ("hil.view",),
    ("hil.assembly",),
    ("hil.rig",),
    ("hil.session",),
    ("servoctl.cli",),
    ("servoctl.__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}


def modules() -> dict[str, Path]:
    """Dotted name -> file of every module of the distribution."""
    found = {}
    for package in ("servoctl", "plants", "hil"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def is_type_checking(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


class Facts(NamedTuple):
    """What the tests ask about a module.

    Attributes:
        imports: Dotted names that it imports: at its top, inside a function, or for type checkers alone.
        strings: Our modules that a string names: code to run, or a dotted path to import.
        calls: Names of the functions that it calls.
    """

    imports: set[str]
    strings: set[str]
    calls: set[str]


NAMED = re.compile(r"(?:from|import) ((?:servoctl|hil|plants)[.][\w.]+)|^((?:servoctl|hil|plants)[.][\w.]+):\w+$")


@cache
def facts(module: str) -> Facts:
    found = Facts(set(), set(), set())
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.update(imported(module, node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.strings.update(name for pair in NAMED.findall(node.value) for name in pair if name in MODULES)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.calls.add(node.func.id)
    return found


def imported(module: str, node: ast.Import | ast.ImportFrom) -> set[str]:
    """Dotted names of an import statement of a module."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    base = node.module or ""
    if node.level:
        package = module.split(".") if MODULES[module].name == "__init__.py" else module.split(".")[:-1]
        base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
    # `from package import name`: the name may be a module itself
    return {f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names}


def imports(module: str) -> set[str]:
    return facts(module).imports


def room(module: str) -> str:
    """The room of a module; empty for the packages themselves, whose lazy names are outside all rooms."""
    parts = module.split(".")
    if parts[0] == "plants":
        return "plants"
    if len(parts) == 1:
        return ""
    name = ".".join(parts[:2])
    assert name in LEVEL, f"{module} is in no room: name its room in LEVELS"
    return name


def ours(names: set[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] in ("servoctl", "plants", "hil")}


def test_every_room_is_there() -> None:
    assert {room(module) for module in MODULES} - {""} == set(LEVEL)


def test_servoctl_and_hil_have_few_rooms() -> None:
    packages = {room(name) for name, path in MODULES.items() if path.name == "__init__.py"}
    assert len({name for name in packages if name.startswith("servoctl.")}) <= 20
    assert len({name for name in packages if name.startswith("hil.")}) <= 17


def test_no_arrow_runs_upward() -> None:
    upward = {}
    for module in filter(room, MODULES):
        reached = {room(name) for name in ours(imports(module)) | facts(module).strings} - {room(module), ""}
        upward[module] = sorted(other for other in reached if LEVEL[other] >= LEVEL[room(module)])
    assert {module: rooms for module, rooms in upward.items() if rooms} == {}, "these import what is not below them"


def test_no_modules_import_each_other_in_a_circle() -> None:
    arrows = {module: imports(module) & set(MODULES) - {module} for module in MODULES if room(module)}
    reached: dict[str, set[str]] = {}
    for module in arrows:
        found, waiting = set(), list(arrows[module])
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += arrows.get(name, ())
        reached[module] = found
    assert not [module for module in arrows if module in reached[module]]


ASIDE = ("servoctl.cli",)


def test_servoctl_knows_neither_plants_nor_hil() -> None:
    for module in MODULES:
        if module.startswith("servoctl") and room(module) not in ASIDE:
            assert not {name for name in imports(module) if name.split(".")[0] in ("plants", "hil")}, module


ALLOWED_ROOMS = {
    "servoctl.engine": {"servoctl.types", "servoctl.errors"},
    "servoctl.report": {"servoctl.types", "servoctl.errors", "servoctl.version", "servoctl.run_folder"},
    "plants": {"", "servoctl.types", "servoctl.errors", "servoctl.mechanics"},
}


OF_PLANTS = ("servoctl.report.drawing",)
"""What a run stores for its pictures comes from the plant; everything else in report reads the run folder alone."""


def test_engine_report_and_plants_import_only_what_they_need() -> None:
    for module in MODULES:
        if module not in OF_PLANTS and (own := room(module)) in ALLOWED_ROOMS:
            reached = {room(name) for name in ours(imports(module))} - {own}
            assert reached <= ALLOWED_ROOMS[own], f"{module} reaches {sorted(reached - ALLOWED_ROOMS[own])}"


def test_only_the_command_line_prints() -> None:
    for module in MODULES:
        if room(module) not in ("servoctl.cli", ""):
            assert not facts(module).calls & {"print", "input", "breakpoint"}, module
            assert not {name.split(".")[0] for name in imports(module)} & {"rich", "typer"}, module


@pytest.mark.parametrize("path", [*sorted(ROOT.glob("servoctl/**/")), ROOT / "plants", ROOT / "hil"], ids=str)
def test_every_package_is_a_package(path: Path) -> None:
    if any(path.glob("*.py")):
        assert (path / "__init__.py").exists()


def loaded_after(statement: str) -> set[str]:
    """Modules that a fresh interpreter holds after a statement."""
    code = f"import sys\n{statement}\nsys.stdout.write('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"numpy", "casadi", "scipy", "pydantic", "yaml", "matplotlib", "pyarrow", "control", "can", "cffi", "optuna"}


def test_import_servoctl_imports_next_to_nothing() -> None:
    loaded = loaded_after("import servoctl")
    assert not loaded & (HEAVY | {"typer", "rich"})
    assert {name for name in loaded if name.startswith("servoctl")} == {"servoctl"}


def test_starting_a_command_imports_no_scipy() -> None:
    """It takes a third of the time that the imports of `servoctl run` take."""
    commands = "servoctl.cli.run, servoctl.cli.hil, servoctl.assembly.direct, servoctl.mechanics.model"
    assert "scipy" not in loaded_after(f"import {commands}, hil.session.start")


def test_the_processes_beside_a_loop_import_neither_laws_nor_configs() -> None:
    """The recorder and the page of a run start while the machine waits."""
    loaded = loaded_after("import hil.recorder.process, hil.view.process")
    assert "casadi" in loaded  # of the plant that the page draws
    assert not loaded & {"servoctl.laws", "servoctl.config", "servoctl.assembly", "pydantic", "scipy"}


def test_help_imports_neither_arrays_nor_symbols() -> None:
    help_text = "import io, contextlib, servoctl.cli\nwith contextlib.redirect_stdout(io.StringIO()):\n"
    loaded = loaded_after(f"{help_text} try: servoctl.cli.main(['--help'])\n except SystemExit: pass")
    assert "servoctl.cli.run" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("name", servoctl.__all__)
def test_every_public_name_resolves_to_what_it_names(name: str) -> None:
    found = getattr(servoctl, name)
    assert name in dir(servoctl)
    assert not isinstance(found, ModuleType), f"servoctl.{name} is hidden by a module of that name"
    assert found == version("servoctl") if name == "__version__" else found.__name__ == name


def test_no_module_can_hide_a_public_name() -> None:
    # importing servoctl.<name> would set the attribute servoctl.<name> to the module
    assert not {f"servoctl.{name}" for name in servoctl.__all__} & set(MODULES)


def test_type_checkers_see_the_names_that_there_are() -> None:
    tree = ast.parse(MODULES["servoctl"].read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and is_type_checking(node.test))
    seen = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == servoctl._HOME


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'servoctl' has no attribute 'plnt'"):
        servoctl.__getattr__("plnt")


@pytest.mark.slow
def test_the_wheel_holds_three_packages_and_the_configs(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("servoctl-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(ROOT).as_posix() for path in MODULES.values()}
    typed = {f"{package}/py.typed" for package in ("servoctl", "plants", "hil")}
    configs = {f"servoctl/configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml")}
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "servoctl/cli/templates").iterdir()}
    data = {"hil/drives/mit_ranges.yaml"}
    for folder in ("hil/view/web", "hil/core/c", "hil/session/recorded"):
        data |= {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).iterdir()}
    robots = {f"servoctl/configs/robots/{path.name}" for path in (ROOT / "configs/robots").glob("*.urdf")}
    assert configs and templates and robots
    assert sources | typed | configs | templates | robots | data <= names
    assert {name.split("/")[0] for name in names} == {
        "servoctl",
        "plants",
        "hil",
        f"servoctl-{servoctl.__version__}.dist-info",
    }


# What no file imports, because a tool, `python -m`, python-can or only a data file of it is used.
TOOLS = {
    "hatchling",
    "ipython",
    "mkdocs",
    "mkdocs-material",
    "mypy",
    "odrive-can",
    "pyarrow-stubs",
    "pytest-rerunfailures",
    "pytest-xdist",
    "ruff",
    "scipy-stubs",
    "types-PyYAML",
}


IMPORTED_AS = {"damiao-motor": "damiao_motor", "dask": "distributed", "pin": "pinocchio"}


def test_every_package_of_an_extra_is_used() -> None:
    extras: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    named = {re.split(r"[^\w-]", line)[0] for lines in extras.values() for line in lines} - {"servoctl"}
    named = {IMPORTED_AS.get(name, name) for name in named}
    sources = "\n".join(path.read_text() for path in [*MODULES.values(), *(ROOT / "tests").rglob("*.py")])
    imported = set(re.findall(r"^\s*(?:from|import) (\w+)", sources, re.MULTILINE))
    assert named - imported == TOOLS


def test_every_tool_of_pyproject_runs_in_ci() -> None:
    ci = (ROOT / ".ci/run").read_text() + (ROOT / "README.md").read_text()
    tools = set(PROJECT["tool"]) - {"hatch"}
    assert tools == {"pytest", "ruff", "mypy"}
    assert {tool for tool in tools if f".venv/bin/{tool}" not in ci} == set()


def test_casadi_is_bounded_on_both_sides_by_what_is_tried() -> None:
    (bound,) = [each for each in PROJECT["project"]["dependencies"] if each.startswith("casadi")]
    assert ">=3.8.1" in bound and "<" in bound


def test_nothing_else_stands_at_the_top() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a clone")
    top = {line.split("/")[0] for line in listed.stdout.splitlines()}
    known = {"pyproject.toml", "servoctl", "plants", "configs", "hil", "tests", "README.md", "LICENSE", "CHANGELOG.md"}
    assert {name for name in top if not name.startswith(".")} == known
