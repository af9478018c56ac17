// Receipts: each change of the configuration, which proxies have it, and how long it took.

import { live } from "./documents.js";
import { html, keyed, notice, replace, setText } from "./elements.js";
import { count, milliseconds, moment, number } from "./format.js";

/** Creates the view. */
export function receipts() {
  const list = html("div", { class: "timeline" });
  const problem = notice();
  const none = html("p", { class: "empty card" }, "Waiting for data.");
  const show = ({ changes = [] }) => {
    none.hidden = changes.length > 0;
    setText(none, "No change has been distributed since the controller started.");
    keyed(list, changes, ({ change }) => change, create, update);
  };
  const state = (_, reason) => problem.show(reason);
  let stop = () => {};
  return {
    element: html("div", { class: "view" }, html("div", {}, html("h1", {}, "Receipts"), html("p", { class: "muted" }, "Each change, the proxies that have applied it, and how long that took.")), problem.element, none, list),
    title: "Receipts",
    open: () => (stop = live("receipts", { change: show, state })),
    close: () => stop(),
  };
}

function create({ kind, name, at }) {
  const time = html("time", { datetime: new Date(at * 1000).toISOString() }, moment(at * 1000));
  return html("article", { class: "event" }, time, html("div", { class: "card" },
    html("header", {}, html("h2", {}, `${kind} `, html("span", { class: "code" }, name)), html("span", { class: "badge" })),
    html("div", { class: "delivery" }, html("span", { class: "progress", "aria-hidden": "true" }, html("i")), html("p", { class: "muted small" })),
    html("details", {}, html("summary", {}, "Proxies"), html("div", { class: "scroll" }))));
}

function update(element, { deliveries = [], complete, took_ms, change }) {
  const card = element.lastChild;
  const [header, delivery, more] = card.children;
  const [bar, text] = delivery.children;
  const refused = deliveries.filter(({ refused }) => refused !== undefined);
  const answered = deliveries.filter(({ answered_ms }) => answered_ms !== undefined);
  const status = refused.length ? "failing" : complete ? "good" : "degraded";
  card.className = `card is-${status}`;
  setText(header.lastChild, refused.length ? `${number(refused.length)} rejected` : complete ? `complete in ${milliseconds(took_ms)}` : "waiting");
  header.lastChild.className = `badge ${status}`;
  bar.firstChild.style.transform = `scaleX(${deliveries.length ? answered.length / deliveries.length : 1})`;
  const slowest = answered.reduce((a, b) => (b.answered_ms > (a?.answered_ms ?? -1) ? b : a), undefined);
  setText(text, [`Change ${change}`, `${number(answered.length)} of ${count(deliveries.length, "proxy", "proxies")}`, answered.length > 1 && `slowest ${slowest.node} after ${milliseconds(slowest.answered_ms)}`].filter(Boolean).join(" · "));
  more.hidden = !deliveries.length;
  // Rows are created only when they are wanted: 100 changes for 100 proxies would be 10 000.
  more.ontoggle = () => more.open && fill(more.lastChild, deliveries);
  if (more.open) fill(more.lastChild, deliveries);
}

function fill(parent, deliveries) {
  const row = ({ node, sent_ms, answered_ms, refused }) => html("tr", {}, html("th", { scope: "row", class: "break" }, node), html("td", { class: "number", "data-label": "Sent after" }, milliseconds(sent_ms)),
    html("td", { class: "number", "data-label": "Applied after" }, milliseconds(answered_ms)), html("td", { class: `break ${refused ? "failing" : ""}`, "data-label": "State" }, refused ?? (answered_ms === undefined ? "waiting" : "applied")));
  const head = html("tr", {}, html("th", { scope: "col" }, "Proxy"), html("th", { scope: "col", class: "number" }, "Sent after"), html("th", { scope: "col", class: "number" }, "Applied after"), html("th", { scope: "col" }, "State"));
  replace(parent, html("table", { class: "stack" }, html("thead", {}, head), html("tbody", {}, deliveries.map(row))));
}
