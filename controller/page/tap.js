// Requests as they happen: a filtered list that can be paused.

import { announce } from "./announce.js";
import { query } from "./documents.js";
import { html, keyed, notice, pairs, setText } from "./elements.js";
import { filterForm } from "./filter.js";
import { clock, count, milliseconds, number, statusText } from "./format.js";
import { link } from "./router.js";
import { follow } from "./stream.js";

const MOST_ROWS = 200;
const FIELDS = [
  { name: "proxy", label: "Proxy", placeholder: "shop/web-1" },
  { name: "direction", label: "Direction", options: [["", "both"], ["inbound", "inbound"], ["outbound", "outbound"]] },
  { name: "method", label: "Method", options: [["", "all"], ...["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"].map((method) => [method, method])] },
  { name: "path", label: "Path begins with", placeholder: "/api" },
  { name: "status", label: "Status", placeholder: "5xx or 503" },
  { name: "peer", label: "Peer contains", placeholder: "sa/web" },
];

/** Creates the view. */
export function tap() {
  const rows = [];
  const proxies = new Set();
  const away = new Map();
  let [paused, waiting, missed, number_, frame, leftOut] = [false, 0, 0, 0, 0, 0];
  let stop = () => {};
  const status = html("p", { class: "muted small" }, "Connecting");
  const problem = notice();
  const list = html("tbody");
  const pause = html("button", { type: "button", class: "button", "aria-pressed": "false", "aria-keyshortcuts": "p", onclick: toggle }, "Pause");
  const clear = html("button", { type: "button", class: "button", onclick: () => { rows.length = 0; draw(); } }, "Clear");
  const filters = filterForm(FIELDS, connect);
  const none = html("p", { class: "empty" }, "Waiting for requests.");
  const headings = ["Time", "Proxy", "", "Method", "Path", "Status", "Duration", "Upstream", "Attempts"];
  const table = html("table", { class: "tap stack" }, html("caption", { class: "hidden-text" }, "Requests, newest first"),
    html("thead", {}, html("tr", {}, headings.map((title) => html("th", { scope: "col", class: ["Duration", "Attempts"].includes(title) && "number" }, title || html("span", { class: "hidden-text" }, "Direction"))))), list);
  const element = html("div", { class: "view" },
    html("div", { class: "toolbar" }, html("h1", {}, "Tap"), html("span", { class: "spacer" }), status, pause, clear),
    html("section", { class: "card" }, filters.element), problem.element, html("section", { class: "card" }, none, html("div", { class: "scroll" }, table)));

  function connect() {
    stop();
    rows.length = 0;
    forget();
    problem.show();
    draw();
    stop = follow(query("tap", filters.values()), {
      event(name, data) {
        if (name === "proxy") reached(data);
        else if (name === "limit") leftOut = data.left_out;
        else if (name === "request") add(data);
        schedule();
      },
      state(state, reason) {
        if (state === "open") forget();
        problem.show(reason);
        schedule();
      },
    });
  }

  /** Forgets the proxies of an earlier stream. */
  function forget() {
    proxies.clear();
    away.clear();
    [missed, leftOut] = [0, 0];
  }

  function reached({ proxy, state, reason }) {
    if (state === "ended") {
      proxies.delete(proxy);
      away.set(proxy, reason);
    } else {
      proxies.add(proxy);
      away.delete(proxy);
    }
  }

  function add(request) {
    missed += request.missed ?? 0;
    rows.unshift({ id: number_++, request });
    if (paused) waiting++;
    else rows.length = Math.min(rows.length, MOST_ROWS);
    // While paused the newest are kept, too, but not without bound.
    if (rows.length > 2 * MOST_ROWS) rows.splice(MOST_ROWS, MOST_ROWS);
  }

  function toggle() {
    paused = !paused;
    waiting = 0;
    pause.setAttribute("aria-pressed", String(paused));
    setText(pause, paused ? "Resume" : "Pause");
    announce(paused ? "Paused" : "Resumed");
    rows.length = Math.min(rows.length, MOST_ROWS);
    draw();
  }

  function schedule() {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  }

  function draw() {
    const [[name, reason] = []] = away;
    const state = [
      count(proxies.size, "proxy", "proxies"),
      away.size > 0 && `${number(away.size)} not connected (${name}${reason ? `: ${reason}` : ""})`,
      leftOut > 0 && `${number(leftOut)} more: filter by name`,
      missed > 0 && `${number(missed)} requests not shown because of the rate limit`,
    ];
    setText(status, paused ? `Paused · ${number(waiting)} new` : state.filter(Boolean).join(" · "));
    none.hidden = rows.length > 0;
    table.hidden = rows.length === 0;
    if (!paused) keyed(list, rows, ({ id }) => id, ({ request }) => row(request));
  }

  return { element, title: "Tap", place: () => {}, open: connect, pause: toggle, close() { stop(); filters.close(); cancelAnimationFrame(frame); } };
}

function row(request) {
  const { time, proxy, direction, method, target, host, status, flag, duration_ms, upstream, cluster, tries, error } = request;
  const tone = status >= 500 || error ? "failing" : status >= 400 ? "degraded" : "";
  const cell = (label, text, class_) => html("td", { "data-label": label, class: class_ }, text);
  return html("tr", {},
    html("td", { "data-label": "Time" }, html("button", { type: "button", class: "plain", "aria-label": `Details of the request at ${clock(Date.parse(time), true)}`, onclick: () => all(request) }, clock(Date.parse(time), true))),
    cell("Proxy", proxy), cell("Direction", { inbound: "in", outbound: "out" }[direction] ?? "–"), cell("Method", method ?? "–"), cell("Path", `${host ?? ""}${target ?? ""}` || "–", "path"),
    cell("Status", statusText(status, flag), tone), cell("Duration", milliseconds(duration_ms), "number"), cell("Upstream", upstream ?? cluster ?? "–"), cell("Attempts", number(tries), "number"));
}

/** Shows all fields of a request. */
function all(request) {
  const text = (value) => (value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));
  const facts = pairs(Object.entries(request).map(([name, value]) => [name, text(value)]));
  const dialog = html("dialog", { "aria-labelledby": "request-title", onclose: () => dialog.remove() },
    html("h2", { id: "request-title" }, "Request"), html("dl", { class: "facts" }, facts),
    html("div", { class: "toolbar" }, request.request_id && html("a", { class: "button", href: link("why", request.request_id), onclick: () => dialog.close() }, "Explain"), html("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}
