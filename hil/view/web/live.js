"use strict";
/* The live page. It shows the recorded data and can do two things: stop the run, and request values for gains.
   It marks old data: no data, no connection, or a loop that has ended. */

const SPAN = 30;          // time span of the plots [s]
const STALE = 0.5;        // data count as old after this time without a row [s]
const SILENT = 2000;      // the connection counts as lost after this time without a message [ms]
const LEAST = 1e-9;       // smallest value on a logarithmic axis
const TRAIL = 400;        // largest number of past positions of a frame
const SHOWN = 12;         // largest number of coordinates in the plot

const $ = (id) => document.getElementById(id);
const make = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};
const least = (value) => value === undefined || value === null ? null : Math.max(LEAST, value);
const withUnit = (column) => `${shown(last.row[column], 3)} ${about.units[column] ?? ""}`.trim();
const milli = (value) => value === null || value === undefined ? "–" : (1e3 * value).toFixed(2);
let about = null, last = null, heard = 0, ending = null, stopFailed = "";
let unconfirmed = [];     // sentences of drives that may be on after the end
const plots = new PlotGroup(), strips = [];

/* a plot over the last seconds, one point per picture */
class Strip {
  constructor(id, names, take, spec, columns = names) {
    this.take = take;
    this.table = [[], ...names.map(() => [])];
    const lines = names.map((name, i) => ({ name, colour: `--c${i % 8}`, unit: about.units[columns[i]] }));
    this.plot = plots.add($(id), { tables: [this.table], lines, points: false, ...spec });
    strips.push(this);
  }
  add(picture) {
    const t = picture.row.t, [times] = this.table;
    if (times.length && t <= times[times.length - 1]) return;
    times.push(t);
    this.take(picture).forEach((y, i) => this.table[i + 1].push(y ?? null));
    let old = 0;
    while (times[old] < t - SPAN) old++;
    if (old) this.table.forEach((column) => column.splice(0, old));
  }
  paint() { plots.setData(this.plot, [this.table]); }
}

const named = (prefix) => about.columns.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));

function begin() {
  document.title = `${about.config}: live`;
  $("name").textContent = about.config;
  $("kind").textContent = `${about.emulated ? "emulated drives" : "REAL DRIVES"}${about.lockstep
    ? ", virtual time at the pace of the wall clock" : ""}, ${(1 / about.period).toFixed(0)} Hz, last stage ${about.stage}`;
  const rows = named("violation."), inputs = Object.keys(about.torque_limits), coordinates = named("q.").slice(0, SHOWN);
  new Strip("violation", rows, (p) => rows.map((name) => least(p.peak[`violation.${name}`])),
    { log: true, least: LEAST }, rows.map((name) => `violation.${name}`));
  new Strip("torque", inputs, (p) => inputs.map((name) => 100 * p.row[`u.${name}`] / about.torque_limits[name]),
    { unit: "%", height: 140, limits: [{ value: 100, colour: "--bad" }, { value: -100, colour: "--bad" }] });
  new Strip("coordinates", coordinates, (p) => coordinates.map((name) => p.row[`q.${name}`]), {},
    coordinates.map((name) => `q.${name}`));
  const unexplained = ["disturbance.", "estimate.disturbance."].flatMap((group) => named(group).map((name) => [name, group + name])).slice(0, SHOWN);
  $("unexplained").hidden = !unexplained.length;
  if (unexplained.length) new Strip("disturbance", unexplained.map(([name]) => name), (p) => unexplained.map(([, column]) => p.row[column]), {},
    unexplained.map(([, column]) => column));
  if (named("estimate.sigma.").length) head($("sigmas"), ["disturbance of", "now", "sigma"]);
  $("bounds").hidden = !named("bound.").length;
  head($("bounds").querySelector("table"), ["bound", "h", "holds the inputs; tasks give up"]);
  new Strip("lateness", ["largest"], (p) => [p.peak.lateness === undefined ? null : 1e3 * p.peak.lateness], { unit: "ms", height: 130 });
  $("lateness").closest("section").hidden = about.lockstep; // virtual time: lateness does not apply
  for (const name of inputs) addGauge($("torques"), name);
  head($("ages"), ["sample of", "age [ms]"]);
  if (about.stage === "float" || about.stage === "calibrate") beginHand();
  $("live").hidden = !Object.keys(about.gains).length;
  $("ramp").textContent = `each change takes ${about.ramp} s`;
  for (const [path, bounds] of Object.entries(about.gains)) addGain(path, bounds);
}

