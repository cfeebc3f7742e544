"use strict";
// The head of the page, and its tables: metrics, timing, events, config.

const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

/** The text of an event; events of simulated runs and of drives have different fields. */
function eventText(event) {
  if (event.text) return event.text;
  if ("from" in event) return `${event.event}: ${event.from} → ${event.to}${event.at_limit ? ` (${event.at_limit.join(", ")})` : ""}`;
  return event.count ? `${event.count} more` : event.event ?? "event";
}

/** The head of the page: names, status, errors and notes. */
function fillHead(root, { runs, servoctl }) {
  const title = runs.length === 1 ? runs[0].summary.config ?? runs[0].name : `${runs.length} runs compared`;
  root.innerHTML = `<h1>${escaped(title)}</h1>` + runs.map((run, r) => headOf(run, r, runs.length)).join("");
  document.getElementById("foot").innerHTML =
    `servoctl ${escaped(servoctl)} made this page; plots by uPlot 1.6.32 (MIT). Space plays, arrows step (with shift, ten), Home and End jump; ` +
    "drag in a plot to zoom, double click to see all.";
}

function headOf(run, r, count) {
  const { summary } = run, goes = summary.status === "running"; // it goes on, or was killed, as a note says
  const kind = goes ? "" : ["done", "completed"].includes(summary.status) ? "good" : "bad";
  const facts = [];
  if (run.columns.t?.length) facts.push(`${shown(run.columns.t[run.columns.t.length - 1] - run.columns.t[0])} s`);
  facts.push(`${run.rows.toLocaleString("en").replaceAll(",", " ")} ${run.rows === 1 ? "row" : "rows"}`);
  if (summary.engine) facts.push(`engine ${summary.engine}`);
  if (summary.servoctl) facts.push(`servoctl ${summary.servoctl}`);
  const dash = DASHES[r % 4].join(" ");
  const swatch = count > 1
    ? `<label><input type="checkbox" checked data-run="${escaped(run.name)}"> <svg width="28" height="8" aria-hidden="true"><line x1="0" y1="4" x2="28" y2="4" stroke="currentColor" stroke-width="2" stroke-dasharray="${dash}"/></svg> <b>${escaped(run.name)}</b></label> `
    : "";
  const notes = [...run.lacks], unconfirmed = run.events.filter(({ event }) => event === "not_confirmed");
  const said = new Set([...(summary.error ? [summary.error] : []), ...unconfirmed.map(eventText)]);
  if (run.bucket > 1) {
    notes.push(`${run.rows.toLocaleString("en").replaceAll(",", " ")} rows are too many to draw: of every ${run.bucket} rows, the smallest and the largest value are drawn, at the times of the first and the last row`);
  }
  return `<div class="run">${swatch}<span class="badge ${kind}">${goes ? "not ended" : escaped(summary.status ?? "status unknown")}</span>
    <span class="quiet">${escaped(facts.join(" · "))}</span>
    ${[...said].map((text) => `<p class="bad">${escaped(text)}</p>`).join("")}
    ${notes.map((note) => `<p class="note">${escaped(note)}</p>`).join("")}</div>`;
}

/** Adds the tables below the plots. */
function fillTables(root, content, goTo) {
  const { runs } = content;
  const add = (title, inner) => {
    root.insertAdjacentHTML("beforeend", `<section><h2>${title}</h2><div class="panel"><div class="scroll">${inner}</div></div></section>`);
  };
  const metrics = metricTables(runs, content.task_metrics);
  if (metrics) add("Metrics", metrics);
  for (const run of runs) {
    const name = runs.length > 1 ? ` · ${escaped(run.name)}` : "";
    const facts = factRows(run);
    if (facts.length) add(`Timing, buses and drives${name}`, tableOf(["", "", "value"], facts, 9));
    if (run.events.length) add(`Events${name}`, eventTable(run));
  }
  for (const run of runs) {
    const name = runs.length > 1 ? ` · ${escaped(run.name)}` : "";
    if (run.config) add(`Config as it ran${name}`, `<pre tabindex="0">${escaped(run.config)}</pre>`);
  }
  root.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-time]");
    if (button) goTo(Number(button.dataset.time));
  });
}

/** A table as HTML; the columns from index `numbers` on hold numbers. */
function tableOf(header, rows, numbers) {
  const cell = (tag, text, i) => `<${tag} ${i >= numbers ? `class="number" data-head="${escaped(header[i])}"` : ""}>${escaped(text)}</${tag}>`;
  const line = (tag, cells) => `<tr>${cells.map((text, i) => cell(tag, text, i)).join("")}</tr>`;
  return `<table class="values"><thead>${line("th", header)}</thead><tbody>${rows.map((cells) => line("td", cells)).join("")}</tbody></table>`;
}

