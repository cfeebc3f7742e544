"""Random and mutated frames, seeded."""

import random
from collections.abc import Iterator, Sequence

from hil.frame import Frame


def frames(seeds: Sequence[Frame], count: int) -> Iterator[Frame]:
    """Half of them made up, half of them a valid one with bits flipped, bytes lost or flags set.

    Args:
        seeds: Valid frames.
        count: How many.
    """
    chance = random.Random(20261120)
    for index in range(count):
        seed = chance.choice(seeds)
        data = bytearray(seed.data)
        if index % 2:
            data = bytearray(chance.randbytes(chance.randrange(9)))
        elif data and chance.random() < 0.8:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        else:
            del data[chance.randrange(len(data) + 1) :]
        flags = [chance.random() < 0.02 for _ in range(3)]
        yield Frame(seed.id, b"" if flags[1] else bytes(data), *flags, len(data) if flags[1] else 0, index)
