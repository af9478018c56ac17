// Decisions of the controller (placement, tuning, Proxy-Services, …), with their reasons.

import { live } from "./documents.js";
import { html, keyed, notice, setAttribute, setText } from "./elements.js";
import { moment } from "./format.js";

/** Creates the view. */
export function decisions() {
  const list = html("div", { class: "timeline" });
  const kinds = html("div", { class: "segments", role: "group", "aria-label": "Kind" });
  const problem = notice();
  const none = html("p", { class: "empty card" }, "Waiting for data.");
  let stop = () => {};
  let chosen = "";
  let shown = [];

  function show() {
    const names = [...new Set(shown.map(({ kind }) => kind))].sort();
    if (!names.includes(chosen)) chosen = "";
    keyed(kinds, ["", ...names], (name) => name, (name) => html("button", { type: "button", onclick: () => { chosen = name; show(); } }, name || "All"),
      (button, name) => setAttribute(button, "aria-pressed", String(name === chosen)));
    kinds.hidden = names.length < 2;
    const wanted = shown.filter(({ kind }) => !chosen || kind === chosen);
    keyed(list, wanted, ({ kind, name }) => `${kind} ${name}`, create, update);
    none.hidden = wanted.length > 0;
  }

  return {
    element: html("div", { class: "view" }, html("div", { class: "toolbar" }, html("h1", {}, "Decisions"), html("span", { class: "spacer" }), kinds), problem.element, none, list),
    title: "Decisions",
    open: () =>
      (stop = live("decisions", {
        change(document) {
          shown = [...(document.decisions ?? [])].sort((a, b) => (b.at ?? 0) - (a.at ?? 0));
          setText(none, "There is no policy that decides anything: no PlacementPolicy, TuningPolicy or ProxyService.");
          show();
        },
        state: (_, reason) => problem.show(reason),
      })),
    close: () => stop(),
  };
}

function create({ kind, name }) {
  return html("article", { class: "event" }, html("time"), html("div", { class: "card" },
    html("header", {}, html("h2", {}, name), html("span", { class: "badge idle" }, kind)),
    html("p"), html("ul", { class: "conditions" }), html("details", {}, html("summary", {}, "Status"), html("pre", { tabindex: "0", "aria-label": `Status of ${kind} ${name}` }))));
}

/** Whether a condition reports what is wanted. Types such as `Degraded` are good if false. */
function toneOf({ type, status }) {
  if (status !== "True" && status !== "False") return "idle";
  const adverse = /degraded|failed|stalled|conflict|missing/i.test(type);
  return (status === "True") === adverse ? "degraded" : "good";
}

function update(element, { at, summary, conditions = [], status }) {
  const [time, card] = element.children;
  const [, text, list, more] = card.children;
  setText(time, moment(at * 1000));
  if (at !== undefined) setAttribute(time, "datetime", new Date(at * 1000).toISOString());
  setText(text, summary ?? "");
  text.hidden = !summary;
  const tones = conditions.map(toneOf);
  card.className = `card is-${tones.includes("degraded") ? "degraded" : tones.includes("good") ? "good" : "idle"}`;
  keyed(list, conditions, ({ type }) => type, () => html("li", {}, html("span"), html("span", { class: "muted" })), (item, condition) => {
    const { type, status, reason, message } = condition;
    item.firstChild.className = `badge ${toneOf(condition)}`;
    setText(item.firstChild, `${type}: ${status}`);
    setText(item.lastChild, [reason !== type && reason, message].filter(Boolean).join(": "));
  });
  more.hidden = status === undefined;
  if (status !== undefined) setText(more.lastChild, JSON.stringify(status, null, 2));
}