/** The metrics: of one run as tables by kind, of several runs in one table with a column per run. */
function metricTables(runs, heads) {
  if (runs.length > 1) {
    const rows = new Map();
    runs.forEach((run, r) => {
      for (const { name, part, unit, values } of metricsOf(run, heads)) {
        for (const [head, value] of Object.entries(values)) {
          const [, what, own] = head.match(/^(.*?)(?: \[(.*)\])?$/); // `holds [s]` has a unit of its own
          const key = part ? `${part} ${name}: ${what}` : what;
          if (!rows.has(key)) rows.set(key, [key, own ?? unit, ...runs.map(() => "–")]);
          rows.get(key)[2 + r] = cellOf(value);
        }
      }
    });
    return rows.size ? tableOf(["", "unit", ...runs.map((run) => run.name)], [...rows.values()], 2) : "";
  }
  const all = metricsOf(runs[0], heads), whole = all.filter(({ part }) => !part);
  const tables = whole.length ? [tableOf(["run", "unit", ""], whole.flatMap(({ unit, values }) => Object.entries(values).map(([what, value]) => [what, unit, cellOf(value)])), 2)] : [];
  for (const part of ["task", "mechanism constraint", "input", "bound"]) {
    const own = all.filter((metric) => metric.part === part);
    if (own.length) tables.push(tableOf([part, "unit", ...Object.keys(own[0].values)], own.map(({ name, unit, values }) => [name, unit, ...Object.values(values).map(cellOf)]), 2));
  }
  return tables.length ? `<div class="beside">${tables.map((table) => `<div class="scroll">${table}</div>`).join("")}</div>` : "";
}

const cellOf = (value) => (typeof value === "string" ? value : shown(value));

/** [{part: "" | "task" | "mechanism constraint" | "input" | "bound", name, unit, values: {what: number}}, ...] from the summary of a run. */
function metricsOf({ summary, units, tasks }, heads) {
  const out = [];
  const single = { duration: "s", wall_time: "s", energy_drift: "J", residual_max: units.residual ?? "" };
  for (const name of ["status", "duration", "wall_time", "realtime_factor", "steps", "evaluations", "energy_drift", "rank_min", "rank_max", "residual_max", "pivot_min"]) {
    const value = summary[name];
    if (value !== null && value !== undefined) out.push({ part: "", name, unit: single[name] ?? "", values: { [name.replaceAll("_", " ")]: value } });
  }
  for (const [status, count] of Object.entries(summary.status_counts ?? {})) out.push({ part: "", name: status, unit: "", values: { [`rows with status ${status}`]: count } });
  for (const [part, group] of [["task", "tasks"], ["mechanism constraint", "passive"]]) {
    for (const [name, row] of Object.entries(summary[group] ?? {})) {
      const columns = part === "task" ? (tasks[name] ?? [name]).map((row) => `violation.${row}`) : [`passive.${name}`];
      const unit = [...new Set(columns.map((column) => units[column] ?? "-"))].join(", ");
      out.push({ part, name, unit, values: Object.fromEntries(heads.map(([metric, head]) => [head, row[metric]])) });
    }
  }
  for (const [name, bound] of Object.entries(summary.bounds ?? {})) {
    const values = { "smallest h": bound.min, "holds [s]": bound.active_time, "violated [s]": bound.violated_time };
    out.push({ part: "bound", name, unit: units[`bound.${name}`] ?? "", values });
  }
  const most = Math.max(0, ...Object.values(summary.inputs ?? {}).map(({ rms }) => rms ?? 0));
  for (const [name, { min, max, rms }] of Object.entries(summary.inputs ?? {})) {
    out.push({ part: "input", name, unit: units[`u.${name}`] ?? "", values: { min: snapped(min, most), max: snapped(max, most), rms } });
  }
  return out;
}

/** Rows [subject, fact, value] about timing, buses and drives. */
function factRows({ summary }) {
  const rows = [];
  const lines = (subject, object) => {
    for (const [name, value] of Object.entries(object ?? {})) {
      if (value !== null && typeof value === "object" && !Array.isArray(value)) lines(subject ? `${subject}: ${name}` : name, value);
      else if (value !== "" && value !== null) rows.push([subject, name.replace(/_s$/, " [s]").replaceAll("_", " "), Array.isArray(value) ? value.join(", ") : typeof value === "number" ? shown(value) : String(value)]);
    }
  };
  const spread = Object.entries(summary.timing ?? {}).filter(([, value]) => typeof value === "object");
  lines("loop", Object.fromEntries(Object.entries(summary.timing ?? {}).filter(([, value]) => typeof value !== "object")));
  for (const [name, value] of spread) {
    const parts = value?.n === undefined ? Object.entries(value ?? {}) : [["", value]];
    for (const [part, d] of parts) {
      const what = `${name.replace(/_s$/, "").replaceAll("_", " ")}${part ? ` ${part}` : ""}`;
      const milli = (x) => (x === null || x === undefined ? "–" : shown(1e3 * x));
      rows.push([what, "mean / p99 / max", `${milli(d.mean)} / ${milli(d.p99)} / ${milli(d.max)} ms`]);
    }
  }
  for (const [bus, load] of Object.entries(summary.emulator?.bus_load ?? {})) rows.push([`bus ${bus}`, "load, measured", `${shown(100 * load, 3)} %`]);
  for (const [bus, facts] of Object.entries(summary.bus ?? {})) lines(`bus ${bus}`, facts);
  for (const [drive, facts] of Object.entries(summary.drives ?? {})) lines(`drive ${drive}`, facts);
  return rows;
}

function eventTable(run) {
  const rows = run.events.map((event) => {
    return `<tr class="${event.alarming ? "bad" : ""}"><td><button data-time="${Number(event.t)}" title="show this time">${Number(event.t).toFixed(4)} s</button></td>
      <td>${escaped(event.event ?? "")}</td><td>${escaped(eventText(event))}</td><td>${escaped(event.reaction ?? "")}</td></tr>`;
  });
  return `<table><thead><tr><th>time</th><th>event</th><th>description</th><th>reaction</th></tr></thead><tbody>${rows.join("")}</tbody></table>`;
}
