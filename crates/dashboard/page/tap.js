// Requests as they happen: a filtered list that can be paused.

import { announce } from "./announce.js";
import { query } from "./documents.js";
import { html, keyed, setText } from "./elements.js";
import { clock, count, milliseconds, number } from "./format.js";
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
  const proxies = new Map();
  let [paused, waiting, missed, number_, frame, timer] = [false, 0, 0, 0, 0, 0];
  let stop = () => {};
  const status = html("p", { class: "muted small" }, "Connecting");
  const problem = html("p", { class: "notice", role: "alert", hidden: true });
  const list = html("tbody");
  const pause = html("button", { type: "button", class: "button", "aria-pressed": "false", "aria-keyshortcuts": "p", onclick: toggle }, "Pause");
  const clear = html("button", { type: "button", class: "button", onclick: () => { rows.length = 0; draw(); } }, "Clear");
  const inputs = new Map();
  const filters = html("form", { class: "fields", "aria-label": "Filter", onsubmit: (event) => event.preventDefault(), oninput: changed }, FIELDS.map(field));
  const none = html("p", { class: "empty" }, "Waiting for requests.");
  const headings = ["Time", "Proxy", "", "Method", "Path", "Status", "Duration", "Upstream", "Attempts"];
  const table = html("table", { class: "tap stack" }, html("caption", { class: "hidden-text" }, "Requests, newest first"),
    html("thead", {}, html("tr", {}, headings.map((title) => html("th", { scope: "col", class: ["Duration", "Attempts"].includes(title) && "number" }, title || html("span", { class: "hidden-text" }, "Direction"))))), list);
  const element = html("div", { class: "view" },
    html("div", { class: "toolbar" }, html("h1", {}, "Tap"), html("span", { class: "spacer" }), status, pause, clear),
    html("section", { class: "card" }, filters), problem, html("section", { class: "card" }, none, html("div", { class: "scroll" }, table)));

  function field({ name, label, placeholder, options }) {
    const input = options ? html("select", { name }, options.map(([value, text]) => html("option", { value }, text))) : html("input", { name, placeholder, autocomplete: "off", spellcheck: "false" });
    inputs.set(name, input);
    return html("label", {}, label, input);
  }

  function changed() {
    clearTimeout(timer);
    timer = setTimeout(connect, 350);
  }

  function connect() {
    stop();
    rows.length = 0;
    missed = 0;
    proxies.clear();
    problem.hidden = true;
    const filter = Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]));
    draw();
    stop = follow(query("tap", filter), {
      event(name, data) {
        if (name === "proxy") data.state === "ended" ? proxies.delete(data.proxy) : proxies.set(data.proxy, data);
        else if (name === "request") add(data);
        schedule();
      },
      state(state, reason) {
        problem.hidden = !reason;
        setText(problem, reason ?? "");
        schedule();
      },
    });
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
    const skipped = missed ? ` · ${number(missed)} not shown because of the rate limit` : "";
    setText(status, paused ? `Paused · ${number(waiting)} new` : `${count(proxies.size, "proxy", "proxies")}${skipped}`);
    none.hidden = rows.length > 0;
    table.hidden = rows.length === 0;
    if (!paused) keyed(list, rows, ({ id }) => id, ({ request }) => row(request));
  }

  return { element, title: "Tap", place: () => {}, open: connect, pause: toggle, close() { stop(); clearTimeout(timer); cancelAnimationFrame(frame); } };
}

function row(request) {
  const { time, proxy, direction, method, target, host, status, flag, duration_ms, upstream, cluster, tries, error } = request;
  const tone = status >= 500 || error ? "failing" : status >= 400 ? "degraded" : "";
  const cell = (label, text, class_) => html("td", { "data-label": label, class: class_ }, text);
  return html("tr", {},
    html("td", { "data-label": "Time" }, html("button", { type: "button", class: "plain", "aria-label": `Details of the request at ${clock(Date.parse(time), true)}`, onclick: () => all(request) }, clock(Date.parse(time), true))),
    cell("Proxy", proxy), cell("Direction", { inbound: "in", outbound: "out" }[direction] ?? "–"), cell("Method", method ?? "–"), cell("Path", `${host ?? ""}${target ?? ""}` || "–", "path"),
    cell("Status", [status ?? "–", flag].filter((part) => part && part !== "-").join(" "), tone), cell("Duration", milliseconds(duration_ms), "number"), cell("Upstream", upstream ?? cluster ?? "–"), cell("Attempts", number(tries), "number"));
}

/** Shows all fields of a request. */
function all(request) {
  const facts = Object.entries(request).flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value))]);
  const dialog = html("dialog", { "aria-labelledby": "request-title", onclose: () => dialog.remove() },
    html("h2", { id: "request-title" }, "Request"), html("dl", { class: "facts" }, facts),
    html("div", { class: "toolbar" }, request.request_id && html("a", { class: "button", href: link("why", request.request_id), onclick: () => dialog.close() }, "Explain"), html("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}
