"""The tables of the tick in C, from what the drivers say of their frames."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any

from hil.codecs.field import Field
from hil.drives.base import Drive, Node
from hil.drives.wire import Chain, Encoding, Expects, Message, Wire
from hil.frame import EXTENDED, FD

KINDS = {"unsigned": 0, "signed": 1, "float": 2}

STANDARD = 0x7FF  # largest id of 11 bits


def fill_message(target: Any, message: Message, bus: int, node: int, fd: bool) -> None:
    """Writes a `tick_message`."""
    target.id, target.bus, target.node = message.id, bus, node
    target.flags = fd * FD | (message.id > STANDARD) * EXTENDED
    target.length, target.sample, target.alive = message.length, message.sample, message.alive
    target.selects_count, target.expects_count = len(message.selects), len(message.expects)
    target.reads_count = len(message.reads)
    for place, each in [*zip(target.selects, message.selects, strict=False),
                        *zip(target.expects, message.expects, strict=False)]:  # fmt: skip
        fill_expects(place, each)
    for place, reads in zip(target.reads, message.reads, strict=False):
        place.quantity = reads.quantity
        fill_field(place.field, reads.field)
        _fill_chain(place.chain, reads.chain)


def fill_encoding(target: Any, encoding: Encoding) -> None:
    """Writes a `tick_encoding`."""
    frame = encoding.frame
    target.length, target.rounding = len(frame.data), encoding.rounding
    for i, byte in enumerate(frame.id.to_bytes(4, "big") + frame.data):
        target.frame[i] = byte
    target.lowest, target.highest = encoding.lowest, encoding.highest
    fill_field(target.field, encoding.field)
    _fill_chain(target.chain, encoding.chain)
    _fill_chain(target.steps, encoding.steps)
    if encoding.back is None:
        target.back.count = -1
    else:
        _fill_chain(target.back, encoding.back)


def frame_reader(memory: Any) -> Callable[[], tuple[int, bytes]]:
    """Reads id and payload from the bytes of a `tick_encoding`, whenever it is called."""
    return partial(Struct(f">I{len(memory) - 4}s").unpack_from, memory)


def fill_field(target: Any, field: Field) -> None:
    """Writes a `tick_field`."""
    target.first, target.size, target.shift = field.first, field.size, field.shift
    target.kind, target.big = KINDS[field.kind], field.big
    target.mask = field.mask


def fill_expects(target: Any, expects: Expects) -> None:
    """Writes a `tick_expects`."""
    fill_field(target.field, expects.field)
    target.mask, target.value = expects.mask, expects.value


def _fill_chain(target: Any, chain: Chain) -> None:
    target.count = len(chain)
    for i, (operation, constant) in enumerate(chain):
        target.operations[i].operation, target.operations[i].constant = operation, constant


def watched_ids(nodes: Iterable[Node], buses: Mapping[str, int]) -> list[tuple[int, int, int, bool]]:
    """Mask, value, bus and whether of 29 bits, of every id that a node takes."""
    watched = []
    for node in nodes:
        bus = buses[node.settings.bus]
        watched += [(0xFFFF_FFFF, identity, bus, False) for identity in sorted(node.identities)]
        watched += [(family.mask, family.value, bus, True) for family in node.families]
    return watched


def wires_of(nodes: Sequence[Node]) -> tuple[list[Wire], str]:
    """What the frames of every node mean, or why it is not known."""
    wires = []
    for node in nodes:
        wire = node.wire()
        if wire is None or (isinstance(node, Drive) and wire.command is None):
            return [], f"frames of protocol {node.settings.protocol} are not described for it"
        wires.append(wire)
    return wires, ""
