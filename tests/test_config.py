"""Configs: what YAML means, what every field takes, which sentence refuses it and where, and what a dump gives back."""

import math
import os
import random
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servoctl.config import (
    Config,
    LoadedConfig,
    dump,
    first_line,
    json_schema,
    load_config,
    shipped_configs,
    validate,
)
from servoctl.config.document import NotYamlError, read_value
from servoctl.config.schema import LawConfig
from servoctl.errors import ConfigError
from tests.config_texts import CORRECTION, GRAMMAR, LAW_FIELD
from tests.refused import Base, Case, assert_refused, cases


def text(**parts: str) -> str:
    """A config in which some of the parts are replaced."""
    return "".join({**GRAMMAR, **parts}.values())


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good config in the current folder, so that messages call it c.yaml."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "c.yaml"
    file.write_text(text())
    return file


def load(file: Path, *overrides: str, **parts: str) -> LoadedConfig:
    file.write_text(text(**parts), encoding="utf-8")
    return load_config(file, overrides)


def problems(file: Path, *overrides: str, **parts: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, *overrides, **parts)
    return caught.value.problems


def problems_of(file: Path, content: str | bytes) -> list[str]:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    return caught.value.problems


# YAML


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("1e-3", 1e-3),
        ("1E3", 1e3),
        (".5", 0.5),
        ("1.", 1.0),
        ("-12", -12),
        ("+3", 3),
        ("0o17", 15),
        ("0x1F", 31),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("n", "n"),
        ("10:30", "10:30"),
        ("010", "010"),
        ("-010", "-010"),
        ("1_000", "1_000"),
        ("2020-01-01", "2020-01-01"),
        ("=", "="),
        ("<<", "<<"),
        ("true", True),
        ("False", False),
        ("!!str 5", "5"),
        ("!!float 1e0", 1.0),
        ("[1, a, null]", [1, "a", None]),
        ("{1: {on: ~}}", {"1": {"on": None}}),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(scalar: str, value: object) -> None:
    reading = read_value(f"{{key: {scalar}}}")
    assert reading.values == {"key": value} and not reading.problems
    assert type(reading.values["key"]) is type(value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "c.yaml: empty (a config has plant, initial, task, law and run)"),
        ("# only a comment\n", "c.yaml: empty (a config has plant, initial, task, law and run)"),
        ("- 1\n", "c.yaml: expected a mapping with plant, initial, task, law and run, got [1]"),
        (b"plant: \0", "c.yaml: binary, byte 7 is zero (a config is UTF-8 text)"),
        (b"plant: \xff", "c.yaml: not UTF-8 at byte 7 (save the file as UTF-8)"),
        (b"a" * 1_000_001, "c.yaml: larger than 1000000 bytes (is this a config?)"),
        ("a: 1\n---\nb: 1\n", "c.yaml:2: a second document starts (a config is one document: remove '---')"),
        ("a: &x 1\n", "c.yaml:1: alias or anchor '&x' (write the value out; quote text that starts so)"),
        ("a: 1\nb: *x\n", "c.yaml:2: alias or anchor '*x' (write the value out; quote text that starts so)"),
        ("a:\n\tb: 1\n", "c.yaml:2: not YAML: a tab where a value starts (indent with spaces)"),
        ("a: [1\nb: 2\n", "c.yaml:2: not YAML: "),
        ("a: \x07\n", "c.yaml:1: character U+0007 is not printable (remove it)"),
        ("a:\n" + "[" * 100, "c.yaml:2: nested deeper than 40 levels (no config needs that)"),
        ('a: "\\UFFFFFFFF"\n', "c.yaml:1: not YAML: "),
    ],
)
def test_a_file_that_is_no_config_is_refused_at_once(config_file: Path, content: str | bytes, expected: str) -> None:
    (problem,) = problems_of(config_file, content)
    assert problem.startswith(expected)


