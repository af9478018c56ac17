// Small line charts over time. Each has its numbers in its text, too.

import { html, setAttribute, setText, svg } from "./elements.js";
import { clock, number } from "./format.js";

const [WIDTH, HEIGHT] = [300, 84];

/**
 * Creates a chart. `lines` are `{key, name, tone}`; `format` formats a value; `most` is the top of the scale, if fixed.
 * `show(series)` draws a document of `api/v1/series`.
 */
export function chart(title, lines, format, { most, least = 0 } = {}) {
  const paths = lines.map(({ tone }) => [svg("path", { class: `area ${tone}` }), svg("path", { class: `line ${tone}` })]);
  for (const [, line] of paths) line.style.fill = "none";
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
  const grid = [0, 0.5, 1].map((share) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * share, y2: HEIGHT * share }));
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}. No data` }, grid, paths.flat(), cursor);
  const [now, top, reading] = [html("span"), html("span", { class: "top" }), html("span", { class: "reading", hidden: true })];
  const [from, to] = [html("span"), html("span")];
  const key = lines.length > 1 && html("span", { class: "key" }, lines.map(({ name, tone }) => html("span", {}, html("i", { class: tone }), name)));
  const element = html("figure", { class: "card chart", "data-chart": title },
    html("figcaption", {}, html("h2", {}, title), now),
    html("div", { class: "plot" }, picture, top, reading), html("div", { class: "axis" }, from, key, to));
  let shown;

  element.show = (series) => {
    shown = series;
    const values = lines.map(({ key }) => series[key] ?? []);
    const known = values.flat().filter((value) => value !== null);
    const highest = most ?? nice(Math.max(...known, 0));
    const lowest = typeof least === "function" ? least(known) : least;
    values.forEach((line, at) => {
      const d = outline(line, lowest, highest);
      setAttribute(paths[at][1], "d", d.line);
      setAttribute(paths[at][0], "d", lines.length === 1 ? d.area : "");
    });
    const last = values.map((line) => line.findLast((value) => value !== null));
    setText(now, known.length ? `${lines.length > 1 ? `${lines[0].name} ` : ""}${format(last[0])}` : "–");
    setText(top, known.length ? format(highest) : "");
    setText(from, clock(series.from * 1000).slice(0, 5));
    setText(to, clock(series.to * 1000).slice(0, 5));
    const described = lines.map(({ name }, at) => {
      const own = values[at].filter((value) => value !== null);
      return own.length ? `${name}: last ${format(last[at])}, lowest ${format(Math.min(...own))}, highest ${format(Math.max(...own))}` : `${name}: no data`;
    });
    setAttribute(picture, "aria-label", `${title}. ${described.join("; ")}`);
  };

  picture.addEventListener("pointermove", (event) => {
    if (!shown) return;
    const box = picture.getBoundingClientRect();
    const length = Math.max(...lines.map(({ key }) => shown[key]?.length ?? 0));
    const at = Math.round(((event.clientX - box.left) / box.width) * (length - 1));
    const x = (at / Math.max(length - 1, 1)) * WIDTH;
    for (const name of ["x1", "x2"]) cursor.setAttribute(name, x);
    cursor.removeAttribute("visibility");
    reading.hidden = false;
    const texts = lines.map(({ key, name }) => `${lines.length > 1 ? `${name} ` : ""}${format(shown[key]?.[at])}`);
    setText(reading, `${clock((shown.from + at * shown.step) * 1000)}  ${texts.join("  ")}`);
  });
  picture.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    reading.hidden = true;
  });
  return element;
}

/** A line with gaps where there is no sample, and the area below it. */
function outline(values, lowest, highest) {
  const step = WIDTH / Math.max(values.length - 1, 1);
  const y = (value) => (HEIGHT - ((value - lowest) / (highest - lowest || 1)) * HEIGHT).toFixed(1);
  let line = "";
  let area = "";
  let start = -1;
  const close = (end) => {
    if (start < 0) return;
    area += `V${HEIGHT}H${(start * step).toFixed(1)}Z`;
    // A single sample would be a line without length.
    if (start === end) line += "h.5";
    start = -1;
  };
  values.forEach((value, at) => {
    if (value === null || value === undefined) return close(at - 1);
    const command = start < 0 ? "M" : "L";
    if (start < 0) start = at;
    const point = `${command}${(at * step).toFixed(1)} ${y(value)}`;
    line += point;
    area += point;
  });
  close(values.length - 1);
  return { line, area };
}

/** The next round number. */
export function nice(value) {
  if (!(value > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 7.5, 10].find((step) => step * size >= value) * size;
}

/** A bar with its number: the requests in flight at an endpoint. */
export function queue() {
  return html("div", { class: "queue" }, html("span", { class: "track", "aria-hidden": "true" }, html("i")), html("b"));
}

/** Updates a bar of `queue`; bars with the same `most` can be compared. */
export function showQueue(element, inFlight, most) {
  element.firstChild.firstChild.style.transform = `scaleX(${Math.min((inFlight ?? 0) / most, 1).toFixed(3)})`;
  setText(element.lastChild, number(inFlight));
}

/** Bars of a sequence, for the rail of the history. Where there is no sample, there is no bar. */
export function silhouette(values, width, height, most = Math.max(...values.filter((value) => value !== null), 0)) {
  const step = width / Math.max(values.length, 1);
  const bar = (value, at) => `M${(at * step).toFixed(1)} ${height}V${(height - Math.min(value / most, 1) * height).toFixed(1)}h${step.toFixed(2)}V${height}Z`;
  return most > 0 ? values.map((value, at) => (value > 0 ? bar(value, at) : "")).join("") : "";
}
