"use strict";
// Draws the spheres and capsules of bounds by their outlines: two half circles and two lines, from any side.

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
