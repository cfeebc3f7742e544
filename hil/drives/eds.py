"""Writes `servoctl_cst.eds`, the objects of a CiA 402 torque drive that we use: `python -m hil.drives.eds`.

An EDS of our own, because those of vendors may not be passed on. Objects and types: CiA 301 and CiA 402, as in
`hil.codecs.cia402`.
"""

from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).with_name("servoctl_cst.eds")

I8, I16, I32, U8, U16, U32 = 2, 3, 4, 5, 6, 7

Sub = tuple[str, int, str, str]
"""Name, type, access, default."""

ENTRIES = [(f"Entry {entry}", U32, "rw", "0") for entry in range(1, 9)]
MAPPED: Sub = ("Number of entries", U8, "rw", "0")


def _count(number: int) -> Sub:
    return ("Highest sub-index", U8, "const", str(number))


def _pdos() -> dict[int, tuple[str, list[Sub]]]:
    """The four PDOs of each direction, by default as CiA 301 sets their ids."""
    found = {}
    for number in range(4):
        for base, name, cob in ((0x1400, "RPDO", 0x200), (0x1800, "TPDO", 0x180)):
            ident = ("COB-ID", U32, "rw", f"$NODEID+0x{cob + 0x100 * number:X}")
            found[base + number] = (f"{name}{number + 1} communication", [_count(2), ident, ("Type", U8, "rw", "255")])
            found[base + 0x200 + number] = (f"{name}{number + 1} mapping", [MAPPED, *ENTRIES])
    return found


RECORDS = {
    0x1016: ("Consumer heartbeat time", [_count(1), ("Consumer 1", U32, "rw", "0")]),
    0x1018: (
        "Identity",
        [_count(4), *((name, U32, "ro", "0") for name in ("Vendor", "Product", "Revision", "Serial number"))],
    ),
    **_pdos(),
}

VARIABLES = {
    0x1000: ("Device type", U32, "ro", "0x20192"),
    0x1001: ("Error register", U8, "ro", "0"),
    0x1005: ("COB-ID SYNC", U32, "rw", "0x80"),
    0x1014: ("COB-ID emergency", U32, "ro", "$NODEID+0x80"),
    0x1017: ("Producer heartbeat time", U16, "rw", "0"),
    0x6007: ("Abort connection option code", I16, "rw", "1"),
    0x603F: ("Error code", U16, "ro", "0"),
    0x6040: ("Controlword", U16, "rw", "0"),
    0x6041: ("Statusword", U16, "ro", "0"),
    0x605A: ("Quick stop option code", I16, "rw", "2"),
    0x605E: ("Fault reaction option code", I16, "rw", "2"),
    0x6060: ("Modes of operation", I8, "rw", "0"),
    0x6061: ("Modes of operation display", I8, "ro", "0"),
    0x6064: ("Position actual value", I32, "ro", "0"),
    0x606C: ("Velocity actual value", I32, "ro", "0"),
    0x6071: ("Target torque", I16, "rw", "0"),
    0x6072: ("Max torque", U16, "rw", "1000"),
    0x6076: ("Motor rated torque", U32, "ro", "1000"),
    0x6077: ("Torque actual value", I16, "ro", "0"),
    0x6085: ("Quick stop deceleration", U32, "rw", "0"),
    0x60B2: ("Torque offset", I16, "rw", "0"),
    0x6502: ("Supported drive modes", U32, "ro", "0x200"),
}
MANDATORY = (0x1000, 0x1001, 0x1018)
MAPPABLE = (0x603F, 0x6040, 0x6041, 0x6064, 0x606C, 0x6071, 0x6077)

HEAD = """\
[FileInfo]
FileName=servoctl_cst.eds
FileVersion=1
FileRevision=0
EDSVersion=4.0
Description=CiA 402 drive in cyclic synchronous torque mode
CreatedBy=The servoctl authors

[DeviceInfo]
VendorName=servoctl
ProductName=servoctl CST
VendorNumber=0
ProductNumber=0
RevisionNumber=0
BaudRate_125=1
BaudRate_250=1
BaudRate_500=1
BaudRate_1000=1
SimpleBootUpSlave=1
NrOfRXPDO=4
NrOfTXPDO=4
Granularity=8
LSS_Supported=0

[DummyUsage]
Dummy0001=0
Dummy0002=0
Dummy0003=0
Dummy0004=0
Dummy0005=0
Dummy0006=0
Dummy0007=0

[Comments]
Lines=0
"""


def _list(title: str, indices: list[int]) -> str:
    lines = [f"{number}=0x{index:04X}" for number, index in enumerate(indices, 1)]
    return "\n".join([f"[{title}]", f"SupportedObjects={len(indices)}", *lines, ""])


def _variable(section: str, sub: Sub, mappable: bool) -> str:
    name, kind, access, default = sub
    lines = (f"ParameterName={name}", "ObjectType=0x7", f"DataType=0x{kind:04X}", f"AccessType={access}")
    return "\n".join([f"[{section}]", *lines, f"DefaultValue={default}", f"PDOMapping={int(mappable)}", ""])


def _sections() -> Iterator[str]:
    yield HEAD
    indices = sorted([*VARIABLES, *RECORDS])
    yield _list("MandatoryObjects", [index for index in indices if index in MANDATORY])
    yield _list("OptionalObjects", [index for index in indices if index not in MANDATORY])
    yield _list("ManufacturerObjects", [])
    for index in indices:
        if index in VARIABLES:
            yield _variable(f"{index:04X}", VARIABLES[index], index in MAPPABLE)
            continue
        name, subs = RECORDS[index]
        kind = "0x8" if index == 0x1016 else "0x9"
        yield "\n".join([f"[{index:04X}]", f"ParameterName={name}", f"ObjectType={kind}", f"SubNumber={len(subs)}", ""])
        for number, sub in enumerate(subs):
            yield _variable(f"{index:04X}sub{number:X}", sub, False)


def text() -> str:
    """The file's content."""
    return "\n".join(_sections())


if __name__ == "__main__":
    FILE.write_text(text())
