"use strict";
// Chooses the range of an axis by the rules of servoctl/report/scales.py: a few extreme values must not hide the others.

const LOW = 0.05, LAST = 0.02, FLAT = 50, STILL = 1e-9, EMPTY = 3;

const finite = (x) => x.filter((y) => Number.isFinite(y));
const leastOf = (x) => x.reduce((a, y) => Math.min(a, y), Infinity);
const mostOf = (x) => x.reduce((a, y) => Math.max(a, y), -Infinity);

/** The values before the last rows. */
const before = (x) => x.slice(0, x.length - Math.max(1, Math.floor(LAST * x.length)));

/** The power of ten at which a logarithmic axis begins: most values of each line lie above it. */
function logFloor(lines, floor) {
  const low = lines.flatMap((x) => {
    const sizes = finite(x).map(Math.abs).filter((y) => y > 0).sort((a, b) => a - b);
    return sizes.length ? [sizes[Math.floor(LOW * (sizes.length - 1))]] : [];
  });
  return low.length ? Math.max(10 ** Math.floor(Math.log10(leastOf(low)) + 1e-9), floor) : floor;
}

/** The greatest value to show on a logarithmic axis, if lines diverge in their last rows; else null. */
function logTop(lines, least) {
  const top = Math.max(least, mostOf(lines.flatMap((x) => finite(before(x)))));
  const whole = Math.max(least, mostOf(lines.flatMap((x) => finite(x))));
  return top > least && Math.log10(whole / top) > 2 * Math.max(Math.log10(top / least), EMPTY) ? top : null;
}

/** The range to show, if lines diverge in their last rows so far that earlier values would look flat; else null. */
function calmRange(lines) {
  const early = lines.flatMap((x) => finite(before(x)));
  if (!early.length) return null;
  let low = leastOf(early), high = mostOf(early);
  if (!(high - low > STILL * Math.max(1, Math.abs(low), Math.abs(high)))) return null;
  const room = FLAT * (high - low), limits = [low - room, high + room];
  const beyond = (x) => finite(x).some((y) => y < limits[0] || y > limits[1]);
  if (!lines.some(beyond)) return null;
  for (const x of lines.filter((line) => !beyond(line))) {
    low = Math.min(low, leastOf(finite(x)));
    high = Math.max(high, mostOf(finite(x)));
  }
  return [low, high];
}

/** A note about the value farthest outside [low, high], from tables [[t, y, ...], ...]. */
function beyondNote(tables, low, high) {
  let worst = null;
  for (const [t, ...lines] of tables) {
    for (const x of lines) {
      x.forEach((y, i) => {
        const far = Number.isFinite(y) ? Math.max(y - high, low - y) : 0;
        if (far > (worst?.far ?? 0)) worst = { far, y, t: t[i] };
      });
    }
  }
  return worst ? `beyond the axis: ${shown(worst.y)} at ${shown(worst.t, 6)} s (zoom in to see it)` : "";
}

/** Labels of a linear axis: just enough digits to distinguish its ticks, all in the same format. */
function tickLabels(ticks) {
  const size = Math.max(...ticks.map(Math.abs));
  if (!(size > 0)) return ticks.map(String);
  const power = size >= 1e5 || size < 1e-3 ? Math.floor(Math.log10(size) + 1e-9) : 0;
  const step = (ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : size) / 10 ** power;
  let digits = 0;
  while (digits < 12 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6 * step * 10 ** digits) digits++;
  return ticks.map((y) => (Math.abs(y) < 1e-9 * size ? "0" : `${(y / 10 ** power).toFixed(digits)}${power ? `e${power}` : ""}`));
}

/** Width for the labels of a vertical axis, at least the usual one [px]. */
function axisWidth(u, values, index, usual) {
  const axis = u.axes[index];
  u.ctx.save();
  u.ctx.font = axis.font[0];
  const widest = Math.max(0, ...(values ?? []).map((text) => u.ctx.measureText(text ?? "").width / devicePixelRatio));
  u.ctx.restore();
  return Math.max(usual, Math.ceil(widest + axis.ticks.size + axis.gap + 4));
}
