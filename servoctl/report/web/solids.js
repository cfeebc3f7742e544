"use strict";
// Draws robots: surfaces as shaded faces, the far ones first, and the axes of frames.

const AXES = ["--c1", "--c2", "--c0"]; // x, y, z
const SHADES = 24;
const paints = new Map();

/** A colour of the palette, mixed with the paper and shaded from 0 (dark) to 1 (light). */
function paintOf(number, light) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches, shade = Math.round(light * SHADES);
  const key = `${number} ${shade} ${dark}`;
  if (!paints.has(key)) {
    const hex = colourOf(`--c${number % 8}`), own = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    const bright = 0.45 + 0.55 * (shade / SHADES);
    const mixed = own.map((part) => Math.round(bright * (0.42 * part + 0.58 * (dark ? 150 : 246))));
    paints.set(key, `rgb(${mixed.join(",")})`);
  }
  return paints.get(key);
}

/** A point in the axes of a pose -> in the world's. */
function posed(pose, x, y, z) {
  return [0, 3, 6].map((row, k) => pose[row] * x + pose[row + 1] * y + pose[row + 2] * z + pose[9 + k]);
}

/** The pose of frame i, moved by a part of the way to the next one. */
function poseAt({ x }, i, next, part) {
  return Array.from({ length: 12 }, (_, k) => (1 - part) * x[12 * i + k] + part * x[12 * next + k]);
}

/** Draws solids.
 *  solids: [{points, faces}]; poses: one per solid, 12 numbers; at(x, y, z) -> [right, down] [px];
 *  look: right, up and eye, unit vectors in the world. */
function drawSolids(c, solids, poses, at, { right, up, eye }) {
  const light = right.map((_, k) => (-0.45 * right[k] + 0.65 * up[k] + 0.61 * eye[k]));
  const faces = [];
  solids.forEach(({ points, faces: corners }, number) => {
    const pose = poses[number];
    if (!pose.every(Number.isFinite)) return;
    const world = [], paper = [], depth = [];
    for (let i = 0; i < points.length; i += 3) {
      const point = posed(pose, points[i], points[i + 1], points[i + 2]);
      world.push(point);
      paper.push(at(...point));
      depth.push(dot(point, eye));
    }
    for (let i = 0; i < corners.length; i += 5) {
      const face = [corners[i], corners[i + 1], corners[i + 2], corners[i + 3]];
      const normal = across(world, face), size = Math.hypot(...normal);
      if (!size || dot(normal, eye) <= 0) continue; // it looks away
      const shade = Math.max(0, Math.min(1, 0.5 + 0.5 * (dot(normal, light) / size)));
      faces.push({
        paper: face.map((k) => paper[k]), paint: paintOf(corners[i + 4], shade),
        depth: (depth[face[0]] + depth[face[1]] + depth[face[2]] + depth[face[3]]) / 4,
      });
    }
  });
  faces.sort((a, b) => a.depth - b.depth);
  c.lineWidth = 0.7;
  c.lineJoin = "round";
  for (const { paper, paint } of faces) {
    c.fillStyle = c.strokeStyle = paint;
    c.beginPath();
    paper.forEach((point, k) => c[k ? "lineTo" : "moveTo"](...point));
    c.closePath();
    c.fill();
    c.stroke(); // closes the seam to the next face
  }
}

/** Draws the axes of a frame: x, y and z as short lines of this length [m]. */
function drawAxes(c, pose, length, at) {
  if (!pose.every(Number.isFinite)) return;
  const origin = at(...posed(pose, 0, 0, 0));
  c.lineWidth = 2;
  AXES.forEach((colour, k) => {
    const tip = [0, 0, 0];
    tip[k] = length;
    c.strokeStyle = colourOf(colour);
    c.beginPath();
    c.moveTo(...origin);
    c.lineTo(...at(...posed(pose, ...tip)));
    c.stroke();
  });
}

const cross = (u, v) => [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];

/** The normal of a face, from its diagonals; a triangle repeats its last corner. */
function across(world, [a, b, c, d]) {
  const u = world[c].map((x, k) => x - world[a][k]), v = world[d].map((x, k) => x - world[b][k]);
  return cross(u, v);
}
