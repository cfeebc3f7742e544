"""Effect and fields of each kind of fault, for the reference; a test compares it with `hil.emulator.faults.KINDS`."""

COMMON = {
    "kind": "what goes wrong, one of the kinds below",
    "at": "when it begins [s]",
    "for": "how long it lasts [s]; left out: to the end of the run",
    "since": "what `at` counts from: `engaged`, the start of the task, or `power_on`",
    "drive": "actuator of the drive, or coordinate of the encoder node, that it concerns",
    "bus": "bus that it concerns; left out: all",
}
"""Fields that every kind has, or may have."""

COMMON_DEFAULTS = {"kind": "required", "at": 0.0, "for": None, "since": "engaged", "drive": None, "bus": None}

PLACES = {
    "bus": "a bus, or all",
    "node": "a drive or an encoder node (`drive` is required)",
    "drive": "a drive (`drive` is required)",
    "host_or_node": "the host's connection, or that of a node where `drive` is given",
    "host": "the computer that runs the loop",
}
"""Target of a kind -> in words."""

_WHICH = {
    "direction": "which frames: `any`, `to_host` or `from_host`",
    "id": "only frames with this id; left out: all",
    "mask": "which bits of the id count",
}
_P = {"p": "share of the frames"}

TEXTS: dict[str, tuple[str, dict[str, str]]] = {
    "lost": ("frames are lost", {**_P, "burst": "how many are lost in a row [-]", **_WHICH}),
    "delay": (
        "frames arrive late",
        {
            "delay": "delay of every frame [s]",
            "jitter": "random addition, at most [s]",
            "spike": "rare addition [s]",
            "spike_p": "share of frames with a spike",
            **_WHICH,
        },
    ),
    "duplicate": (
        "frames arrive again",
        {"n": "how many times more [-]", "age": "how much later [s]", **_P, **_WHICH},
    ),
    "corruption": ("frames are destroyed on the wire; controllers send them again", {**_P, **_WHICH}),
    "cut": ("a plug is out: nothing is sent or received", {}),
    "bus_off": (
        "the CAN controller goes bus-off",
        {"restart": "time until it restarts [s]; left out: as it is set up"},
    ),
    "babble": (
        "another node fills the bus",
        {
            "id": "id of its frames; 0 wins every arbitration",
            "load": "share of the bus",
            "size": "bytes per frame",
            "fd": "whether they are FD frames",
        },
    ),
    "wrong_length": ("frames of the node have a wrong length", {"length": "bytes per frame", **_P}),
    "foreign_frames": (
        "frames of an unknown node",
        {
            "id": "their id",
            "data": "their bytes in hexadecimal, quoted",
            "extended": "whether the id has 29 bits",
            "fd": "whether they are FD frames",
            "period": "time from one to the next [s]",
        },
    ),
    "id_clash": (
        "a second node answers under the same ids",
        {"collide": "whether it sends at the same time; else half a millisecond later"},
    ),
    "drive_fault": (
        "the drive reports a fault and goes off",
        {"code": "error code of the protocol; left out: over-current", "clear": "whether it is gone after `for`"},
    ),
    "reboot": ("the node restarts; it is away for `for`, or 0.3 s", {}),
    "refuse_enable": ("the drive does not let itself be enabled", {}),
    "wrong_mode": ("the drive is in another control mode than it was told", {}),
    "sdo_abort": (
        "an object of the dictionary refuses access",
        {"index": "index of the object", "code": "SDO abort code"},
    ),
    "silent": ("the node sends nothing", {}),
    "late": ("the node answers late", {"delay": "how much [s]"}),
    "clock_drift": ("the clock of the node is slow", {"ppm": "by how much [parts per million]"}),
    "heartbeat_loss": ("heartbeats are lost", {"of": "whose: `drive` or `master`"}),
    "encoder_jump": ("the encoder's zero jumps", {"delta": "by how much [joint unit]"}),
    "encoder_stuck": ("the encoder's value stands still", {}),
    "encoder_nan": ("the encoder sends a value that is not a number", {}),
    "encoder_wrap": ("the encoder's value wraps round", {"range": "after this angle of the motor [rad]"}),
    "encoder_flip": ("the encoder counts the other way round", {}),
    "encoder_drift": ("the encoder's zero drifts", {"rate": "how fast [joint unit/s]"}),
    "derating": ("the drive gives less torque than its limit", {"factor": "share of the limit that is left"}),
    "torque_constant": ("the motor gives another torque than the drive says", {"factor": "how many times as much [-]"}),
    "no_torque": ("the motor makes no torque, and the drive says nothing of it", {}),
    "torque_table": ("the drive reads commands by another torque range", {"factor": "how many times as large [-]"}),
    "brake_stuck": ("the brake does not open", {}),
    "brake_worn": ("the brake slides early", {"factor": "share of its torque that is left; 0: it never closes"}),
    "blocked": ("a joint is blocked", {}),
    "push": ("a hand pushes a joint", {"torque": "its torque or force [actuator unit]"}),
    "stall": ("the loop stands still for `for`, which is required", {}),
    "output": (
        "the law's output is wrong",
        {"value": "`nan`, `inf`, or `step`", "step": "what is added for `step` [actuator unit]"},
    ),
    "clock_step": ("the time stamps of received frames jump", {"step": "by how much [s]"}),
}
"""Kind -> what happens, and field -> meaning."""
