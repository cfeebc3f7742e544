"""CPU time that the live page takes in the loop's own process."""

import time
from collections.abc import Callable

from hil.assembly.prepare import load
from hil.view.requests import Requests

CALLS = 20_000


def costs(config: str) -> dict[str, float]:
    """CPU time of each part [s], the least of five series.

    Args:
        config: A config with a `hil` section and one baumgarte correction for all tasks.
    """
    live = "hil.live={law.correction.baumgarte.alpha: [0.1, 50], law.correction.baumgarte.beta: [0.1, 50]}"
    prepared = load(config, [live])
    gains, take_law, wishes = prepared.live_gains, prepared.loop.take_law, Requests(2)
    first = gains.values[0]
    found = {
        "a tick: what the operator wants, and nothing on its way": _least(wishes.look)
        + _least(lambda: gains.advance(take_law)),
        "a wish for a gain, behind the torque": _least(lambda: gains.request(0, first + 0.1), 500),
    }
    gains.ramp = 10**9
    gains.request(0, first + 0.1)
    found["a tick while a gain is on its way"] = _least(lambda: gains.advance(take_law), 1000)
    wishes.close()
    return found


def _least(call: Callable[[], object], calls: int = CALLS) -> float:
    series = []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(calls):
            call()
        series.append((time.thread_time() - began) / calls)
    return min(series)
