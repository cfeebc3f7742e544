"""Phase zero on random machines that differ from their model: `python -m tests.hil.mismatch --count 250 --seed 1`."""

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from hil.assembly.prepare import load
from hil.safety import EventKind
from hil.safety.plan import Phase
from servoctl.config.load import load_config
from tests.hil.rigs import Played, Rig, play

CONFIGS = (
    "arm_on_drives", "scara_drive", "two_mass_spring_drive", "coordinated_robots", "coordinated_robots_moteus",
    "flexible_joint_drive", "scara_robstride", "two_arms_damiao",
)  # fmt: skip

ACCUSED = frozenset({EventKind.REVERSED, EventKind.RESPONSE, EventKind.TORQUELESS, EventKind.SCALE})
"""What a drive is accused of in stage zero; these drives are all sound."""


@dataclass(frozen=True)
class Machine:
    """A shipped config, and how the true machine and its samples differ from it."""

    config: str
    sets: tuple[str, ...]


def machines(count: int, seed: int, noise: bool = True) -> Iterator[Machine]:
    """Machines with friction, masses, stiffnesses, lags and noise that their configs do not have.

    Args:
        noise: Whether encoders may be noisier than the steps that their configs say.
    """
    known: dict[str, tuple[float, float, dict[str, float]]] = {}
    for number in range(count):
        numbers = random.Random(seed * 100_000 + number)
        config = numbers.choice(CONFIGS)
        if config not in known:
            drives = [drive.settings for drive in load(config, (), "vm").drives]
            path = load_config(config).path
            plant = yaml.safe_load(path.read_text()).get("plant", {}).get("parameters", {})
            known[config] = (min(d.torque_limit for d in drives), max(d.speed_limit for d in drives), plant)
        torque, speed, plant = known[config]
        true = {}
        if numbers.random() < 0.6:
            true["coulomb_friction"] = torque * numbers.choice([0.0005, 0.001, 0.003, 0.01, 0.02, 0.04, 0.07, 0.1])
        if numbers.random() < 0.5:
            true["viscous_friction"] = torque / speed * numbers.choice([0.01, 0.1, 0.3])
        for name, value in plant.items():
            if isinstance(value, int | float) and not name.startswith("l") and numbers.random() < 0.5:
                true[f"parameters.{name}"] = value * numbers.choice([0.75, 0.85, 0.95, 1.1, 1.25])
        if numbers.random() < 0.4:
            true["current_lag"] = numbers.choice([0.0002, 0.002, 0.004])
        if numbers.random() < 0.4 and noise:
            true["encoder_noise"] = numbers.choice([1e-5, 1e-4, 5e-4])
        sets = [f"hil.emulation.{key}={value:.6g}" for key, value in true.items()]
        sets += ["hil.prediction=true"] if numbers.random() < 0.2 else []
        sets += ["hil.velocity=filter"] if numbers.random() < 0.3 else []
        yield Machine(config, tuple(sets))


def tried(machine: Machine) -> Played:
    """Phase zero of a machine."""
    return play(Rig(machine.config, machine.sets), stage=Phase.ZERO, duration=0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    options, counts = parser.parse_args(), Counter[str]()
    for number, machine in enumerate(machines(options.count, options.seed)):
        accused = [event for event in tried(machine).events if event.kind in ACCUSED]
        counts.update(event.kind.name.lower() for event in accused[:1])
        for event in accused[:1]:
            print(f"{number} {machine.config} {' '.join(machine.sets)}: {event}", flush=True)
    print(f"{options.count} machines of sound drives; accused: {dict(counts) or 'none'}")


if __name__ == "__main__":
    main()
