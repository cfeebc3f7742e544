"""The result of an identification: values with their standard deviations, figures of the torque, a verdict in words."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.errors import in_one_line
from servoctl.identification.findings import Finding
from servoctl.identification.log import SimulatedMachine
from servoctl.identification.solution import FLOOR, Fit, forces, is_physical
from servoctl.mechanics.actuator_parameters import FIELD
from servoctl.mechanics.plant import Plant
from servoctl.run_folder.metrics import plain
from servoctl.types import Array
from servoctl.version import VERSION

SCHEMA = 1  # version of the shape of `identification.json`

GOOD, USABLE = 0.02, 0.1
"""Torque that a good, a usable model leaves unexplained on rows that were not used, relative to the torque."""

BETTER = 0.9  # forces that add up to less than this share of what was left before are better balanced

MORE = 1.5  # the rows of the fit have a figure of their own if they leave so many times as much as the others

VAGUE = 0.1  # a value is poorly determined above this standard deviation, relative to its size

SMALL = 0.05  # if all values are below this share of those before, the log may have another unit


@dataclass(frozen=True)
class Identification:
    """Identified parameters of a plant."""

    config: str  # its name
    runs: tuple[str, ...]  # folders of the logs
    plant: Plant  # with its values before
    fit: Fit
    left_out: dict[str, str]  # parameter -> why it was not estimated
    not_significant: tuple[str, ...]  # names of friction that the logs do not show
    bandwidth: float  # [Hz] cut-off frequency of the positions
    machine: SimulatedMachine | None = None  # what moved in the logs; None: the law's own plant, or a real machine
    findings: tuple[Finding, ...] = ()  # what does not fit the plant in tables; the fit is that of the mended tables
    named: bool = False  # whether only some parameters were asked for by name

    @property
    def values(self) -> dict[str, float]:
        """Name -> identified value."""
        return dict(zip(self.fit.unknowns.names, self.fit.x.tolist(), strict=True))

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """Name -> `value`, `sigma`, `before` and `unit`; sigma is None for what only acts together with others."""
        together = {name for group in self.unidentifiable for name in group}
        unknowns, sigma = self.fit.unknowns, self.fit.sigma
        keys = ("value", "sigma", "before", "unit")
        numbers = np.column_stack([self.fit.x, sigma, unknowns.before]).tolist()
        return {
            name: dict(zip(keys, (x, None if name in together else s, b, unit), strict=True))
            for name, (x, s, b), unit in zip(unknowns.names, numbers, unknowns.units, strict=True)
        }

    @property
    def unidentifiable(self) -> list[list[str]]:
        """Lists of names that only act together in these logs; a list of one has no effect in them."""
        names = self.fit.unknowns.names
        return [[names[i] for i in group] for group in self.fit.base.groups]

    @property
    def base(self) -> list[dict[str, Any]]:
        """The sums that the logs determine: `sum` as text, `value`, `sigma`, `before`, `unit`."""
        fit = self.fit
        names, sums = fit.base.named(fit.unknowns.names), fit.base.sums
        values, before = sums @ fit.x, sums @ fit.unknowns.before
        sigma = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", sums, fit.covariance, sums), 0.0))
        units = [fit.unknowns.units[i] for i in fit.base.independent]
        keys = ("sum", "value", "sigma", "before", "unit")
        return [dict(zip(keys, row, strict=True)) for row in zip(names, values, sigma, before, units, strict=True)]

    @property
    def tables(self) -> list[tuple[list[str], list[list[str]]]]:
        """Header and rows of each table: values that stand alone, sums, torques."""
        together = {name for group in self.unidentifiable for name in group}
        alone = {name: one for name, one in self.parameters.items() if name not in together}
        sums = {one["sum"]: one for one in self.base if any(name in together for name in one["sum"].split(" "))}
        header = ["unit", "identified", "+- sigma", "before"]
        found = []
        for title, entries in (("parameter", alone), ("parameters that only act together", sums)):
            rows = [
                [shortened(name), one["unit"], f"{one['value']:.6g}", f"{one['sigma']:.2g}", f"{one['before']:.6g}"]
                for name, one in entries.items()
            ]
            found += [([title, *header], rows)] if rows else []
        torques = [
            [name, one["unit"], *(f"{one[key]:.4g}" for key in ("torque", "before", "after", "validation"))]
            for name, one in self.torque_figures.items()
        ]
        return [*found, (["actuator", "unit", "torque", "before", "after", "on rows not used"], torques)]

    @property
    def poorly_determined(self) -> list[str]:
        """Sums whose standard deviation is above 10 % of the value."""
        return [entry["sum"] for entry in self.base if entry["sigma"] > VAGUE * abs(entry["value"])]

    @property
    def torque_figures(self) -> dict[str, dict[str, Any]]:
        """Actuator -> `unit`, rms of the torque, and of its error `before`, `after` and on the `validation` rows."""
        fitted, rows = self.fit.rows.fitted, self.fit.rows
        before, after = self.fit.rows.torque_error(self.fit.unknowns.before), self.fit.rows.torque_error(self.fit.x)
        return {
            name: {
                "unit": unit,
                "torque": _rms(rows.torque[:, j]),
                "before": _rms(before[:, j]),
                "after": _rms(after[fitted, j]),
                "validation": _rms(after[~fitted, j]),
            }
            for j, (name, unit) in enumerate(self.plant.actuators.items())
        }

    @property
    def better_balanced(self) -> list[str]:
        """Coordinates without a motor whose forces add up to less of their size than those of the values before."""
        fit, rows = self.fit, self.fit.rows
        known, regressor = rows.known[~rows.fitted], rows.regressor[~rows.fitted]

        def share(x: Array) -> Array:
            unbalanced: Array = np.sqrt(np.mean((known + regressor @ x) ** 2, axis=0))
            return unbalanced / np.maximum(forces(known, regressor, x), 1e-300)

        better = (share(fit.x) < BETTER * share(fit.unknowns.before)) & ~rows.to_torque.any(axis=(0, 1))
        return [name for name, yes in zip(self.plant.coordinates, better, strict=True) if yes]

    @property
    def torque_rms(self) -> float:
        """Of all actuators [actuator units]."""
        return _rms(self.fit.rows.torque)

    @property
    def torque_rms_before(self) -> float:
        """Error of the model as it was, all actuators and rows [actuator units]."""
        return _rms(self.fit.rows.torque_error(self.fit.unknowns.before))

    @property
    def validation_rms_before(self) -> float:
        """Error of the model as it was on rows that were not used for the fit [actuator units]."""
        return _rms(self.fit.rows.torque_error(self.fit.unknowns.before)[~self.fit.rows.fitted])

    @property
    def torque_rms_after(self) -> float:
        """Error of the identified model on the rows of the fit [actuator units]."""
        return _rms(self.fit.rows.torque_error(self.fit.x)[self.fit.rows.fitted])

    @property
    def validation_rms(self) -> float:
        """Error of the identified model on rows that were not used for the fit [actuator units]."""
        return _rms(self.fit.rows.torque_error(self.fit.x)[~self.fit.rows.fitted])

    @property
    def validation_share(self) -> float:
        """Norm of the error over norm of the torque, all actuators, on rows that were not used for the fit [-]."""
        return self.validation_rms / _rms(self.fit.rows.torque[~self.fit.rows.fitted])

    @property
    def plant_parameters(self) -> dict[str, float | list[float]]:
        """The plant's parameters to paste, as a config has them, without the rotors."""
        return {name: value for name, value in self.numbers.items() if name != FIELD}

    @property
    def numbers(self) -> dict[str, float | list[float]]:
        """Parameter of the plant -> identified value, the rotors in the order of the actuators."""
        return self.fit.unknowns.numbers(self.fit.x)

    @property
    def armature(self) -> dict[str, float] | None:
        """`plant.armature` of a config, by actuator; None: it was not estimated."""
        rotors = self.numbers.get(FIELD)
        return None if rotors is None else dict(zip(self.plant.actuators, rotors, strict=True))  # type: ignore[arg-type]

    @property
    def friction(self) -> dict[str, dict[str, float]] | None:
        """`plant.friction` of a config: `coulomb`, `viscous`, `speed` by actuator; None: it was not estimated."""
        unknowns, actuators = self.fit.unknowns, list(self.plant.actuators)
        if not (unknowns.rubbing or self.not_significant):
            return None
        found = {**unknowns.friction(self.fit.x), "speed": unknowns.speed}
        return {kind: dict(zip(actuators, map(float, values), strict=True)) for kind, values in found.items()}

    @property
    def unphysical(self) -> str | None:
        """Why no machine has these values; None if one may have them."""
        unknowns = self.fit.unknowns
        for link, ten in unknowns.moments.items():
            if not is_physical(self.fit.x[ten], FLOOR) and not np.array_equal(self.fit.x[ten], unknowns.before[ten]):
                return f"no rigid body has the mass and inertia of {link}"
        try:
            changed = {name: tuple(value) if isinstance(value, list) else value for name, value in self.numbers.items()}
            other: Any = dataclasses.replace(self.plant, **changed)  # type: ignore[type-var]
        except (Exception, SystemExit) as error:  # a class may raise anything in its own checks
            return f"{type(self.plant).__name__} refuses them: {in_one_line(error)}"
        for q, t in zip(self.fit.rows.q, self.fit.rows.t, strict=True):
            M = np.asarray(other.mass_matrix(q, float(t)), dtype=float)
            known = np.asarray(self.plant.mass_matrix(q, float(t)), dtype=float)
            if np.linalg.eigvalsh(M)[0] <= 0.0 < np.linalg.eigvalsh(known)[0]:
                return f"the mass matrix is not positive definite at t = {t:.4g} s"
        return None

    @property
    def finding_groups(self) -> list[tuple[str, str, str]]:
        """Kind, places and text of the findings, those of one text together."""
        groups: dict[tuple[str, str], list[str]] = {}
        for one in self.findings:
            groups.setdefault((one.kind, one.text.removeprefix(f"{one.where}: ")), []).append(one.where)
        return [(kind, ", ".join(places), text) for (kind, text), places in groups.items()]

    @property
    def without_value(self) -> list[str]:
        """Which parameters got no value from the logs, and why, one line each."""
        alone = [group[0] for group in self.unidentifiable if len(group) == 1]
        lines = [f"no effect in these logs: {', '.join(alone)}"] if alone else []
        lines += [f"not identified: {name}: {why}" for name, why in self.left_out.items()]
        none = ", ".join(self.not_significant)
        return [*lines, f"not significant, so taken as 0: {none}"] if none else lines

    @property
    def good(self) -> bool:
        """Whether the values should be used."""
        return not self.findings and self.objection is None and self.unexplained < USABLE

    @property
    def unexplained(self) -> float:
        """Share of the torque that stays unexplained, on rows of the fit or on the others, whichever is more [-].

        A machine that moves little in one of them needs little of the model there.
        """
        return max(self.validation_rms, self.torque_rms_after) / self.torque_rms

    @property
    def objection(self) -> str | None:
        """Why the values should not be used, not even as the better ones; None: they may be."""
        if (unphysical := self.unphysical) is not None:
            return unphysical
        if self.validation_rms >= self.validation_rms_before and not self.better_balanced:
            return "the values before explain the torque as well"
        if not self.named and (small := self.far_smaller):
            return (
                f"{', '.join(small[:4])}{' ...' if len(small) > 4 else ''}: below {100 * SMALL:g} % of before, as if "
                "torques, positions or times had another unit (if they have not, write the values into the config and "
                "identify again)"
            )
        return None

    @property
    def far_smaller(self) -> list[str]:
        """The sums of bodies that the log determines, if all are far below those before; else empty.

        A wrong unit makes them so where it leaves the form of the motion as it is, as millimetres without gravity.
        """
        first = self.fit.unknowns.bodies
        of_bodies = [one for one, row in zip(self.base, self.fit.base.sums, strict=True) if not row[first:].any()]
        known = [one for one in of_bodies if one["sigma"] < VAGUE * abs(one["before"])]
        small = all(abs(one["value"]) < SMALL * abs(one["before"]) for one in known)
        return [one["sum"] for one in known] if small else []

    @property
    def verdict(self) -> str:
        """Whether to use the values, and why, in words."""
        share, was, used = (
            100.0 * x / self.torque_rms
            for x in (self.validation_rms, self.validation_rms_before, self.torque_rms_after)
        )
        figures = f"{share:.2g} % of the torque stays unexplained on rows that were not used ({was:.2g} % before)"
        figures += f", {used:.2g} % on those of the fit" if used > MORE * share else ""
        if share >= was:
            figures += "".join(f"; the forces on {name} add up better than before" for name in self.better_balanced)
        if self.findings:
            named = "; ".join(f"{kind} of {where}" for kind, where, _ in self.finding_groups)
            return f"do not use them until the log is mended: {named}; mended, {figures}"
        if self.objection is not None:
            return f"do not use them: {self.objection}; {figures}"
        if self.unexplained >= USABLE:
            return (
                f"poor: {figures}; the machine does something that its model lacks (elasticity, cables, other friction)"
            )
        vague = self.poorly_determined
        more = f"; poorly determined: {', '.join(vague[:4])}{' ...' if len(vague) > 4 else ''}" if vague else ""
        return f"{'good' if self.unexplained < GOOD else 'usable'}: {figures}{more}"

    def to_dict(self) -> dict[str, Any]:
        """The content of `identification.json`."""
        return dict(plain({
            "schema": SCHEMA, "config": self.config, "servoctl": VERSION, "runs": self.runs, "verdict": self.verdict,
            "good": self.good,
            "findings": self.findings, "parameters": self.parameters,
            "unidentifiable": self.unidentifiable, "base": self.base,
            "left_out": self.left_out, "not_significant": self.not_significant,
            "torque_rms": self.torque_rms, "torque_rms_before": self.torque_rms_before,
            "torque_rms_after": self.torque_rms_after, "validation_rms": self.validation_rms,
            "validation_rms_before": self.validation_rms_before,
            "validation_share": self.validation_share,
            "actuators": self.torque_figures, "plant_parameters": self.plant_parameters,
            "armature": self.armature, "friction": self.friction,
            "delays": self.fit.delays, "bandwidth": self.bandwidth, "row_bandwidth": self.fit.bandwidth,
            "rows": int(self.fit.rows.fitted.sum()), "validation_rows": int((~self.fit.rows.fitted).sum()),
            "condition": self.fit.base.condition, "kept_physical": self.fit.constrained,
        }))  # fmt: skip


def shortened(text: str) -> str:
    """The beginning of a long sum; all of it is in `identification.json`."""
    return text if len(text) < 60 else f"{text[:57]}..."


def _rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x)))) if x.size else float("nan")
