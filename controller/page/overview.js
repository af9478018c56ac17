// The first view: figures of the whole mesh, the graph or its table, and the panel of what is selected.

import { details } from "./details.js";
import { html, setAttribute, setText } from "./elements.js";
import { Graph, legend } from "./graph.js";
import { health, mtlsShare, number, percent, rate } from "./format.js";
import { place, serviceLink, setFields } from "./router.js";
import { graphTable } from "./tables.js";

const VIEWS = [["service", "Services"], ["workload", "Workloads"], ["node", "Nodes"]];

/** Creates the view. */
export function overview() {
  let mesh;
  let pointed;
  const panel = html("aside", { class: "details", "aria-label": "Details" });
  const select = (id) => setFields({ select: id });
  const graph = new Graph({
    select,
    point(id) {
      pointed = id;
      describe();
    },
    open(id) {
      if (mesh.vertices[id]?.kind !== "node") location.hash = serviceLink(mesh.vertices[id]?.service ?? id);
    },
  });
  const table = graphTable();
  const views = html("div", { class: "segments", role: "group", "aria-label": "Vertices of the graph" },
    VIEWS.map(([name, text]) => html("button", { type: "button", "data-by": name, onclick: () => setFields({ by: name === "service" ? null : name, select: null }) }, text)));
  const form = html("div", { class: "segments", role: "group", "aria-label": "Form" },
    [["", "Graph"], ["table", "Table"]].map(([name, text]) => html("button", { type: "button", "data-form": name, onclick: () => setFields({ form: name }) }, text)));
  const button = (label, text, action) => html("button", { type: "button", class: "button icon", "aria-label": label, title: label, onclick: action }, text);
  const zoom = html("div", { class: "zoom" }, button("Zoom out", "−", () => graph.viewport.zoom(0.8)), button("Zoom in", "+", () => graph.viewport.zoom(1.25)),
    html("button", { type: "button", class: "button", onclick: () => graph.viewport.fit() }, "Fit"));
  const totals = html("dl", { "aria-label": "The whole mesh" });
  const colours = [legend(false), legend(true)];
  const picture = html("div", { class: "picture" });
  const waiting = html("p", { class: "empty" }, "Waiting for data.");
  const element = html("div", { class: "overview" }, html("h1", { class: "hidden-text" }, "Communication graph"),
    html("div", { class: "figures" }, totals, html("div", { class: "toolbar" }, views, form)), picture, panel);
  const figures = new Map();
  for (const name of ["Requests", "Success", "In flight", "Services", "Edges", "Mutual TLS"]) {
    const value = html("dd", {}, "–");
    figures.set(name, value);
    totals.append(html("div", {}, html("dt", {}, name), value));
  }
  picture.append(waiting);

  function arrange() {
    const { fields } = place();
    const asTable = fields.get("form") === "table";
    for (const button of views.children) setAttribute(button, "aria-pressed", String(button.dataset.by === (fields.get("by") ?? "service")));
    for (const button of form.children) setAttribute(button, "aria-pressed", String((button.dataset.form === "table") === asTable));
    element.classList.toggle("as-table", asTable);
    if (!mesh) return;
    const shown = asTable ? [table] : [graph.element, colours[mesh.moves?.length && mesh.view === "node" ? 1 : 0], zoom];
    if (picture.firstChild !== shown[0] || picture.children[1] !== shown[1]) picture.replaceChildren(...shown);
    if (asTable) table.update(mesh);
  }

  function describe() {
    if (!mesh) return;
    const selected = place().fields.get("select");
    details(panel, mesh, [pointed, selected].find((id) => mesh.vertices[id] || mesh.edges[id]), select);
  }

  function total() {
    const { totals = {}, view } = mesh;
    const set = (name, text, tone = "") => {
      setText(figures.get(name), text);
      setAttribute(figures.get(name), "class", tone);
    };
    set("Requests", rate(totals.rps));
    const success = health(totals.success);
    set("Success", percent(totals.success), success === "good" || success === "idle" ? "" : success);
    set("In flight", number(totals.in_flight));
    setText(figures.get("Services").previousSibling, VIEWS.find(([name]) => name === view)?.[1] ?? "Services");
    set("Services", number(Object.keys(mesh.vertices).length));
    set("Edges", number(Object.keys(mesh.edges).length));
    set("Mutual TLS", percent(encrypted(mesh)));
  }

  arrange();
  return {
    element,
    title: "Graph",
    usesHistory: true,
    mesh(document) {
      mesh = document;
      arrange();
      total();
      graph.update(mesh);
      describe();
    },
    place() {
      graph.select(place().fields.get("select") ?? undefined);
      arrange();
      describe();
    },
    toggleTable: () => setFields({ form: place().fields.get("form") === "table" ? "" : "table" }),
    close: () => graph.close(),
  };
}

/** The share of calls by mutual TLS, if it is known for each edge with calls. */
function encrypted({ edges }) {
  let [all, encrypted] = [0, 0];
  for (const edge of Object.values(edges)) {
    const { rps } = edge;
    if (!(rps > 0)) continue;
    const share = mtlsShare(edge);
    if (share === undefined) return undefined;
    all += rps;
    encrypted += rps * share;
  }
  return all > 0 ? encrypted / all : undefined;
}
