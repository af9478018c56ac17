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

/** The path, which ends at the border of a box, with an arrow head there: drawn by the same stroke, and larger for a wider one. */
export function withHead(path, line, width) {
  if (line.length < 2) return path;
  const [[ax], [bx]] = line.slice(-2);
  const direction = Math.sign(bx - ax) || 1;
  const [length, half] = [4 + width, 2.5 + 0.8 * width];
  return `${path}m${-(length + width / 2) * direction} ${-half}l${length * direction} ${half}l${-length * direction} ${half}`;
}

/** A straight connection between the borders of two boxes, for moves. */
export function between(from, to) {
  const centre = (box) => [box.x + box.width / 2, box.y + box.height / 2];
  const [[ax, ay], [bx, by]] = [centre(from), centre(to)];
  const bend = (bx - ax) * 0.12;
  return `M${ax} ${ay}C${ax + bend} ${ay - 60} ${bx - bend} ${by - 60} ${bx} ${by}`;
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
