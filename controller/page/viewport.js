// Pans and zooms a group inside an SVG element: by pointer, wheel, two fingers, and keys.

const [LEAST, MOST] = [0.08, 3];
/** Below this scale a whole picture is not legible: only a part of it is shown at first. */
const LEGIBLE = 0.2;

/** A frame that takes longer than this is late: less than 30 a second. */
const LATE_MS = 34;
/** The most that a drawing is stretched. */
const WIDEST = 3;
/** Space for names that are wider than their boxes, and for the legend. */
const [SIDE, BOTTOM] = [16, 40];

/** The part of a drawing that is visible. `changed(scale)` is called after each change of the scale, `resized()` after one of the window. */
export class Viewport {
  #pointers = new Map();
  #frame = 0;
  #moved = 0;
  #reported = 0;
  #rest = 0;
  #late = 0;
  #last = 0;
  #client = [0, 0];
  #size = [1, 1];
  #untouched = true;

  constructor(svg, group, changed, resized) {
    [this.svg, this.group, this.changed] = [svg, group, changed];
    [this.x, this.y, this.scale] = [0, 0, 1];
    svg.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    svg.addEventListener("pointerdown", (event) => this.#down(event));
    svg.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, (event) => this.#up(event));
    this.observer = new ResizeObserver(() => {
      this.#client = [svg.clientWidth, svg.clientHeight];
      resized();
      if (this.#untouched) this.fit();
    });
    this.observer.observe(svg);
  }

  /** Whether the pointer has moved since it went down, so that its release is no click. */
  get dragged() {
    return this.#moved > 4;
  }

  /** How much wider a drawing may become to fill the window. A graph with many edges is high, and its names are short of width. */
  stretch(width, height) {
    const [w, h] = this.#window();
    return w && h ? Math.round(Math.max(1, Math.min(WIDEST, w / h / (width / height))) * 10) / 10 : 1;
  }

  /** Sets the size of the drawing. Shows all of it until the user has moved it. */
  resize(width, height) {
    if (this.#size[0] === width && this.#size[1] === height) return;
    this.#size = [width, height];
    if (this.#untouched) this.fit();
  }

  /** Shows the whole drawing, or as much of it as is legible. */
  fit() {
    const [width, height] = this.#window();
    if (!width || !height) return;
    const [w, h] = this.#size;
    const whole = Math.min((width - 2 * SIDE) / w, (height - BOTTOM) / h, 1.3);
    this.scale = Math.max(whole, LEGIBLE);
    // What does not fit begins at the left, where calls enter the mesh.
    this.x = Math.max((width - w * this.scale) / 2, SIDE);
    this.y = (height - BOTTOM - h * this.scale) / 2;
    this.#untouched = true;
    this.#apply();
  }

  /** Multiplies the scale, around a point (by default the middle). */
  zoom(factor, x = this.#window()[0] / 2, y = this.#window()[1] / 2) {
    const scale = Math.max(LEAST, Math.min(MOST, this.scale * factor));
    const ratio = scale / this.scale;
    [this.x, this.y, this.scale] = [x - (x - this.x) * ratio, y - (y - this.y) * ratio, scale];
    this.#touched();
  }

  /** Moves the drawing by pixels of the screen. */
  pan(dx, dy) {
    [this.x, this.y] = [this.x + dx, this.y + dy];
    this.#touched();
  }

  /** Moves a box of the drawing into view, if it is outside. */
  reveal({ x, y, width, height }) {
    const [left, top] = [this.x + x * this.scale, this.y + y * this.scale];
    const [right, bottom] = [left + width * this.scale, top + height * this.scale];
    const [clientWidth, clientHeight] = this.#window();
    const dx = left < 8 ? 8 - left : Math.min(0, clientWidth - 8 - right);
    const dy = top < 8 ? 8 - top : Math.min(0, clientHeight - 8 - bottom);
    if (dx || dy) this.pan(dx, dy);
  }

  /** The point of the drawing below a pointer. */
  point(event) {
    const box = this.svg.getBoundingClientRect();
    return [(event.clientX - box.left - this.x) / this.scale, (event.clientY - box.top - this.y) / this.scale];
  }

  /** The size of the window, remembered because reading it computes the layout of the whole page. */
  #window() {
    if (!this.#client[0]) this.#client = [this.svg.clientWidth, this.svg.clientHeight];
    return this.#client;
  }

  #touched() {
    this.#untouched = false;
    this.svg.classList.add("moving");
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => {
      this.svg.classList.remove("moving", "slow");
      this.#late = 0;
      this.#last = 0;
    }, 200);
    this.#apply();
  }

  /** Counts late frames while the drawing moves. On a slow machine the style sheet hides most edges until it rests. */
  #pace(now) {
    if (this.#last) this.#late = now - this.#last > LATE_MS ? this.#late + 1 : Math.max(0, this.#late - 1);
    this.#last = this.svg.classList.contains("moving") ? now : 0;
    if (this.#late >= 3) this.svg.classList.add("slow");
  }

  #apply() {
    this.#frame ||= requestAnimationFrame((now) => {
      this.#frame = 0;
      this.#pace(now);
      this.group.setAttribute("transform", `translate(${this.x.toFixed(2)} ${this.y.toFixed(2)}) scale(${this.scale.toFixed(4)})`);
      if (this.#reported !== this.scale) this.changed((this.#reported = this.scale));
    });
  }

  #wheel(event) {
    event.preventDefault();
    const box = this.svg.getBoundingClientRect();
    const step = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    this.zoom(Math.exp(-Math.max(-120, Math.min(120, step)) * 0.0025), event.clientX - box.left, event.clientY - box.top);
  }

  #down(event) {
    if (event.button) return;
    this.#pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.#moved = 0;
  }

  #move(event) {
    const before = this.#pointers.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY];
    const other = [...this.#pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.#pointers.set(event.pointerId, now);
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    this.#moved += Math.hypot(dx, dy);
    if (!this.dragged) return;
    // Captured only now, because a capture would redirect the click on a vertex to the whole drawing.
    this.svg.setPointerCapture(event.pointerId);
    this.svg.classList.add("dragging");
    if (!other) return this.pan(dx, dy);
    const apart = ([x, y]) => Math.hypot(x - other[0], y - other[1]);
    const box = this.svg.getBoundingClientRect();
    this.zoom(apart(now) / Math.max(apart(before), 1), (now[0] + other[0]) / 2 - box.left, (now[1] + other[1]) / 2 - box.top);
    this.pan(dx / 2, dy / 2);
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    if (!this.#pointers.size) this.svg.classList.remove("dragging");
  }

  /** Ends the observation of the size. */
  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#rest);
  }
}
