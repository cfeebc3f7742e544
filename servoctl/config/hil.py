"""Grammar of `hil`: the loop on drives. Options of a single protocol are checked in `hil.drives`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, model_validator

from servoctl.tree.fields import (
    Angle,
    ByPath,
    Count,
    Interval,
    Lag,
    Name,
    NotNegative,
    NumberField,
    Option,
    Parameter,
    Positive,
    PositiveTime,
    Real,
    Share,
    Time,
    only,
)
from servoctl.tree.rules import Broken, Section, rule

NodeId = Annotated[int, NumberField("a node id, an integer >= 0", least=0, whole=True)]
BitRate = Annotated[int, NumberField("a bit rate, a positive integer [bit/s]", above=0, whole=True)]


Gear = Annotated[float, NumberField("a positive number", above=0, remedy="the sign of a joint goes under 'sign'")]
Sign = Annotated[Literal[1, -1], BeforeValidator(only(lambda value: not isinstance(value, bool), "1 or -1"))]


class Open(Section):
    """A mapping with further keys, which the protocol or python-can checks."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Parameter]

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, values: Any) -> Any:
        """The mapping without further keys that are null: a file that is laid over a config removes keys so."""
        if not isinstance(values, Mapping):
            return values
        return {key: value for key, value in values.items() if value is not None or key in cls.model_fields}

    @property
    def options(self) -> dict[str, Any]:
        """The further keys."""
        return dict(self.__pydantic_extra__ or {})


class BusConfig(Open):
    """A CAN bus; further keys are python-can's own."""

    interface: Annotated[str, Field(min_length=1)] = Field(
        default="emulated", description="emulated, virtual, udp_multicast, socketcan or another of python-can's"
    )
    bitrate: BitRate = Field(default=1_000_000, description="bit rate [bit/s]; of CAN FD the nominal one")
    fd: StrictBool = Field(default=False, description="whether it carries CAN FD: every node on it must speak FD")
    data_bitrate: BitRate | None = Field(
        default=None, description="bit rate of the data of FD frames, above bitrate [bit/s]; left out: no switch"
    )
    data_sample_point: Share | None = Field(
        default=None,
        description="sample point within a bit at data_bitrate, to be checked on socketcan [-]; left out: any",
    )

    @property
    def keys(self) -> dict[str, Any]:
        """Its keys as for opening it; those of CAN FD only where it carries FD."""
        values: dict[str, Any] = {"interface": self.interface, "bitrate": self.bitrate}
        for key in ("fd", "data_bitrate", "data_sample_point"):
            if value := getattr(self, key):
                values[key] = value
        return values | self.options


class NodeConfig(Open):
    """Common fields of a drive and an encoder node; further keys are options of the protocol."""

    __pydantic_extra__: dict[str, Option]

    bus: str = Field(description="name of the bus")
    protocol: str = Field(description="cia402, mit, moteus, odrive, robstride, or one that an installed package brings")
    node: NodeId = Field(description="address on the bus")
    gear: Gear = Field(default=1.0, description="motor angle per displacement of the joint [rad per joint unit]")
    sign: Sign = Field(default=1, description="-1 where the motor turns against the joint")
    offset: Real = Field(default=0.0, description="displacement of the joint where the encoder reads 0 [joint unit]")
    absolute: StrictBool = Field(
        default=False,
        description="whether its position is right over the whole range of the joint after power-on, not only within "
        "a turn of the motor",
    )


class Stops(Section):
    """Mechanical stops of a joint; `--calibrate` finds its zero against them."""

    lower: Real | None = Field(default=None, description="displacement at the lower stop [joint unit]; left out: none")
    upper: Real | None = Field(default=None, description="displacement at the upper stop [joint unit]; left out: none")


class WarnAt(Section):
    """From where on a drive is reported, below its own limits; what its protocol does not show has no effect."""

    temperature: Real = Field(default=70.0, description="temperature of the drive, or the only one it shows [degree C]")
    motor_temperature: Real = Field(default=90.0, description="temperature of the motor [degree C]")
    supply: Interval | None = Field(
        default=None, description="[lowest, highest] bus voltage [V]; left out: 0.85 and 1.1 times the first one seen"
    )
    load: Positive = Field(default=0.9, description="load (I2t), 1 is what the drive allows for long [-]")


