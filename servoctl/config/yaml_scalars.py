"""Which unquoted words are null, true, false, a number or text: the core schema of YAML 1.2.

Design: with one exception: `010` is text, because it is 8 in YAML 1.1 and 10 in YAML 1.2. Integers of more than 300
digits are text too, because no float can hold them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Scalar:
    """One kind of scalar."""

    tag: str  # YAML tag
    pattern: re.Pattern[str]  # matches the texts of this kind
    first: tuple[str, ...]  # first characters of such texts; "" if the empty text is one
    read: Callable[[str], Any]  # text -> value


_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
_NOT_FINITE = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_INTEGER = r"[-+]?(?:0|[1-9][0-9]{0,299})|0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300}"


def _float(text: str) -> float:
    return float(text.replace(".", "") if text[-1] in "fFnN" else text)


def _scalar(word: str, pattern: str, first: str, read: Callable[[str], Any]) -> Scalar:
    return Scalar(PREFIX + word, re.compile(rf"(?:{pattern})\Z"), tuple(first), read)


CORE = (
    Scalar(PREFIX + "null", re.compile(r"(?:null|Null|NULL|~|)\Z"), ("n", "N", "~", ""), lambda text: None),
    _scalar("bool", "true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text.lower() == "true"),
    _scalar("int", _INTEGER, "-+0123456789", lambda text: int(text, 0)),
    _scalar("float", f"{_FLOAT}|{_NOT_FINITE}", "-+.0123456789", _float),
    _scalar("str", r"(?s:.)*", "", str),
)
"""Kinds of scalars, in the order in which they are tried."""
