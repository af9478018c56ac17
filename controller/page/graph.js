// Draws the communication graph from the positions and paths that the server sends. Elements are kept between updates, and
// only changed attributes are written, so that 500 edges stay cheap.

import { html, keyed, setAttribute, setText, svg } from "./elements.js";
import { CROWDED, edgeHealth, isEdge, labelled, neighbourhood, neighbourInDirection } from "./focus.js";
import { bytes, count, health, milliseconds, mtlsShare, percent, rate } from "./format.js";
import { Room, arc, nearest, points, stretched, withoutHead } from "./geometry.js";
import { Viewport } from "./viewport.js";

/** Length of an arrow head. */
const HEAD = 8;
const CLASSES = ["good", "degraded", "failing", "tcp", "idle", "move"];
/** Below this scale only names are legible. */
const FAR = 0.72;
/** Mean width of a character, relative to its size. */
const CHARACTER = 0.57;
/** The sign for mutual TLS in front of a label: its width, and its path from the base line. */
const LOCK = 10;
const LOCK_PATH = "M1 -4.6h6v4.6h-6zM2.2 -4.6v-1.5a1.8 1.8 0 0 1 3.6 0v1.5";

/** The graph. `on.select(id)`, `on.point(id)` and `on.open(id)` report what the user does. */
export class Graph {
  #mesh;
  #lines = new Map();
  #pointed;
  #selected;
  #current;
  #frame = 0;
  /** The positions of the vertices, stretched to the shape of the window. */
  #boxes = {};
  #stretch = 1;
  #zoomed = 0;
  #inverse = 1;

