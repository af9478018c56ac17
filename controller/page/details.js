// The panel next to the graph: everything that is known about the selected vertex or edge.

import { html, keyed, replace, setText } from "./elements.js";
import { isEdge } from "./focus.js";
import { bytes, count, health, milliseconds, number, percent, rate, split } from "./format.js";
import { serviceLink } from "./router.js";

/** Updates the panel. `select(id)` selects what a row leads to. */
export function details(panel, mesh, id, select) {
  const vertex = mesh.vertices[id];
  const edge = mesh.edges[id];
  const kind = vertex ? "vertex" : edge ? "edge" : "mesh";
  if (panel.shown !== `${kind} ${id}`) {
    panel.shown = `${kind} ${id}`;
    replace(panel);
    panel.sections = undefined;
  }
  const sections = vertex ? ofVertex(mesh, id, vertex) : edge ? ofEdge(edge) : ofMesh(mesh);
  keyed(panel, sections.filter(Boolean), (section) => section.title, createSection, (element, section) => updateSection(element, section, select));
}

function createSection({ title, head }) {
  const heading = html(head ? "h2" : "h3", {}, title);
  return html("section", {}, heading, html("div", {}), html("dl", { class: "facts" }), html("div", {}));
}

function updateSection(element, { notes = [], facts = [], rows = [], href, linkText }, select) {
  const [, texts, list, links] = element.children;
  const lines = [...notes.map((text) => ({ text })), ...(href ? [{ text: linkText, href }] : [])];
  keyed(texts, lines, ({ text }) => text, ({ text, href }) => (href ? html("a", { href }, text) : html("p", { class: "muted small" }, text)));
  const pairs = facts.flatMap(([name, value, tone]) => [{ key: `${name} `, tag: "dt", text: name }, { key: `${name}=`, tag: "dd", text: value, tone }]);
  keyed(list, pairs, ({ key }) => key, ({ tag }) => html(tag, {}), (node, { text, tone }) => {
    setText(node, text);
    node.className = tone ?? "";
  });
  texts.hidden = !lines.length;
  list.hidden = !pairs.length;
  keyed(links, rows, ({ id }) => id, ({ id, name }) => html("div", { class: "linked" },
    html("button", { class: "plain", type: "button", onclick: () => select(id) }, name), html("span", { class: "muted" })), (row, { text, tone }) => {
    setText(row.lastChild, text);
    row.lastChild.className = tone ?? "muted";
  });
}

const toned = (success) => (health(success) === "good" ? undefined : health(success));

/** The values that vertices and edges have in common. */
function signals({ rps, success, mean_ms, p50_ms, p99_ms, in_flight }) {
  return [
    ["Requests", rate(rps)],
    ["Success", percent(success), toned(success)],
    ["Latency p50", milliseconds(p50_ms)],
    ["Latency p99", milliseconds(p99_ms)],
    ["Latency mean", milliseconds(mean_ms)],
    ["In flight", number(in_flight)],
  ];
}

const list = (object) => Object.entries(object ?? {}).map(([name, amount]) => `${name} (${amount})`).join(", ") || "–";
const yes = (value) => (value === undefined ? "–" : value ? "yes" : "no");

function ofVertex(mesh, id, vertex) {
  const resources = vertex.kind === "node"
    ? [["CPU capacity", vertex.cpu_millis === undefined ? "–" : `${number(vertex.cpu_millis)} m`], ["Memory capacity", vertex.memory_mib === undefined ? "–" : bytes(vertex.memory_mib * 2 ** 20)]]
    : [["CPU of a pod", vertex.cpu_used_millis === undefined ? "–" : `${number(vertex.cpu_used_millis)} m`], ["Memory of a pod", vertex.memory_used_mib === undefined ? "–" : bytes(vertex.memory_used_mib * 2 ** 20)]];
  const facts = vertex.kind === "node" ? [["Zone", vertex.zone ?? "–"]] : [
    ["Replicas ready", `${number(vertex.ready)} of ${number(vertex.replicas)}`, vertex.ready < vertex.replicas ? "failing" : undefined],
    ["Nodes", list(vertex.nodes)],
    ["Mutual TLS", yes(vertex.mtls)],
    ["Policy", vertex.policy ?? "–"],
    ["Local first", yes(vertex.local_first)],
  ];
  const edges = Object.entries(mesh.edges);
  const row = ([name, edge], other) => ({ id: name, name: other, text: edge.tcp ? `${bytes(edge.bytes_per_second)}/s` : `${rate(edge.rps)} · ${milliseconds(edge.p50_ms)}`, tone: edge.rps > 0 ? toned(edge.success) : undefined });
  const callers = edges.filter(([, edge]) => edge.to === id).map((edge) => row(edge, edge[1].from));
  const callees = edges.filter(([, edge]) => edge.from === id).map((edge) => row(edge, edge[1].to));
  const contents = (vertex.vertices ?? []).map((name) => ({ id: name, name, text: "" }));
  return [
    { title: id, head: true, notes: notesOf(vertex), facts: signals(vertex), ...(vertex.kind === "node" ? {} : { href: serviceLink(vertex.service ?? id), linkText: "Open the service" }) },
    { title: vertex.kind === "node" ? "Node" : "Deployment", facts: [...facts, ...resources] },
    callers.length && { title: `Callers: ${callers.length}`, rows: callers },
    callees.length && { title: `Calls: ${callees.length}`, rows: callees },
    contents.length && { title: `Runs: ${contents.length}`, notes: contents.map(({ name }) => name) },
    moved(mesh, ({ vertex: name, from, to }) => name === id || from === id || to === id),
  ];
}

