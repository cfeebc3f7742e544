"use strict";
// Builds the page of one or several runs, and links its parts by time.

(function main() {
  const content = loadRuns(), { runs } = content, element = (id) => document.getElementById(id);
  fillHead(element("top"), content);
  const timed = runs.filter((run) => run.columns.t?.length);
  const drawn = timed.filter((run) => run.drawing);
  const times = timed.map((run) => run.columns.t);
  if (!timed.length) {
    element("player").remove();
    fillTables(element("tables"), content, () => {});
    window.page = { content };
    return;
  }
  const from = Math.min(...times.map((t) => t[0])), to = Math.max(...times.map((t) => t[t.length - 1]));

  const stage = element("player");
  let scene = null;
  if (drawn.length) {
    stage.insertAdjacentHTML("beforeend", '<canvas id="scene" role="img"></canvas><div class="parts"></div>');
    scene = new Scene(element("scene"), drawn);
    element("scene").setAttribute("aria-label", `Animation of ${drawn.map((run) => run.name).join(", ")}`);
  }
  const player = new Player(stage, from, to, (to - from) / Math.max(times[0].length - 1, 1));
  const group = new PlotGroup({
    onTime: (t, clicked) => {
      if (player.playing && !clicked) return;
      player.stop();
      player.set(t);
    },
    onZoom: (range) => { element("whole").hidden = range === null; },
  });
  stage.querySelector(".controls").insertAdjacentHTML("beforeend", '<button id="whole" hidden>Show all</button>');
  element("whole").addEventListener("click", () => group.setRange(null));
  if (scene) addHints(stage, scene);
  addPanels(element("plots"), group, { ...content, runs: timed });
  fillTables(element("tables"), content, (t) => { player.set(t); scrollTo({ top: 0, behavior: "smooth" }); });
  player.listen((t) => { scene?.draw(t); group.setTime(t); });

  for (const box of document.querySelectorAll("input[data-run]")) {
    box.addEventListener("change", () => {
      const { run } = box.dataset;
      group.show((line) => line.run === run, box.checked);
      scene?.hidden[box.checked ? "delete" : "add"](run);
      scene?.draw(player.time);
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    group.restyle();
    histograms.forEach((alone) => alone.restyle());
    scene?.draw(player.time);
  });
  window.page = { content, player, scene, group }; // for the console, and for tests

  function addHints(root, { space, runs: shownRuns }) {
    const parts = scene.parts(), many = parts.length > 12;
    const names = many ? [`${parts.length} parts`] : parts.map(({ name, colour }) => `<i style="background:var(${colour})"></i>${escaped(name)}`);
    const hints = [];
    if (shownRuns.some((run) => run.drawing.task.length)) hints.push("dotted: path prescribed by the task");
    if (shownRuns.some((run) => run.drawing.axes.length)) hints.push("axes of frames: x orange, y green, z blue");
    if (shownRuns.some((run) => run.drawing.fixed.some(({ inside }) => !inside))) hints.push("red: obstacle of a bound, strong while it holds the inputs");
    if (shownRuns.some((run) => run.drawing.fixed.some(({ inside }) => inside))) hints.push("red, dashed: a bound keeps the machine inside");
    if (shownRuns.some((run) => run.drawing.shapes.length)) hints.push("grey outline: shape of a link");
    if (space) hints.push("drag to turn, shift + wheel to zoom, double click to reset");
    root.querySelector(".parts").innerHTML =
      names.map((name) => `<span>${name}</span>`).join("") + hints.map((hint) => `<span class="quiet">${hint}</span>`).join("");
  }
})();