/* the axes of a machine that a hand moves: large bars over their position limits */
const MOVED = 0.01;       // an axis has moved when its range seen is this share of its limits
const NEAR = 0.02;        // an axis is near a limit within this share
const seen = {};
function beginHand() {
  const axes = Object.entries(about.position_limits);
  document.body.classList.add("hand");
  $("hand").hidden = false;
  $("bars").style.setProperty("--axes", axes.length);
  for (const [name, [lower, upper]] of axes) {
    const axis = make("div", "axis waiting"), line = make("p"), bar = make("div", "bar");
    axis.id = `axis-${name}`;
    line.append(make("span", "", name), make("small"), make("span", "", "–"));
    bar.append(make("i"), make("b"));
    axis.append(line, bar);
    axis.title = `${lower} to ${upper} ${about.position_units[name]}`;
    $("bars").append(axis);
  }
}

function paintHand(row, stage) {
  const calibrates = about.stage === "calibrate";
  let next = "", moving = "", fastest = MOVED;
  for (const [name, [lower, upper]] of Object.entries(about.position_limits)) {
    const y = row[`position.${name}`], axis = $(`axis-${name}`), unit = about.position_units[name];
    if (y === null || y === undefined) continue;
    const range = seen[name] ??= [y, y];
    [range[0], range[1]] = [Math.min(range[0], y), Math.max(range[1], y)];
    const at = (x) => 100 * Math.max(0, Math.min(1, (x - lower) / (upper - lower)));
    const [band, mark] = axis.querySelector(".bar").children, [, note, value] = axis.querySelector("p").children;
    band.style.left = `${at(range[0])}%`; band.style.width = `${at(range[1]) - at(range[0])}%`;
    mark.style.left = `${at(y)}%`;
    const moved = range[1] - range[0] > MOVED * (upper - lower), edge = NEAR * (upper - lower);
    if (calibrates && !moved) next ||= name;
    const speed = Math.abs(row[`speed.${name}`]) / (upper - lower);
    if (speed > fastest) [moving, fastest] = [name, speed];
    axis.className = `axis ${calibrates && !moved ? (next === name ? "next" : "waiting") : ""}`;
    axis.classList.toggle("near", !calibrates && (y < lower + edge || y > upper - edge));
    value.textContent = `${y.toFixed(3)} ${unit}`;
    note.textContent = calibrates ? `seen ${range[0].toFixed(2)} to ${range[1].toFixed(2)}`
      : `${shown(row[`u.${name}`], 2)} of ${shown(about.torque_limits[name], 2)} ${about.units[`u.${name}`] || ""}`;
  }
  $("hand-title").textContent = ending ? "Ended" : calibrates && moving ? `${moving} moves` : calibrates
    ? (next ? `Move ${next}, first to its positive side` : "All moved: now their full ranges")
    : stage === "float" ? "Guide by hand" : `Hands off: ${stage}`;
}

function head(table, words) {
  const row = table.createTHead().insertRow();
  for (const word of words) row.append(make("th", "", word));
}

function addGauge(table, name) {
  const row = table.tBodies[0].insertRow(), bar = make("div"), fill = make("i"), demand = make("b");
  row.id = `gauge-${name}`;
  row.insertCell().textContent = name;
  const cell = row.insertCell(); cell.className = "gauge"; cell.append(bar); bar.append(fill, demand);
  demand.title = "torque of the law before limits";
  row.insertCell();
}

function addGain(path, [lower, upper]) {
  const label = make("label"), slider = make("input"), field = make("input"), now = make("span", "force", "–");
  label.append(make("span", "path", `${path}  [${lower}, ${upper}]`), slider, field, now);
  slider.type = "range"; field.type = "number"; slider.step = field.step = "any";
  for (const input of [slider, field]) { input.min = lower; input.max = upper; input.setAttribute("aria-label", path); }
  slider.addEventListener("input", () => { field.value = Number(slider.value).toPrecision(4); });
  slider.addEventListener("change", () => requestGain(path, Number(field.value)));
  field.addEventListener("change", () => { slider.value = field.value; requestGain(path, field.valueAsNumber); });
  label.dataset.path = path;
  $("gains").append(label);
}
$("gains").addEventListener("submit", (event) => event.preventDefault());

async function post(action, values) {
  try {
    const answer = await fetch(action, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(values),
    });
    return answer.ok ? "" : (await answer.json()).problem;
  } catch (error) { return "no connection"; }
}

