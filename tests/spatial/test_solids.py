"""Surfaces of robots: closed, of the right volume, in the right place; and meshes from binary STL files."""

import struct
from pathlib import Path

import numpy as np
import pytest

from servoctl.mechanics.spatial.description import Shape
from servoctl.mechanics.spatial.placement import IDENTITY, Placement
from servoctl.report.drawing import MOST_FACES, SIDES, Solid, joined, read_stl, solid_of, solids
from servoctl.types import Array
from tests.spatial.robots import two_arms

SPIN = Placement.at((1.0, -2.0, 3.0), (0.3, -0.5, 0.7))


def volume_and_centre(solid: Solid) -> tuple[float, Array]:
    """By the divergence theorem, from two triangles per face; positive if faces look outwards."""
    a, b, c, d = np.moveaxis(solid.points[solid.faces], 1, 0)
    tetrahedra = [np.einsum("ij,ij->i", x, np.cross(y, z)) / 6 for x, y, z in ((a, b, c), (a, c, d))]
    middles = [(x + y + z) / 4 for x, y, z in ((a, b, c), (a, c, d))]
    volume = sum(part.sum() for part in tetrahedra)
    moment = sum(part @ middle for part, middle in zip(tetrahedra, middles, strict=True))
    return float(volume), moment / volume


POLYGON = SIDES / 2 * np.sin(2 * np.pi / SIDES)
"""Area of the polygon that stands for a unit circle."""


@pytest.mark.parametrize(
    ("shape", "volume"),
    [
        (Shape("box", (0.1, 0.2, 0.3), SPIN), 0.006),
        (Shape("cylinder", (0.1, 0.3), SPIN), POLYGON * 0.01 * 0.3),
        (Shape("cylinder", (0.1, 4.0), SPIN), POLYGON * 0.01 * 4.0),
    ],
)
def test_a_surface_encloses_the_volume_of_its_shape_where_the_shape_is(shape: Shape, volume: float) -> None:
    solid = solid_of(shape)
    assert solid is not None
    found, centre = volume_and_centre(solid)
    assert found == pytest.approx(volume, rel=1e-12)
    np.testing.assert_allclose(centre, SPIN.p, atol=1e-12)


def test_a_sphere_is_round_to_a_few_percent() -> None:
    solid = solid_of(Shape("sphere", (0.5,), SPIN))
    assert solid is not None
    found, centre = volume_and_centre(solid)
    assert found == pytest.approx(np.pi / 6, rel=0.07)
    np.testing.assert_allclose(np.linalg.norm(solid.points - SPIN.p, axis=1), 0.5, rtol=1e-12)
    np.testing.assert_allclose(centre, SPIN.p, atol=1e-12)


def test_joined_surfaces_keep_their_volumes() -> None:
    parts = [solid_of(Shape("box", (1.0, 1.0, size), Placement.at((size, 0, 0)))) for size in (0.5, 2.0)]
    volume, centre = volume_and_centre(joined([part for part in parts if part is not None]))
    assert volume == pytest.approx(2.5)
    np.testing.assert_allclose(centre, [(0.5 * 0.5 + 2.0 * 2.0) / 2.5, 0, 0], atol=1e-12)


def test_each_robot_has_a_colour_from_its_base_to_its_tip_and_a_payload_one_of_its_own() -> None:
    drawn = solids(two_arms().tree)
    assert {name: colour for name, (_, colour) in drawn.items()} == {
        **{f"left_link{i}": 0 for i in range(8)},
        **{f"right_link{i}": 1 for i in range(8)},
        "box": 2,
    }


def stl(triangles: Array) -> bytes:
    """A binary STL file of triangles, shape (faces, 3, 3)."""
    records = [struct.pack("<12fH", 0, 0, 0, *triangle.ravel(), 0) for triangle in triangles]
    return b"made by a test".ljust(80, b" ") + struct.pack("<I", len(triangles)) + b"".join(records)


def triangles_of(solid: Solid) -> Array:
    """Two triangles per face."""
    a, b, c, d = np.moveaxis(solid.points[solid.faces], 1, 0)
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])


def test_a_mesh_is_read_with_its_scale_and_placement(tmp_path: Path) -> None:
    box = solid_of(Shape("box", (100.0, 200.0, 300.0), IDENTITY))
    assert box is not None
    (tmp_path / "box.stl").write_bytes(stl(triangles_of(box)))
    solid = solid_of(Shape("mesh", (0.001, 0.001, 0.001), SPIN, tmp_path / "box.stl"))
    assert solid is not None and (len(solid.points), len(solid.faces)) == (8, 12)
    volume, centre = volume_and_centre(solid)
    assert volume == pytest.approx(0.006, rel=1e-6)
    np.testing.assert_allclose(centre, SPIN.p, atol=1e-6)


def test_a_fine_mesh_becomes_coarse_and_keeps_its_form(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    u, v = np.meshgrid(np.linspace(0, 2 * np.pi, 121), np.linspace(0, np.pi, 61))
    points = np.stack([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)], axis=-1) + 1e-4 * rng.random(3)
    a, b, c, d = points[1:, :-1], points[1:, 1:], points[:-1, 1:], points[:-1, :-1]
    fine = np.concatenate([np.stack(x, axis=-2).reshape(-1, 3, 3) for x in ((a, b, c), (a, c, d))])
    (tmp_path / "ball.stl").write_bytes(stl(fine))
    mesh = read_stl(tmp_path / "ball.stl")
    assert mesh is not None and 100 < len(mesh[1]) <= MOST_FACES < len(fine)
    volume, centre = volume_and_centre(Solid(mesh[0], mesh[1][:, [0, 1, 2, 2]]))
    assert volume == pytest.approx(4 / 3 * np.pi, rel=0.15)
    np.testing.assert_allclose(centre, 0, atol=0.02)


CUBE = stl(np.random.default_rng(2).random((5, 3, 3)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"solid text\n facet normal 0 0 1\n",
        CUBE[:-1],
        CUBE + b"0",
        stl(np.zeros((3, 3, 3))),
        stl(np.full((3, 3, 3), np.nan)),
    ],
)
def test_what_is_no_binary_stl_is_not_drawn(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.stl").write_bytes(content)
    assert read_stl(tmp_path / "a.stl") is None


def test_a_missing_or_unreadable_mesh_is_not_drawn(tmp_path: Path) -> None:
    assert read_stl(tmp_path / "none.stl") is None
    assert solid_of(Shape("mesh", (1.0, 1.0, 1.0), IDENTITY)) is None
