"""The reference is complete and says whole sentences: it is written from the models, classes and tables that run."""

import re
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Literal

import pytest

import servoctl
import servoctl as sc
from hil.drives.options import expected_of
from hil.emulator.fault_script import TIMES
from hil.emulator.faults import KINDS, TARGETS
from hil.protocols.registry import BUILT_IN
from servoctl.check.report import check
from servoctl.config.load import json_schema
from servoctl.linear import analyse
from servoctl.run_folder.files import FILES
from servoctl.run_folder.metrics import METRICS
from servoctl.run_folder.trajectory import ALWAYS, SOMETIMES
from tests.docs.pages import DOCS, blocks, config_types, python_reference
from tests.report_runs import caught

SHORT = ("run.duration=0.05", "run.output_step=0.01")
DOCUMENTS = ("config_examples.md", "python_examples.md")


@cache
def reference() -> Any:
    """The module `.docs/reference.py`, loaded by its path: the tests have another `reference`."""
    spec = spec_from_file_location("docs_reference", DOCS / "reference.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Name of a reference page -> its text; written once, and not while tests are collected."""
    written: dict[str, str] = reference().written()
    return written


@pytest.fixture(scope="module")
def config(pages: dict[str, str]) -> str:
    return pages["config"]


@pytest.fixture(scope="module")
def python(pages: dict[str, str]) -> str:
    return pages["python"]


def cells_of(page: str) -> list[list[str]]:
    """The cells of every row of a page's tables."""
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_field_of_the_schema_has_a_meaning() -> None:
    for name, model in json_schema()["$defs"].items():
        for key, field in model.get("properties", {}).items():
            assert len(field.get("description", "").split()) >= 2, f"{name}.{key}"


def test_no_sentence_is_cut_off_and_no_default_is_a_python_value(config: str) -> None:
    rows = [cells for cells in cells_of(config) if len(cells) > 3]
    text = {cells[0].strip("`"): cells[3] for cells in rows}
    assert text["clamped"].startswith("reaction when a torque limit clamped more than half of the ticks within 0.5 s")
    assert text["clamped"].endswith("one of `warn`, `stop`")
    speed = next(cells[3] for cells in rows if cells[0] == "`speed_limit`" and "left out" in cells[3])
    assert speed.endswith("from the speeds that the encoder and the model report, and from start_tolerance")
    assert not [cells for cells in rows if re.search(r"\b(beside|likewise|when|of|at)$", cells[-1])]
    passive = next(cells for cells in rows if cells[-1].startswith("correction of the mechanism constraints"))
    assert passive[2] == "`{baumgarte: {alpha: 10, beta: 10}}`"
    assert not re.search(r"\{'|\bNone\b|\bTrue\b|\bFalse\b|object at 0x", config)


def test_no_word_in_angle_brackets_is_taken_for_a_tag(pages: dict[str, str]) -> None:
    prose = [re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE) for page in pages.values()]
    outside_code = [part for page in prose for line in page.splitlines() for part in line.split("`")[::2]]
    assert not [part for part in outside_code if re.search(r"<\w", part)]
    assert "use as `<name>_<column>`" in pages["config"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_keys_of_a_protocol_are_listed_with_meaning_and_default(name: str, config: str) -> None:
    protocol = BUILT_IN[name]
    for kind, what in ((protocol.drive_class(), "drive"), (protocol.sensor_class(), "encoder node")):
        if kind is None:
            continue
        part = config.partition(f"### `{name}`: {what}\n")[2].partition("\n#")[0]
        for key, option in kind.Options.model_fields.items():
            row = next(line for line in part.splitlines() if line.startswith(f"| `{key}` |"))
            _, _, give, default, meaning, _ = re.split(r"(?<!\\)\|", row)
            assert (default.strip() == "required") == option.is_required()
            assert len(meaning.split()) >= 3 and not meaning.strip().startswith("Of ")
            expected = expected_of(option)
            assert expected is not None and expected in give.replace("\\|", "|")


def test_the_table_of_metrics_lists_every_metric_on_the_tuning_page() -> None:
    rows = reference().metrics().splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == [f"`{metric.form}`" for metric in METRICS]
    assert "<!-- table of metrics -->" in (DOCS / "pages" / "tuning.md").read_text()


def test_every_kind_of_fault_and_every_field_of_it_is_listed(config: str) -> None:
    for name, kind in KINDS.items():
        row = next(line for line in config.splitlines() if line.startswith(f"| `{name}` | {kind.text}"))
        assert kind.target in TARGETS
        assert all(f"`{field}`" in row and len(option.meaning) > 3 for field, option in kind.options.items())
    assert "`mask` (0x1FFFFFFF)" in config and "`code` (0x8000020): SDO abort code" in config
    assert all(f"| `{field}` |" in config for field in ("kind", *TIMES, "drive", "bus"))


@pytest.mark.parametrize(
    ("place", "called"),
    [
        ("sc.LagrangianPlant", "kinetic_energy(q, v, t)"),
        ("sc.Holonomic", "phi(q, t)"),
        ("sc.Nonholonomic", "psi(q, v, t)"),
        ("sc.Plant", "actuation(q, t)"),
        ("servoctl.mechanics.serial.PlanarChain", "coriolis_matrix(q, v)"),
    ],
)
def test_the_classes_that_a_user_derives_from_show_their_methods(place: str, called: str, python: str) -> None:
    part = python.partition(f"### `{place}`\n")[2].partition("\n##")[0]
    assert called in part


def test_an_example_of_a_docstring_stays_whole(python: str) -> None:
    part = python.partition("### `sc.PointFollows`\n")[2].partition("\n##")[0]
    block: Any = re.search(r"```text\n- \{name: tool.*?```", part, re.DOTALL)
    assert "parameters: {point: tool" in block[0]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_examples_of_the_reference_run(name: str, tmp_path: Path) -> None:
    blocks.run(name, blocks.blocks((DOCS / name).read_text()), tmp_path)


def test_every_section_of_a_config_has_an_example(config: str) -> None:
    examples = reference().examples()
    headings = re.findall(r"^## `(\S+)`$", config, re.MULTILINE)
    assert examples.keys() <= set(headings)
    assert {heading for heading in headings if "." not in heading} <= examples.keys()
    assert config.count("```yaml") == len(examples)


def test_every_key_has_a_type(config: str) -> None:
    sections = config.partition("\n## Keys of drives by protocol")[0]
    assert not [cells for cells in cells_of(sections) if not cells[1]]
    row = next(cells for cells in cells_of(sections) if cells[0] == "`period`")
    assert row[1] == "positive time [s]"


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (float | None, "number"),
        (tuple[str, ...], "list of text"),
        (dict[str, float], "name -> number"),
        (float | tuple[float, ...] | dict[str, float], "number, or a list, or by name"),
        (Literal["a", "b"], "word"),
    ],
)
def test_a_type_is_told_in_words(annotation: Any, kind: str) -> None:
    assert config_types.kind_of(annotation) == kind


