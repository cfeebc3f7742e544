"""Wrong configs: `refusals/BASE.txt` has, a case a line, what is changed in a good config, and the sentence about it.

old text  ->  new text  =>  part of the sentence        \n stands for a new line; old of `grammar` is a section
"""

from pathlib import Path

import pytest
from config_texts import CART, CART_PLANT, GRAMMAR, HEAD, HIL, REALISM, ROBOT, SHAPES

from servoctl.cli import main
from servoctl.config import load_config
from servoctl.errors import ConfigError

BASES = {
    "grammar": "".join(GRAMMAR.values()),
    "hil": HEAD + HIL,
    "realism": REALISM,
    "robot": ROBOT,
    "cart": CART,
    "bounds": CART.replace("0.02}", "0.02, period: 1*ms}") + "bounds: [{name: b, holonomic: 1 - x}]\n",
    "shapes": SHAPES,
}
LOADED_ONLY = ("grammar", "hil", "robot")
"""Their plant does not exist, so only the grammar is checked; the others go through `servoctl run`."""

CASES = [
    (base, *line.replace("\\n", "\n").replace("  =>  ", "  ->  ").split("  ->  "))
    for base in BASES
    for line in (Path(__file__).parent / "refusals" / f"{base}.txt").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize(
    ("base", "old", "new", "sentence"), CASES, ids=[f"{base}-{i}" for i, (base, *_) in enumerate(CASES)]
)
def test_a_wrong_config_is_refused_in_one_sentence_with_its_line(
    base: str,
    old: str,
    new: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if base == "grammar":
        old, new = GRAMMAR[old], f"{new}\n" if new else ""
    assert old in BASES[base]
    file = tmp_path / ("cart.yaml" if base in ("cart", "bounds") else "c.yaml")
    file.write_text(BASES[base].replace(old, new), encoding="utf-8")
    (tmp_path / "cart.py").write_text(CART_PLANT)
    if base in LOADED_ONLY:
        with pytest.raises(ConfigError) as caught:
            load_config(file)
        sentences = caught.value.problems
    else:
        assert main(["run", file.name]) == 2
        sentences = capsys.readouterr().err.splitlines()
    (found,) = sentences
    assert sentence in found
    assert found.startswith(file.name)
    assert not (tmp_path / "runs").exists()
