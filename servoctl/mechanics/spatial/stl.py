"""Reads binary STL meshes, with few enough faces for a picture."""

from pathlib import Path

import numpy as np

from servoctl.errors import ConfigError
from servoctl.input_file import read_regular
from servoctl.types import Array

MOST_FACES = 400  # largest number of faces of a mesh in a picture

MOST_READ = 500_000
"""Largest number of faces of a file that is read; of more, the numbers that name a face would overflow."""

FINEST, COARSEST = 32, 4  # number of cells along the longest side of a mesh, from the first attempt to the last

HEADER = 84
FACE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


def read_stl(path: Path) -> tuple[Array, Array] | None:
    """Points, shape (points, 3), and triangles, shape (faces, 3); None if the file is no binary STL.

    A mesh of many faces is made coarser: corners in one cell of a grid become one point.
    """
    try:
        content = read_regular(path, HEADER + FACE.itemsize * MOST_READ, "a mesh")
    except ConfigError:
        return None
    count = int.from_bytes(content[HEADER - 4 : HEADER], "little")
    if count == 0 or len(content) != HEADER + FACE.itemsize * count:
        return None
    corners = np.frombuffer(content, FACE, count, HEADER)["corners"].reshape(-1, 3).astype(float)
    if not np.isfinite(corners).all():
        return None
    extent = float(np.ptp(corners, axis=0).max()) or 1.0
    points, faces = clustered(corners, 1e-6 * extent)
    cells = FINEST
    while len(faces) > MOST_FACES and cells >= COARSEST:
        points, faces = clustered(points[faces].reshape(-1, 3), extent / cells)
        cells = cells * 4 // 5
    return (points, faces) if len(faces) else None


def clustered(corners: Array, cell: float) -> tuple[Array, Array]:
    """Points and triangles after corners in one cell have become their mean; triangles without area are gone.

    Args:
        corners: Three for each triangle, shape (3 faces, 3) [m].
        cell: Side of a cell [m].
    """
    places = np.floor((corners - corners.min(axis=0)) / cell).astype(np.int64)
    across = int(places.max()) + 1
    _, index, counts = np.unique(places @ [across * across, across, 1], return_inverse=True, return_counts=True)
    points = np.column_stack([np.bincount(index, corners[:, k]) for k in range(3)]) / counts[:, None]
    faces = index.reshape(-1, 3)
    distinct = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
    faces = faces[distinct]
    _, first = np.unique(np.sort(faces, axis=1) @ [len(points) ** 2, len(points), 1], return_index=True)
    return points, faces[np.sort(first)]