function notesOf({ meshed, contradicted, move }) {
  return [
    meshed === false && "Its pods have no sidecar: the values are those of its callers.",
    contradicted && "Callers report more calls than its pods accepted.",
    move && `A placement would move it from ${move.from} to ${move.to}: ${move.reason}`,
  ].filter(Boolean);
}

function ofEdge(edge) {
  const facts = edge.tcp ? [["Connections", rate(edge.connections_per_second)], ["Bytes", `${bytes(edge.bytes_per_second)}/s`], ["Open", number(edge.in_flight)]] : [
    ...signals(edge), ["Retries", rate(edge.retries)], ["Bytes", edge.bytes_per_second === undefined ? "–" : `${bytes(edge.bytes_per_second)}/s`], ["New connections", rate(edge.connections_per_second)],
    ...(edge.delay_ms === undefined ? [] : [["Network delay", milliseconds(edge.delay_ms)]]),
  ];
  const short = (name) => split(name).name;
  return [
    { title: `${short(edge.from)} → ${short(edge.to)}`, head: true, facts },
    { title: "Balancing and security", facts: [
      ["Policy", edge.policy ?? "–"],
      ["Ejected endpoints", number(edge.ejected), edge.ejected > 0 ? "failing" : undefined],
      ["Mutual TLS", yes(edge.mtls)],
      ["Share by mutual TLS", percent(edge.mtls_share)],
    ] },
    edge.split?.length && { title: "Traffic split", facts: edge.split.map(({ name, weight, share, success }) => [name, `${percent(share)} of calls, weight ${number(weight)}, ${percent(success)} succeed`, toned(success)]) },
    { title: "Ends", rows: [{ id: edge.from, name: edge.from, text: "caller" }, { id: edge.to, name: edge.to, text: "called" }] },
  ];
}

function ofMesh(mesh) {
  const worst = Object.entries(mesh.edges).filter(([, edge]) => edge.rps > 0 && edge.success < 0.99)
    .sort(([, a], [, b]) => b.rps * (1 - b.success) - a.rps * (1 - a.success)).slice(0, 8);
  const slowest = Object.entries(mesh.edges).filter(([, edge]) => edge.p99_ms > 0).sort(([, a], [, b]) => b.p99_ms - a.p99_ms).slice(0, 6);
  const down = Object.entries(mesh.vertices).filter(([, { ready, replicas }]) => ready < replicas);
  const named = ({ from, to }) => `${split(from).name} → ${split(to).name}`;
  return [
    { title: "Attention", head: true, notes: worst.length || down.length ? [] : ["No edge fails often, and all replicas are ready."] },
    down.length && { title: "Replicas not ready", rows: down.map(([id, { ready, replicas }]) => ({ id, name: id, text: `${ready} of ${replicas}`, tone: "failing" })) },
    worst.length && { title: "Most failures", rows: worst.map(([id, edge]) => ({ id, name: named(edge), text: `${percent(1 - edge.success)} fail`, tone: health(edge.success) })) },
    slowest.length && { title: "Highest p99", rows: slowest.map(([id, edge]) => ({ id, name: named(edge), text: milliseconds(edge.p99_ms) })) },
    moved(mesh, () => true),
  ];
}

/** What a placement would move, or that nothing would; nothing is shown if no placement was computed. */
function moved({ moves }, concerns) {
  if (!moves) return undefined;
  const found = moves.filter(concerns);
  const title = `A placement would move: ${count(found.length, "service")}`;
  return { title, notes: found.length ? found.map(({ vertex, from, to, reason }) => [`${vertex}: ${from} → ${to}`, reason].filter(Boolean).join("; ")) : [] };
}
