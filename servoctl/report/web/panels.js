"use strict";
// The plots of the page: one panel per quantity and unit, with the lines of all runs that have it.

const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
const histograms = []; // their horizontal axis is not time: each is a plot group of its own
const ROUND_OFF = 1e-9; // rows whose error stays below this are as exact as numbers allow
const NEAR = 2; // limits are drawn up to this multiple of the largest input
const DIAGNOSTICS = new Set(["Rank, pivot and residual of the law", "Energy and forces"]); // folded until asked for
const MANY = 24; // with more lines, lines are thin and there is no legend

/** Adds every panel for which a run has data. */
function addPanels(root, group, content) {
  const { runs } = content;
  for (const [title, fill] of [
    ["Events", events], ["Motion", motion], ["Inputs", inputs], ["Errors", violations], ["Bounds", bounds], ["Funnels", funnels], ["Rank, pivot and residual of the law", evidence],
    ["What the model does not explain", disturbances], ["Energy and forces", forces], ["Drives and timing", timing],
  ]) {
    const section = document.createElement("section"), folded = DIAGNOSTICS.has(title);
    section.setAttribute("aria-label", title);
    section.innerHTML = folded ? `<details><summary><h2>${title}</h2></summary></details>` : `<h2>${title}</h2>`;
    const box = folded ? section.firstChild : section;
    fill(box, group, runs, content);
    if (box.children.length > 1) root.append(section);
  }
}

/** A panel with its title, unit and notes. */
function panel(box, group, runs, { title, notes: initialNotes = [], ...spec }) {
  const notes = [...initialNotes];
  const root = box.appendChild(document.createElement("div"));
  root.className = "panel";
  const unit = spec.unit ? ` <span class="quiet">[${escaped(spec.unit)}]</span>` : "";
  root.innerHTML = `<header><h3>${escaped(title)}${unit}</h3></header>`;
  if (!spec.log && !spec.range) {
    const calm = calmRange(spec.tables.flatMap(([, ...lines]) => lines));
    if (calm) {
      spec.calm = calm;
      notes.push(beyondNote(spec.tables, ...calm));
    }
  }
  spec.bands ??= stageBands(runs);
  spec.marks ??= marksOf(runs);
  const many = spec.lines.length > MANY;
  if (many) spec.lines.forEach((line) => { line.width = 0.8; });
  let near = null;
  if (many) spec.onNear = (text) => { near.textContent = text ?? `${spec.lines.length} lines: point at one to read it`; };
  group.add(root, { ...spec, legend: !many && !spec.hideLegend });
  if (many) {
    near = root.appendChild(document.createElement("p"));
    near.className = "note";
    spec.onNear(null);
  }
  for (const note of notes) root.insertAdjacentHTML("beforeend", `<p class="note">${escaped(note)}</p>`);
}

/** Tables and lines of some columns of all runs; pick(run) -> [[name, values], ...]. */
function overlay(runs, pick, { step = false, of, time = (run) => run.columns.t } = {}) {
  const tables = [], lines = [], names = [...new Set(runs.flatMap((run) => pick(run).map(([name]) => name)))];
  runs.forEach((run, r) => {
    const columns = pick(run);
    if (!columns.length) return;
    tables.push([Array.from(time(run)), ...columns.map(([, x]) => gapped(x, of))]);
    for (const [name] of columns) {
      lines.push({
        name: runs.length > 1 ? `${name} · ${run.name}` : name, run: run.name, step,
        colour: names.length > MANY ? rainbow(names.indexOf(name) / names.length) : `--c${names.indexOf(name) % 8}`,
        dash: runs.length > 1 ? DASHES[r % 4] : DASHES[names.length > MANY ? 0 : Math.floor(names.indexOf(name) / 8)],
      });
    }
  });
  return { tables, lines };
}

const rainbow = (share) => `hsl(${Math.round(200 + 150 * share)} 60% ${Math.round(38 + 24 * share)}%)`;

