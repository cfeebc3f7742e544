"""The version, in one place: the package, the wheel and every run folder take it from here."""

VERSION = "0.1.0"
