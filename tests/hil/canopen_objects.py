"""The objects that the CiA 402 driver uses, as python-canopen has them."""

from canopen.objectdictionary import ObjectDictionary, ODRecord, ODVariable, datatypes

from hil.codecs.cia402 import I8, I16, I32, OBJECTS, U8, U16, U32, object_name

TYPES = {
    U8: datatypes.UNSIGNED8, U16: datatypes.UNSIGNED16, U32: datatypes.UNSIGNED32,
    I8: datatypes.INTEGER8, I16: datatypes.INTEGER16, I32: datatypes.INTEGER32,
}  # fmt: skip


def node_dictionary() -> ObjectDictionary:
    """The objects of a torque drive that the driver uses, with their values at power-on."""
    dictionary = ObjectDictionary()
    for (index, sub), (_, form) in OBJECTS.items():
        made = ODVariable(object_name(index, sub), index, sub)
        made.data_type, made.default = TYPES[form], 0
        if (index, 1) not in OBJECTS:
            dictionary.add_object(made)
        else:
            if index not in dictionary:
                dictionary.add_object(ODRecord(f"{index:04X}", index))
            dictionary[index].add_member(made)
    dictionary[0x1000].default, dictionary[0x6502].default = 0x0002_0192, 0x200
    return dictionary