/** One panel per unit of a group of columns; more(pick, drawn) -> what else the panel has. */
function byUnit(box, group, runs, columns, title, { rows = (run) => groupOf(run, columns), more = () => ({}) } = {}) {
  const unitOf = (run, name) => run.units[`${columns}.${name}`] ?? "";
  for (const unit of new Set(runs.flatMap((run) => rows(run).map(([name]) => unitOf(run, name))))) {
    const pick = (run) => rows(run).filter(([name]) => unitOf(run, name) === unit), drawn = overlay(runs, pick);
    if (drawn.lines.length) panel(box, group, runs, { title, unit, ...drawn, ...more(pick, drawn) });
  }
}

function motion(box, group, runs) {
  byUnit(box, group, runs, "q", "Coordinates");
  byUnit(box, group, runs, "v", "Velocities");
}

function inputs(box, group, runs) {
  byUnit(box, group, runs, "u", "Inputs", { more: (pick, drawn) => {
    const limits = runs.flatMap((run) => pick(run).flatMap(([name, u], i) => (run.limits[name] ?? []).map((value, end) => {
      const side = end ? 1 : -1, most = u.reduce((a, y) => Math.max(a, side * (y || 0)), 0);
      return { value, side, colour: drawn.lines[i].colour, near: value !== null && Math.abs(value) <= NEAR * most };
    })));
    const values = [...new Set(limits.filter(({ value }) => value !== null).map(({ value }) => value))].sort((a, b) => a - b);
    if (!values.length) return {};
    const most = drawn.tables.flatMap(([, ...lines]) => lines.flat()).reduce((a, y) => Math.max(a, Math.abs(y ?? 0)), 0);
    const alike = values.length <= 2, notes = [];
    const near = values.filter((value) => (alike ? Math.abs(value) <= NEAR * most : limits.some((limit) => limit.near && limit.value === value)));
    const far = values.filter((value) => !near.includes(value) && !near.includes(-value));
    const sideOf = (value) => limits.find((limit) => limit.value === value).side;
    const drawnLimits = alike ? near.map((value) => ({ value, side: sideOf(value) })) : limits.filter((limit) => limit.near);
    const list = (some) => some.map((x) => shown(x)).join(some.length > 2 ? ", " : " and ");
    if (near.length) notes.push(`hatched: ${alike ? `limits ${list(near)}` : "limits in the colour of their input"}`);
    if (far.length) notes.push(`limits far from the inputs: ${list(far)}`);
    return { limits: drawnLimits, notes };
  } });
}

/** Errors of task rows and of the mechanism's own, by unit; rows at round-off are only counted. */
function violations(box, group, runs) {
  for (const [columns, title] of [["violation", "Task error"], ["passive", "Error of mechanism constraints"]]) {
    const largest = new Map();
    for (const [name, x] of runs.flatMap((run) => groupOf(run, columns))) {
      largest.set(name, x.reduce((most, y) => (Number.isNaN(y) ? most : Math.max(most, Math.abs(y))), largest.get(name) ?? 0));
    }
    const exact = [...largest].filter(([, most]) => most < ROUND_OFF).length;
    byUnit(box, group, runs, columns, title, { rows: (run) => groupOf(run, columns).filter(([name]) => !(largest.get(name) < ROUND_OFF)) });
    if (exact) box.insertAdjacentHTML("beforeend", `<p class="panel note">${title}: ${exact} ${exact === 1 ? "row" : "rows"} below 1e-9: round-off</p>`);
  }
}

/** h of every bound above its zero line; thick where the bound holds the inputs. */
function bounds(box, group, runs) {
  const drawn = overlay(runs, (run) => groupOf(run, "bound"));
  if (!drawn.lines.length) return;
  const held = overlay(runs, (run) => groupOf(run, "bound").filter(([name]) => `bound_active.${name}` in run.columns)
    .map(([name, h]) => [name, h.map((y, i) => (run.columns[`bound_active.${name}`][i] > 0.5 ? y : NaN))]));
  held.lines.forEach((line) => {
    const of = drawn.lines.find(({ name, run }) => run === line.run && name === line.name);
    Object.assign(line, { colour: of.colour, width: 4, name: `${line.name}, holds` });
  });
  panel(box, group, runs, { title: "h of each bound, which the law keeps at 0 or above", limits: [{ value: 0, side: -1 }],
    notes: ["hatched: the limit 0; thick: the bound holds the inputs", "each in the unit of its bound"],
    tables: [...drawn.tables, ...held.tables], lines: [...drawn.lines, ...held.lines] });
}

