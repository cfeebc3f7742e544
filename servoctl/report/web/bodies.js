"use strict";
// Draws bodies: surfaces of robots as shaded faces, the far ones first, with the axes of frames; and the spheres and
// capsules of bounds by their outlines: two half circles and two lines, from any side.

const AXES = ["--c1", "--c2", "--c0"]; // x, y, z
const LIGHT = [-0.45, 0.65, 0.61]; // direction to the light: right, up, towards the eye
const SHADES = 24;
const SCHEME = matchMedia("(prefers-color-scheme: dark)");
const paints = new Map();
SCHEME.addEventListener("change", () => paints.clear());

/** A colour of the palette, mixed with the paper and shaded from 0 (dark) to 1 (light). */
function paintOf(number, light) {
  const shade = Math.round(light * SHADES), key = number * (SHADES + 1) + shade;
  if (!paints.has(key)) {
    const hex = colourOf(`--c${number % 8}`), own = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    const bright = 0.45 + 0.55 * (shade / SHADES);
    const mixed = own.map((part) => Math.round(bright * (0.42 * part + 0.58 * (SCHEME.matches ? 150 : 246))));
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
function drawSolids(c, solids, poses, at, look) {
  const [left, top] = at(0, 0, 0), scale = at(...look.right)[0] - left;
  const faces = solids.flatMap((solid, i) => (poses[i].every(Number.isFinite) ? seenFaces(solid, poses[i], look) : []));
  faces.sort((a, b) => a.depth - b.depth);
  c.lineWidth = 0.7;
  c.lineJoin = "round";
  for (const { placed, corners, paint } of faces) {
    c.fillStyle = c.strokeStyle = paint;
    c.beginPath();
    for (const k of corners) c.lineTo(left + scale * placed[k], top - scale * placed[k + 1]);
    c.closePath();
    c.fill();
    c.stroke(); // closes the seam to the next face
  }
}

/** The faces of a solid that look towards the eye: {placed, corners, depth, paint}; placed: right, up, depth of points. */
function seenFaces({ points, faces }, pose, { right, up, eye }) {
  const m = [right, up, eye].flatMap((axis) => [
    ...[0, 1, 2].map((k) => axis[0] * pose[k] + axis[1] * pose[3 + k] + axis[2] * pose[6 + k]), dot(axis, pose.slice(9))]);
  const p = new Float64Array(points.length), seen = [];
  for (let i = 0; i < p.length; i += 3) {
    const x = points[i], y = points[i + 1], z = points[i + 2];
    p[i] = m[0] * x + m[1] * y + m[2] * z + m[3];
    p[i + 1] = m[4] * x + m[5] * y + m[6] * z + m[7];
    p[i + 2] = m[8] * x + m[9] * y + m[10] * z + m[11];
  }
  for (let i = 0; i < faces.length; i += 5) {
    const a = 3 * faces[i], b = 3 * faces[i + 1], c = 3 * faces[i + 2], d = 3 * faces[i + 3];
    // the normal from the diagonals, for a triangle repeats its last corner
    const ux = p[c] - p[a], uy = p[c + 1] - p[a + 1], uz = p[c + 2] - p[a + 2];
    const vx = p[d] - p[b], vy = p[d + 1] - p[b + 1], vz = p[d + 2] - p[b + 2];
    const nx = uy * vz - uz * vy, ny = uz * vx - ux * vz, nz = ux * vy - uy * vx;
    if (!(nz > 0)) continue;
    const shade = 0.5 + 0.5 * (LIGHT[0] * nx + LIGHT[1] * ny + LIGHT[2] * nz) / Math.hypot(nx, ny, nz);
    const depth = p[a + 2] + p[b + 2] + p[c + 2] + p[d + 2];
    seen.push({ placed: p, corners: [a, b, c, d], depth, paint: paintOf(faces[i + 4], Math.max(0, Math.min(1, shade))) });
  }
  return seen;
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

/** Start, end and radius of a shape between two of its frames. */
const shapeAt = ({ x }, i, next, part) => Array.from({ length: 7 }, (_, k) => (1 - part) * x[7 * i + k] + part * x[7 * next + k]);

/** Draws a shape, or its outline alone, dashed; strong: its bound holds the inputs; at(x, y, z) -> [right, down] [px]; scale: pixels per metre. */
function drawShape(c, [ax, ay, az, bx, by, bz, radius], at, scale, colour, filled = true, strong = false) {
  if (![ax, ay, az, bx, by, bz].every(Number.isFinite)) return;
  const [x0, y0] = at(ax, ay, az), [x1, y1] = at(bx, by, bz), strength = c.globalAlpha;
  const turn = Math.atan2(y1 - y0, x1 - x0), quarter = Math.PI / 2;
  c.beginPath();
  c.arc(x1, y1, radius * scale, turn - quarter, turn + quarter);
  c.arc(x0, y0, radius * scale, turn + quarter, turn + 3 * quarter);
  c.closePath();
  c.fillStyle = c.strokeStyle = colourOf(colour);
  c.lineWidth = strong ? 3 : 1.2;
  c.globalAlpha = (strong ? 0.4 : 0.13) * strength;
  if (filled) c.fill();
  c.setLineDash(filled ? [] : [5, 4]);
  c.globalAlpha = (strong ? 1 : 0.8) * strength;
  c.stroke();
  c.setLineDash([]);
  c.globalAlpha = strength;
}

/** The lowest and highest corner of the box around a shape: [[x, y, z], [x, y, z]]. */
function boxOf(shape) {
  const ends = [0, 1, 2].map((k) => [shape[k], shape[3 + k]]);
  return [ends.map((x) => Math.min(...x) - shape[6]), ends.map((x) => Math.max(...x) + shape[6])];
}

const cross = (u, v) => [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
