"""Gains that change while a loop runs: what may be asked for, how the law gets there, and the same in a replay."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hil.assembly.emulation import environment_of, make_emulator
from hil.assembly.live_gains import LiveGains
from hil.assembly.prepare import load
from hil.loop import Tick
from hil.safety import EventKind
from hil.safety.plan import Phase
from hil.session.replay import replay
from hil.session.run import HilRun
from servoctl.config.load import find_config
from servoctl.errors import ConfigError, RunFolderError
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.hold import RowFeedback, longest_spacing
from servoctl.mechanics.timing import Timing
from servoctl.run_folder import load_run
from tests.hil.rigs import renewed
from tests.refused import table

BELT = "two_mass_spring_drive"
ALPHA, BETA = "law.correction.baumgarte.alpha", "law.correction.baumgarte.beta"
BOTH = f"hil.live={{{ALPHA}: [2, 20], {BETA}: [2, 20]}}"
PERIOD = 0.001


def gains(*overrides: str, config: str = BELT) -> tuple[LiveGains, list[AttachedConstraintFollowing]]:
    """A config's live gains, and a list of the laws that they give."""
    live = load(config, overrides, "numpy").live_gains
    return live, []


def take(laws: list[AttachedConstraintFollowing]) -> Any:
    return laws.append


def test_a_change_is_a_ramp_of_the_numbers_of_the_config() -> None:
    live, laws = gains(BOTH, "hil.live_ramp=0.01")
    assert live.request(0, 12.0) == "8 -> 12 within 0.01 s"
    for _ in range(12):
        live.advance(take(laws))
    # 2 alpha, in ten equal steps, and no step afterwards; beta stays
    np.testing.assert_allclose([law.correction.damping[0] for law in laws], 2 * np.linspace(8.4, 12.0, 10), rtol=1e-14)
    assert {law.correction.stiffness for law in laws} == {(64.0,)}
    assert live.values == (12.0, 8.0)


def test_a_second_request_during_a_ramp_starts_from_the_current_value() -> None:
    live, laws = gains(BOTH, "hil.live_ramp=0.01")
    live.request(0, 12.0)
    for _ in range(5):
        live.advance(take(laws))
    assert live.values[0] == pytest.approx(10.0)
    assert live.request(1, 4.0) == "8 -> 4 within 0.01 s"
    for _ in range(10):
        live.advance(take(laws))
    assert live.values == (12.0, 4.0)  # the first is not forgotten
    assert max(np.diff([law.correction.damping[0] for law in laws])) <= 2 * 4.0 / 10 * (1 + 1e-12)


def test_a_value_out_of_bounds_is_refused_and_changes_nothing() -> None:
    live, laws = gains(BOTH)
    for value in (1.999, 20.001, float("nan"), float("inf"), -8.0):
        assert live.request(0, value) == f"refused: {value:g} is outside [2, 20]"
    assert live.request(7, 3.0) == "refused: there is no such gain"
    live.advance(take(laws))
    assert not laws and live.values == (8.0, 8.0)


def test_two_values_that_are_unstable_together_at_the_period_are_refused() -> None:
    """Each end of both bounds is stable with the other as it is; little damping with much stiffness is not."""
    stiff = 95.0
    live, laws = gains(f"hil.live={{{ALPHA}: [2, 200], {BETA}: [2, {stiff}]}}", "hil.emulation.current_lag=0")
    bears = [longest_spacing(RowFeedback(2 * alpha, stiff**2), Timing(1.0, delay=1.0)) for alpha in (2.0, 8.0)]
    assert bears[0] < PERIOD < bears[1]
    assert "refused" not in live.request(1, stiff)
    said = live.request(0, 2.0)
    assert said.startswith("refused: with 2 a task error would grow by 1.0")
    live.advance(take(laws))
    assert laws[-1].correction.damping == (16.0,)


@pytest.mark.parametrize(("live", "said"), [(words[0], said[0]) for _, words, said in table("live")])
def test_a_wrong_entry_is_named_with_its_remedy(live: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(BELT, [f"hil.live={{{live}}}"], "numpy")
    assert said in str(raised.value)


def test_gains_of_one_task_and_of_one_row_are_reached(tmp_path: Path) -> None:
    values = yaml.safe_load(find_config(BELT).read_text())
    values["task"][0]["correction"] = {"second_order": {"damping": [16], "stiffness": 64}}
    own = "task.distance.correction.second_order"
    values["hil"]["live"] = {f"{own}.damping.0": [1, 40], f"{own}.stiffness": [1, 100]}
    values["hil"]["live_ramp"] = PERIOD
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(values))
    live, laws = gains(config=str(tmp_path / "own.yaml"))
    assert live.values == (16.0, 64.0)
    live.request(0, 20.0)
    live.request(1, 100.0)
    live.advance(take(laws))
    assert (laws[-1].correction.damping, laws[-1].correction.stiffness) == ((20.0,), (100.0,))


class Scripted:
    """Stands where the view does: wishes at ticks, and no page."""

    stopped, gone = False, None

    def __init__(self, wishes: dict[int, tuple[int, float]]) -> None:
        self._wishes, self._tick, self.requests = wishes, -1, self

    def gains(self) -> list[tuple[int, float]]:
        self._tick += 1
        return [self._wishes[self._tick]] if self._tick in self._wishes else []

    def pace(self, now: int) -> None:
        pass

    def close(self, ending: Any) -> None:
        pass


WISH = 400
"""Tick of a wish; the task begins at about 330."""