  constructor(on) {
    this.on = on;
    this.edges = svg("g", {});
    this.moves = svg("g", {});
    this.nodes = svg("g", {});
    this.labels = svg("g", { "aria-hidden": "true" });
    const heads = CLASSES.map((name) => svg("marker", { id: `arrow-${name}`, class: `arrow is-${name}`, viewBox: "0 0 8 8", refX: 0, refY: 4, markerWidth: HEAD, markerHeight: HEAD, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z" })));
    this.group = svg("g", {}, svg("defs", {}, heads), this.edges, this.moves, this.nodes, this.labels);
    this.element = svg("svg", { role: "group", "data-graph": "", "aria-keyshortcuts": "ArrowUp ArrowDown ArrowLeft ArrowRight + - 0" }, this.group);
    this.viewport = new Viewport(this.element, this.group, (scale) => this.#scaled(scale), () => this.#mesh && this.update(this.#mesh));
    const listen = (name, listener) => this.element.addEventListener(name, listener);
    listen("pointermove", (event) => this.#hover(event));
    listen("pointerleave", () => this.#point(undefined));
    listen("click", (event) => this.viewport.dragged || this.#click(event));
    listen("keydown", (event) => this.#key(event));
    listen("focusin", (event) => this.#point(event.target.closest(".node")?.dataset.id));
    listen("focusout", () => this.#point(undefined));
  }

  /** Draws a document of the API. */
  update(mesh) {
    this.#mesh = mesh;
    const vertices = Object.entries(mesh.vertices);
    // Failing edges are drawn last, on top.
    const rank = (edge) => ["idle", "tcp", "good", "degraded", "failing"].indexOf(edgeHealth(edge, health));
    const edges = Object.entries(mesh.edges).filter(([, edge]) => edge.path).sort(([, a], [, b]) => rank(a) - rank(b));
    const { width = 1, height = 1 } = mesh.layout ?? {};
    this.#stretch = this.viewport.stretch(width, height);
    this.viewport.resize(width * this.#stretch, height);
    this.#boxes = Object.fromEntries(vertices.map(([id, { x, y, width, height }]) => [id, { x: x * this.#stretch, y, width: width * this.#stretch, height }]));
    this.element.classList.toggle("crowded", edges.length > CROWDED);
    const noun = { node: "nodes", workload: "workloads" }[mesh.view] ?? "services";
    setAttribute(this.element, "aria-label", `Communication graph: ${vertices.length} ${noun}, ${edges.length} edges. Arrow keys move between ${noun}. The table has the same data.`);
    this.#drawEdges(edges);
    if (!mesh.vertices[this.#current]) this.#current = vertices[0]?.[0];
    keyed(this.nodes, vertices, ([id]) => id, ([id]) => this.#createNode(id), (node, [id, vertex]) => this.#updateNode(node, id, vertex));
    this.#drawMoves(mesh);
    this.#focus();
  }

  /** Marks a vertex or an edge as selected. */
  select(id) {
    this.#selected = id;
    if (this.#mesh?.vertices[id]) this.#current = id;
    if (this.#mesh) this.update(this.#mesh);
  }

  #drawEdges(edges) {
    const most = Math.log1p(edges.reduce((most, [, edge]) => Math.max(most, edge.rps ?? 0), 0));
    keyed(this.edges, edges, ([id]) => id, ([id]) => svg("path", { "data-id": id }), (path, [id, edge]) => {
      if (path.data !== edge.path || path.stretch !== this.#stretch) {
        [path.data, path.stretch] = [edge.path, this.#stretch];
        const data = stretched(edge.path, this.#stretch);
        const line = points(data);
        this.#lines.set(id, line);
        setAttribute(path, "d", withoutHead(data, line, HEAD));
      }
      const width = edge.rps > 0 && most > 0 ? 1 + (3.5 * Math.log1p(edge.rps)) / most : 1;
      setAttribute(path, "stroke-width", width.toFixed(1));
      path.health = edgeHealth(edge, health);
      setAttribute(path, "marker-end", `url(#arrow-${path.health})`);
      this.#mark(path, id, `edge is-${path.health}`);
    });
    for (const id of this.#lines.keys()) if (!this.#mesh.edges[id]) this.#lines.delete(id);
  }

  #createNode(id) {
    return svg("g", { class: "node", role: "button", "data-id": id, tabindex: "-1" },
      svg("rect", { rx: 7 }), svg("text", { class: "name" }), svg("text", {}), svg("text", {}));
  }

  #updateNode(node, id, vertex) {
    const [rect, name, second, third] = node.children;
    const { x, y, width, height } = this.#boxes[id];
    setAttribute(node, "transform", `translate(${x} ${y})`);
    setAttribute(rect, "width", width);
    setAttribute(rect, "height", height);
    const far = this.viewport.scale < FAR;
    const lines = figures(vertex) ? 3 : 2;
    const top = far ? height / 2 : (height - 13 * lines) / 2 + 11;
    [name, second, third].forEach((text, line) => {
      setAttribute(text, "x", width / 2);
      setAttribute(text, "y", top + 13.5 * line);
    });
    setAttribute(name, "dominant-baseline", far && "central");
    setText(name, shortened(vertex.name, Math.floor((width - 12) / (12.5 * CHARACTER))));
    const warning = warningOf(vertex);
    setText(second, warning ?? subtitle(vertex, Math.floor((width - 8) / (10.5 * CHARACTER))));
    setAttribute(second, "class", warning ? "warning" : null);
    setText(third, figures(vertex));
    setAttribute(node, "aria-pressed", String(this.#selected === id));
    setAttribute(node, "tabindex", this.#current === id ? "0" : "-1");
    node.health = vertex.rps > 0 ? health(vertex.success) : "idle";
    this.#mark(node, id, `node is-${vertex.ready < vertex.replicas && node.health === "good" ? "degraded" : node.health}`);
  }

  /** Draws what a placement would move. Moves lead from node to node, so other views only mark the vertices. */
  #drawMoves({ view, vertices, moves }) {
    const pairs = new Map();
    if (view === "node") for (const { from, to } of moves ?? []) if (vertices[from] && vertices[to]) pairs.set(`${from}>${to}`, [this.#boxes[from], this.#boxes[to]]);
    keyed(this.moves, [...pairs], ([id]) => id, () => svg("path", { class: "edge move", "marker-end": "url(#arrow-move)" }), (path, [, [from, to]]) => setAttribute(path, "d", arc(from, to, HEAD)));
  }

  #mark(element, id, base) {
    const on = this.around?.has(id) ? " on" : "";
    setAttribute(element, "class", `${base}${on}${this.#selected === id ? " selected" : ""}`);
  }

  /** Emphasizes what is pointed at, else what is selected, and places the labels. */
  #focus() {
    const exists = (id) => id && (this.#mesh.vertices[id] || this.#mesh.edges[id]);
    const id = [this.#pointed, this.#selected].find(exists);
    this.around = id && neighbourhood(this.#mesh, id);
    // Pointing at an edge does not dim the others: the whole picture would flicker below a moving pointer.
    this.element.classList.toggle("focused", Boolean(id) && !(isEdge(id) && id === this.#pointed));
    for (const element of this.edges.children) this.#mark(element, element.dataset.id, `edge is-${element.health}`);
    for (const element of this.nodes.children) element.classList.toggle("on", this.around?.has(element.dataset.id) ?? false);
    this.#label(id);
  }

  #label(id) {
    const scale = this.viewport.scale;
    const far = scale < FAR;
    const size = far ? 10 / scale : 10.5;
    const room = new Room();
    // A label may cover a vertex that is dimmed.
    for (const [name, { x, y, width, height }] of Object.entries(this.#boxes)) if (!this.around || this.around.has(name)) room.take(x, y, width, height);
    const shown = [];
    for (const name of labelled(this.#mesh, this.around, id)) {
      const edge = this.#mesh.edges[name];
      const text = labelText(edge);
      const [x, y, anchor] = this.#labelPlace(name, edge, id, size);
      // The lock fits only where the layout has left room for it.
      const lock = isSecured(edge) && !far && anchor === "start";
      const width = text.length * size * CHARACTER + (lock ? LOCK : 0);
      const left = anchor === "start" ? x : anchor === "end" ? x - width : x - width / 2;
      // The layout has left room for labels that are near.
      const reserved = edge.label?.width > 0 && !far;
      if (reserved || room.take(left, y - size, width, size * 1.15) || name === id) shown.push({ name, text, x, y, anchor, lock, health: edgeHealth(edge, health) });
    }
    keyed(this.labels, shown, ({ name }) => name, createLabel, updateLabel);
  }

  /** Where the label of an edge is: in the space that the layout has left for it, else at the neighbour of the focused vertex, where lines are apart. */
  #labelPlace(name, edge, id, size) {
    const { label } = edge;
    if (label?.width && this.viewport.scale >= FAR) return [label.x * this.#stretch + 3, label.y + 10, "start"];
    const line = this.#lines.get(name) ?? [[0, 0]];
    if (edge.from === id || edge.to === id) {
      const [[x, y], before] = edge.to === id ? [line[0], line[1]] : [line.at(-1), line.at(-2)];
      const right = (before?.[0] ?? x) > x;
      return [x + (right ? size * 0.6 : -size * 0.6), y - size * 0.4, right ? "start" : "end"];
    }
    const [x, y] = line[Math.floor(line.length / 2)];
    return [x, y - size * 0.4, "middle"];
  }

  #scaled(scale) {
    const far = scale < FAR;
    const changed = this.element.classList.contains("far") !== far;
    const inverse = far ? 1 / scale : 1;
    // Each change restyles all names, so small ones wait until the zoom has ended.
    clearTimeout(this.#zoomed);
    if (changed || Math.abs(inverse / this.#inverse - 1) > 0.1) this.#resize(far, inverse);
    else if (inverse !== this.#inverse) this.#zoomed = setTimeout(() => this.#resize(far, inverse), 150);
  }

  #resize(far, inverse) {
    this.#inverse = inverse;
    this.element.classList.toggle("far", far);
    this.element.style.setProperty("--inverse", inverse);
    if (this.#mesh) this.update(this.#mesh);
  }

  #hover(event) {
    if (event.pointerType === "touch" || event.buttons) return;
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#point(this.#at(event));
    });
  }

  #at(event) {
    const node = event.target.closest?.(".node");
    return node?.dataset.id ?? nearest(this.#lines, this.viewport.point(event), 8 / this.viewport.scale);
  }

  #point(id) {
    if (id === this.#pointed || !this.#mesh) return;
    this.#pointed = id;
    this.#focus();
    this.on.point(id);
  }

  #click(event) {
    const id = this.#at(event);
    if (id && id === this.#selected && !isEdge(id)) this.on.open(id);
    else this.on.select(id);
  }

  #key(event) {
    const id = event.target.closest(".node")?.dataset.id;
    const actions = {
      "+": () => this.viewport.zoom(1.25),
      "=": () => this.viewport.zoom(1.25),
      "-": () => this.viewport.zoom(0.8),
      0: () => this.viewport.fit(),
      Enter: () => id && this.on.open(id),
      " ": () => id && this.on.select(id),
      Escape: () => this.on.select(undefined),
    };
    if (event.key.startsWith("Arrow") && id) this.#step(neighbourInDirection(this.#boxes, id, event.key));
    else if (actions[event.key] && !event.ctrlKey && !event.metaKey) actions[event.key]();
    else return;
    event.preventDefault();
  }

  /** Moves the keyboard's focus to a vertex. */
  #step(id) {
    const node = id && [...this.nodes.children].find((node) => node.dataset.id === id);
    if (!node) return;
    for (const other of this.nodes.children) other.setAttribute("tabindex", "-1");
    node.setAttribute("tabindex", "0");
    this.#current = id;
    node.focus({ preventScroll: true });
    this.viewport.reveal(this.#boxes[id]);
  }

  /** Ends everything that runs. */
  close() {
    this.viewport.close();
    clearTimeout(this.#zoomed);
    cancelAnimationFrame(this.#frame);
  }
}

function createLabel({ name }) {
  return svg("g", { "data-label-of": name }, svg("path", { class: "lock", d: LOCK_PATH }), svg("text", {}));
}

function updateLabel(element, { text, x, y, anchor, lock, health }) {
  const [path, words] = element.children;
  setAttribute(element, "transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
  setAttribute(element, "class", `edge-label is-${health}`);
  setAttribute(path, "visibility", lock ? null : "hidden");
  setAttribute(words, "x", lock ? LOCK : 0);
  setAttribute(words, "text-anchor", anchor);
  setText(words, text);
}

/** The label of an edge. */
export function labelText(edge) {
  if (edge.tcp) return `${bytes(edge.bytes_per_second)}/s`;
  if (edge.rps === undefined && edge.delay_ms !== undefined) return `delay ${milliseconds(edge.delay_ms)}`;
  // There is room for one value beside the rate.
  const value = edge.success < 0.99 ? `${percent(1 - edge.success)} fail` : isPartlySecured(edge) ? `${percent(mtlsShare(edge))} mTLS` : milliseconds(edge.mean_ms ?? edge.p50_ms);
  return `${rate(edge.rps)} · ${value}`;
}

/** Whether only a part of the calls is by mutual TLS. */
const isPartlySecured = (edge) => mtlsShare(edge) > 0 && mtlsShare(edge) < 1;

/** Whether all calls are by mutual TLS: as callers report, else as the configuration says. */
const isSecured = (edge) => mtlsShare(edge) === 1;

function warningOf({ ready, replicas, contradicted, meshed }) {
  if (ready < replicas) return `${ready} of ${replicas} ready`;
  if (contradicted) return "counts contradict";
  return meshed === false ? "not in the mesh" : undefined;
}

function subtitle(vertex, longest) {
  if (vertex.kind === "node") return [vertex.zone && `zone ${vertex.zone}`, count(vertex.vertices?.length, "service")].filter(Boolean).join(" · ");
  const move = vertex.move && `→ ${vertex.move.to}`;
  const whole = [vertex.namespace, count(vertex.replicas, "replica"), move].filter(Boolean).join(" · ");
  return whole.length <= longest || !vertex.namespace ? whole : subtitle({ ...vertex, namespace: "" }, longest);
}

function figures(vertex) {
  if (vertex.rps === undefined) return vertex.kind === "node" ? "" : "no report";
  const failing = vertex.rps > 0 && vertex.success < 0.99 ? percent(vertex.success) : `p99 ${milliseconds(vertex.p99_ms)}`;
  return `${rate(vertex.rps)} · ${failing}`;
}

/** Removes the middle of a long name, because its ends are distinctive. */
function shortened(name, longest) {
  if (name.length <= longest) return name;
  const kept = Math.max(longest - 1, 2);
  return `${name.slice(0, Math.ceil(kept / 2))}…${name.slice(name.length - Math.floor(kept / 2))}`;
}

/** The explanation of the colours. */
export function legend(moves) {
  const entry = (name, text) => html("span", { class: `swatch-${name}` }, text);
  return html("div", { class: "legend" }, entry("good", "≥ 99 % succeed"), entry("degraded", "≥ 95 %"), entry("failing", "< 95 %"), entry("tcp", "TCP"),
    html("span", { class: "swatch-lock" }, svg("svg", { viewBox: "0 -9 8 10", width: 9, height: 11, "aria-hidden": "true" }, svg("path", { class: "lock", d: LOCK_PATH })), "mutual TLS"), moves && entry("move", "would move"));
}
