// A service: its golden signals over time, its endpoints side by side, who calls and who is called, routes and policies.

import { chart, nice, queue, showQueue } from "./charts.js";
import { live, once, query, repeat } from "./documents.js";
import { html, keyed, notice, setAttribute, setText } from "./elements.js";
import { bytes, health, milliseconds, number, percent, rate, span, split } from "./format.js";
import { link, place } from "./router.js";
import { storyTable } from "./stories.js";
import { linked, serviceTable, signalColumns, table } from "./tables.js";

/** How often the charts are fetched again. */
const SERIES_MS = 10_000;
/** How often the failed and slow requests are fetched again, and how many. */
const [STORIES_MS, STORIES] = [5000, 8];
/** The longest and the shortest time that the charts show, in seconds. */
const [HOUR, LEAST] = [3600, 120];

/** The list of services. */
export function services() {
  const list = serviceTable();
  const card = html("section", { class: "card" }, html("p", { class: "empty" }, "Waiting for data."));
  return {
    element: html("div", { class: "view" }, html("h1", {}, "Services"), card),
    title: "Services",
    usesHistory: true,
    mesh(mesh) {
      const found = Object.entries(mesh.vertices).sort(([, a], [, b]) => (b.rps ?? -1) - (a.rps ?? -1));
      if (card.firstChild !== list) card.replaceChildren(list);
      list.show(found, ([id]) => id);
    },
  };
}

/** The view of one service. */
export function service(name) {
  const own = split(name);
  const state = html("span", { class: "badge", hidden: true });
  const problem = notice();
  const subtitle = html("p", { class: "muted" });
  const charts = goldenSignals();
  const endpoints = endpointTable();
  const callers = edgeTable("Callers");
  const callees = edgeTable("Calls");
  const configuration = html("div", { class: "thirds" });
  const stories = storyTable("Failed and slow requests");
  const why = section("Failed and slow requests", "", html("div", { class: "scroll" }, stories));
  why.firstChild.append(html("a", { href: link("why", "", { service: name }) }, "All"));
  why.hidden = true;
  const cards = [
    html("div", { class: "charts" }, charts),
    section("Endpoints", "Requests in flight as counted by each endpoint's own proxy. Even bars show that balancing works.", endpoints),
    html("div", { class: "columns" }, section("Callers", "", callers), section("Calls", "", callees)),
    why, configuration,
  ];
  const element = html("div", { class: "view" },
    html("div", {}, html("div", { class: "toolbar" }, html("h1", {}, own.name), state, html("span", { class: "spacer" }),
      html("a", { class: "button", href: link("graph", "", { select: name, at: place().fields.get("at") }) }, "Show in the graph")), subtitle), problem.element, cards);
  let stops = [];

  function show(document) {
    problem.show();
    const { vertex = {} } = document;
    const status = vertex.rps > 0 ? health(vertex.success) : "idle";
    setText(state, { good: "healthy", degraded: "degraded", failing: "failing", idle: "no calls" }[status]);
    setAttribute(state, "class", `badge ${status}`);
    state.hidden = false;
    setText(subtitle, [own.namespace && `Namespace ${own.namespace}`, vertex.replicas !== undefined && `${number(vertex.ready)} of ${number(vertex.replicas)} replicas ready`,
      vertex.policy && `policy ${vertex.policy}`, vertex.mtls !== undefined && (vertex.mtls ? "mutual TLS" : "no mutual TLS"), vertex.move && `a placement would move it from ${vertex.move.from} to ${vertex.move.to}: ${vertex.move.reason}`].filter(Boolean).join(" · "));
    showEndpoints(endpoints, document);
    for (const [list, edges] of [[callers, document.callers], [callees, document.callees]]) showOptional(list, Object.entries(edges ?? {}), ([other]) => other);
    showConfiguration(configuration, document);
  }

  function start() {
    for (const stop of stops) stop();
    const at = place().fields.get("at");
    const failed = (kind, reason) => kind === "rejected" && problem.show(reason);
    const path = query("service", { name, at });
    const end = at ? Number(at) : undefined;
    const drawn = { change: (series) => charts.forEach((one) => one.show(series)) };
    // An hour, but not more than there is, so that the first minutes fill the charts.
    const series = (oldest = 0) => {
      const to = end ?? Date.now() / 1000;
      const from = Math.min(Math.max(to - HOUR, oldest), to - LEAST);
      return query("series", { name, points: 240, from: Math.floor(from), to: Math.ceil(to) });
    };
    const begin = (oldest) => (stops[1] = at ? once(series(oldest), drawn) : repeat(() => series(oldest), SERIES_MS, drawn));
    stops = [at ? once(path, { change: show, state: failed }) : live(path, { change: show, state: failed })];
    why.hidden = true;
    stops[1] = once("about", {
      change({ history, tap }) {
        begin(history?.oldest);
        // Stories are of the last minutes, from the admin ports that can be reached.
        if (!at && tap?.available && !tap.token_required) stops[2] = repeat(() => query("why", { service: name, limit: STORIES }), STORIES_MS, explained);
      },
      state: () => begin(),
    });
  }

  const explained = {
    quiet: true,
    change({ stories: kept }) {
      why.hidden = !kept.length;
      stories.show(kept);
    },
  };
  let last;
  return {
    element,
    title: name,
    usesHistory: true,
    place() {
      const at = place().fields.get("at");
      if (stops.length && at === last) return;
      last = at;
      start();
    },
    close: () => stops.forEach((stop) => stop()),
  };
}