/** beta of every row with a funnel, between the edges of its funnel. */
function funnels(box, group, runs) {
  for (const name of new Set(runs.flatMap((run) => groupOf(run, "funnel").map(([row]) => row)))) {
    const of = (run, columns) => groupOf(run, columns).filter(([row]) => row === name);
    const drawn = overlay(runs, (run) => of(run, "funnel"));
    const edges = [1, -1].map((side) => overlay(runs, (run) => of(run, "funnel_width").map(([row, width]) => [row, width.map((y) => side * y)])));
    edges.forEach(({ lines }) => lines.forEach((line) => Object.assign(line, { colour: "--bad", width: 1, dash: [4, 4], name: "edge" })));
    panel(box, group, runs, { title: `Funnel of ${name}`, notes: ["dashed: its edges; the row's beta stays between them"],
      tables: [drawn, ...edges].flatMap(({ tables }) => tables), lines: [drawn, ...edges].flatMap(({ lines }) => lines) });
  }
}

/** The range of a log axis and its notes; raises smaller values, including zeros, to its lower edge. */
function floored(tables, floor) {
  const lines = tables.flatMap(([, ...ys]) => ys), least = logFloor(lines, floor), top = logTop(lines, least), notes = [];
  if (lines.some((ys) => ys.some((y) => y !== null && y < least))) notes.push(`values below ${least.toExponential(0)}, including zeros, are drawn at the lower edge`);
  if (top !== null) notes.push(beyondNote(tables, 0, top));
  for (const table of tables) {
    for (let k = 1; k < table.length; k++) table[k] = table[k].map((y) => (y === null ? null : Math.max(y, least)));
  }
  return { least, calm: top === null ? undefined : [least, top], notes };
}

function evidence(box, group, runs, { floor, statuses }) {
  const bands = [...stageBands(runs), ...(runs.length === 1 ? statusBands(runs[0], statuses) : [])];
  const single = (names) => (run) => names.filter((name) => name in run.columns).map((name) => [name.replace("_", " "), run.columns[name]]);
  const met = [...new Set(runs.flatMap((run) => [...(run.columns.status ?? [])].filter(Number.isFinite)))].sort((a, b) => a - b);
  const sentences = met.map((code) => (statuses[code] ?? [`status ${code}`, ""]).join(": ") + (met.length === 1 ? ", all the time" : ""));
  const ranks = overlay(runs, single(["rank", "passive_rank"]), { step: true });
  if (ranks.lines.length) {
    const top = ranks.tables.flatMap(([, ...lines]) => lines).flat().reduce((a, y) => Math.max(a, y ?? 0), 1);
    panel(box, group, runs, { title: "Rank", height: 130, range: [-0.08 * top, top * 1.12], bands, ...ranks, notes: sentences,
      ticks: (y) => (Number.isInteger(y) ? String(y) : "") });
  }
  for (const [name, title] of [["pivot_min", "Smallest pivot, relative"], ["residual", "Residual: part of the task that the inputs cannot produce"]]) {
    const drawn = overlay(runs, single([name]), { of: Math.abs });
    if (!drawn.tables.some(([, ys]) => ys.some((y) => y !== null))) continue;
    panel(box, group, runs, { title, height: 130, log: true, unit: runs[0].units[name] ?? "", bands, ...floored(drawn.tables, floor), ...drawn });
  }
  if (met.length < 2) return;
  const codes = overlay(runs, single(["status"]), { step: true });
  panel(box, group, runs, { title: "Status", height: 50 + 24 * met.length, range: [Math.min(...met) - 0.6, Math.max(...met) + 0.6],
    bands, ...codes, hideLegend: true, notes: ranks.lines.length ? [] : sentences,
    ticks: (y) => (met.includes(y) ? (statuses[y]?.[0] ?? String(y)).slice(0, 9) : "") });
}

