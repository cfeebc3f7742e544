"""Protocols are found by name, with the package that brings them; a broken package is named, not a traceback."""

import pytest
from packages import Install, install  # noqa: F401

from hil.assembly.prepare import load
from hil.protocols.registry import BUILT_IN, entries, protocol
from servoctl.cli.doctor import examine
from servoctl.cli.listing import contents
from servoctl.errors import ConfigError

BELT = "two_mass_spring_drive"
NAMES = "cia402, mit, moteus, odrive, robstride"


def refusal(name: str) -> str:
    with pytest.raises(ConfigError) as error:
        protocol(name)
    return str(error.value)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_protocol_of_our_own_has_its_classes(name: str) -> None:
    found = protocol(name)
    twin = found.twin()
    assert found.drive_class().__module__.startswith("hil.drives.")
    assert (found.sensor_class() is None) == (twin.sensor is None)
    assert entries()[name].origins == ("servoctl",)


def test_an_unknown_protocol_lists_what_is_installed(install: Install) -> None:  # noqa: F811
    assert refusal("can_open") == f"no protocol 'can_open' (known: {NAMES})"
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL"}, {"acme.py": "PROTOCOL = 1"})
    assert refusal("can_open") == f"no protocol 'can_open' (known: acme, {NAMES})"
    assert refusal("acmee") == "no protocol 'acmee' (did you mean 'acme'?)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module", "acme:PROTOCOL cannot be imported: ModuleNotFoundError: No module named"),
        ("1 / 0", "acme:PROTOCOL cannot be imported: ZeroDivisionError: division by zero"),
        ("", "acme:PROTOCOL cannot be imported: AttributeError: module 'acme' has no attribute 'PROTOCOL'"),
        ("PROTOCOL = 1", "acme:PROTOCOL is 1, not a hil.protocols.protocol.Protocol"),
    ],
)
def test_a_broken_package_is_named_with_its_version(install: Install, text: str, said: str) -> None:  # noqa: F811
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL"}, {"acme.py": text})
    assert refusal("acme").startswith(f"acme-drive 1.2: {said}")
    assert refusal("acme").endswith("(repair the package, or uninstall it)")
    findings = examine()
    assert findings["protocols"]["acme"] == "acme-drive 1.2" and findings["protocols"]["mit"] == "servoctl"
    assert any(line.startswith(f"protocol acme: acme-drive 1.2: {said}") for line in findings["lacks"])
    assert contents()["drives"]["acme"].startswith(f"unusable: acme-drive 1.2: {said}")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ('drive="acme:Drive"', "acme:Drive cannot be imported: AttributeError"),
        ('drive="math:pi"', "math:pi is 3.14"),
        ('drive="hil.drives.base:Drive"', "hil.drives.base:Drive does not define accept, alive_frames, command"),
        ('emulated_drive="hil.drives.mit:MitDrive"', "<class 'hil.drives.mit.MitDrive'> (expected a class derived"),
    ],
)
def test_a_class_that_does_not_fit_is_named(install: Install, field: str, said: str) -> None:  # noqa: F811
    text = f"from dataclasses import replace\nfrom hil.protocols.registry import BUILT_IN\n" \
           f"PROTOCOL = replace(BUILT_IN['odrive'], {field})"  # fmt: skip
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL"}, {"acme.py": text})
    with pytest.raises(ConfigError) as error:
        load(BELT, ["hil.drives.F.protocol=acme"], "vm").settings.build()
        protocol("acme").twin()
    assert said in str(error.value)
    assert said in examine()["broken_protocols"]["acme"]


def test_a_protocol_that_two_packages_bring_is_refused(install: Install) -> None:  # noqa: F811
    files = {"acme.py": "from hil.protocols.registry import BUILT_IN\nPROTOCOL = BUILT_IN['mit']"}
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL", "mit": "acme:PROTOCOL"}, files)
    install("acme-fork", "0.1", {"acme": "acme:PROTOCOL"}, {})
    assert refusal("acme") == "acme-drive 1.2 and acme-fork 0.1 both bring protocol 'acme' (uninstall one)"
    assert refusal("mit") == "servoctl and acme-drive 1.2 both bring protocol 'mit' (uninstall one)"


def test_nothing_of_a_package_is_imported_before_a_config_names_it(install: Install) -> None:  # noqa: F811
    install("acme-drive", "1.2", {"acme": "acme:PROTOCOL"}, {"acme.py": "raise SystemExit('imported')"})
    assert load(BELT, (), "vm").drives
