"""Compilation during installation: a failure is reported and never stops the installation."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MODULES = ["servoctl/product.py"]


@pytest.fixture(scope="module")
def hook() -> Any:
    pytest.importorskip("hatchling")
    pytest.importorskip("mypyc")
    spec = spec_from_file_location("compile_hook", ROOT / ".compile" / "hook.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A package with one module, at a path with a space."""
    root = tmp_path / "a checkout"
    (root / "servoctl").mkdir(parents=True)
    (root / "servoctl" / "__init__.py").touch()
    (root / MODULES[0]).write_text("def product(a: float, b: int) -> float:\n    return a * b\n")
    return root


def test_a_read_only_checkout_does_not_fail(hook: Any, checkout: Path) -> None:
    (checkout / "servoctl" / "_compiled").touch()  # whatever the rights of who runs this, no directory can be there
    assert "_compiled" in hook.provide(checkout, MODULES)


def test_without_a_compiler_the_reason_is_kept(hook: Any, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    problem = hook.provide(checkout, MODULES)
    assert "/nowhere/cc" in problem and "\n" not in problem
    assert [path.name for path in (checkout / hook.PLACE).parent.rglob("*")] == [hook.PLACE.name, hook.MANIFEST]
    assert hook._made(checkout / hook.PLACE)["problem"] == problem


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="by flags of gcc and clang")
def test_a_compiler_may_warn_and_a_damaged_manifest_is_rebuilt(
    hook: Any, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFLAGS", "-Wconversion")
    place = checkout / hook.PLACE
    place.mkdir(parents=True)
    (place / hook.MANIFEST).write_text("{")
    assert hook.provide(checkout, MODULES) == ""
    made = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    assert len(made) == 3
    assert hook.provide(checkout, MODULES) == ""
    assert {path: path.stat().st_mtime_ns for path in place.iterdir()} == made


def test_the_reason_of_a_failed_build_is_its_first_error_or_its_last_line(hook: Any) -> None:
    said = "warning: x\nhil/error_frames.c:3:10: fatal error: Python.h: No such file\nerror: command 'cc' failed\n"
    assert hook._reason(said) == "hil/error_frames.c:3:10: fatal error: Python.h: No such file"
    assert hook._reason("x.c(1): fatal error C1083: no Python.h\nend\n") == "x.c(1): fatal error C1083: no Python.h"
    trace = "Traceback:\n  File errors.py\nCompileError: Command '['cc', '-c', 'a.c']' returned exit status 1.\n"
    assert hook._reason(trace) == "CompileError: Command 'cc' returned exit status 1."
    assert hook._reason("") == "it died"
