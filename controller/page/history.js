// The bar with the time: the history of a day behind a slider, and the way back to the present.

import { silhouette } from "./charts.js";
import { query } from "./documents.js";
import { html, setAttribute, setText, svg } from "./elements.js";
import { moment, rate, span } from "./format.js";
import { place, setFields } from "./router.js";
import { load } from "./session.js";

const REFRESH_MS = 30_000;
const [WIDTH, HEIGHT] = [600, 30];
/** The share of failed calls that is drawn at full height. */
const FAILING = 0.1;

/** Fills the bar. */
export function timeBar(bar) {
  const [calls, failures] = [svg("path", {}), svg("path", { class: "failures" })];
  const slider = html("input", { type: "range", id: "slider", "aria-label": "Time in the history" });
  const text = html("output", { for: "slider" });
  const live = html("button", { type: "button", class: "button", id: "live", "aria-keyshortcuts": "l", onclick: goLive }, "Live");
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, calls, failures);
  bar.append(text, html("div", { class: "rail" }, picture, slider), live);
  let timer = 0;
  let range;
  let series;

  slider.addEventListener("input", () => {
    clearTimeout(timer);
    describe(Number(slider.value));
    timer = setTimeout(() => (Number(slider.value) >= range.newest ? goLive() : setFields({ at: slider.value })), 120);
  });

  function goLive() {
    clearTimeout(timer);
    setFields({ at: "" });
  }

  function describe(at) {
    const live = at === undefined || at >= (range?.newest ?? Infinity);
    const past = `${moment(at * 1000)}, ${span(Date.now() - at * 1000)} ago`;
    setText(text, live ? `Live · history of ${range ? span((range.newest - range.oldest) * 1000) : "–"}` : past);
    const index = series && at !== undefined ? Math.round((at - series.from) / series.step) : -1;
    setAttribute(slider, "aria-valuetext", live ? "Live" : `${past}, ${rate(series?.rps?.[index] ?? undefined)}`);
    bar.classList.toggle("past", !live);
    setAttribute(document.getElementById("live"), "aria-pressed", String(live));
  }

  function update() {
    if (!range) return;
    const at = place().fields.get("at");
    setAttribute(slider, "min", Math.floor(range.oldest));
    setAttribute(slider, "max", Math.ceil(range.newest));
    setAttribute(slider, "step", range.fine_step ?? 10);
    if (document.activeElement !== slider || !at) slider.value = at ?? Math.ceil(range.newest);
    describe(at ? Number(at) : undefined);
  }

  async function refresh() {
    try {
      const { history } = await load("about");
      bar.hidden = !(history?.newest > history?.oldest);
      if (bar.hidden) return;
      series = await load(query("series", { from: Math.floor(history.oldest), to: Math.ceil(history.newest), points: 300 }));
      range = history;
      setAttribute(calls, "d", silhouette(series.rps, WIDTH, HEIGHT));
      const failed = series.success.map((success) => (success === null ? null : 1 - success));
      setAttribute(failures, "d", silhouette(failed, WIDTH, HEIGHT / 2, FAILING));
      setAttribute(failures, "transform", `translate(0 ${HEIGHT / 2})`);
      update();
    } catch {
      // The state of the connection is shown by the document of the mesh; the bar keeps what it has.
    }
  }

  refresh();
  setInterval(() => document.visibilityState === "visible" && refresh(), REFRESH_MS);
  return { update, refresh, goLive };
}
