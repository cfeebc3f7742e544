"""The objects that the CiA 402 driver uses, as python-canopen has them."""

import struct

from canopen.objectdictionary import ObjectDictionary, ODRecord, ODVariable, datatypes

from hil.drives.sdo import I8, I16, I32, RECORDS, U8, U16, U32, VARIABLES


def variable(name: str, form: struct.Struct, index: int, sub: int) -> ODVariable:
    made = ODVariable(name, index, sub)
    made.data_type = {
        U8: datatypes.UNSIGNED8, U16: datatypes.UNSIGNED16, U32: datatypes.UNSIGNED32,
        I8: datatypes.INTEGER8, I16: datatypes.INTEGER16, I32: datatypes.INTEGER32,
    }[form]  # fmt: skip
    made.default = 0
    return made


def node_dictionary() -> ObjectDictionary:
    """The objects of a torque drive that the driver uses, with their values at power-on."""
    dictionary = ObjectDictionary()
    for index, (name, form) in VARIABLES.items():
        dictionary.add_object(variable(name, form, index, 0))
    for index, (name, members) in RECORDS.items():
        record = ODRecord(name, index)
        for sub, (member, form) in members.items():
            record.add_member(variable(member, form, index, sub))
        dictionary.add_object(record)
    dictionary[0x1000].default, dictionary[0x6502].default = 0x0002_0192, 0x200
    return dictionary