def test_every_public_name_has_an_example_that_runs() -> None:
    code = "".join(block.text for block in blocks.blocks(python_reference.EXAMPLES.read_text()))
    names = [name for group in python_reference.GROUPS.values() for name in group]
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def test_every_public_name_is_in_one_group_of_the_python_reference(python: str) -> None:
    names = [name for group in python_reference.GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    assert set(names) == {*servoctl.__all__, *python_reference.SERIAL} - {"__version__"}
    assert python_reference.examples().keys() <= {*python_reference.GROUPS, *names}
    assert "    duration: float,\n" in python  # types stand in signatures


def test_every_file_column_and_figure_of_a_run_is_on_its_page(tmp_path: Path) -> None:
    said = set(re.findall(r"`([a-z_]+)[^`]*`", page := (DOCS / "pages/files.md").read_text()))
    model = ("run.period=0.001", "estimation={kind: model, disturbance: 60}")
    runs = [sc.load("arm_obstacle", [*SHORT, *each], engine="vm").simulate() for each in ((), model)]
    runs.append(
        sc.load("coordinated_robots", [*SHORT, "run.period=0.001", "law.observer=auto"], engine="vm").simulate()
    )
    runs.append(sc.load_run(caught(tmp_path)))
    names = {name.partition(".")[0] for run in runs for name in (*run.columns, *run.summary())}
    assert names - said == set()
    assert {*ALWAYS, *SOMETIMES} - said == set()
    parts = {name.partition(".")[2].partition(".")[0] for name in runs[1].columns if name.startswith("estimate.")}
    assert all(f"`estimate.{part}." in page for part in parts) and len(parts) == 5
    entry = runs[-1].summary()["tasks"]["level"]
    assert set(entry) - said == set()
    assert all(f"`{file}`" in page for file in FILES)


def test_every_key_that_check_and_analyse_print_as_json_is_on_the_page_of_files() -> None:
    said = set(re.findall(r"`([a-z_]+)[^`]*`", (DOCS / "pages/files.md").read_text()))
    uncertain = ("run.period=0.001", "law.uncertainty={m: 0.3}", "estimation={kind: model, disturbance: 60}")
    configs = [("coordinated_robots", uncertain), ("arm_obstacle", ()), ("two_mass_spring_robust", ())]
    for name, changes in configs:
        run = sc.load(name, changes, engine="vm")
        assert {key for key, value in check(run).to_dict().items() if value is not None} - said == set()
    analysis = analyse(run, change=0.1).to_dict()
    assert {*analysis, *analysis["modes"][0]} - said <= {"mostly"}
