"""Random and mutated frames, seeded."""

import random
from collections.abc import Iterator, Sequence

from hil.frame import Frame


def frames(seeds: Sequence[Frame], count: int) -> Iterator[Frame]:
    """Random frames: half with random data, half valid ones with flipped bits, lost bytes or set flags.

    Args:
        seeds: Valid frames.
        count: Number of frames.
    """
    generator = random.Random(20261120)
    for index in range(count):
        seed = generator.choice(seeds)
        data = bytearray(seed.data)
        if index % 2:
            data = bytearray(generator.randbytes(generator.randrange(9)))
        elif data and generator.random() < 0.8:
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        else:
            del data[generator.randrange(len(data) + 1) :]
        other, remote, error = (generator.random() < 0.02 for _ in range(3))
        yield Frame(
            seed.id, b"" if remote else bytes(data), seed.extended is not other, remote, error,
            len(data) if remote else 0, index, seed.fd, seed.brs,
        )  # fmt: skip
