"""MuJoCo's model of a file, as the reader of MJCF files and a machine that MuJoCo moves ask for it."""

from pathlib import Path
from typing import Any

import numpy as np

from servoctl.errors import ConfigError, MissingPackageError
from servoctl.types import Array


class Scene:
    """MuJoCo's model of a file, with words in place of MuJoCo's numbers."""

    def __init__(self, path: Path) -> None:
        """Loads a file, an MJCF or a URDF.

        Raises:
            ConfigError: MuJoCo cannot read the file.
            MissingPackageError: MuJoCo is not installed.
        """
        try:
            import mujoco
        except ImportError as error:
            raise MissingPackageError(f"{path}: it needs MuJoCo (pip install 'servoctl[mujoco]')") from error
        # else MuJoCo writes its warnings to a file in the user's folder; errors of a run say themselves that it ended
        mujoco.set_mju_user_warning(lambda text: None)
        self.mujoco: Any = mujoco  # the module
        try:
            self.model: Any = mujoco.MjModel.from_xml_path(str(path))
        except ValueError as error:
            raise ConfigError(f"{path}: MuJoCo cannot read it: {' '.join(str(error).split())}") from error
        # where each actuator's first control and first force stand; since MuJoCo 4 some actuators have several
        ordinary = np.arange(self.model.nu)
        self.controls: Array = getattr(self.model, "actuator_ctrladr", ordinary)
        self.outputs: Array = getattr(self.model, "actuator_outadr", ordinary)
        flags, bits = mujoco.mjtDisableBit.__members__.items(), self.model.opt.disableflags
        self.disabled = {name.partition("_")[2].lower() for name, bit in flags if bits & int(bit)}  # such as `gravity`

    def name(self, kind: str, i: int) -> str:
        """The name of a thing, such as a `body` or a `joint`; its kind and number if it has none.

        Underscores follow where another thing has that name.
        """
        things = getattr(self.model, kind)
        if name := str(things(i).name):
            return name
        name = f"{kind}{i}"
        while True:
            try:
                things(name)
            except KeyError:
                return name
            name += "_"

    def word(self, kinds: str, number: Any) -> str:
        """MuJoCo's word for a number: `hinge` for a joint's type, one of `mjtJoint`."""
        return str(getattr(self.mujoco, kinds)(number).name).partition("_")[2].lower()

    def joint_kind(self, i: int) -> str:
        """`hinge`, `slide`, `ball` or `free`."""
        return self.word("mjtJoint", self.model.jnt_type[i])

    def acts_on(self, actuator: int) -> str:
        """`joint`: a hinge or a slide, on which JOINT and JOINTINPARENT mean the same; or what else it acts on."""
        kind = self.word("mjtTrn", self.model.actuator_trntype[actuator])
        if kind not in ("joint", "jointinparent"):
            return kind
        joint = self.joint_kind(self.model.actuator_trnid[actuator, 0])
        return "joint" if joint in ("hinge", "slide") else f"{joint} joint"

    def is_off(self, actuator: int) -> bool:
        """Whether an option of the file switches an actuator off."""
        groups = int(self.model.opt.disableactuator)
        return "actuation" in self.disabled or bool(groups & (1 << int(self.model.actuator_group[actuator])))

    def takes_torque(self, actuator: int) -> bool:
        """Whether the force of an actuator is its control times a constant, at once or after a lag."""
        model = self.model
        unbiased = self.word("mjtBias", model.actuator_biastype[actuator]) == "none"
        fixed = self.word("mjtGain", model.actuator_gaintype[actuator]) == "fixed"
        return unbiased and fixed and self.word("mjtDyn", model.actuator_dyntype[actuator]) != "integrator"
