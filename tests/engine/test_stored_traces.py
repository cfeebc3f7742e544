"""Traced functions in the cache: equal to the bit, never stale, never trusted when damaged."""

from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servoctl.assembly import load
from servoctl.engine import cache, stored
from servoctl.engine.compiler import compiler
from servoctl.engine.fingerprint import NoFingerprintError, fingerprint, structure_fingerprint
from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.ops import OPS, Operation
from servoctl.errors import ServoctlError
from servoctl.mechanics.constraint import Holonomic
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array
from tests.config_texts import plant_text

PLANT = "from pathlib import Path\n" + plant_text(
    "Cart", "g: float = 9.8", "x", "u", 'np.array([[float(Path(__file__).with_name("mass.txt").read_text())]])',
    "np.array([-self.g * np.sin(q[0])])",
)  # fmt: skip
CONFIG = """\
plant: {class: "cart.py:Cart"}
initial: {q: [0.1], v: 0}
task: [{name: there, holonomic: "x - sin(t)"}]
law: {correction: {baumgarte: {alpha: 5, beta: 5}}}
run: {duration: 0.1, integrator: {method: rk4, step: 0.01}}
"""


@pytest.fixture
def own_cache(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Traces of every length are kept in it."""
    monkeypatch.setattr(stored, "WORTH", 0)
    return own_cache


def looped(config: str | Path, *changes: str) -> Loop:
    loop = load(config, changes, "vm").loop
    assert isinstance(loop, Loop)
    return loop


def row(loop: Loop) -> Array:
    return loop.rates(0.3, np.linspace(0.1, 0.9, loop.size))[1]


def refuse_to_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def traced(*values: Any) -> None:
        raise ServoctlError("traced again")

    monkeypatch.setattr(Loop, "_control", traced)


def forget_what_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, only matrix operations are known."""
    kept = {name: op for name, op in OPS.items() if isinstance(op, Operation)}
    monkeypatch.setattr("servoctl.engine.ops.OPS", kept)


@pytest.mark.parametrize("config", ["scara_path", "coordinated_robots_limited"])
def test_a_function_from_the_cache_gives_the_same_bits(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    fresh = looped(config)
    expected, source = row(fresh), fresh.program(None).source
    refuse_to_trace(monkeypatch)
    monkeypatch.setattr("servoctl.engine.ops._FUNCTIONS", {})
    forget_what_is_registered(monkeypatch)
    again = looped(config)
    np.testing.assert_array_equal(row(again), expected)
    assert again.program(None).source == source


@pytest.mark.parametrize("changes", [(), ("estimation={kind: model}",)])
def test_a_sampled_law_with_bounds_comes_from_the_cache_with_the_same_bits(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, changes: tuple[str, ...]
) -> None:
    def commands(loop: Loop) -> Array:
        return loop.control(0.3, np.linspace(0.1, 0.9, loop.size))

    fresh = looped("arm_obstacle", *changes)
    expected, source = commands(fresh), fresh.program(5).source
    refuse_to_trace(monkeypatch)
    forget_what_is_registered(monkeypatch)
    again = looped("arm_obstacle", *changes)
    np.testing.assert_array_equal(commands(again), expected)
    assert again.program(5).source == source
    with pytest.raises(ServoctlError, match="traced again"):
        looped("arm_obstacle", *changes, "bounds.disc.rate=20", "run.period=0.004")


def test_other_gains_need_no_other_trace(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = "law.correction.baumgarte.alpha=7", "plant.parameters.g=5"
    before = row(looped("coordinated_robots"))
    monkeypatch.setenv("SERVOCTL_CACHE", str(own_cache.with_name("other")))
    expected = row(looped("coordinated_robots", *changes))
    monkeypatch.setenv("SERVOCTL_CACHE", str(own_cache))
    refuse_to_trace(monkeypatch)
    actual = row(looped("coordinated_robots", *changes))
    np.testing.assert_array_equal(actual, expected)
    assert np.abs(actual - before).max() > 0.1


@pytest.mark.parametrize(
    "change",
    [
        "law.allocation=unprojected",
        "task.level.holonomic=theta3 - 0.1*t",
        "law.limits={u1: 3}",
        "law.null_space={u1: t}",
    ],
)
def test_another_law_or_task_is_traced_again(own_cache: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    row(looped("coordinated_robots"))
    refuse_to_trace(monkeypatch)
    looped("coordinated_robots")
    with pytest.raises(ServoctlError, match="traced again"):
        looped("coordinated_robots", change)


def test_a_plant_that_reads_a_file_is_never_stale(own_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "cart.py").write_text(PLANT)
    (tmp_path / "cart.yaml").write_text(CONFIG)
    found = []
    for mass in ("2.0", "3.0", "2.0"):
        (tmp_path / "mass.txt").write_text(mass)
        loop = looped(tmp_path / "cart.yaml")
        assert loop.system.model.opaque is None
        found.append(float(loop.control(0.0, np.array([0.0, 0.0]))[loop.layout.slices["u"]][0]))
    assert found[0] == found[2] and found[1] == pytest.approx(1.5 * found[0], rel=1e-12)


@pytest.mark.parametrize("content", [b"", b"no trace", None])
def test_a_damaged_file_is_traced_again(own_cache: Path, content: bytes | None) -> None:
    expected = row(looped("coordinated_robots"))
    for path in own_cache.glob("*.trace"):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    np.testing.assert_array_equal(row(looped("coordinated_robots")), expected)


def test_clearing_the_cache_removes_traces(own_cache: Path) -> None:
    row(looped("coordinated_robots"))
    count = len(list(own_cache.glob("*.trace")))
    assert count and cache.size()[0] == count and cache.clear()[0] == count and not list(own_cache.iterdir())


@dataclass(frozen=True)
class Mine:
    a: int = 1


def test_a_users_code_has_no_fingerprint() -> None:
    derived = make_dataclass("Holonomic", [], bases=(Holonomic,))
    derived.__module__ = Holonomic.__module__
    hidden = type("Mine", (Mine,), {"__module__": Holonomic.__module__})
    for value in (
        Mine(),
        Mine,
        len,
        lambda: 1,
        {"f": np.sin},
        {1, 2},
        Holonomic(lambda q, t: q[0]),
        hidden(),
        object(),
    ):
        with pytest.raises(NoFingerprintError):
            fingerprint(value)
    assert fingerprint(derived) == fingerprint(Holonomic)  # it adds no code


def test_every_value_that_is_no_parameter_counts() -> None:
    base = {"a": 1, "b": (1.0, "x"), "c": np.arange(3.0)}
    others = [{**base, "a": 1.0}, {**base, "a": True}, {**base, "b": (1.0, "y")}, {**base, "b": [1.0, "x"]}]
    others += [{**base, "c": np.arange(3)}, {**base, "c": np.arange(3.0)[:, None]}, {"x": 1, **base}]
    assert len({fingerprint(each) for each in (base, *others)}) == 1 + len(others)
    assert fingerprint(-0.0) != fingerprint(0.0)
    one, other = Holonomic("x - 1"), Holonomic("x - 2")
    assert structure_fingerprint(one) != structure_fingerprint(other)


@pytest.mark.skipif(compiler() is None, reason="no C compiler")
def test_a_run_in_c_from_the_cache_reads_no_function_of_the_loop(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, read = load("two_mass_spring", ["run.duration=0.1"], "c").simulate(), stored._function

    def refuse(header: Any, functions: bytes) -> Any:
        assert header["name"] not in ("control", "motion", "rates", "slopes")
        return read(header, functions)

    monkeypatch.setattr(stored, "_function", refuse)
    again = load("two_mass_spring", ["run.duration=0.1"], "auto").simulate()
    assert again.metadata["engine"] == "c"
    for name, values in first.columns.items():
        np.testing.assert_array_equal(values, again.columns[name])


def test_a_function_that_cannot_be_read_is_made_again(own_cache: Path) -> None:
    x, key = inputs({"x": (2,)}), "0" * 32

    def doubled() -> Kernel:
        return Kernel.compile("doubled", x, {"y": 2.0 * x["x"]})

    stored.kept_kernel(key, "doubled", doubled)
    path = cache.find(stored._file_key(key, "doubled"), ".trace").path
    header = path.read_bytes().partition(b"\n")[0]
    cache.drop(path)
    cache.put_bytes(stored._file_key(key, "doubled"), header + b"\nno function", ".trace")
    again = stored.kept_kernel(key, "doubled", doubled)
    assert again.function.name() == "doubled" and again.function.numel_out(0) == 2
    np.testing.assert_array_equal(again(np.array([1.0, 3.0]))[0], [2.0, 6.0])