class DriveConfig(NodeConfig):
    """A drive and its limits, all at the joint."""

    actuator: Name = Field(description="name of the plant's actuator")
    rated_torque: Positive | None = Field(default=None, description="rated torque of the motor [N m]")
    torque_limit: Positive = Field(description="largest |u| [actuator unit]")
    torque_rate_limit: Positive = Field(description="largest |du/dt| [actuator unit/s]")
    speed_limit: Positive = Field(description="largest speed [joint unit/s]")
    position_limits: Interval = Field(description="[lower, upper] displacement [joint unit]")
    stops: Stops = Field(default=Stops(), description="mechanical stops at known displacements, for --calibrate")
    brake: StrictBool = Field(default=False, description="whether a brake holds the joint while the drive is disabled")
    brake_time: Time = Field(
        default=0.1, description="time that the brake takes to close; torque is held so long where the protocol can [s]"
    )
    warn_at: WarnAt = Field(default=WarnAt(), description="from where on temperatures, supply and load are reported")

    @rule
    def _brake_time_of_a_brake(self) -> Broken:
        if "brake_time" in self.model_fields_set and "brake" not in self.model_fields_set:
            yield ("brake_time",), "there is no brake (give brake: true where there is one)"


class Sensor(NodeConfig):
    """An encoder node."""

    coordinate: Name = Field(description="name of the plant's coordinate that it measures")
    speed_limit: Positive | None = Field(
        default=None,
        description="largest possible speed of the coordinate, to detect jumps [its unit/s]; left out: jumps are "
        "detected from the speeds that the encoder and the model report, and from start_tolerance",
    )


class Safety(Section):
    """When the loop must stop, and how."""

    stale: PositiveTime = Field(
        default=0.005, description="age of a sample that stops the machine; at least 3 periods [s]"
    )
    lost: PositiveTime = Field(
        default=0.02, description="age from which a drive brakes by itself; at least 10 periods [s]"
    )
    drive_watchdog: PositiveTime = Field(
        default=0.05, description="time without a command after which a drive stops by itself [s]"
    )
    stop_time: PositiveTime = Field(
        default=0.5, description="longest controlled stop before the drives brake by themselves [s]"
    )
    engage_tolerance: Positive = Field(
        default=0.01, description="largest task error and rate at which the task starts [units of the row, per s]"
    )
    start_tolerance: Positive | None = Field(
        default=None,
        description="largest difference of a drive from the start pose [joint unit]; at most half a turn of its motor, "
        "unless it is absolute; left out: 0.02, or 0.45 turns of the motor where that is less",
    )
    residual_tolerance: Positive | None = Field(
        default=None,
        description="largest disagreement of redundant encoders [joint unit]; left out: set by their resolution",
    )
    tracking: Positive = Field(
        default=0.1,
        description="largest disturbance (friction, load, drive error) before the machine counts as not following "
        "its model [share of torque_limit]",
    )
    zero_time: PositiveTime = Field(default=0.2, description="time in stage zero [s]")
    ramp_time: PositiveTime = Field(default=0.5, description="time in stage ramp [s]")
    float_damping: Positive = Field(
        default=10.0, description="rate at which the machine comes to rest when a hand lets it go in stage float [1/s]"
    )
    float_torque: Share = Field(
        default=0.5,
        description="largest torque in stage float [share of torque_limit]; at least 1.5 times what holds the start "
        "pose, at most torque_limit",
    )
    late_ticks: Count = Field(default=5, description="late ticks in a row that stop the machine [-]")
    late_share: Share = Field(default=0.05, description="share of late ticks within 1 s that stops the machine [-]")
    clamped: Literal["warn", "stop"] = Field(
        default="warn",
        description="reaction when a torque limit clamped more than half of the ticks within 0.5 s",
    )


class TrueNode(Open):
    """How an emulated drive or encoder node differs from what the config says; further keys are its options."""

    __pydantic_extra__: dict[str, Option]

    gear: Gear | None = Field(default=None, description="its gear; left out: that of the config")
    sign: Sign | None = Field(default=None, description="its sign; left out: that of the config")
    offset: Real | None = Field(default=None, description="its offset; left out: that of the config")
    rated_torque: Positive | None = Field(default=None, description="its rated torque; left out: that of the config")


