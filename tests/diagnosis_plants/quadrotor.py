"""A quadrotor with four thrusts, whose place and yaw are prescribed: four rows, of rank 2."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import servoctl as sc


@dataclass(frozen=True)
class Quadrotor(sc.LagrangianPlant):
    """A rigid body with four rotors; attitude by yaw, pitch, roll."""

    m: float = 1.2  # [kg]
    Ix: float = 0.015  # [kg m^2] about the arms
    Iz: float = 0.026  # [kg m^2] about the vertical axis
    arm: float = 0.2  # [m]
    c: float = 0.02  # [m] drag torque per thrust
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar = {"x": "m", "y": "m", "z": "m", "yaw": "rad", "pitch": "rad", "roll": "rad"}
    actuators: ClassVar = {"F1": "N", "F2": "N", "F3": "N", "F4": "N"}

    def _rates(self, q, v):
        """Angular velocity in the body's axes."""
        yaw, pitch, roll = v[3], v[4], v[5]
        return np.array([
            roll - yaw * np.sin(q[4]),
            pitch * np.cos(q[5]) + yaw * np.cos(q[4]) * np.sin(q[5]),
            yaw * np.cos(q[4]) * np.cos(q[5]) - pitch * np.sin(q[5]),
        ])  # fmt: skip

    def kinetic_energy(self, q, v, t):
        w = self._rates(q, v)
        return (
            self.m * (v[0] ** 2 + v[1] ** 2 + v[2] ** 2) / 2
            + (self.Ix * (w[0] ** 2 + w[1] ** 2) + self.Iz * w[2] ** 2) / 2
        )

    def potential_energy(self, q, t):
        return self.m * self.g * q[2]

    def actuation(self, q, t):
        sy, cy, sp, cp, sr, cr = np.sin(q[3]), np.cos(q[3]), np.sin(q[4]), np.cos(q[4]), np.sin(q[5]), np.cos(q[5])
        up = np.array([cy * sp * cr + sy * sr, sy * sp * cr - cy * sr, cp * cr])
        # power duality: torque about body axes times the body's rates
        yaw, pitch, roll = np.array([-sp, cp * sr, cp * cr]), np.array([0 * sr, cr, -sr]), np.array([1.0, 0.0, 0.0])
        columns = []
        for x, y, spin in ((1.0, 0.0, 1.0), (0.0, 1.0, -1.0), (-1.0, 0.0, 1.0), (0.0, -1.0, -1.0)):
            torque = np.array([y * self.arm, -x * self.arm, spin * self.c])
            columns.append([up[0], up[1], up[2], yaw @ torque, pitch @ torque, roll @ torque])
        return np.array(columns).T
