"use strict";
// Draws the mechanism on a canvas; a mechanism in space can be turned by mouse or finger.

const JOINTS = 10; // largest number of points of a polyline whose joints are drawn; one with more is a spring

class Scene {
  /** canvas: where to draw; runs: the runs that have a drawing. */
  constructor(canvas, runs) {
    this.canvas = canvas;
    this.runs = runs;
    this.space = runs.some((run) => run.drawing.lines.some((line) => line.shape[2] === 3));
    this.home = { azimuth: (-60 * Math.PI) / 180, elevation: (25 * Math.PI) / 180, zoom: 1 };
    this.look = { ...this.home };
    this.hidden = new Set();
    this.time = 0;
    this.weight = 1; // width of links, relative to the usual one
    this.low = [Infinity, Infinity, Infinity];
    this.high = [-Infinity, -Infinity, -Infinity];
    this.measure();
    if (this.space) this.#listen();
    new ResizeObserver(() => this.draw(this.time)).observe(canvas);
  }

  /** Draws the time t [s]; points between two frames are interpolated linearly. */
  draw(t) {
    this.time = t;
    const { canvas } = this, ratio = devicePixelRatio, { clientWidth: width, clientHeight: height } = canvas;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const c = canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.lineJoin = c.lineCap = "round";
    this.#project(width, height);
    if (this.space) this.#floor(c); else this.#ruler(c, width, height);
    const shown = this.runs.filter((run) => !this.hidden.has(run.name));
    if (shown.length) this.#bounds(c, shown[0].drawing, t);
    for (const run of shown) if (!run.drawing.solids.length) this.#traces(c, run, t);
    shown.forEach((run, i) => this.#mechanism(c, run, t, i ? 0.45 : 1));
    for (const run of shown) if (run.drawing.solids.length) this.#traces(c, run, t); // a surface would hide them
    this.#scaleBar(c, height);
  }

  /** Obstacles, filled, and what the machine stays inside of, dashed; strong while one of their bounds holds the inputs. */
  #bounds(c, { fixed, holds }, t) {
    for (const { shape, inside, bounds } of fixed) {
      drawShape(c, shape, this.at, this.scale, "--bad", !inside, bounds.some((name) => holds(name, t)));
    }
  }

  /** Names and colours of the moving parts; of robots with surfaces, of the traces. */
  parts() {
    const named = ({ lines, solids, traces }) => (solids.length ? traces.filter(({ shape }) => shape[0]) : lines);
    const names = [...new Set(this.runs.flatMap((run) => named(run.drawing).map((line) => line.name)))];
    return names.map((name, i) => ({ name, colour: names.length > 12 ? "--c0" : `--c${i % 8}` }));
  }

  /** Widens the view to all that the runs show. */
  measure() {
    for (const run of this.runs) {
      for (const { x, shape } of [...run.drawing.lines, ...run.drawing.task]) {
        const d = shape[shape.length - 1], values = shape.length === 3 ? run.drawing.calm * shape[1] * d : x.length;
        for (let i = 0; i < values; i++) {
          if (!Number.isFinite(x[i])) continue;
          this.low[i % d] = Math.min(this.low[i % d], x[i]);
          this.high[i % d] = Math.max(this.high[i % d], x[i]);
        }
      }
    }
    for (const run of this.runs) {
      this.#measureSolids(run.drawing);
      run.drawing.fixed.forEach(({ shape }) => this.#include(...boxOf(shape)));
      for (const shape of run.drawing.shapes) {
        for (let i = 0; i < run.drawing.calm; i++) this.#include(...boxOf(shapeAt(shape, i, i, 0)));
      }
    }
    for (let k = 0; k < 3; k++) if (!Number.isFinite(this.low[k])) this.low[k] = this.high[k] = 0;
    if (this.space) { // the view includes the floor and the origin
      this.low = this.low.map((low) => Math.min(low, 0));
      this.high = this.high.map((high) => Math.max(high, 0));
      this.cell = niceStep(Math.max(this.high[0] - this.low[0], this.high[1] - this.low[1]) / 8);
      for (const k of [0, 1]) { // whole cells of its grid, at whose corner the directions of x, y and z stand
        this.low[k] = this.cell * Math.floor(this.low[k] / this.cell);
        this.high[k] = this.cell * Math.ceil(this.high[k] / this.cell);
      }
    }
    this.extent = Math.max(...this.high.map((high, k) => high - this.low[k])) || 1;
    this.middle = this.low.map((low, k) => (low + this.high[k]) / 2);
    this.colours = new Map(this.parts().map(({ name, colour }) => [name, colour]));
  }

  /** Widens the view to a box, unless it is not finite. */
  #include(low, high) {
    if (![...low, ...high].every(Number.isFinite)) return;
    this.low = this.low.map((x, k) => Math.min(x, low[k]));
    this.high = this.high.map((x, k) => Math.max(x, high[k]));
  }

