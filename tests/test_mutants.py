"""A few mutated configs; `python -m tests.mutants` tries as many as there is time for."""

import os

import mutants
import pytest

MUTANTS = int(os.environ.get("SERVOCTL_MUTANTS", "24"))


@pytest.mark.parametrize("seed", range(0, MUTANTS, 8))
def test_mutated_configs_end_with_a_sentence_and_a_known_exit_code(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mutants.search(8, seed) == 0, capsys.readouterr().out