async function requestGain(path, value) {
  $("answer").textContent = Number.isFinite(value) ? await post("gain", { path, value }) : `${path}: expected a number`;
}

async function stop() {
  if (ending) return;
  $("stop").classList.add("pressed");
  const problem = await post("stop", {});
  stopFailed = problem && !ending ? `THE STOP WAS NOT DELIVERED (${problem}): use Ctrl-C, or the emergency stop` : "";
  showState();
}
$("stop").addEventListener("click", stop);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.preventDefault(); stop(); } });

/* shows the state of connection, data and run in one sentence */
function showState() {
  const silent = performance.now() - heard;
  let text = "", kind = "";
  if (ending) {
    text = ending.status === "gone" ? "The loop's process has died: drives stop by their own watchdogs"
      : `Loop ended: ${ending.status}${ending.error ? ` (${ending.error})` : ""}. The page shows its last data`;
    kind = ending.status === "done" || ending.status === "interrupted" ? "warn" : "bad";
  } else if (stopFailed) { text = stopFailed; kind = "bad"; }
  else if (silent > SILENT) { text = `No connection for ${(silent / 1e3).toFixed(0)} s: the run may continue`; kind = "bad"; }
  else if (last && !last.row) text = "Bring-up: no tick yet";
  else if (last && last.age > STALE) { text = `No data for ${last.age.toFixed(1)} s`; kind = "bad"; }
  else if (last && last.stopping) { text = "Stop requested"; kind = "warn"; }
  if (unconfirmed.length) [text, kind] = [[...unconfirmed, text].join(". "), "bad"];
  if ($("banner").textContent !== text) $("banner").textContent = text;
  $("banner").className = kind;
  document.body.classList.toggle("stale", Boolean(ending) || silent > SILENT || !last || last.age > STALE);
  $("stop").classList.toggle("pressed", Boolean(last && last.stopping));
  $("stop").disabled = Boolean(ending);
  $("stop").firstChild.textContent = ending ? "ENDED" : last && last.stopping ? "STOPPING" : "STOP";
}

function paint() {
  const { row, peak, skipped, missed, links, poses, shapes } = last;
  plots.time = row.t; // which the legends show
  strips.forEach((strip) => strip.paint());
  const stage = ending ? "over" : about.stages[row.stage] || "–";
  $("stage").textContent = stage; $("stage").className = `chip ${stage.split(" ")[0]}`;
  $("time").textContent = row.t.toFixed(2); $("task-time").textContent = shown(row.task_time);
  const status = stage === "over" ? null : row.status; // after the end there is no law to speak of
  $("status").textContent = status === null ? "" : `${about.statuses[status] || status}, rank ${row.rank}`;
  $("status").className = status ? "bad" : "";
  for (const [name, limit] of Object.entries(about.torque_limits)) {
    const line = $(`gauge-${name}`), u = row[`u.${name}`], law = row[`law.${name}`];
    const at = (value) => 50 + 50 * Math.max(-1, Math.min(1, (value || 0) / limit));
    const [from, to] = [50, at(u)].sort((a, b) => a - b), fill = line.querySelector("i"), demand = line.querySelector("b");
    fill.style.left = `${from}%`; fill.style.width = `${to - from}%`;
    demand.style.left = `calc(${at(law)}% - 1px)`; demand.hidden = law === null;
    line.classList.toggle("over", Math.abs(u) >= 0.999 * limit || peak[`law.${name}`] > limit);
    line.lastChild.textContent = `${shown(u, 3)} of ${limit} ${about.units[`u.${name}`] ?? ""}`;
  }
  fill($("sigmas"), named("estimate.sigma.").map((name) => [
    name, withUnit(`estimate.disturbance.${name}`), withUnit(`estimate.sigma.${name}`)]));
  paintBounds(row);
  fill($("ages"), named("age.").map((name) => [name, milli(row[`age.${name}`])]));
  $("late").textContent = `${skipped} periods skipped` + (missed ? `; ${missed} rows not seen by this page` : "");
  for (const label of $("gains").children) {
    const value = row[`live.${label.dataset.path}`], [slider, field] = label.querySelectorAll("input");
    label.querySelector(".force").textContent = `now ${withUnit(`live.${label.dataset.path}`)}`;
    if (!field.value) { slider.value = value; field.value = shown(value); }
  }
  if (!$("hand").hidden) paintHand(row, stage);
  if (links) sketch(links, poses, shapes, row.t);
}

