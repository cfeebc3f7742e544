"""Opens an XML file: its root element, or one sentence about why it cannot be read.

Design: `xml.etree` follows no external entities, but it expands internal ones, so a file that declares a DOCTYPE or an
entity is refused before it is parsed, and so is a large file. Comments are dropped by the parser; therefore xacro is
looked for in elements and attributes, and a comment that mentions it does no harm.
"""

import codecs
import re
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers.expat import ErrorString

from servoctl.errors import ConfigError
from servoctl.input_file import read_regular

LARGEST = 10_000_000  # [bytes] largest size of a file

ENCODINGS = ("utf-8", "us-ascii", "iso-8859-1", "windows-1252")
"""Encodings that an XML declaration may name; UTF-16 is known by its first bytes."""

XACRO = "run xacro first, `xacro FILE -o robot.urdf`, or install xacrodoc"


def read_xml(path: Path) -> Element:
    """The root element of a file; tags of the root's own namespace lose it.

    Raises:
        ConfigError: The file cannot be read, is too large, is no text, is not XML, declares entities, or is xacro.
    """
    content = read_regular(path, LARGEST, "an XML file", large="meshes belong in files of their own")
    text = _text(path, content)
    if not text.strip():
        raise ConfigError(f"{path}: the file is empty (expected XML)")
    for word in ("<!DOCTYPE", "<!ENTITY"):
        if word in text:
            raise ConfigError(f"{path}: {word}: such declarations are refused (remove them, and write entities out)")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        if "<xacro:" in text:
            raise ConfigError(f"{path}: the file is xacro, not XML of a robot ({XACRO})") from error
        line, what = error.position[0], ErrorString(error.code)
        raise ConfigError(f"{path}: line {line}: the file is not XML: {what} (correct it there)") from error
    _refuse_xacro(path, root)
    _drop_namespace(root)
    return root


def _text(path: Path, content: bytes) -> str:
    declared = re.match(rb"""(?:\xef\xbb\xbf)?\s*<\?xml[^>]*?encoding\s*=\s*["']([^"']*)["']""", content)
    encoding = declared[1].decode("ascii", "replace").lower() if declared else "utf-8"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif encoding not in ENCODINGS:
        raise ConfigError(f"{path}: encoding: '{encoding}' is not known (save the file as UTF-8)")
    try:
        return content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start} is no text in {encoding.upper()} (expected an XML file in UTF-8)"
        ) from error


def _refuse_xacro(path: Path, root: Element) -> None:
    for element in root.iter():
        namespace, _, tag = element.tag.rpartition("}")
        if "xacro" in namespace:
            raise ConfigError(f"{path}: <xacro:{tag}>: the file is xacro, not a finished robot ({XACRO})")
        for key, value in element.items():
            if "$(" in value or "${" in value:
                raise ConfigError(f"{path}: <{tag}> {key}: '{value}' is xacro ({XACRO})")


def _drop_namespace(root: Element) -> None:
    namespace, brace, _ = root.tag.rpartition("}")
    for element in root.iter() if brace else ():
        if element.tag.startswith(namespace + brace):
            element.tag = element.tag.rpartition("}")[2]
