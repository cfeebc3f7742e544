"""Handshakes of several drives side by side, at a pace that a controller's transmit queue can take."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hil.drives.base import SAMPLE_TIME, Drive, DriveError, Feedback, HandshakeStep, Node, Steps, listed
from hil.drives.guard import moving
from hil.frame import Frame
from hil.loop import SECOND, Clock, nanoseconds
from hil.rig.dispatch import Dispatch
from hil.safety.watchdog_test import REACTION, WatchdogTest, in_turn, motion_check

BURST = 5
"""Frames sent on one bus per call of `advance`, with one for each of its drives, which is fed in the same tick: half of
`QUEUE`. At least one is sent."""


class StartPoseError(DriveError):
    """Encoders contradict the start pose; a line for each: `<name>: <explanation>`."""


class OtherMasterError(DriveError):
    """Another master commands drives, and nothing was sent to them; a line for each: `<name>: <evidence>`."""


class StepInProgress(NamedTuple):
    """A step that is not finished."""

    step: HandshakeStep
    left: Sequence[Frame]  # frames that are still to be sent
    # the step must be finished by then [ns]; it counts from the last frame. 0: no frame was sent yet
    deadline: int
    attempts: int  # how often they may still be sent again

    @property
    def waits(self) -> bool:
        """Whether all frames were sent."""
        return not self.left and self.deadline > 0


class Handshake:
    """Takes several nodes from state to state at the same time.

    Args:
        steps: Node -> its steps.
        send: Sends a frame; takes the name of a bus and the frame.
        limit: Time limit of the whole handshake [s].
    """

    def __init__(
        self, steps: Mapping[Node, Steps], send: Callable[[str, Frame], None], clock: Clock, limit: float
    ) -> None:
        self._steps, self._send, self._clock, self._limit = dict(steps), send, clock, limit
        self._end = clock.now() + nanoseconds(limit)
        self._current: dict[Node, StepInProgress] = {}
        self._room: dict[str, int] = {}  # frames that each bus can still take
        self._drives = Counter(node.settings.bus for node in steps if isinstance(node, Drive))

    def awaited(self, otherwise: str) -> str | None:
        """The bus on which the answer to a step that is `prompt` is awaited, or else `otherwise`; None: one is over."""
        prompt = [(node, each.step) for node, each in self._current.items() if each.step.prompt and each.waits]
        if any(step.done() for _, step in prompt):
            return None
        return prompt[0][0].settings.bus if prompt else otherwise

    def advance(self, emptied: bool = True) -> bool:
        """Continues as far as the drives have answered; returns whether every handshake is finished.

        Args:
            emptied: Whether the queues of the buses had a period of the loop to empty since the last call.

        Raises:
            DriveError: A drive refuses, or a step took too long; the message names every such drive.
        """
        problems: list[str] = []
        if emptied:
            self._room = {}
        for node in list(self._steps):
            try:
                problem = self._advance(node)
            except DriveError as error:
                problem = _explained(node, str(error))
            if problem is not None:
                problems.append(problem)
        if not problems and self._steps and self._clock.now() > self._end:
            problems.append(f"{listed(self._steps)}: not ready within {self._limit:g} s")
        if problems:
            self.abandon()
            raise DriveError("\n".join(problems))
        return not self._steps

    def _advance(self, node: Node) -> str | None:
        """Continues with one node; returns an explanation where a step took too long."""
        while True:
            current = self._current.get(node)
            if current is None:
                step = next(self._steps[node], None)
                if step is None:
                    del self._steps[node]
                    return None
                current = StepInProgress(step, step.send, 0, step.attempts - 1)
            elif current.waits and current.step.prompt and node.settings.bus in self._room and current.step.done():
                self._room[node.settings.bus] += len(current.step.send)
            if not current.waits:
                current = self._send_frames(node, current)
                self._current[node] = current
                if current.left:
                    return None
            step = current.step
            if not step.done():
                if self._clock.now() <= current.deadline:
                    return None
                if not current.attempts:
                    return _explained(node, f"{step.expected} within {step.limit * step.attempts:g} s")
                self._current[node] = StepInProgress(step, step.send, 0, current.attempts - 1)
                continue
            del self._current[node]

    def _send_frames(self, node: Node, current: StepInProgress) -> StepInProgress:
        """Sends as many frames of a step as the bus can take now."""
        bus = node.settings.bus
        room = self._room.get(bus, max(1, BURST - self._drives[bus]))
        for frame in current.left[:room]:
            self._send(bus, frame)
        self._room[bus] = max(0, room - len(current.left))
        deadline = self._clock.now() + nanoseconds(current.step.limit)
        return current._replace(left=current.left[room:], deadline=deadline)

    def abandon(self) -> None:
        """Ends what is not finished. No drive stays quiet, even if another drive's handshake raises while it ends."""
        unfinished, self._steps = self._steps, {}
        failure: BaseException | None = None
        for node, steps in unfinished.items():
            try:
                steps.close()
            except BaseException as error:
                failure = failure or error
            if isinstance(node, Drive):
                node.quiet = False
        if failure is not None:
            raise failure


def _explained(node: Node, problem: str) -> str:
    """A problem of a node, with what its last frames tell about it."""
    reason = node.explanation()
    return f"{node.settings.name}: {problem}" + (f"; {reason}" if reason else "")


LATE_ATTEMPTS = 3  # how often samples must come late: the loop itself may stall


