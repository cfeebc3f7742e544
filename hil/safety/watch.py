"""What is wrong in a tick: it is reported, and the drives that it concerns are taken out of the loop."""

from collections.abc import Sequence
from math import nan

from hil.drives.base import Condition, Feedback, listed
from hil.drives.guard import moving
from hil.loop import SECOND, Reading, Tick
from hil.safety.drive_test import DriveRig
from hil.safety.events import Doubt, EventKind, kind_of
from hil.safety.ladder import STILL, Rung
from hil.safety.monitor import Monitor
from hil.safety.plan import ENDING, WORKING, Phase
from hil.safety.torques import PoseHold

RESTING = 0.05  # [share of torque_limit] a torque holds a joint if it differs by less from that of the model
BLIND_TIME = 0.05  # [s] longest time for which an axis without a trusted encoder is braked by the model alone
FIRST_SAMPLES = 1.0  # [s] time limit for the first sample of every node


class Watch:
    """Watches the ticks that Python decides; gives the pose the last one and the rates that can be trusted."""

    def __init__(self, rig: DriveRig, monitor: Monitor, pose: PoseHold) -> None:
        self._rig, self._monitor, self._pose = rig, monitor, pose
        self._names = [drive.settings.name for drive in rig.drives]
        self._silent = True  # whether no reading was valid yet
        self._judged = 0  # number of events whose drives were taken out

    def sound(self, reading: Reading) -> list[bool]:
        """Whether the measurement of each drive, then of each encoder, is young enough to be used, and trusted."""
        bound, distrusted = self._monitor.bounds.stale_age / SECOND, self._rig.ladder.distrusted
        return [age < bound and number not in distrusted for number, age in enumerate(reading.ages)]

    def take(self, reading: Reading) -> None:
        """Gives the pose the state of a tick, and which drives make the torque that they are sent."""
        pairs = zip(self._rig.drives, self._rig.ladder.rungs, strict=True)
        driven = [rung is Rung.LOOP and drive.condition is Condition.ENABLED for drive, rung in pairs]
        self._pose.take(reading, self.sound(reading), driven)

    def report(self, tick: Tick, reading: Reading, mode: Phase) -> None:
        """Reports every event of a tick."""
        monitor, ladder, now = self._monitor, self._rig.ladder, tick.began
        self._silent = self._silent and not reading.valid
        sound = self.sound(reading)
        doubted = {finding.channel for finding in reading.findings}
        trusted = [usable and name not in doubted for usable, name in zip(sound, self._names, strict=False)]
        self._pose.see(reading, sound, trusted)
        if mode in WORKING and mode is not Phase.STOPPING:  # C decides most of these ticks, and does not watch
            ladder.begin_watch()
        ladder.watch(reading.speeds, sound)
        present, waited = self._rig.present
        ages = [0.0 if self._silent else age + waited for age in reading.ages.tolist()]
        monitor.lateness(tick)
        measured = {
            **reading.measured,
            "age": ages,
            "silence": [silence + waited for silence in reading.measured["silence"]],
            "position": [value if usable else nan for value, usable in zip(reading.positions, sound, strict=False)],
            "speed": [value if usable else nan for value, usable in zip(reading.speeds, sound, strict=False)],
        }
        monitor.judge(present, measured, mode)
        self._rig.watch(monitor, now, ages, mode in WORKING)
        # signs and zeros that contradict each other are what a calibration is for
        if mode not in (Phase.CALIBRATE, *ENDING):
            self._findings(now, reading, all(sound))

    def _findings(self, now: int, reading: Reading, sound: bool) -> None:
        """Reports what sensing has found."""
        ladder = self._rig.ladder
        # the model does not know the torque of a drive that has left the loop, nor where a lost one stands
        followed = sound and set(ladder.rungs) == {Rung.LOOP}
        for finding in reading.findings:
            kind = finding.kind
            if kind.by_model and not followed:
                continue
            self._monitor.report(now, kind_of(finding), finding.channel, finding.reason)
            if kind.torqueless or kind.reversed:
                ladder.misled.add(self._names.index(finding.channel))
            if kind.reversed:
                ladder.ramp(self._names.index(finding.channel), now, must=True)

    def take_out(self, now: int, mode: Phase) -> None:
        """Takes drives in fault, and those that new events concern, out of the loop."""
        drives, ladder, events = self._rig.drives, self._rig.ladder, self._monitor.events
        if mode in (*WORKING, *ENDING):
            for number, drive in enumerate(drives):
                if drive.condition is Condition.FAULT:
                    ladder.fail(number, now)
        if mode not in WORKING:
            return
        for event in events[self._judged :]:
            for number, drive in enumerate(drives):
                concerned = drive.settings.bus if event.kind is EventKind.BUS else drive.settings.name
                if event.subject == concerned:
                    self._doubt(event.kind.doubt, number, now)
        self._judged = len(events)

    def _doubt(self, doubt: Doubt, number: int, now: int) -> None:
        ladder = self._rig.ladder
        match doubt:
            case Doubt.ENCODER:
                ladder.distrusted.add(number)
                self._pose.distrust(number)
            case Doubt.TORQUE:
                ladder.brake(number, now, must=True)
            case Doubt.AXIS:
                ladder.doubtful.add(number)
            case Doubt.REACH:
                ladder.ramp(number, now, must=False)

    def brake_blind(self, now: int, since: float, torques: Sequence[float]) -> None:
        """Closes the brakes of axes without a trusted encoder that stand by the model, and are held.

        `since`: time in the stop [s]; `torques`: those of the last tick, one per drive [actuator unit].
        """
        for number, rate in self._pose.blind_rates.items():
            limits, held = self._rig.drives[number].settings, self._pose.held[number]
            rests = abs(torques[number] - held) < RESTING * limits.torque_limit
            if (rests and abs(rate) < STILL * limits.speed_limit) or since > BLIND_TIME:
                self._rig.ladder.brake(number, now, must=True)

    def silent(self, now: int, since: float, mode: Phase, limit: float = FIRST_SAMPLES) -> bool:
        """Reports that nodes have sent no first sample; returns whether it does.

        `since`: time for which they had the opportunity [s]; `limit`: longest such time, at most `FIRST_SAMPLES` [s].
        """
        limit = min(FIRST_SAMPLES, limit)
        if not self._silent or since < limit:
            return False
        silent = [node for node in self._monitor.nodes if node.sample is None]
        detail = f"no first sample in {limit:g} s"
        if mode is Phase.SHADOW and any(node.feedback is not Feedback.CYCLIC for node in silent):
            detail += (
                "; shadow sends nothing, and these nodes send only when they are started and asked: another "
                "master must do it, or --calibrate, which enables nothing"
            )
        self._monitor.report(now, EventKind.LOST, listed(silent), detail)
        return True

    def start(self, now: int, hold: Sequence[float]) -> None:
        """Reports why drives may not be enabled; `hold`: torques that hold the start pose [actuator units]."""
        for name, problem in self._rig.start_problems():
            self._monitor.report(now, EventKind.START_POSE, name, problem)
        for name in moving(self._rig.drives):
            self._monitor.report(now, EventKind.HANDSHAKE, name, "it moves before it is enabled")
        for drive, torque in zip(self._rig.drives, hold, strict=True):
            limit = drive.settings.torque_limit
            if not abs(torque) <= limit:
                detail = f"holding the pose takes {torque:.4g}, torque_limit is {limit:g}"
                self._monitor.report(now, EventKind.HANDSHAKE, drive.settings.name, detail)
