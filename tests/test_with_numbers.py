"""A config with other numbers, the fast way: what comes of it, good or bad, is what `--set` would have made of it."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import servoctl as sc
from servoctl.config import LoadedConfig, load_config
from servoctl.config.document import Document
from servoctl.config.overrides import apply_overrides, written
from servoctl.errors import ConfigError
from servoctl.study.batch import batch

ROBOTS = load_config("coordinated_robots")
PATHS = [
    "law.correction.baumgarte.alpha",
    "law.correction.second_order.damping",  # a second kind beside the first
    "law.limits.u1",  # a mapping that is made on the way
    "law.limits.u1.3",
    "law",
    "plant.parameters.l",
    "plant.parameters.nobody",
    "plant.passive.correction.baumgarte.beta",
    "initial.q.theta1",
    "initial.q.theta9",
    "task.level.correction.p_feedback.P",
    "task.1.holonomic",
    "task.1.name",
    "task.nobody.priority",
    "task.level.priority",
    "run.duration",
    "run.duration.x",
    "run.integrator.step",
    "run.seed",
    "inputs.u1",
    "speed",
    "",
    ".".join("a" * 99),
]
NUMBERS = st.one_of(st.floats(), st.integers(-5, 5).map(float), st.floats(1e-3, 30.0))


def outcome(made: Any) -> LoadedConfig | list[str]:
    try:
        return made()  # type: ignore[no-any-return]
    except ConfigError as error:
        return error.problems


@given(st.dictionaries(st.sampled_from(PATHS), NUMBERS, min_size=1, max_size=3))
@settings(max_examples=120)
def test_numbers_change_a_config_as_their_text_in_the_file_would(numbers: dict[str, float]) -> None:
    before = copy.deepcopy(ROBOTS.document)
    texts = [f"{path}={written(number)}" for path, number in numbers.items()]
    read = outcome(lambda: load_config("coordinated_robots", texts))
    assert outcome(lambda: ROBOTS.with_values(numbers)) == outcome(lambda: ROBOTS.overridden(texts)) == read
    assert ROBOTS.document == before


def test_unchanged_parts_are_checked_once() -> None:
    other = ROBOTS.with_values({"law.correction.baumgarte.alpha": 7.0})
    assert other.config.plant is ROBOTS.config.plant and other.config.task[0] is ROBOTS.config.task[0]
    assert other.document.values["plant"] is ROBOTS.document.values["plant"]
    assert other.config.law.correction.baumgarte.alpha == 7.0  # type: ignore[union-attr]
    assert ROBOTS.config.law.correction.baumgarte.alpha == 10.0  # type: ignore[union-attr]


def test_one_bad_set_among_many_is_refused_under_its_path_and_value() -> None:
    alphas = [3.0 + i / 100 for i in range(256)]
    alphas[137], alphas[200] = -1.0, math.nan
    path = "law.correction.baumgarte.alpha"
    rows = batch(sc.load("two_mass_spring", ["run.duration=0.05"], engine="vm"), {path: alphas})
    assert [i for i, status in enumerate(rows["status"]) if status != "done"] == [137, 200]
    start = f"{path}=-1: expected a number >= 0 [1/s], got -1"
    assert rows["status"][137] == "refused" and rows["error"][137] == start
    assert rows["error"][200].startswith(f"{path}=nan: expected a number >= 0 [1/s], got 'nan'")


@pytest.mark.parametrize(("number", "text"), [(3.0, "3"), (0.1, "0.1"), (-0.0, "0"), (1e-7, "1e-07"), (5e22, "5e+22")])
def test_whole_numbers_are_written_as_such(number: float, text: str) -> None:
    assert written(number) == text


@pytest.mark.parametrize(
    ("override", "place", "value"),
    [
        (
            "tune.search.law.correction.baumgarte.alpha.high=50",
            ("search", "law.correction.baumgarte.alpha", "high"),
            50,
        ),
        ("tune.search.law.limits={low: 1, high: 2}", ("search", "law.limits"), {"low": 1, "high": 2}),
        ("tune.search.run.period.low=0.001", ("search", "run.period", "low"), 0.001),
        ("tune.constraints.input_max.F=9", ("constraints", "input_max.F"), 9),
        ("tune.uncertainty.realism.delay=[1]", ("uncertainty", "realism.delay"), [1]),
        ("tune.sensitivity.late.realism.delay=0.1", ("sensitivity", "late", "realism.delay"), 0.1),
        ("tune.objective.minimise.input_rms.F=2", ("objective", "minimise", "input_rms.F"), 2),
        ("tune.search={a.b: [1]}", ("search",), {"a.b": [1]}),
    ],
)
def test_a_path_within_tune_keeps_its_dots(override: str, place: tuple[str, ...], value: object) -> None:
    search = {"law.correction.baumgarte.alpha": {"low": 1, "high": 9}}
    document = Document("a.yaml", {"tune": {"search": search}}, {}, ())
    changed, refused = apply_overrides(document, [override])
    node: Any = changed.values["tune"]
    for key in place:
        node = node[key]
    assert (node, refused) == (value, [])
    assert search["law.correction.baumgarte.alpha"] == {"low": 1, "high": 9}


def test_a_gain_of_the_live_page_keeps_its_dots() -> None:
    gain = "law.correction.baumgarte.alpha"
    hil = sc.load("two_mass_spring_drive", [f"hil.live.{gain}=[1, 20]"], engine="numpy").hil
    assert hil is not None and hil.live == {gain: (1.0, 20.0)}