  /** Includes the corners of surfaces in some of the frames. */
  #measureSolids({ calm, solids }) {
    const step = Math.max(1, Math.floor(calm / 20));
    for (const { points, pose } of solids) {
      for (let frame = 0; frame < calm; frame += step) {
        const now = poseAt(pose, frame, frame, 0);
        for (let i = 0; now.every(Number.isFinite) && i < points.length; i += 3) {
          const corner = posed(now, points[i], points[i + 1], points[i + 2]);
          this.#include(corner, corner);
        }
      }
    }
  }

  /** The directions of space that point right and up on paper. */
  #axes({ azimuth: a, elevation: e }) {
    if (!this.space) return [[1, 0, 0], [0, 1, 0]];
    return [[-Math.sin(a), Math.cos(a), 0], [-Math.sin(e) * Math.cos(a), -Math.sin(e) * Math.sin(a), Math.cos(e)]];
  }

  /** Sets this.at(x, y, z) -> [right, down] [px]. The scale fits the initial view. */
  #project(width, height) {
    const half = this.high.map((high, k) => (high - this.low[k]) / 2);
    const reach = this.#axes(this.home).map((axis) => 2 * axis.reduce((sum, part, k) => sum + Math.abs(part) * half[k], 0));
    const room = this.space ? 70 : 46;
    const fits = Math.min((width - room) / (reach[0] || 1e-9), (height - room - 20) / (reach[1] || 1e-9));
    this.scale = Math.min(fits, 1e9) * this.look.zoom;
    this.centre = [width / 2, height / 2 - 6];
    const [mx, my, mz] = this.middle, [right, up] = this.#axes(this.look);
    this.at = (x, y, z) => {
      const [dx, dy, dz] = [x - mx, y - my, z - mz];
      return [
        this.centre[0] + this.scale * (right[0] * dx + right[1] * dy + right[2] * dz),
        this.centre[1] - this.scale * (up[0] * dx + up[1] * dy + up[2] * dz),
      ];
    };
  }

  #point(x, i, d) {
    return this.at(x[i * d], x[i * d + 1], d === 3 ? x[i * d + 2] : this.space ? 0 : this.middle[2]);
  }

  #traces(c, run, t) {
    for (const { x, shape } of run.drawing.task) this.#path(c, x, shape, 0, shape[0], "--quiet", 1, [2, 4]);
    const until = nearest(run.drawing.t, t) + 1;
    for (const { name, x, shape } of run.drawing.traces) {
      if (!shape[0]) continue;
      c.globalAlpha = 0.22;
      this.#path(c, x, shape, 0, shape[0], this.colours.get(name), 1, []);
      c.globalAlpha = 0.75;
      this.#path(c, x, shape, 0, until, this.colours.get(name), 1.3, []);
      c.globalAlpha = 1;
    }
  }

  #path(c, x, [, d], from, to, colour, width, dash) {
    c.strokeStyle = colourOf(colour);
    c.lineWidth = width;
    c.setLineDash(dash);
    c.beginPath();
    let pen = false;
    for (let i = from; i < to; i++) {
      const finite = Number.isFinite(x[i * d]);
      if (finite) c[pen ? "lineTo" : "moveTo"](...this.#point(x, i, d));
      pen = finite;
    }
    c.stroke();
    c.setLineDash([]);
  }

  #mechanism(c, run, t, strength) {
    const times = run.drawing.t;
    let i = nearest(times, t);
    if (times[i] > t && i > 0) i--;
    const next = Math.min(i + 1, times.length - 1);
    const part = next > i ? Math.min(Math.max((t - times[i]) / (times[next] - times[i]), 0), 1) : 0;
    c.globalAlpha = strength;
    if (run.drawing.solids.length) this.#robots(c, run.drawing, i, next, part);
    else {
      for (const point of run.drawing.ground) this.#stand(c, point);
      for (const line of run.drawing.lines) this.#part(c, line, i, next, part);
    }
    for (const shape of run.drawing.shapes) drawShape(c, shapeAt(shape, i, next, part), this.at, this.scale, "--quiet");
    c.globalAlpha = 1;
  }

  #robots(c, { lines, solids, axes }, i, next, part) {
    for (const line of lines) this.#skeleton(c, line, i);
    const [right, up] = this.#axes(this.look), eye = cross(right, up);
    drawSolids(c, solids, solids.map(({ pose }) => poseAt(pose, i, next, part)), this.at, { right, up, eye });
    for (const frame of axes) drawAxes(c, poseAt(frame, i, next, part), 0.07 * this.extent, this.at);
  }

  /** Draws a thin line from joint to joint, for links that have no surface. */
  #skeleton(c, { x, shape: [, count, d] }, i) {
    this.#path(c, x.subarray(i * count * d, (i + 1) * count * d), [count, d], 0, count, "--quiet", 2, []);
  }

  #part(c, { name, x, shape: [, count, d] }, i, next, part) {
    const size = count * d, now = new Float64Array(size);
    for (let k = 0; k < size; k++) now[k] = (1 - part) * x[i * size + k] + part * x[next * size + k];
    const points = Array.from({ length: count }, (_, k) => this.#point(now, k, d));
    const colour = colourOf(this.colours.get(name)), many = this.runs[0].drawing.lines.length > 12;
    const closed = count > 3 && Math.hypot(points[0][0] - points[count - 1][0], points[0][1] - points[count - 1][1]) < 0.01;
    c.strokeStyle = c.fillStyle = colour;
    if (count === 1) {
      c.beginPath();
      c.arc(...points[0], many ? 4 : 5.5, 0, 2 * Math.PI);
      c.fill();
      return;
    }
    c.lineWidth = this.weight * (count > JOINTS ? 1.5 : 3);
    c.beginPath();
    points.forEach((point, k) => c[k ? "lineTo" : "moveTo"](...point));
    if (closed) {
      const alpha = c.globalAlpha;
      c.globalAlpha = 0.18 * alpha;
      c.fill();
      c.globalAlpha = alpha;
    }
    c.stroke();
    if (count > JOINTS) return; // a spring
    c.lineWidth = 1.6;
    for (const point of points) {
      c.beginPath();
      c.arc(...point, 3.6, 0, 2 * Math.PI);
      c.fillStyle = colourOf("--panel");
      c.fill();
      c.stroke();
    }
  }

  /** Draws a small support under a point that never moves. */
  #stand(c, [x, y, z]) {
    const [right, down] = this.at(x, y, z ?? this.middle[2]);
    c.fillStyle = colourOf("--quiet");
    c.beginPath();
    c.moveTo(right, down);
    c.lineTo(right - 8, down + 13);
    c.lineTo(right + 8, down + 13);
    c.fill();
  }

  /** Draws a labelled grid, for a mechanism in the plane. */
  #ruler(c, width, height) {
    const step = niceStep(70 / this.scale);
    c.font = "10.5px system-ui, sans-serif";
    c.lineWidth = 1;
    c.strokeStyle = colourOf("--grid");
    c.fillStyle = colourOf("--quiet");
    const left = this.middle[0] - this.centre[0] / this.scale, low = this.middle[1] - (height - this.centre[1]) / this.scale;
    c.beginPath();
    c.textAlign = "center";
    c.textBaseline = "bottom";
    for (let k = Math.ceil(left / step); k * step < left + width / this.scale; k++) {
      const [x] = this.at(k * step, 0, this.middle[2]);
      c.moveTo(x, 0);
      c.lineTo(x, height - 16);
      const half = c.measureText(shown(k * step)).width / 2;
      if (x >= half && x + half <= width) c.fillText(shown(k * step), x, height - 1); // whole, or not at all
    }
    c.textAlign = "left";
    c.textBaseline = "middle";
    for (let k = Math.ceil(low / step); k * step < low + height / this.scale; k++) {
      const [, y] = this.at(0, k * step, this.middle[2]);
      if (y < 6 || y > height - 22) continue;
      c.moveTo(28, y);
      c.lineTo(width, y);
      c.fillText(shown(k * step), 2, y);
    }
    c.stroke();
  }

  /** Draws the floor with a grid, and the directions of x, y and z, for a mechanism in space. */
  #floor(c) {
    const [lx, ly, z] = this.low, [hx, hy] = this.high, step = this.cell, grid = [];
    for (let k = Math.round(lx / step); k <= Math.round(hx / step); k++) grid.push([[k * step, ly, z], [k * step, hy, z]]);
    for (let k = Math.round(ly / step); k <= Math.round(hy / step); k++) grid.push([[lx, k * step, z], [hx, k * step, z]]);
    c.lineWidth = 1;
    c.strokeStyle = colourOf("--line");
    c.beginPath();
    for (const [from, to] of grid) {
      c.moveTo(...this.at(...from));
      c.lineTo(...this.at(...to));
    }
    c.stroke();
    c.font = "600 11px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillStyle = c.strokeStyle = colourOf("--quiet");
    const base = [lx, ly, z];
    ["x", "y", "z"].forEach((axis, k) => {
      const tip = [...base], beyond = [...base];
      tip[k] += step;
      beyond[k] += 1.25 * step;
      c.beginPath();
      c.moveTo(...this.at(...base));
      c.lineTo(...this.at(...tip));
      c.lineWidth = 2;
      c.stroke();
      c.fillText(axis, ...this.at(...beyond));
    });
  }

  #scaleBar(c, height) {
    if (!this.space) return;
    const length = niceStep(60 / this.scale);
    c.strokeStyle = c.fillStyle = colourOf("--quiet");
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(10, height - 8);
    c.lineTo(10 + length * this.scale, height - 8);
    c.stroke();
    c.font = "11px system-ui, sans-serif";
    c.textAlign = "left";
    c.textBaseline = "bottom";
    c.fillText(`${shown(length)} m`, 10, height - 12);
  }

  #listen() {
    const { canvas } = this;
    canvas.style.cursor = "grab";
    canvas.style.touchAction = "pan-y";
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) return;
      this.turn(-event.movementX * 0.008, event.movementY * 0.008);
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return; // the page scrolls
      event.preventDefault();
      this.look.zoom = Math.min(Math.max(this.look.zoom * Math.exp(-(event.deltaY || event.deltaX) * 0.002), 0.2), 20);
      this.draw(this.time);
    }, { passive: false });
    canvas.addEventListener("dblclick", () => { this.look = { ...this.home }; this.draw(this.time); });
  }

  /** Turns the view by these angles [rad]. */
  turn(azimuth, elevation) {
    this.look.azimuth += azimuth;
    this.look.elevation = Math.min(Math.max(this.look.elevation + elevation, -Math.PI / 2), Math.PI / 2);
    this.draw(this.time);
  }
}

/** The least of 1, 2, 5 times a power of ten that is at least x. */
function niceStep(x) {
  const power = 10 ** Math.floor(Math.log10(x));
  return power * ([1, 2, 5, 10].find((step) => step * power >= x) ?? 10);
}
