"""Commands and options that no longer exist, and what serves instead."""

from collections.abc import Sequence

from servoctl.errors import ConfigError

GONE = {
    ("bench", ""): "benchmarks are a tool of the repository (in a checkout: python -m tests.benchmarks)",
    ("export", "--loop"): "the loop on drives runs in servoctl hil (without --loop, export writes the law)",
    ("export", "--float"): "the exported law computes in double (leave it out)",
    ("tune", "--storage"): "a study is a file of its folder (use --out, and --resume to continue)",
    ("tune", "--compare"): "a search times nothing but itself (leave it out)",
    ("tune", "--no-compare"): "a search times nothing but itself (leave it out)",
}
"""(command, option) -> reason and remedy; the option is empty where the whole command is gone."""


def refuse_gone(command: str, words: Sequence[str]) -> None:
    """Refuses a command line that names something from earlier versions.

    Raises:
        ConfigError: The command, or one of its options, no longer exists.
    """
    for (name, option), text in GONE.items():
        if name == command and (not option or option in [word.partition("=")[0] for word in words]):
            raise ConfigError(f"servoctl {' '.join(filter(None, (name, option)))}: no longer exists: {text}")
