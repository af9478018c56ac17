// Points on the paths that the server sends, for arrow heads, labels, and the edge below the pointer.

const STEPS = 8;

/**
 * Converts path data with absolute M, L, H, V and C commands to points on the path. Other commands end it:
 * the edge is drawn, but cannot be pointed at behind that command.
 */
export function points(path) {
  const found = [];
  let [x, y] = [0, 0];
  for (const [, command, rest] of path.matchAll(/([A-Za-z])([^A-Za-z]*)/g)) {
    const values = rest.match(/-?\d*\.?\d+/g)?.map(Number) ?? [];
    if (command === "M" || command === "L") [x, y] = values;
    else if (command === "H") [x] = values;
    else if (command === "V") [y] = values;
    else if (command === "C" && values.length === 6) {
      for (let step = 1; step < STEPS; step++) found.push(cubic([x, y, ...values], step / STEPS));
      [x, y] = values.slice(4);
    } else break;
    found.push([x, y]);
  }
  return found;
}

/** Stretches path data horizontally. */
export function stretched(path, factor) {
  if (factor === 1) return path;
  return path.replace(/([A-Za-z])([^A-Za-z]*)/g, (_, command, rest) => {
    let at = 0;
    // V has no x; in all others x comes first, and alternates with y.
    return command + rest.replace(/-?\d*\.?\d+/g, (number) => (command === "V" || at++ % 2 ? number : String(Math.round(number * factor * 10) / 10)));
  });
}

function cubic([x0, y0, x1, y1, x2, y2, x3, y3], t) {
  const s = 1 - t;
  const [a, b, c, d] = [s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t];
  return [a * x0 + b * x1 + c * x2 + d * x3, a * y0 + b * y1 + c * y2 + d * y3];
}

/** The square of the distance from a point to a segment. */
function squared([px, py], [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const length = dx * dx + dy * dy;
  const t = length ? Math.max(0, Math.min(1, ((px - ax) * dx + (py - ay) * dy) / length)) : 0;
  return (px - ax - t * dx) ** 2 + (py - ay - t * dy) ** 2;
}

/** The id of the line nearest to a point, at most `reach` away. `lines` yields ids and points. */
export function nearest(lines, point, reach) {
  let best = reach * reach;
  let found;
  for (const [id, line] of lines) {
    for (let at = 1; at < line.length; at++) {
      // Most segments are too far left or right.
      if (Math.min(line[at - 1][0], line[at][0]) > point[0] + reach || Math.max(line[at - 1][0], line[at][0]) < point[0] - reach) continue;
      const distance = squared(point, line[at - 1], line[at]);
      if (distance < best) [best, found] = [distance, id];
    }
  }
  return found;
}

/** Shortens a path by the length of an arrow head. Lines arrive at a box from the left or the right. */
export function withoutHead(path, line, length) {
  if (line.length < 2) return path;
  const [[ax], [bx]] = line.slice(-2);
  const end = bx - length * (Math.sign(bx - ax) || 1);
  const last = /(-?[\d.]+)([ ,]+-?[\d.]+)$/;
  return /H[^A-Za-z]*$/.test(path) ? path.replace(/[^H]*$/, end) : path.replace(last, `${end}$2`);
}

/** An arc from the upper border of a box to that of another, for moves. */
export function arc(from, to, head) {
  const [ax, bx] = [from.x + from.width / 2, to.x + to.width / 2];
  const top = Math.min(from.y, to.y) - 40;
  return `M${ax} ${from.y}C${ax} ${top} ${bx} ${top} ${bx} ${to.y - head}`;
}

/** Places labels so that they do not overlap: in the order given, each only where there is room. */
export class Room {
  #taken = [];

  /** Whether the rectangle was free; it is taken from then on. */
  take(x, y, width, height) {
    const overlaps = this.#taken.some(([ax, ay, aw, ah]) => x < ax + aw && ax < x + width && y < ay + ah && ay < y + height);
    if (!overlaps) this.#taken.push([x, y, width, height]);
    return !overlaps;
  }
}