function section(title, text, ...content) {
  return html("section", { class: "card" }, html("header", {}, html("h2", {}, title), text && html("p", { class: "muted small" }, text)), content);
}

function goldenSignals() {
  return [
    chart("Requests", [{ key: "rps", name: "requests", tone: "series-0" }], rate),
    chart("Success", [{ key: "success", name: "success", tone: "series-good" }], percent, { most: 1, least: (values) => Math.min(0.95, Math.floor(Math.min(...values, 1) * 20) / 20) }),
    chart("Latency", [{ key: "p99_ms", name: "p99", tone: "series-0" }, { key: "p50_ms", name: "p50", tone: "series-1" }], milliseconds),
    chart("In flight", [{ key: "in_flight", name: "in flight", tone: "series-0" }], number),
  ];
}

/** The endpoints, in a fixed order, with one scale for all bars, so that they can be compared. */
function endpointTable() {
  const memory = new Map();
  let most = 1;
  const tone = ({ health }) => (health === "unhealthy" ? "failing" : health === "draining" ? "degraded" : undefined);
  const list = table("Endpoints", [
    {
      title: "Endpoint", kind: "break",
      value: ({ pod, address }) => (pod ? split(pod).name : address),
    },
    {
      title: "In flight", kind: "wide",
      update(cell, { in_flight, health }) {
        const bar = cell.firstChild ?? cell.appendChild(queue());
        bar.classList.toggle("out", health === "unhealthy");
        showQueue(bar, in_flight, most);
      },
    },
    { title: "Requests", kind: "number", value: ({ rps }) => rate(rps) },
    { title: "Success", kind: "number", value: ({ success }) => percent(success), tone: ({ rps, success }) => (rps > 0 && success < 0.99 ? health(success) : undefined) },
    { title: "Mean", kind: "number", value: ({ mean_ms }) => milliseconds(mean_ms) },
    { title: "State", value: ({ health }) => health ?? "–", tone },
    { title: "Weight", kind: "number", value: ({ weight }) => number(weight) },
    { title: "Node", value: ({ node }) => node ?? "–" },
    { title: "Proxy memory", kind: "number", value: ({ pod }) => bytes(memory.get(pod)) },
    { title: "Reported", kind: "number", value: ({ age_seconds }) => (age_seconds === undefined ? "–" : `${span(age_seconds * 1000)} ago`) },
  ]);
  list.prepare = ({ endpoints = [], proxies = [] }) => {
    memory.clear();
    for (const { pod, memory_bytes } of proxies) memory.set(pod, memory_bytes);
    most = nice(Math.max(...endpoints.map(({ in_flight }) => in_flight ?? 0), 3));
  };
  return html("div", { class: "scroll" }, list);
}

function showEndpoints(wrapper, document) {
  const list = wrapper.list ?? (wrapper.list = wrapper.querySelector("table"));
  list.prepare(document);
  const sorted = [...(document.endpoints ?? [])].sort((a, b) => (a.pod ?? a.address).localeCompare(b.pod ?? b.address, "en", { numeric: true }));
  showOptional(wrapper, sorted, ({ address }) => address);
}

function edgeTable(title) {
  return html("div", { class: "scroll" }, table(title, [linked("Service", ([other]) => other), ...signalColumns(([, edge]) => edge)].slice(0, 5)));
}

/** Shows a table's rows, or that there are none. */
function showOptional(wrapper, items, key) {
  const list = wrapper.list ?? (wrapper.list = wrapper.querySelector("table"));
  const none = wrapper.none ?? (wrapper.none = html("p", { class: "none" }, "None"));
  const shown = items.length ? list : none;
  if (wrapper.firstChild !== shown) wrapper.replaceChildren(shown);
  list.show(items, key);
}

/** Routes, clusters and policies in force; an absent list is unknown. */
function showConfiguration(parent, { routes, clusters, policies, past }) {
  const policy = ({ kind, name }) => ({ title: `${kind} ${name}` });
  const resource = ({ name, resource }) => ({ title: name, text: JSON.stringify(resource, null, 2) });
  const groups = [["Routes", routes?.map(resource)], ["Clusters", clusters?.map(resource)], ["Policies", policies?.map(policy)]];
  keyed(parent, past ? [] : groups, ([title]) => title, ([title]) => section(title, "", html("ul")), (card, [, items]) => {
    const shown = items?.length ? items : [{ title: items ? "None" : "Unknown" }];
    keyed(card.lastChild, shown, ({ title }) => title, ({ title, text }) => html("li", {}, text ? html("details", {}, html("summary", {}, title), html("pre", { tabindex: "0" })) : title), (item, { text }) => {
      if (text) setText(item.querySelector("pre"), text);
    });
  });
}