function statusBands(run, statuses) {
  const { t, status } = run.columns, bands = [];
  if (!status) return bands;
  for (let i = 0, from = 0; i < status.length; i++) {
    if (i + 1 < status.length && status[i + 1] === status[i]) continue;
    const to = i + 1 < t.length ? t[i + 1] : t[i];
    if (status[i]) bands.push({ from: t[from], to, colour: `--status-${Math.min(status[i], 8)}`, text: statuses[status[i]]?.[0] });
    from = i + 1;
  }
  return bands;
}

function forces(box, group, runs) {
  const energy = overlay(runs, (run) => (run.energy ? [["energy", run.energy.x]] : []), { time: (run) => run.energy.t });
  if (energy.lines.length) panel(box, group, runs, { title: "Mechanical energy", unit: "J", ...energy });
  byUnit(box, group, runs, "servo_force", "Servo forces B u, by coordinate");
  byUnit(box, group, runs, "passive_force", "Forces of mechanism constraints, by coordinate");
}

/** The observer's disturbance of each task row, and the estimator's of each coordinate between its limits of 2 sigma. */
function disturbances(box, group, runs) {
  byUnit(box, group, runs, "disturbance", "Disturbance that the observer sees, by task row");
  byUnit(box, group, runs, "estimate.disturbance", "Disturbance that the estimator sees, by coordinate", { more: (pick, drawn) => {
    const around = overlay(runs, (run) => pick(run).filter(([name]) => `estimate.sigma.${name}` in run.columns).flatMap(([name, d]) => {
      const sigma = run.columns[`estimate.sigma.${name}`];
      return [-2, 2].map((side) => [`${name} ${side < 0 ? "-" : "+"} 2 sigma`, d.map((x, i) => x + side * sigma[i])]);
    }));
    around.lines.forEach((line) => {
      const of = drawn.lines.find(({ name, run }) => run === line.run && line.name.startsWith(`${name.split(" · ")[0]} `));
      Object.assign(line, { colour: of.colour, width: 0.6, dash: [2, 3] });
    });
    const notes = around.lines.length ? ["dotted: 2 sigma around it"] : [];
    return { notes, tables: [...drawn.tables, ...around.tables], lines: [...drawn.lines, ...around.lines] };
  } });
}

/** A strip with the text of every event; equal events at the same time share a line. */
function events(box, group, runs) {
  const marks = marksOf(runs, true);
  if (!marks.length) return;
  const { t } = runs[0].columns;
  panel(box, group, runs, {
    title: "Events", height: 46 + 15 * Math.min(Math.max(Math.ceil(marks.length / 2), 3), 9), range: [0, 1], ticks: () => "", marks, labels: true, hideLegend: true,
    tables: [[Array.from(t), Array.from(t, () => null)]], lines: [{ name: "", colour: "--quiet" }],
  });
}

function timing(box, group, runs) {
  const milli = (x) => 1e3 * x;
  const late = overlay(runs, (run) => ("lateness" in run.columns ? [["lateness", run.columns.lateness]] : []), { of: milli });
  if (late.lines.length) panel(box, group, runs, { title: "Lateness of the ticks", unit: "ms", height: 150, ...late });
  histogram(box, runs, "lateness", "Lateness, histogram");
  const ages = overlay(runs, (run) => groupOf(run, "age"), { of: milli });
  if (ages.lines.length) panel(box, group, runs, { title: "Age of the samples", unit: "ms", height: 150, ...ages });
  histogram(box, runs, "age.", "Age of the samples, histogram");
  busLoad(box, group, runs);
}

