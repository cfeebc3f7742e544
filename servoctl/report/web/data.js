"use strict";
// Decodes the data of the page: numbers from bytes, everything else from JSON.

/** The content of the page with its arrays of numbers decoded; NaN marks a missing number. */
function loadRuns() {
  const content = JSON.parse(document.getElementById("content").textContent);
  const bytes = Uint8Array.from(atob(document.getElementById("numbers").textContent), (c) => c.charCodeAt(0));
  const flat = ({ at, shape, double }) => {
    const count = shape.reduce((a, b) => a * b, 1);
    return double ? new Float64Array(bytes.buffer, at, count) : new Float32Array(bytes.buffer, at, count);
  };
  const all = (places) => Object.fromEntries(Object.entries(places).map(([name, place]) => [name, flat(place)]));
  const cloud = (places) =>
    Object.entries(places).map(([name, place]) => ({ name, shape: place.shape, x: flat(place) }));
  for (const run of content.runs) {
    run.columns = all(run.columns);
    run.counts = Object.entries(run.counts).map(([name, pair]) => ({ name, edges: flat(pair[0]), counts: flat(pair[1]) }));
    run.buses = Object.entries(run.buses).map(([name, { t, x, most }]) => ({ name, most, t: flat(t), x: flat(x) }));
    run.energy &&= all(run.energy);
    run.drawing &&= {
      ...run.drawing, t: flat(run.drawing.t), lines: cloud(run.drawing.lines), traces: cloud(run.drawing.traces), task: cloud(run.drawing.task),
      axes: cloud(run.drawing.axes), shapes: cloud(run.drawing.shapes),
      holds: (name, t) => holdsAt(run, name, t),
      solids: Object.values(run.drawing.solids).map(({ points, faces, pose }) => ({ points: flat(points), faces: flat(faces), pose: { x: flat(pose) } })),
    };
  }
  return content;
}

/** Whether a bound holds the inputs of a run at a time. */
function holdsAt({ columns }, name, t) {
  const active = columns[`bound_active.${name}`];
  if (!active) return false;
  let low = 0, high = columns.t.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (columns.t[middle] <= t) low = middle; else high = middle - 1;
  }
  return active[low] > 0.5;
}

/** The columns `<group>.<name>` of a run: [[name, values], ...]. */
function groupOf(run, group) {
  return Object.entries(run.columns).filter(([column]) => column.startsWith(`${group}.`))
    .map(([column, x]) => [column.slice(group.length + 1), x]);
}

/** Values in the form of uPlot: null marks a missing number. */
const gapped = (x, of = (y) => y) => Array.from(x, (y) => (Number.isFinite(y) ? of(y) : null));