class Asked(HilRun):
    """A run with an operator who asks for gains."""

    def __init__(self, wishes: dict[int, tuple[int, float]], *args: Any) -> None:
        super().__init__(*args)
        self.wishes = wishes

    def open(self, out: Path | None) -> None:
        super().open(out)
        self.operator.view = Scripted(self.wishes)  # type: ignore[assignment]


def ended(out: Path, wishes: dict[int, tuple[int, float]], *overrides: str, engine: str = "vm") -> Any:
    prepared = load(BELT, [BOTH, "hil.live_ramp=0.2", "hil.period=0.0025", *overrides], engine)
    environment = environment_of(prepared, make_emulator(prepared, engine))
    return Asked(wishes, prepared, environment, Phase.FULL, 0.6).run(out, lambda event: None)


def test_a_run_whose_gains_change_is_recomputed_to_the_bit(tmp_path: Path) -> None:
    result = ended(tmp_path / "run", {WISH: (0, 15.0), WISH + 30: (1, 5.0), WISH + 60: (0, 99.0)})
    assert result.exit_code == 0
    said = [str(event) for event in result.events if event.kind is EventKind.GAIN]
    assert EventKind.GAIN.reaction.name == "NOTE"  # the operator's own change is no warning
    assert said == [
        f"{ALPHA}: the operator asks for another gain (8 -> 15 within 0.2 s)",
        f"{BETA}: the operator asks for another gain (8 -> 5 within 0.2 s)",
        f"{ALPHA}: the operator asks for another gain (refused: 99 is outside [2, 20])",
    ]
    run = load_run(tmp_path / "run")
    assert (run[f"live.{ALPHA}"][0], run[f"live.{ALPHA}"][-1]) == (8.0, 15.0)
    assert (run[f"live.{BETA}"][0], run[f"live.{BETA}"][-1]) == (8.0, 5.0)
    found = replay(tmp_path / "run")
    assert found.rows > 400 and found.differing == 0 and found.tolerance == 0.0


def test_a_replay_without_the_gains_of_the_run_gives_a_note(tmp_path: Path) -> None:
    ended(tmp_path / "run", {WISH: (0, 15.0)})
    config = tmp_path / "run/config.yaml"
    values = yaml.safe_load(config.read_text())
    del values["hil"]["live"]
    config.write_text(yaml.safe_dump(values))
    with pytest.raises(RunFolderError, match=r"its config allows only none \(a replay needs the config"):
        replay(tmp_path / "run")


def test_the_torque_does_not_jump(tmp_path: Path) -> None:
    """u is linear in damping: a tick of the ramp moves it by one part in N of what the whole change would, no more."""
    a, b, parts = 8.0, 18.0, 80
    ended(tmp_path / "run", {WISH: (0, b)})
    run, prepared = load_run(tmp_path / "run"), load(BELT, [BOTH], "vm")
    alpha = run[f"live.{ALPHA}"]
    changed = np.flatnonzero(np.diff(alpha)) + 1
    assert len(changed) == parts and changed[0] == WISH + 1  # behind the tick, for the next

    def torque(k: int, value: float) -> float:
        prepared.live_gains.force((value, a), prepared.loop.take_law)
        x = np.concatenate([run.q[k], run.v[k]])
        return float(prepared.loop.control(float(run["task_time"][k]), x)[0])

    for k in changed:
        jump, whole = torque(k, alpha[k]) - torque(k, alpha[k - 1]), torque(k, b) - torque(k, a)
        assert abs(whole) > 0.0
        assert jump == pytest.approx(whole / parts, rel=1e-6, abs=1e-12)
        assert torque(k, alpha[k]) == run["law.F"][k]


def test_every_engine_goes_on_with_the_new_law() -> None:
    x = np.array([0.01, 0.52, 0.1, -0.2])
    answers = []
    for engine in ("vm", "numpy"):
        prepared = load(BELT, [BOTH], engine)
        prepared.live_gains.force((15.0, 5.0), prepared.loop.take_law)
        answers.append(prepared.loop.control(0.3, x)[0])
    given = load(BELT, [f"{ALPHA}=15", f"{BETA}=5"], "vm").loop.control(0.3, x)[0]
    assert answers[0] == given
    assert answers[1] == pytest.approx(given, rel=1e-12)


def test_the_next_run_of_the_same_rig_begins_with_the_config(tmp_path: Path) -> None:
    prepared = load(BELT, [BOTH, f"hil.live_ramp={PERIOD}"], "vm")
    for wishes, last in (({100: (0, 15.0)}, 15.0), ({}, 8.0)):
        again = renewed(prepared, ())
        environment = environment_of(again, make_emulator(again, "vm"))
        result = Asked(wishes, again, environment, Phase.ZERO, 0.3).run(None, lambda event: None)
        assert result.trajectory[f"live.{ALPHA}"][-1] == last
        assert again.live_gains.values[0] == last


def test_while_the_run_is_stopping_gains_stay(tmp_path: Path) -> None:
    prepared = load(BELT, [BOTH], "vm")
    run = Asked({1000: (0, 15.0)}, prepared, environment_of(prepared, make_emulator(prepared, "vm")), Phase.FULL, 1.0)
    decide = run._decide

    def stopping(tick: Tick) -> Any:
        if tick.number == 998:
            run.stages.ask_to_stop("test")
        return decide(tick)

    run._decide = stopping  # type: ignore[method-assign]
    result = run.run(None, lambda event: None)
    assert [str(event) for event in result.events if event.kind is EventKind.GAIN] == [
        f"{ALPHA}: the operator asks for another gain (refused: the run is stopping)"
    ]
    assert (result.trajectory[f"live.{ALPHA}"] == 8.0).all()