class SupplyConfig(Section):
    """A supply that all emulated drives share: braking raises its voltage."""

    voltage: Positive = Field(default=48.0, description="voltage; it takes no current back [V]")
    capacitance: Positive = Field(default=0.005, description="capacitance of the link to the drives [F]")
    trip: Positive = Field(default=60.0, description="voltage at which all drives switch off, above `voltage` [V]")
    resistor: Positive | None = Field(
        default=None, description="braking resistor, on above the mean of voltage and trip [ohm]; left out: none"
    )

    @rule
    def _trips_above_its_voltage(self) -> Broken:
        if self.trip <= self.voltage:
            yield (), f"trip {self.trip:g} V is not above voltage {self.voltage:g} V (set it higher)"


class ThermalConfig(Section):
    """How emulated motors warm up, with the square of their torque."""

    ambient: Annotated[float, NumberField("a temperature from -40 to 100 [degree C]", least=-40, most=100)] = Field(
        default=25.0, description="temperature without load [degree C]"
    )
    rise: Annotated[float, NumberField("a rise from 0 to 1000 [K]", least=0, most=1000)] = Field(
        default=40.0, description="rise at torque_limit after a long time [K]"
    )
    time: PositiveTime = Field(default=60.0, description="time constant [s]")
    trip: Real | None = Field(
        default=None, description="temperature at which a drive switches off [degree C]; left out: never"
    )


class Emulation(Section):
    """Properties of emulated drives and of the machine behind them."""

    current_lag: Lag = Field(default=0.001, description="time constant of the current loop [s]")
    brake_time: Time = Field(default=0.1, description="time that a brake takes to close [s]")
    brake_torque: Positive = Field(
        default=2.0, description="torque at which a closed brake slides, in multiples of torque_limit"
    )
    coulomb_friction: NotNegative = Field(
        default=0.0,
        description="dry friction at the joint [actuator unit]; coulomb and viscous friction, if one is above 0, take "
        "the place of plant.friction in the machine",
    )
    viscous_friction: NotNegative = Field(
        default=0.0, description="friction per speed at the joint [actuator unit per its speed]"
    )
    after: Time = Field(
        default=1.0, description="longest time for which rows go on after the end, until the machine rests [s]"
    )
    encoder_resolution: Angle | None = Field(
        default=None,
        description="resolution of the encoder, at the motor [rad]; left out: from the options of the protocol",
    )
    encoder_noise: Angle = Field(default=0.0, description="standard deviation of the encoder noise, at the motor [rad]")
    parameters: ByPath[Parameter] = Field(
        default={},
        description="fields of the simulated plant that differ from the law's model, and its rotors, such as "
        "armature.u1",
    )
    drives: dict[str, TrueNode] = Field(
        default={}, description="actuator of a drive, or coordinate of an encoder node -> how the emulated one differs"
    )
    supply: SupplyConfig | None = Field(
        default=None, description="supply that all emulated drives share; left out: each has one of its own"
    )
    thermal: ThermalConfig = Field(default=ThermalConfig(), description="how the motors warm up")


class Hil(Section):
    """The real-time loop on drives."""

    period: PositiveTime = Field(description="period of the loop [s]")
    buses: dict[str, BusConfig] = Field(description="name -> CAN bus")
    max_bus_load: Share = Field(default=0.7, description="largest allowed bus load in the worst case [-]")
    drives: tuple[DriveConfig, ...] = Field(description="one per actuator")
    sensors: tuple[Sensor, ...] = Field(default=(), description="encoder nodes")
    prediction: StrictBool = Field(
        default=False, description="whether the law uses the state predicted for the time at which its torque acts"
    )
    velocity: Literal["drive", "filter"] = Field(
        default="drive", description="source of joint speeds: measured by the drives, or filtered position differences"
    )
    velocity_filter: PositiveTime | None = Field(
        default=None, description="time constant of that filter [s]; left out: two periods"
    )
    tick: Literal["auto", "c", "python"] | None = Field(
        default=None, description="without effect: C computes every tick; configs of the time before may have it"
    )
    safety: Safety = Field(default=Safety(), description="when the loop must stop, and how")
    emulation: Emulation = Field(default=Emulation(), description="properties of emulated drives")
    live: ByPath[Interval] = Field(
        default={}, description="gains that the live page may change: path in the config -> [lower, upper]"
    )
    live_ramp: PositiveTime = Field(default=0.5, description="time over which a changed gain is ramped [s]")
    faults: tuple[dict[str, Parameter], ...] = Field(
        default=(),
        description="faults of emulated drives, each {kind, at, for, since, drive, bus, ...}; the reference lists them",
    )
