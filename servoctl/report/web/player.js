"use strict";
// Playback controls: play, speed and time slider; calls all listeners when the time changes.

class Player {
  /** root: parent of the controls; from, to: begin and end of the run [s]; step: time between two rows [s]. */
  constructor(root, from, to, step) {
    Object.assign(this, { from, to, step, time: from, playing: false, listeners: [] });
    root.insertAdjacentHTML("beforeend", `
      <div class="controls" role="group" aria-label="Playback">
        <button id="play" aria-label="Play" title="space">▶</button>
        <input id="scrub" type="range" min="0" max="1000" value="0" step="any" aria-label="Time">
        <output id="now"></output>
        <select id="speed" aria-label="Speed">
          ${[0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10].map((s) => `<option value="${s}" ${s === 1 ? "selected" : ""}>${s}×</option>`).join("")}
        </select>
      </div>`);
    [this.button, this.scrub, this.now, this.speed] = ["play", "scrub", "now", "speed"].map((id) => document.getElementById(id));
    this.button.addEventListener("click", () => this.toggle());
    this.scrub.addEventListener("input", () => {
      this.stop();
      this.set(this.from + ((this.to - this.from) * this.scrub.value) / 1000);
    });
    document.addEventListener("keydown", (event) => this.#key(event));
    this.set(from);
  }

  /** Calls listener(t) whenever the time changes. */
  listen(listener) {
    this.listeners.push(listener);
    listener(this.time);
  }

  set(t) {
    this.time = Math.min(Math.max(t, this.from), this.to);
    const whole = this.to - this.from;
    this.scrub.value = whole > 0 ? (1000 * (this.time - this.from)) / whole : 0;
    this.now.textContent = `${this.time.toFixed(whole < 20 ? 3 : 2)} s`;
    for (const listener of this.listeners) listener(this.time);
  }

  toggle() {
    if (this.playing) this.stop(); else this.play();
  }

  play() {
    if (this.playing || this.to <= this.from) return;
    if (this.time >= this.to) this.set(this.from);
    this.playing = true;
    this.#label("❚❚", "Pause");
    let before = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      this.set(this.time + ((now - before) / 1000) * Number(this.speed.value));
      before = now;
      if (this.time >= this.to) this.stop(); else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  stop() {
    this.playing = false;
    this.#label("▶", "Play");
  }

  #label(sign, name) {
    this.button.textContent = sign;
    this.button.setAttribute("aria-label", name);
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const { tagName, type } = event.target;
    const usesSpace = tagName === "BUTTON" || tagName === "SUMMARY" || tagName === "SELECT" || type === "checkbox";
    if (event.key === " " && !usesSpace) this.toggle();
    else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && tagName !== "SELECT") {
      const steps = (event.key === "ArrowRight" ? 1 : -1) * (event.shiftKey ? 10 : 1);
      this.stop();
      this.set(this.time + steps * this.step);
    } else if (event.key === "Home" && tagName !== "SELECT") this.set(this.from);
    else if (event.key === "End" && tagName !== "SELECT") this.set(this.to);
    else return;
    event.preventDefault();
  }
}
