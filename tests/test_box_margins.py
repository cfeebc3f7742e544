"""Poles and margins over the box of `law.uncertainty`, against machines that the config states one by one."""

import json

import numpy as np
import pytest

import servoctl as sc
from servoctl.cli import main
from servoctl.linear import analyse
from servoctl.linear.margins_at import loop_margins
from servoctl.linear.reserve import reserve

HELD = ["run.period=0.002", "realism.delay=0.002"]
BOX = "law.uncertainty={m1: [-0.2, 0.3], k: 0.3}"


def test_the_worst_machine_has_the_margins_of_a_run_with_that_machine() -> None:
    """Corner by corner; the machines inside are no worse for these margins."""
    found = analyse(sc.load("two_mass_spring", [*HELD, BOX], engine="vm"), change=0.0).box
    assert (found.machines, found.corners) == (12, True)
    corners = [(m1, k) for m1 in (-0.2, 0.3) for k in (-0.3, 0.3)]
    alone = {}
    for m1, k in corners:
        run = sc.load("two_mass_spring", [*HELD, f"realism.parameter_error={{m1: {m1}, k: {k}}}"], engine="vm")
        alone[m1, k] = loop_margins(run)
    simulated = found.margins[0].figures
    for name in ("gain", "phase"):
        worst = min(corners, key=lambda corner: getattr(alone[corner], name))
        assert simulated[name].value == pytest.approx(getattr(alone[worst], name), rel=1e-6)
        assert dict(simulated[name].machine) == dict(zip(("m1", "k"), worst, strict=True))
        assert simulated[name].value < simulated[name].nominal
    least = reserve(sc.load("two_mass_spring", [*HELD, BOX], engine="vm")).gain_margin
    assert least == pytest.approx(simulated["gain"].value, rel=1e-3)  # of tune, found by bisection


def test_a_machine_of_the_box_that_is_unstable_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """alpha^2 r + (k / m2) (1 - r) < 0: with alpha = 1 from r = 1.25 on, a mass 20 % smaller."""
    gains = ["--set", "law.correction.baumgarte={alpha: 1, beta: 1}", "--set", "law.uncertainty.m1=[-0.25, 0]"]
    with pytest.raises(SystemExit):
        main(["analyse", "two_mass_spring", "--change", "0", *gains])
    out, err = capsys.readouterr()
    assert "unstable for a machine of law.uncertainty: m1 -25 %" in err
    assert "over the box of law.uncertainty: m1 -25 to +0 %; 10 machines (every corner, and some inside)" in out
    with pytest.raises(SystemExit):
        main(["analyse", "two_mass_spring", "--change", "0", *gains, "--json"])
    margins = json.loads(capsys.readouterr().out)["box"]["margins"][0]
    # phi'' + r (2 phi' + phi) + s phi = 0 with r = 4/3 and s = k (1/m1' + 1/m2) - r k (1 + 1/m2)
    s = 10 * (4 / 3 + 1 / 2) - 4 / 3 * 10 * 1.5
    assert margins["growth"]["worst"] == pytest.approx(max(np.roots([1, 8 / 3, 4 / 3 + s]).real), rel=1e-6)
    assert margins["growth"]["machine"] == {"m1": -0.25}
    assert (margins["gain"]["worst"], margins["phase"]["worst"]) == (1.0, 0.0)


def test_of_a_box_with_many_corners_random_ones_are_compared_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    box = ", ".join(f"{name}: 0.1" for name in ("m1", "m2", "m3", "m4", "Iz1", "Iz2", "Iz3"))
    with pytest.raises(SystemExit):
        main(["analyse", "scara", "--change", "0", "--set", f"law.uncertainty={{{box}}}"])
    assert "72 machines (random corners of the box, not all, and some inside)" in capsys.readouterr().out
