"""The shipped configs by kind, written down so that collecting tests loads none; `test_shipped.py` checks the lists."""

from servoctl.config import shipped_configs

REFUSED = {"flexible_joint_motor", "scara_as_printed"}
"""Published tasks that cannot be done: loading them is an error that says why."""

OPEN_LOOP = {"four_bars", "parallelogram", "parallelogram_flat", "projectile"}
"""`law: none`."""

RAISED = {
    "crane",
    "flexible_joint_drive",
    "flexible_joint_motor_raised",
    "harmonic_drive",
    "three_masses",
    "two_mass_spring_prescribed",
}
"""Their rows have a relative degree above 2."""

ON_DRIVES = {
    "arm_on_drives",
    "coordinated_robots",
    "coordinated_robots_moteus",
    "flexible_joint_drive",
    "scara_drive",
    "scara_robstride",
    "two_arms_damiao",
    "two_mass_spring_drive",
}
"""They have `hil`; checked in `hil/test_configs_on_drives.py`."""

LOWER_PRIORITY = {"arm_path", "crane_rope", "elbow_above_table", "two_arms_box"}
"""A task of priority 2 asks for more than the inputs can give."""

LOADED = [name for name in shipped_configs() if name not in REFUSED]
CONSTRAINT_FOLLOWING = [name for name in LOADED if name not in OPEN_LOOP | RAISED]