/* which bounds hold the inputs, and what the tasks give up for them */
const holds = (row, name) => row[`bound_active.${name}`] > 0.5;
function paintBounds(row) {
  const table = $("bounds").querySelector("table"), names = named("bound.");
  const given = named("given_up.").filter((task) => row[`given_up.${task}`] > LEAST).map((task) => `${task} gives up ${withUnit(`given_up.${task}`)}`);
  fill(table, names.map((name) => [name, withUnit(`bound.${name}`), holds(row, name) ? ["yes", ...given].join(", ") : ""]));
  names.forEach((name, i) => { table.tBodies[0].rows[i].className = holds(row, name) ? "holds" : ""; });
}

function fill(table, rows) {
  const body = table.tBodies[0];
  while (body.rows.length < rows.length) { const row = body.insertRow(); rows[0].forEach(() => row.insertCell()); }
  rows.forEach((row, i) => row.forEach((text, j) => { body.rows[i].cells[j].textContent = text; }));
}

/* draws the machine; one in space can be turned by mouse or finger */
const drawn = { t: [0], calm: 1, ground: [], lines: [], traces: [], task: [], axes: [], solids: [], shapes: [], fixed: [] };
const trails = {};
let scene = null;
function sketch(links, poses, shapes, t) {
  const names = Object.keys(links), numbers = (values) => Float64Array.from(values, (x) => x ?? NaN);
  if (!names.length) return;
  drawn.t = [t];
  drawn.lines = names.map((name) => ({
    name, shape: [1, links[name].length, links[name][0].length], x: numbers(links[name].flat()) }));
  drawn.solids = Object.entries(about.solids).map(([name, solid]) => ({ ...solid, pose: { x: numbers(poses[name]) } }));
  drawn.axes = about.frames.filter((name) => poses[name]).map((name) => ({ name, x: numbers(poses[name]) }));
  drawn.shapes = Object.entries(shapes).map(([name, shape]) => ({ name, x: numbers(shape) }));
  drawn.fixed = about.fixed;
  drawn.holds = (name) => holds(last.row, name);
  drawn.traces = drawn.axes.map(({ name, x }) => {
    const trail = trails[name] ??= [];
    trail.push(...x.slice(9));
    trail.splice(0, trail.length - 3 * TRAIL);
    return { name, shape: [trail.length / 3, 3], x: Float64Array.from(trail) };
  });
  $("machine").hidden = false;
  if (scene) scene.measure();
  else scene = new Scene($("machine").querySelector("canvas"), [{ name: about.config, drawing: drawn }]);
  if (!$("hand").hidden) scene.weight = 3;
  $("machine").classList.toggle("space", scene.space);
  scene.draw(t);
}

/* paints at most once per screen frame; a slow browser skips pictures */
let due = false;
function take(picture) {
  last = picture; heard = performance.now();
  if (picture.row) strips.forEach((strip) => strip.add(picture));
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; if (last.row) paint(); showState(); });
}

function listen() {
  const stream = new EventSource("stream");
  stream.addEventListener("open", () => { $("events").replaceChildren(); unconfirmed = []; heard = performance.now(); });
  stream.addEventListener("picture", (event) => take(JSON.parse(event.data)));
  stream.addEventListener("over", (event) => {
    stream.close();
    const picture = JSON.parse(event.data);
    ending = picture.ending;
    take(picture);
    showState();
  });
  stream.addEventListener("events", (event) => {
    for (const each of JSON.parse(event.data)) {
      const maybeOn = each.event === "not_confirmed", line = make("li", `event-${maybeOn ? "stop" : each.reaction}`);
      if (maybeOn) unconfirmed.push(each.text);
      line.append(make("time", "", `${each.t.toFixed(3)} s`), ` ${each.text}`);
      $("events").prepend(line);
    }
    showState();
  });
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.restyle());
const covering = new ResizeObserver(() => { // sticky elements start below the head of the page
  const head = document.querySelector(".top").offsetHeight, { style } = document.documentElement;
  style.setProperty("--head", `${head}px`);
  style.setProperty("--covered", `${head + $("banner").offsetHeight}px`);
});
covering.observe(document.querySelector(".top"));
covering.observe($("banner"));
setInterval(showState, 250);
fetch("about").then((answer) => answer.json()).then((found) => { about = found; begin(); listen(); });
