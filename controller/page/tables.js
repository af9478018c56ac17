// Tables: the graph's equivalent for screen readers and narrow screens, and the list of services.

import { html, keyed, setText } from "./elements.js";
import { bytes, health, milliseconds, mtlsText, number, percent, rate } from "./format.js";
import { serviceLink } from "./router.js";

/**
 * Creates a table. Each column has a title, a function from an item to a text or an element, and optional classes. The first column
 * is the header of its row. `stack`: on narrow screens each row becomes a card.
 */
export function table(caption, columns, { stack = true } = {}) {
  const head = html("tr", {}, columns.map(({ title, kind }) => html("th", { scope: "col", class: kind }, title)));
  const body = html("tbody");
  const element = html("table", { class: stack ? "stack" : "" }, html("caption", { class: "hidden-text" }, caption), html("thead", {}, head), body);
  const cell = ({ title, kind }, first) => html(first ? "th" : "td", { class: kind, scope: first && "row", "data-label": title });
  element.show = (items, key) =>
    keyed(body, items, key, () => html("tr", {}, columns.map((column, at) => cell(column, at === 0))), (row, item) => {
      columns.forEach(({ value, tone, update }, at) => {
        const target = row.children[at];
        if (update) update(target, item);
        else setText(target, value(item));
        if (tone) target.className = `${columns[at].kind ?? ""} ${tone(item) ?? ""}`.trim();
      });
    });
  return element;
}

/** A column with a link to a service. */
export function linked(title, name) {
  return {
    title,
    kind: "break",
    update(cell, item) {
      const text = name(item);
      if (cell.firstChild?.textContent === text) return;
      cell.replaceChildren(html("a", { href: serviceLink(text) }, text));
    },
  };
}

/** Columns of the values that vertices and edges have in common. */
export function signalColumns(of) {
  const tone = (item) => {
    const class_ = of(item).rps > 0 ? health(of(item).success) : "idle";
    return class_ === "degraded" || class_ === "failing" ? class_ : undefined;
  };
  return [
    { title: "Requests", kind: "number", value: (item) => (of(item).tcp ? `${bytes(of(item).bytes_per_second)}/s` : rate(of(item).rps)) },
    { title: "Success", kind: "number", value: (item) => percent(of(item).success), tone },
    { title: "p50", kind: "number", value: (item) => milliseconds(of(item).p50_ms) },
    { title: "p99", kind: "number", value: (item) => milliseconds(of(item).p99_ms) },
    { title: "In flight", kind: "number", value: (item) => number(of(item).in_flight) },
  ];
}

/** The table with the same data as the graph. */
export function graphTable() {
  const of = ([, edge]) => edge;
  const edges = table("Edges of the communication graph", [
    { title: "From", kind: "break", value: ([, edge]) => edge.from },
    { title: "To", kind: "break", value: ([, edge]) => edge.to },
    ...signalColumns(of),
    { title: "Retries", kind: "number", value: ([, edge]) => rate(edge.retries) },
    { title: "Ejected", kind: "number", value: ([, edge]) => number(edge.ejected) },
    { title: "Mutual TLS", value: ([, edge]) => mtlsText(edge) },
    { title: "Policy", value: ([, edge]) => edge.policy ?? "–" },
    { title: "Split", value: ([, edge]) => edge.split?.map(({ name, share }) => `${name} ${percent(share)}`).join(", ") || "–" },
  ]);
  const vertices = table("Vertices of the communication graph", vertexColumns(([id]) => id));
  const element = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of the communication graph" },
    html("h2", {}, "Edges"), edges, html("h2", {}, "Vertices"), vertices);
  element.update = (mesh) => {
    const sorted = Object.entries(mesh.edges).sort(([, a], [, b]) => (b.rps ?? 0) - (a.rps ?? 0));
    edges.show(sorted, ([id]) => id);
    vertices.show(Object.entries(mesh.vertices), ([id]) => id);
  };
  return element;
}

function vertexColumns(name) {
  return [
    linked("Name", name),
    ...signalColumns(([, vertex]) => vertex),
    {
      title: "Ready", kind: "number",
      value: ([, { ready, replicas }]) => (replicas === undefined ? "–" : `${number(ready)}/${number(replicas)}`),
      tone: ([, { ready, replicas }]) => (ready < replicas ? "failing" : undefined),
    },
    { title: "Mutual TLS", value: ([, vertex]) => mtlsText(vertex) },
    { title: "Policy", value: ([, vertex]) => vertex.policy ?? "–" },
  ];
}

/** The list of services. */
export function serviceTable() {
  return table("Services", vertexColumns(([id]) => id));
}
