"""Identifiers from the names of a file, and the sets of names in which each must be unique."""

import keyword
import re
from collections.abc import Mapping
from types import MappingProxyType

from servoctl.expression import RESERVED

PARAMETERS = ("m", "com", "I")  # parameters of a link: its mass, centre of mass and inertia, as in `link7_m`


def identifier(name: str, prefix: str = "") -> str:
    """The name as an identifier, with a prefix before it if one is given.

    Characters that no identifier has become `_`. A reserved word gets `_` behind it, a leading digit before it.
    """
    word = re.sub(r"\W", "_", f"{prefix}_{name}" if prefix else name)
    if not word.isidentifier():
        word = f"_{word}"
    return f"{word}_" if word in RESERVED or keyword.iskeyword(word) else word


class NameTable:
    """Names that must differ, with what each one stands for."""

    def __init__(self, problems: list[str], owners: Mapping[str, str] = MappingProxyType({})) -> None:
        """Starts with names that are taken.

        Args:
            problems: The list to add problems to.
            owners: Name -> what it stands for.
        """
        self.problems = problems  # a sentence for each name that is taken twice
        self._owners = dict(owners)

    def add(self, name: str, owner: str) -> bool:
        """Adds a name; if it is taken, adds a problem with both owners and returns False.

        Args:
            name: An identifier.
            owner: What it stands for, such as `left: joint 'a-b'`.
        """
        if name in self._owners:
            self.problems.append(
                f"{owner}: its name '{name}' is also that of {self._owners[name]} (rename one of them)"
            )
            return False
        self._owners[name] = owner
        return True