class BringUp:
    """Brings nodes up before the loop starts, side by side; watchdogs are reset meanwhile, once per period [ns].

    `stale`: age at which a sample counts as stale [ns].
    """

    def __init__(self, dispatch: Dispatch, period: int, stale: int) -> None:
        self._dispatch, self._clock, self._period, self._stale = dispatch, dispatch.clock, period, stale
        self._turn_end = 0
        self._cancelled = False

    def cancel(self) -> None:
        """Ends it early; may be called from a signal handler."""
        self._cancelled = True

    def listen(self, deadline: int) -> None:
        """Makes every node send samples, without torque."""
        self._perform({node: node.listen() for node in self._dispatch.nodes}, deadline)

    def start(
        self, deadline: int, tests: Sequence[WatchdogTest], start_problems: Callable[[], Sequence[tuple[str, str]]]
    ) -> None:
        """Identifies every node, then configures every drive and tests its watchdog, which runs out once for it.

        No drive is enabled for that at another pose than that of the start.

        Args:
            deadline: When all of it must be over [ns].
            tests: Of the watchdog of each drive.
            start_problems: Name and explanation of each node that contradicts the start pose.

        Raises:
            DriveError: A node is not what the config says, refuses, or does not answer in time; names every such node.
            StartPoseError: Nodes contradict the start pose.
        """
        nodes, drives = self._dispatch.nodes, [test.drive for test in tests]
        self._perform({node: node.identify() for node in nodes}, deadline)
        self._perform({drive: drive.configure() for drive in drives}, deadline)
        groups = in_turn(tests)
        if any(test.drive.test_enables for group in groups for test in group):
            first = {node: node.answer() for node in nodes if node.sample is None}
            self._perform(first, deadline)
            if not self._cancelled and (problems := start_problems()):
                raise StartPoseError("\n".join(f"{name}: {problem}" for name, problem in problems))
        check = motion_check(tests)
        for group in groups:
            self._perform({test.drive: test.drive.test_watchdog(test.holding) for test in group}, deadline, check)
            tested = [test.drive for test in group]
            opened = any(drive.test_enables and drive.settings.brake for drive in tested)
            still = self._clock.now() + nanoseconds(max(drive.settings.brake_time for drive in tested) + REACTION)
            # its brake still closes, which may have to hold the axis of the next
            while (opened or moving(tested)) and self._clock.now() < still and not self._cancelled:
                self._turn()
                check()
        self._perform({drive: drive.rearm() for drive in drives}, deadline)
        self._refuse_late(nodes, deadline)

    def _refuse_late(self, nodes: Sequence[Node], deadline: int) -> None:
        """Refuses nodes whose answer to a question comes when it would be stale in the loop.

        Samples have no number: in the loop, late ones that come at the pace of the questions look like new ones.
        """
        late, after = nodes, dict[Node, int]()
        for _ in range(LATE_ATTEMPTS):
            cyclic = [node for node in late if node.feedback is Feedback.CYCLIC]
            asked = {node: self._answers([node], deadline) for node in cyclic}  # in a queue they would wait
            if asking := [node for node in late if node not in asked]:
                self._pause(asking)
                asked |= dict.fromkeys(asking, self._answers(asking, deadline))
            after = {node: node.answered - time for node, time in asked.items()}
            late = [node for node in late if after[node] > self._stale + self._period]
        if late and not self._cancelled:
            most = f"at most {self._stale / 1e6:g} ms is allowed (does an adapter or a gateway hold frames back?)"
            what = "an answer comes {:.3g} ms after it is asked for"
            told = [f"{node.settings.name}: {what.format(after[node] / 1e6)}, {most}" for node in late]
            raise DriveError("\n".join(told))

    def _answers(self, nodes: Sequence[Node], deadline: int) -> int:
        """Waits for an answer of each node; returns when the first was asked for [ns]."""
        asked = self._clock.now()
        self._perform({node: node.answer() for node in nodes}, deadline)
        return asked

    def _pause(self, nodes: Sequence[Node]) -> None:
        """Asks these nodes for nothing, until the last of their late samples has come."""
        clock, pause = self._clock, self._stale + 2 * self._period
        last = clock.now()
        end = last + nanoseconds(SAMPLE_TIME)  # samples that nobody asks for may never end
        self._dispatch.asks = False
        try:
            while clock.now() < min(end, last + pause) and not self._cancelled:
                self._turn()
                last = max([last, *(node.answered for node in nodes)])
        finally:
            self._dispatch.asks = True

    def _perform(self, steps: Mapping[Node, Steps], deadline: int, check: Callable[[], None] = lambda: None) -> None:
        """Runs a handshake with several nodes to its end; `check` raises at what must not happen meanwhile."""
        left = (deadline - self._clock.now()) / SECOND
        running, emptied = Handshake(steps, self._dispatch.send, self._clock, left), True
        try:
            while not self._cancelled:
                self._dispatch.service(self._period)  # a heartbeat that is set now comes after the samples
                if running.advance(emptied):
                    break
                emptied = self._turn(running.awaited)
                check()
        finally:
            running.abandon()

    def _turn(self, awaited: Callable[[str], str | None] = lambda bus: bus) -> bool:
        """Receives frames and resets watchdogs to the end of a period, or until no bus is `awaited`.

        Returns:
            Whether the period is over.
        """
        dispatch, clock, first = self._dispatch, self._clock, next(iter(self._dispatch.buses))
        if clock.now() >= self._turn_end:
            self._turn_end = clock.now() + self._period
        while clock.now() < self._turn_end and awaited(first) is not None:
            dispatch.wait(min(self._turn_end, dispatch.service(self._period)), lambda: awaited(first))
        return clock.now() >= self._turn_end
