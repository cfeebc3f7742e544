"""The version; the package, the wheel and every run folder read it here."""

VERSION = "0.1.0"