def test_a_directory_a_missing_file_and_an_impossible_name_are_refused(config_file: Path) -> None:
    for source, expected in [
        (".", ".: is a directory (name the config file in it)"),
        ("./cc.yaml", "./cc.yaml: no such file (did you mean 'c.yaml'?)"),
        ("configs/scara.yaml", "configs/scara.yaml: no such file (did you mean 'scara'?)"),
        ("no/such/folder/zzz.yaml", "no/such/folder/zzz.yaml: no such file (check the path)"),
        ("a\0.yaml", "a\0.yaml: no such file"),
        ("a" * 5000 + ".yaml", "aaa"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load_config(source)
        assert str(caught.value).startswith(expected)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_refused(config_file: Path) -> None:
    config_file.chmod(0)
    with pytest.raises(ConfigError, match=r"c.yaml: cannot be read: permission denied \(check the path and its perm"):
        load_config(config_file)


# Fields


def test_all_problems_are_reported_at_once_in_the_order_of_lines(config_file: Path) -> None:
    found = problems(
        config_file,
        "law.rank_tolerance=2",
        "run.duration.x=1",
        run="run: {duration: 1, perod: 1,\n  seed: -1}\n",
        plant="plant: {class: a:B, passiv: 1, passiv: 2}\n",
        task="task:\n- {name: a, holonomic: atan2(y, x)}\n- {name: a, holonomic: x^2}\n",
    )
    assert [problem.partition(": ")[0] for problem in found] == [
        "c.yaml:1",
        "c.yaml:1",
        "c.yaml:4",
        "c.yaml:5",
        "c.yaml:5",
        "c.yaml:7",
        "c.yaml:8",
        "--set law.rank_tolerance=2",
        "--set run.duration.x=1",
    ]


OWN = "{name: a, holonomic: x}\n- {name: b, holonomic: y, correction: {p_feedback: {P: 1, rate: [2]}}}"
CLASSES = (
    "{name: a, class: 'my_task.py:Mine', parameters: {radius: 0.1, name: on, sizes: [1, 2*mm]}, "
    "correction: {p_feedback: {P: [1, 2, 3]}}}\n- {name: b, class: package.module:Mine}"
)
READ: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "every default": ({}, {
        "plant.passive.correction.baumgarte.alpha": 10.0, "plant.passive.rank_tolerance": 1e-6,
        "initial.q": 0, "initial.v": 0, "initial.project": False, "initial.max_violation": 1,
        "law.kind": "constraint_following", "law.allocation": "minimum_norm", "law.on_infeasible": "warn",
        "law.rank_tolerance": 1e-10, "law.residual_tolerance": 1e-8, "law.damping": 1.0,
        "law.feedback_allocation": None, "law.null_space": None, "law.limits": None,
        "run.integrator.method": "rk4", "run.integrator.step": 0.001, "run.seed": 0,
    }),
    "gains are a number, a list or a mapping by task": (
        {"law": CORRECTION.format("{second_order: {damping: [1, 2*pi], stiffness: {a: 3, b: 4}}}")},
        {"law.correction.second_order.damping": (1.0, 2 * math.pi),
         "law.correction.second_order.stiffness": {"a": 3.0, "b": 4.0}},
    ),
    "a mapping of gains may leave out tasks that have their own": (
        {"task": f"task:\n- {OWN}\n", "law": CORRECTION.format("{baumgarte: {alpha: {a: 1}, beta: {a: 1}}}")},
        {"task.1.correction.p_feedback.rate": (2.0,)},
    ),
    "a law without correction": ({"law": "law: {kind: constraint_following}\n"}, {"law.correction": None}),
    "an open loop needs no task and takes inputs": (
        {"task": "", "law": 'law: none\ninputs: {F: "sin(t)", G: 2, H: 1e-07}\n'},
        {"law": "none", "task": (), "inputs": {"F": "sin(t)", "G": "2.0", "H": "1e-07"}},
    ),
    "a task of a class has parameters and a list of gains of any length": (
        {"task": f"task:\n- {CLASSES}\n"},
        {"task.0.parameters": {"radius": 0.1, "name": "on", "sizes": [1, "2*mm"]}, "task.1.parameters": None},
    ),
    "adaptive integrators have tolerances and no step": (
        {"run": "run: {duration: 1, integrator: {method: radau, step: null, rtol: 1e-6}}\n"},
        {"run.integrator.step": None, "run.integrator.rtol": 1e-6, "run.integrator.atol": 1e-12},
    ),
    "a large seed keeps every digit": (
        {"run": f"run: {{duration: 1, seed: {2**64 + 1}}}\n"}, {"run.seed": 2**64 + 1},
    ),
}  # fmt: skip
"""What is read: parts of the config, and fields by their paths."""


@pytest.mark.parametrize("what", READ)
def test_fields_have_the_values_that_are_written_and_the_others_their_defaults(config_file: Path, what: str) -> None:
    parts, fields = READ[what]
    config: Any = load(config_file, **parts).config
    for path, value in fields.items():
        found = config
        for key in path.split("."):
            found = found[int(key)] if key.isdigit() else getattr(found, key)
        assert found == value, path


@pytest.mark.parametrize(
    ("run", "step"),
    [
        ("{duration: 1}", 0.001),
        ("{duration: 1, period: 0.001}", 0.001),
        ("{duration: 1, period: 0.0005}", 0.0005),
        ("{duration: 1, period: 0.0025}", 0.0025 / 3),
        ("{duration: 1, period: 1/300}", 1 / 1200),
        ("{duration: 1, period: 0.3, integrator: {step: 0.1}}", 0.1),
        ("{duration: 1, period: 0.001, integrator: {step: 0.001/3}}", 0.001 / 3),
        ("{duration: 1, integrator: {step: null}}", 0.001),
    ],
)
def test_the_step_of_rk4_divides_the_period(config_file: Path, run: str, step: float) -> None:
    assert load(config_file, run=f"run: {run}\n").config.run.integrator.step == pytest.approx(step, rel=1e-15)


def test_a_config_does_not_change_after_reading(config_file: Path) -> None:
    config = load_config(config_file).config
    with pytest.raises(ValueError, match="frozen"):
        config.law = "none"
    with pytest.raises(FrozenInstanceError):
        config.run.seed = 1  # type: ignore[misc]


# --set


def test_overrides_replace_values_and_make_mappings_on_the_way(config_file: Path) -> None:
    loaded = load(
        config_file,
        "run.duration=2*pi",
        "run.integrator.method=dop853",
        "task.b.correction.p_feedback={P: 0.2}",
        "task.0.holonomic=atan2(x, y) - 1",
        "initial.q=[1, 2]",
        "initial.q.1=3",
        "law.correction.baumgarte.alpha=7",
        "run.period=",
        run="run: {duration: 1, period: 0.1}\n",
    )
    config = loaded.config
    assert (config.run.duration, config.run.integrator.method, config.run.period) == (2 * math.pi, "dop853", None)
    assert config.initial.q == (1.0, 3.0)
    assert config.task[0].holonomic == "atan2(x, y) - 1"
    assert config.task[1].correction is not None
    assert isinstance(config.law, LawConfig)
    assert config.law.correction is not None
    assert config.law.correction.baumgarte is not None
    assert config.law.correction.baumgarte.alpha == 7.0
    assert loaded.where("run", "duration") == "--set run.duration=2*pi: run.duration"
    assert loaded.where("run", "seed") == "c.yaml:7: run.seed"


@pytest.mark.parametrize("case", cases("overrides"))
def test_a_wrong_override_is_refused_under_its_own_name(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(case, Base(text(), command=()), tmp_path, capsys)


def test_an_override_repairs_an_error_of_the_file(config_file: Path) -> None:
    task = "task:\n- {name: a, holonomic: atan2(y, x)}\n"
    loaded = load(config_file, "task.a.holonomic=y", "run.duration=3", task=task, run="run: {duration: -1}\n")
    assert (loaded.config.task[0].holonomic, loaded.config.run.duration) == ("y", 3.0)


# Places, dumps, shipped configs


def test_a_loaded_config_knows_the_place_of_every_field(config_file: Path) -> None:
    loaded = load_config(config_file)
    assert (loaded.name, loaded.folder, loaded.path) == ("c", config_file.parent, config_file)
    assert loaded.where("task", 1, "nonholonomic") == "c.yaml:5: task.b.nonholonomic"
    assert loaded.where("task", "b", "nonholonomic") == "c.yaml:5: task.b.nonholonomic"
    assert loaded.where("initial", "q", "x") == "c.yaml:2: initial.q.x"
    assert loaded.where() == "c.yaml"
    assert loaded.where("law", "correction") == "c.yaml:6: law.correction"


def test_a_dump_loads_back_to_the_same_config(config_file: Path) -> None:
    config = load(
        config_file,
        plant="plant: {class: a:B, parameters: {a: 'on', b: '1e3', c: '010', d: '2020-01-01', e: 1e3, f: '',\n"
        "  g: 'null', h: '0o17', i: \"a\\nb: é\\t\", j: '~', k: 1e-05, l: '- x', m: '.5',\n"
        "  n: 'yes', o: [1, 'true', [2.5]]}}\n",
        task="task:\n- {name: on, holonomic: 'atan2(y, x)\n    - 1'}\n- {name: n, class: a.py:B}\n",
        law=LAW_FIELD.format("limits: {u: 2, w: [-1, 2]}, allocation: {weighted: {u: 2}}, null_space: {u: 0}"),
        run="run: {duration: 2*pi, period: 0.0025}\n"
        "tune: {search: {a: [1e3, '1e3'], b: {low: 1, high: 2*pi}}, uncertainty: {}}\n",
    ).config
    config_file.write_text(dump(config), encoding="utf-8")
    again = load_config(config_file).config
    assert again.model_dump_json() == config.model_dump_json()
    assert again.tune is not None
    assert config.tune is not None
    assert again.tune.search["a"] == config.tune.search["a"] == (1000.0, "1e3")
    assert dump(again) == dump(config)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_any_text_survives_a_dump(config_file: Path, parameters: dict[str, str]) -> None:
    values = {"plant": {"class": "a:B", "parameters": parameters}, "initial": {"q": 0}, "law": "none"}
    config, found = validate(Config, {**values, "run": {"duration": 1}})
    assert config is not None
    assert not found
    config_file.write_text(dump(config), encoding="utf-8", newline="")
    assert load_config(config_file).config == config


def test_every_shipped_config_loads_dumps_and_has_a_description(tmp_path: Path) -> None:
    shipped = shipped_configs()
    assert "coordinated_robots" in shipped
    for name, path in shipped.items():
        loaded = load_config(name)
        assert (loaded.name, loaded.path) == (name, path)
        assert len(first_line(path)) > 20
        copy = tmp_path / f"{name}.yaml"
        copy.write_text(dump(loaded.config), encoding="utf-8")
        assert load_config(copy).config == loaded.config


def test_the_first_line_is_a_comment_without_the_files_own_name(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    for line, description in [
        ("# configs/a.yaml: a thing: moves", "a thing: moves"),
        ("# a thing: moves", "a thing: moves"),
        ("plant: 1", ""),
        ("", ""),
    ]:
        file.write_text(f"{line}\nlaw: none\n")
        assert first_line(file) == description


def test_the_json_schema_names_the_sections_that_a_config_must_have() -> None:
    """What each field means is asked where the reference is written from it."""
    schema = json_schema()
    assert schema["title"] == "servoctl config"
    assert set(schema["required"]) == {"plant", "initial", "law", "run"}


def test_validate_checks_plain_values_without_a_file() -> None:
    config, found = validate(
        Config, {"plant": {"class": "a:B"}, "initial": {"q": 0}, "law": "none", "run": {"duration": -1}}
    )
    assert config is None
    assert found == [(("run", "duration"), "expected a positive time [s], got -1")]


# Fuzz

WORDS = [
    *GRAMMAR.values(), *GRAMMAR, ": ", "- ", "{", "}", "[", "]", ", ", "\n", "\n  ", "'",
    '"', "none", "null", "&a", "*a", "!!int", "!x", "---", "...", "%YAML 9.9", "|", ">", "? ", "#", "\t", "(", ")",
    "1e999", "0x1F", ".nan", "holonomic", "name", "correction", "baumgarte", "alpha", "integrator", "period", "\\",
    "\u2028", "é",
]  # fmt: skip


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(), st.lists(st.sampled_from(WORDS)).map(lambda words: "".join(words).encode())))
def test_random_bytes_raise_nothing_but_config_errors(config_file: Path, content: bytes) -> None:
    config_file.write_bytes(content)
    try:
        assert isinstance(load_config(config_file).config, Config)
    except ConfigError as error:
        assert error.problems
        assert all(problem.startswith("c.yaml") for problem in error.problems)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(WORDS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.text(max_size=3), st.sampled_from([word for word in WORDS if word.isalpha()])), inner
        ),
    ),
    max_leaves=8,
)
PATHS = [
    "plant", "plant.class", "plant.parameters", "plant.passive", "plant.passive.correction", "initial", "initial.q",
    "initial.project", "task", "task.a", "task.a.name", "task.a.holonomic", "task.b.correction", "law",
    "law.correction", "law.correction.baumgarte", "law.correction.baumgarte.alpha", "law.allocation", "law.limits",
    "law.null_space", "run", "run.period", "run.seed", "run.integrator", "run.integrator.step", "inputs", "hil", "tune",
]  # fmt: skip


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PATHS), VALUES)
def test_any_value_in_any_field_is_taken_or_refused_by_a_config_error(config_file: Path, path: str, value: Any) -> None:
    values: dict[str, Any] = {
        "plant": {"class": "a:B", "parameters": {}, "passive": {"correction": {"baumgarte": {"alpha": 1, "beta": 1}}}},
        "initial": {"q": 0},
        "task": [{"name": "a", "holonomic": "x"}, {"name": "b", "nonholonomic": "der(x)"}],
        "law": {"correction": {"baumgarte": {"alpha": 1, "beta": 1}}},
        "run": {"duration": 1, "integrator": {}},
    }
    *keys, last = path.split(".")
    node: Any = values
    for key in keys:
        node = node[{"a": 0, "b": 1}.get(key, key)]
    node[{"a": 0, "b": 1}.get(last, last)] = value
    config, found = validate(Config, values)
    assert (config is None) <= bool(found)
    assert all(problem.what and isinstance(problem.path, tuple) for problem in found)


CONFIGS = [path.read_text() for path in sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))]
PIECES = [
    ":", ": ", "{", "}", "[", "]", ",", "\n", "  ", "- ", "? ", "!!str ", "|\n", ">", '"', "'", " #", "\t", "&a ", "*a",
    "---\n", "...\n", "%", "\\", "\x00", "é", "\u2028", "\ufeff", "a:b", "{a:1}", "on", "~", "<<: ", '"\\x', "\r\n",
]  # fmt: skip


def damaged(random: random.Random) -> str:
    """A few lines of a shipped config with pieces put in and cut out."""
    lines = random.choice(CONFIGS).splitlines()
    first = random.randrange(len(lines))
    text = "\n".join(lines[first : first + 8])
    for _ in range(random.randrange(4)):
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice([random.choice(PIECES), ""]) + text[at + random.choice([0, 0, 2]) :]
    return text


def test_damaged_text_is_read_or_refused_as_not_yaml() -> None:
    numbers, refused = random.Random(0), 0
    for _ in range(300):
        try:
            read_value(damaged(numbers))
        except NotYamlError:
            refused += 1
    assert 100 < refused < 300
