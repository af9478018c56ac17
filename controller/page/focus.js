// Which parts of the graph belong to what is selected or pointed at, and which edges get a label.

/** More edges than this make the graph crowded: only important edges have labels. */
export const CROWDED = 70;
const MOST_LABELS = 14;

/** Whether an id is that of an edge. Names of Kubernetes contain no ">". */
export const isEdge = (id) => id?.includes(">") ?? false;

/** The vertices and edges around `id`: itself, its edges, and what they lead to. */
export function neighbourhood(mesh, id) {
  const around = new Set([id]);
  if (isEdge(id)) {
    const edge = mesh.edges[id];
    if (edge) around.add(edge.from).add(edge.to);
    return around;
  }
  for (const [name, edge] of Object.entries(mesh.edges)) {
    if (edge.from === id || edge.to === id) around.add(name).add(edge.from).add(edge.to);
  }
  return around;
}

/** The class of an edge, as in `maglor graph`. */
export function edgeHealth(edge, health) {
  if (edge.tcp) return "tcp";
  return edge.rps > 0 ? health(edge.success) : "idle";
}

/** The ids of the edges with a label, the most important first. */
export function labelled(mesh, around, id) {
  const edges = Object.entries(mesh.edges).filter(([, edge]) => edge.path);
  const failures = ({ rps = 0, success = 1 }) => rps * (1 - success);
  const important = ([, a], [, b]) => failures(b) - failures(a) || (b.rps ?? 0) - (a.rps ?? 0);
  if (around) return edges.filter(([name]) => around.has(name) && (!isEdge(id) || name === id)).sort(important).map(([name]) => name);
  if (edges.length <= CROWDED) return edges.sort(important).map(([name]) => name);
  const failing = edges.filter(([, edge]) => edge.success < 0.99 && edge.rps > 0).sort(important).slice(0, MOST_LABELS);
  return failing.map(([name]) => name);
}

/** The vertex nearest to `from` in the direction of an arrow key. */
export function neighbourInDirection(vertices, from, key) {
  const centre = (box) => [box.x + box.width / 2, box.y + box.height / 2];
  const [x, y] = centre(vertices[from]);
  const sideways = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
  let best = Infinity;
  let found;
  for (const [name, box] of Object.entries(vertices)) {
    const [dx, dy] = [centre(box)[0] - x, centre(box)[1] - y];
    const [along, across] = sideways ? [dx * sign, dy] : [dy * sign, dx];
    if (along < 1) continue;
    const distance = along + 2 * Math.abs(across);
    if (distance < best) [best, found] = [distance, name];
  }
  return found;
}