/** Load of each bus, from the recorded frames. */
function busLoad(box, group, runs) {
  const found = runs.flatMap((run, r) => run.buses.filter(({ t }) => t.length > 1).map((bus) => ({ ...bus, run, r })));
  if (!found.length) return;
  const tables = found.map(({ t, x, run }) => { // only windows within the rows of the run
    const { t: rows } = run.columns, kept = [...t.keys()].filter((i) => t[i] >= rows[0] && t[i] + t[1] <= rows[rows.length - 1]);
    return [kept.map((i) => t[i]), kept.map((i) => 100 * x[i])];
  });
  const names = [...new Set(found.map(({ name }) => name))];
  const lines = found.map(({ name, run, r }) => ({ name: runs.length > 1 ? `${name} · ${run.name}` : name, run: run.name, step: true,
    colour: `--c${names.indexOf(name) % 8}`, dash: DASHES[runs.length > 1 ? r % 4 : 0] }));
  const limits = [...new Set(found.map(({ most }) => 100 * most))].map((value) => ({ value }));
  const { t } = found[0];
  panel(box, group, runs, { title: "Bus load", unit: "%", height: 150, tables, lines, limits,
    notes: [`in windows of ${shown(1e3 * (t[1] - t[0]))} ms, with the worst case of stuff bits; hatched: max_bus_load`] });
}

/** A histogram of ticks over all rows, on a log axis since rare values matter most. */
function histogram(box, runs, start, title) {
  const found = runs.flatMap((run, r) => run.counts.filter(({ name }) => name.startsWith(start)).map((count) => ({ ...count, run, r })));
  if (!found.length) return;
  const root = box.appendChild(document.createElement("div"));
  root.className = "panel";
  root.innerHTML = `<header><h3>${title} <span class="quiet">[ticks]</span></h3></header>`;
  const tables = found.map(({ edges, counts }) => [Array.from(edges, (x) => 1e3 * x), [...Array.from(counts, (n) => Math.max(n, 0.5)), 0.5]]);
  const lines = found.map(({ name, run, r }, i) => ({
    name: (name.includes(".") ? name.slice(name.indexOf(".") + 1) : name) + (runs.length > 1 ? ` · ${run.name}` : ""),
    colour: `--c${i % 8}`, dash: runs.length > 1 ? DASHES[r % 4] : [], step: true,
  }));
  const alone = new PlotGroup();
  alone.add(root, { tables, lines, log: true, least: 0.5, height: 150, xName: title.split(",")[0].toLowerCase(), xUnit: "ms",
    unit: "ticks", ticks: (y) => (y >= 1 && Number.isInteger(Math.log10(y)) ? shown(y) : "") });
  histograms.push(alone);
}

/** The stages of a run on drives as bands; none for several runs, whose bands would overlap. */
function stageBands(runs) {
  if (runs.length > 1) return [];
  return runs[0].stages.filter(([, , name]) => ["ramp", "full", "stopping"].includes(name))
    .map(([from, to, name]) => ({ from, to, colour: `--band-${name}`, text: name }));
}

/** Events as vertical lines, stops and drives that may be on in red; changes of stage and status, which are bands in most panels, only with `all`. */
function marksOf(runs, all = false) {
  const banded = ["stage", "status", "rank", "passive_rank"];
  const marks = new Map();
  for (const run of runs) {
    const end = run.columns.t?.[run.columns.t.length - 1] ?? Infinity; // an event after the last row stands at the end
    for (const event of run.events.filter(({ event: kind }) => all || !banded.includes(kind)).slice(0, 200)) {
      const key = `${event.t} ${event.event} ${event.reaction} ${run.name}`, before = marks.get(key);
      if (before) before.more++;
      else marks.set(key, { t: Math.min(event.t, end), colour: event.alarming ? "--bad" : "--quiet", more: 0,
        sentence: eventText(event), run: runs.length > 1 ? ` · ${run.name}` : "" });
    }
  }
  return [...marks.values()].map((mark) => ({ ...mark, text: mark.sentence + (mark.more ? `, and ${mark.more} more like it` : "") + mark.run }));
}
