"use strict";
// Plots over one time axis, by uPlot: zoom, reset and playhead move together. Used by the page of a run and the live view.

/** The current colour of a CSS variable. */
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A number with a few significant digits. */
function shown(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size >= 1e5 || size < 1e-3 ? x.toExponential(digits - 2) : String(+x.toPrecision(digits));
}

/** x, or 0 where it is the rounding of numbers of this size. */
const snapped = (x, size) => (x !== null && Math.abs(x) < 1e-12 * size ? 0 : x);

/** Index of the value nearest to x in an ascending array. */
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

/** Tables [x, y...] over one x: undefined where a table has no row (drawn through), null where it has a gap. */
const joined = (tables) => (tables.length === 1 ? tables[0] : uPlot.join(tables, tables.map((t) => t.map(() => 2))));

class PlotGroup {
  /** onTime(t, clicked): the reader points at a time [s]; onZoom(range, or null for all). */
  constructor({ onTime = () => {}, onZoom = () => {} } = {}) {
    this.plots = [];
    this.onTime = onTime;
    this.onZoom = onZoom;
    this.time = null;
    this.range = null;
    this.observer = new ResizeObserver((entries) => entries.forEach((e) => this.#resize(e.target)));
    this.seen = new IntersectionObserver((entries) => entries.forEach((e) => this.#see(e)), { rootMargin: "200px" });
  }

  /**
   * Adds a plot to an element.
   *
   * spec: {tables: [[t, y, ...], ...], lines: [{name, colour: "--c0", dash, width, step}, ...] in the tables' order,
   *        unit, height, log, least, ticks: value -> text, limits: [{value, colour, side: 1 above, -1 below}], calm: [low, high] of the whole, bands: [{from, to, colour, text}],
   *        marks: [{t, colour, text}], labels (write the marks' texts), range: [low, high],
   *        points: whether rows are dots (default: only a single row), xName, xUnit (if it is not time),
   *        onNear(text or null): name and value of the line that the reader points at}
   */
  add(parent, spec) {
    const root = parent.appendChild(document.createElement("div"));
    root.className = "plot";
    const plot = { root, spec, data: joined(spec.tables), u: null, stale: false, visible: true };
    root.plot = plot;
    this.plots.push(plot);
    this.#make(plot);
    this.observer.observe(root);
    this.seen.observe(root);
    return plot;
  }

  /** Replaces the data of a plot, in the shape of its tables; the visible time range follows. */
  setData(plot, tables) {
    plot.data = joined(tables);
    plot.u.setData(plot.data, this.range === null);
    this.#place(plot);
  }

  /** Moves the playhead and updates the values in the legends. */
  setTime(t) {
    this.time = t;
    for (const plot of this.plots) if (plot.visible) this.#place(plot);
  }

  /** Shows a time range in all plots; null: the whole time. */
  setRange(range) {
    this.range = range;
    for (const plot of this.plots) {
      const xs = plot.data[0];
      const [min, max] = range ?? [xs[0], xs[xs.length - 1]];
      if (xs.length) plot.u.setScale("x", { min, max });
    }
    this.setTime(this.time);
    this.onZoom(range);
  }

  /** Draws all plots again, after a change of colours. */
  restyle() {
    for (const plot of this.plots) this.#make(plot);
    if (this.range) this.setRange(this.range);
    this.setTime(this.time);
  }

  /** Shows or hides the lines for which test(line) is true. */
  show(test, visible) {
    for (const plot of this.plots) {
      plot.spec.lines.forEach((line, i) => { if (test(line)) plot.u.setSeries(i + 1, { show: visible }); });
    }
  }

  #make(plot) {
    plot.u?.destroy();
    plot.u = new uPlot(this.#options(plot), plot.data, plot.root);
    const [xs] = plot.data;
    if (xs.length === 1) plot.u.setScale("x", { min: xs[0] - 0.5, max: xs[0] + 0.5 }); // not uPlot's 100 s
    plot.head = plot.u.over.appendChild(document.createElement("div"));
    plot.head.className = "playhead";
    this.#listen(plot);
    this.#place(plot);
  }

  #listen(plot) {
    const { over } = plot.u;
    const at = (event) => plot.u.posToVal(event.clientX - over.getBoundingClientRect().left, "x");
    let pressed = 0;
    over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
    over.addEventListener("mousemove", (event) => { if (event.buttons === 0) this.onTime(at(event), false); });
    over.addEventListener("click", (event) => { if (Math.abs(event.clientX - pressed) < 4) this.onTime(at(event), true); });
    over.addEventListener("touchmove", (event) => this.onTime(at(event.touches[0]), true), { passive: true });
    over.addEventListener("dblclick", () => this.setRange(null));
  }

  #options(plot) {
    const { spec } = plot;
    const ink = colourOf("--quiet"), grid = { stroke: colourOf("--grid"), width: 1 };
    const axis = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif" };
    const unit = (i) => spec.lines[i - 1]?.unit ?? spec.unit;
    const value = (u, x, i) => (x === null || x === undefined ? "–" : `${shown(spec.log ? x : snapped(x, u.scales.y.max - u.scales.y.min))}${unit(i) ? " " + unit(i) : ""}`);
    return {
      width: Math.max(plot.root.clientWidth, 200),
      height: spec.height ?? 190,
      padding: [(spec.bands ?? []).some(({ text }) => text) ? 17 : 6, 16, 0, 0],
      scales: {
        x: { time: false },
        y: { distr: spec.log ? 3 : 1, range: (u, low, high) => yRange(spec, low, high, this.range === null) },
      },
      axes: [
        { ...axis, size: 24, values: (u, ticks) => ticks.map((t, i) => `${+t.toPrecision(8)}${i === ticks.length - 1 ? ` ${spec.xUnit ?? "s"}` : ""}`) },
        { ...axis, size: (u, values, index) => axisWidth(u, values, index, 54), values: (u, ticks) => yTicks(spec, ticks) },
      ],
      series: [
        { label: spec.xName ?? "t", value: (u, x) => (x === null ? "–" : `${shown(x, 6)} ${spec.xUnit ?? "s"}`) },
        ...spec.lines.map((line) => ({
          label: line.name,
          show: line.show ?? true,
          stroke: line.colour.startsWith("--") ? colourOf(line.colour) : line.colour,
          width: line.width ?? 1.4,
          pxAlign: 0, // else slow curves become stairs of whole pixels
          dash: line.dash,
          points: { show: spec.points ?? plot.data[0].length < 2 },
          paths: line.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
          value,
        })),
      ],
      cursor: {
        y: false, drag: { x: true, y: false, dist: 4 }, points: { size: 5 }, bind: { dblclick: () => null },
        focus: { prox: spec.onNear ? 30 : -1 },
        dataIdx: (u, series, index) => defined(u.data[series], index),
      },
      focus: { alpha: 0.35 },
      legend: { live: true, show: spec.legend ?? true, markers: { dash: (u, i) => (spec.lines[i - 1]?.dash?.length ? "dashed" : "solid") } },
      hooks: {
        drawClear: [(u) => drawBands(u, spec)],
        draw: [(u) => drawLimits(u, spec), (u) => drawMarks(u, spec)],
        setScale: [(u, key) => this.#zoomed(plot, key)],
        setSeries: [(u, index, { focus }) => { if (focus !== undefined) spec.onNear?.(nearText(u, spec, index)); }],
        setCursor: [(u) => { if (u.cursor.left < 0) this.#place(plot); }],
      },
    };
  }

  #zoomed(plot, key) {
    const { u } = plot;
    if (key !== "x" || u.status !== 1) return;
    const { min, max } = u.scales.x, xs = u.data[0];
    const whole = min <= xs[0] && max >= xs[xs.length - 1];
    const alreadySet = this.range !== null && this.range[0] === min && this.range[1] === max; // by setRange, a moment ago
    if (!whole && !alreadySet) {
      this.setRange([min, max]);
      if (u.cursor.left >= 0) this.onTime(u.posToVal(u.cursor.left, "x"), false);
    }
    this.#place(plot);
  }

  #place(plot) {
    const { u, head } = plot, t = this.time;
    if (!head || t === null || !plot.data[0].length) return;
    const { min, max } = u.scales.x;
    head.style.display = t < min || t > max ? "none" : "block";
    head.style.transform = `translateX(${u.valToPos(t, "x")}px)`;
    const index = nearest(plot.data[0], t);
    u.setLegend({ idxs: plot.data.map((ys, i) => (i ? defined(ys, index) : index)) }, false);
  }

  #resize(root) {
    const { plot } = root, width = root.clientWidth;
    if (width > 0 && Math.abs(width - plot.u.width) > 1) {
      plot.u.setSize({ width, height: plot.spec.height ?? 190 });
      requestAnimationFrame(() => this.#place(plot));
    }
  }

  #see(entry) {
    const { plot } = entry.target;
    plot.visible = entry.isIntersecting;
    if (plot.visible) this.#place(plot);
  }
}

/** The nearest index at which a line of a joined table has a row. */
function defined(ys, index) {
  if (index === null || ys[index] !== undefined) return index;
  for (let away = 1; away < ys.length; away++) {
    if (ys[index - away] !== undefined) return index - away;
    if (ys[index + away] !== undefined) return index + away;
  }
  return index;
}

/** Name and value of the line that the reader points at; null: there is none. */
function nearText(u, spec, index) {
  const at = u.cursor.idxs?.[index] ?? u.cursor.idx;
  if (!index || at === null || at === undefined) return null;
  const { name, unit = spec.unit ?? "" } = spec.lines[index - 1];
  return `${name}: ${shown(u.data[index][at])} ${unit} at ${shown(u.data[0][at], 6)} ${spec.xUnit ?? "s"}`;
}

/** Range of the vertical axis: lines and limits with a margin; diverged rows count only after zooming in. */
function yRange(spec, low, high, whole) {
  if (spec.range) return spec.range;
  if (whole && spec.calm) [low, high] = spec.calm;
  if (spec.log) {
    const least = spec.least ?? 1e-17;
    const top = Math.max(high ?? least, least);
    return [least, 10 ** Math.max(Math.ceil(Math.log10(top) + 0.05), Math.log10(least) + 1)];
  }
  const limits = (spec.limits ?? []).map((limit) => limit.value);
  const [least, most] = [Math.min(low ?? 0, ...limits), Math.max(high ?? 0, ...limits)];
  const size = Math.max(Math.abs(least), Math.abs(most)); // what varies by less than STILL of it is constant but for round-off
  const air = most - least > STILL * size ? 0.06 * (most - least) : 0.1 * size || 1;
  return [least - air, most + air];
}

function yTicks(spec, ticks) {
  if (!spec.log && !spec.ticks) return tickLabels(ticks);
  return ticks.map((y) => {
    if (y === null) return "";
    if (spec.ticks) return spec.ticks(y);
    const power = Math.log10(y);
    return Math.abs(power - Math.round(power)) < 1e-6 ? `1e${Math.round(power)}` : "";
  });
}

/** Draws intervals of time as shaded bands, with their names above if there is room. */
function drawBands(u, { bands = [] }) {
  const { ctx, bbox } = u, ratio = devicePixelRatio, right = bbox.left + bbox.width;
  ctx.save();
  ctx.font = `${10.5 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "bottom";
  for (const { from, to, colour, text } of bands) {
    const begin = Math.max(u.valToPos(from, "x", true), bbox.left), end = Math.min(u.valToPos(to, "x", true), right);
    if (end < bbox.left || begin > right) continue;
    ctx.fillStyle = colourOf(colour);
    ctx.fillRect(begin, bbox.top, Math.max(end - begin, ratio), bbox.height);
    if (!text || ctx.measureText(text).width + 6 * ratio > end - begin) continue;
    ctx.fillStyle = colourOf("--quiet");
    ctx.fillText(text, (begin + end) / 2, bbox.top - 2 * ratio);
  }
  ctx.restore();
}

/** Draws limits as horizontal lines, hatched on the forbidden side. */
function drawLimits(u, { limits = [] }) {
  const { ctx, bbox } = u, ratio = devicePixelRatio, right = bbox.left + bbox.width;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.setLineDash([]); // else the dashes of the last line stay
  ctx.lineWidth = ratio;
  for (const { value, colour, side } of limits) {
    const y = u.valToPos(value, "y", true), out = (side ?? (value < 0 ? -1 : 1)) > 0 ? -5 * ratio : 5 * ratio;
    if (y < bbox.top || y > bbox.top + bbox.height) continue;
    ctx.strokeStyle = colourOf(colour ?? "--quiet");
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(right, y);
    for (let x = bbox.left + 4 * ratio; x < right; x += 9 * ratio) {
      ctx.moveTo(x, y);
      ctx.lineTo(x + 4 * ratio, y + out);
    }
    ctx.stroke();
  }
  ctx.restore();
}

/** The text, or its beginning and "…" if it is wider than that. */
function fitting(ctx, text, most) {
  const width = ctx.measureText(text).width;
  if (width <= most) return text;
  let length = Math.floor((text.length * most) / width);
  while (length > 0 && ctx.measureText(`${text.slice(0, length)}…`).width > most) length--;
  return `${text.slice(0, length)}…`;
}

/** Draws events as vertical lines; with `labels`, each with its text in the first free lane. */
function drawMarks(u, { marks = [], labels = false }) {
  const { ctx, bbox } = u, ratio = devicePixelRatio, right = bbox.left + bbox.width;
  const lanes = [];
  ctx.save();
  ctx.setLineDash([]);
  ctx.lineWidth = ratio;
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const { t, colour, text: whole } of marks) {
    const x = Math.round(u.valToPos(t, "x", true)) + 0.5;
    if (x < bbox.left || x > right + 1) continue; // an event at the end of the axis is on its last pixel
    ctx.strokeStyle = ctx.fillStyle = colourOf(colour);
    ctx.globalAlpha = labels || colour === "--bad" ? 1 : 0.35;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (!labels) continue;
    const text = fitting(ctx, whole, bbox.width - 8 * ratio);
    const width = ctx.measureText(text).width + 8 * ratio;
    const start = x + width > right ? Math.max(bbox.left, x - width) : x;
    const most = Math.floor(bbox.height / (15 * ratio));
    let lane = lanes.findIndex((end) => end <= start);
    if (lane < 0) lane = lanes.length;
    if (lane >= most) continue;
    lanes[lane] = start + width;
    const y = bbox.top + (lane + 0.5) * 15 * ratio;
    ctx.fillStyle = colourOf("--panel");
    ctx.fillRect(start + 1.5 * ratio, y - 7 * ratio, width - 3 * ratio, 14 * ratio);
    ctx.fillStyle = colourOf(colour);
    ctx.fillText(text, start + 4 * ratio, y);
  }
  ctx.restore();
}
