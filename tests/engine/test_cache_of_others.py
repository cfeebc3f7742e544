"""The cache only uses libraries that belong to the user and that nobody else may write to."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from servoctl.engine import cache, compiler
from servoctl.engine.ccode import Program
from servoctl.engine.kernel import Kernel, inputs
from servoctl.types import Array

pytestmark = [
    pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path"),
    pytest.mark.usefixtures("own_cache"),
]

STRANGER = 65534
"""A user that is not us."""

as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")


def doubled() -> Program:
    """A program with one function, y = 2 x."""
    x = inputs({"x": (2,)})
    return Program([Kernel.compile("doubled", x, {"y": 2.0 * x["x"]})])


def value() -> Array:
    x = inputs({"x": (2,)})
    kernel = Kernel.compile("doubled", x, {"y": 2.0 * x["x"]})
    kernel.run_on(doubled().load())
    return kernel(np.array([1.0, 2.0]))[0]


def compiled(source: str, folder: Path) -> Path:
    compiler.build(source, folder / "other.so")
    return folder / "other.so"


def kept(own_cache: Path) -> Path:
    """The only file in the cache, after a first use has put it there."""
    value()
    (path,) = own_cache.iterdir()
    return path


def test_only_the_user_may_write_to_the_cache(own_cache: Path) -> None:
    before = os.umask(0)
    try:
        path = kept(own_cache)
    finally:
        os.umask(before)
    assert (own_cache.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert cache.find(doubled().key).path == path and cache.refusal() is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_library_that_others_may_write_to_is_compiled_again(own_cache: Path, mode: int) -> None:
    path = kept(own_cache)
    path.chmod(mode)
    assert cache.find(doubled().key) is None and not path.exists()
    np.testing.assert_array_equal(value(), [2.0, 4.0])
    assert path.stat().st_mode & 0o777 == 0o600


@as_root
def test_a_library_of_another_user_is_compiled_again(own_cache: Path) -> None:
    path = kept(own_cache)
    os.chown(path, STRANGER, STRANGER)
    np.testing.assert_array_equal(value(), [2.0, 4.0])
    assert path.stat().st_uid == os.geteuid()


def test_a_link_is_not_followed(own_cache: Path, tmp_path: Path) -> None:
    path = kept(own_cache)
    shutil.move(path, tmp_path / "elsewhere.so")
    path.symlink_to(tmp_path / "elsewhere.so")
    assert cache.find(doubled().key) is None
    np.testing.assert_array_equal(value(), [2.0, 4.0])
    assert path.is_file() and not path.is_symlink()


def put(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that is no file takes the place of a library."""
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            monkeypatch.chdir(path.parent)  # the name of a socket is short
            server.bind("socket")
            os.rename("socket", path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.name)


def test_entries_that_are_no_files_neither_hang_nor_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {kind: tmp_path / kind for kind in ("fifo", "socket", "folder", "loop")}
    for kind, folder in paths.items():
        monkeypatch.setenv("SERVOCTL_CACHE", str(folder))
        paths[kind] = kept(folder)
        put(kind, paths[kind], monkeypatch)
    code = (
        "import os, sys; from tests.engine import test_cache_of_others as t\n"
        "for folder in sys.argv[1:]: os.environ['SERVOCTL_CACHE'] = folder; print(t.value().tolist())"
    )
    words = [sys.executable, "-c", code, *(str(path.parent) for path in paths.values())]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert found.stdout.splitlines() == ["[2.0, 4.0]"] * 4, found.stderr
    for kind, path in paths.items():
        monkeypatch.setenv("SERVOCTL_CACHE", str(path.parent))
        assert path.is_dir() if kind == "folder" else cache.find(doubled().key).path == path


def test_a_truncated_library_is_compiled_again(own_cache: Path) -> None:
    path = kept(own_cache)
    content = path.read_bytes()
    path.unlink()  # the library is in use: never write into it
    path.write_bytes(content[:700])
    path.chmod(0o600)
    np.testing.assert_array_equal(value(), [2.0, 4.0])
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", ["empty", "text"])
def test_a_library_that_does_not_load_is_compiled_again_even_if_its_checksum_is_right(
    own_cache: Path, damage: str
) -> None:
    whole = kept(own_cache)
    content = {"empty": b"", "text": b"#!/bin/sh\n"}[damage]
    whole.unlink()
    spoiled = own_cache.parent / "spoiled"
    spoiled.write_bytes(content)
    path = cache.put(doubled().key, spoiled)
    assert cache.find(doubled().key).path == path
    np.testing.assert_array_equal(value(), [2.0, 4.0])
    assert not path.exists() and cache.find(doubled().key) is not None


def test_a_library_without_the_function_is_compiled_again(own_cache: Path, tmp_path: Path) -> None:
    path = cache.put(doubled().key, compiled("int other(void) { return 0; }", tmp_path))
    np.testing.assert_array_equal(value(), [2.0, 4.0])
    assert not path.exists() and cache.find(doubled().key) is not None


def foreign(folder: Path) -> None:
    os.chown(folder, STRANGER, STRANGER)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: folder.chmod(0o770), "other users may write to it (chmod go-w, or set SERVOCTL_CACHE"),
        (lambda folder: folder.chmod(0o1777), "other users may write to it (chmod go-w, or set SERVOCTL_CACHE"),
        pytest.param(foreign, "belongs to another user (set SERVOCTL_CACHE to a folder of your own)", marks=as_root),
    ],
)
def test_a_folder_that_others_may_write_to_is_not_used_and_the_run_reports_it(
    own_cache: Path, spoil: object, sentence: str
) -> None:
    path = kept(own_cache)
    assert callable(spoil)
    spoil(own_cache)
    assert cache.find(doubled().key) is None and path.exists()
    np.testing.assert_array_equal(value(), [2.0, 4.0])
    assert list(own_cache.iterdir()) == [path]  # nothing was put there
    assert str(cache.refusal()).startswith(f"{own_cache}: {sentence}")
