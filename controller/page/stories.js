// Stories of requests, as `maglor why` shows them: a list, and one request with everything that is kept of it.

import { queue, showQueue } from "./charts.js";
import { html, keyed, pairs } from "./elements.js";
import { clock, milliseconds, number, statusText } from "./format.js";
import { link } from "./router.js";

/** Parts of a request's time, in their order. */
const PARTS = {
  fault: "injected delay",
  queue: "queue of the cluster",
  "failed-attempts": "failed attempts",
  "connection-limit": "limit of connections",
  connect: "connecting",
  upload: "body of the request",
  endpoint: "first byte of the endpoint",
  body: "body of the response",
  client: "client reads",
  rest: "in the proxy",
};

const present = (flag) => flag && flag !== "-";

/** The page of a story. A number is unique in its proxy only. */
const storyLink = ({ id, proxy }) => link("why", id, { proxy: id.startsWith("#") ? proxy : null });

const statusOf = ({ request, flag }) => statusText(request?.status, flag);
const toneOf = ({ request, flag }) => (!request || request.status >= 500 || present(flag) ? "failing" : request.status >= 400 ? "degraded" : undefined);
const requestOf = ({ request, client }) => (request ? `${request.method} ${request.host ?? ""}${request.target}` : `connection of ${client}`);

/** A table of stories. `show(stories)` updates it. */
export function storyTable(caption) {
  const titles = [["Time"], ["Request", "path"], ["Status"], ["Took", "number"], ["Why", "path"], ["Proxy"]];
  const body = html("tbody");
  const element = html("table", { class: "tap stack" }, html("caption", { class: "hidden-text" }, caption),
    html("thead", {}, html("tr", {}, titles.map(([title, kind]) => html("th", { scope: "col", class: kind === "number" && kind }, title)))), body);
  element.show = (stories) =>
    keyed(body, stories, ({ proxy, id, time }) => `${proxy} ${id} ${time}`, (story) => {
      const at = clock(Date.parse(story.time), true);
      const texts = [html("a", { href: storyLink(story), "aria-label": `Explain the request at ${at}` }, at), requestOf(story), statusOf(story),
        story.request ? milliseconds(story.times.total_ms) : "–", story.sentence, story.proxy];
      return html("tr", {}, texts.map((text, column) => html("td", { "data-label": titles[column][0], class: column === 2 ? toneOf(story) : titles[column][1] }, text)));
    });
  return element;
}

/** Everything that is kept of one request. */
export function explanation({ sentence, cause, stories }) {
  return [
    html("section", { class: "card because" }, html("p", {}, sentence), html("span", { class: "badge idle" }, cause)),
    ...stories.map(story),
  ];
}

function story(story) {
  const { proxy, direction, request, times, attempts = [] } = story;
  const heading = `${proxy ?? "Proxy"}${["inbound", "outbound"].includes(direction) ? ` (${direction})` : ""}`;
  return html("article", { class: "card story" },
    html("header", {}, html("h2", {}, heading), html("span", { class: toneOf(story) }, statusOf(story)), html("p", { class: "muted path" }, requestOf(story))),
    html("dl", { class: "facts" }, pairs(facts(story))),
    request && time(story, times.total_ms),
    attempts.length > 0 && html("ol", { class: "attempts", "aria-label": "Attempts" }, attempts.map((one) => attempt(one, attempts.length))));
}

function facts({ time, id, trace_id, listener, client, peer, route, rule, error, cluster, attempts = [] }) {
  const state = cluster && [
    `${cluster.name}: ${cluster.usable} of ${cluster.endpoints} endpoints usable`,
    `${number(cluster.requests)}${cluster.max_requests === undefined ? "" : ` of ${number(cluster.max_requests)}`} requests in progress`,
    `${number(cluster.waiting)} of ${number(cluster.max_pending_requests)} waiting`,
    cluster.circuit_breaker && `circuit breaker ${cluster.circuit_breaker}`,
  ].filter(Boolean).join(", ");
  const [first] = attempts;
  return [
    ["Time", `${clock(Date.parse(time), true)} (${time})`], ["Request", id], ["Trace", trace_id], ["Client", [client, peer].filter(Boolean).join(" ")], ["Listener", listener],
    ["Route", route && `${route.name} (${route.virtual_host} ${route.path})`], ["Rule", rule && `${rule.field}: ${rule.name}`], ["Error", error], ["Cluster", state],
    ["Policy", first && `${first.policy} of cluster ${first.cluster}`],
  ].filter(([, value]) => value);
}

/** Where the time went: a bar, and the same as a list. */
function time({ spent }, total) {
  const known = spent.reduce((sum, { ms }) => sum + ms, 0);
  const rest = total - known;
  const parts = [...spent, ...(rest > 0.005 * total && rest >= 0.05 ? [{ part: "rest", ms: rest }] : [])];
  const pieces = parts.map(({ part, ms }) => {
    const piece = html("i", { class: `part-${part}` });
    piece.style.flexGrow = String(ms);
    return piece;
  });
  return html("div", { class: "spent" }, html("h3", {}, `Where ${milliseconds(total)} went`), html("div", { class: "pieces", "aria-hidden": "true" }, pieces),
    html("ul", { "aria-label": "Parts of the time" }, parts.map(({ part, ms }) => html("li", { class: `part-${part}` }, html("span", {}, PARTS[part] ?? part), html("b", {}, milliseconds(ms))))));
}

function attempt({ number: at, endpoint, candidates = [], candidates_total, began_ms, took_ms, connected, connect_ms, room_ms, status, grpc_status, outcome, flag, error, retry_refused, tls, answered }, all) {
  const ended = outcome === "bounced" ? "bounced: the endpoint was busy"
    : flag ? `${flag} ${error ?? ""}`
    : status !== undefined ? [status, grpc_status].filter(Boolean).join(" ")
    : "cancelled: another was faster, or the client left";
  const connection = connected === undefined ? "reused connection" : connected ? `new connection after ${milliseconds(connect_ms)}` : "no connection";
  const notes = [`began after ${milliseconds(began_ms)}`, `took ${milliseconds(took_ms)}`, connection, room_ms >= 0.1 && `waited ${milliseconds(room_ms)} for the limit of connections`,
    tls && `TLS: ${tls}`, retry_refused && `not retried: ${retry_refused}`].filter(Boolean);
  const most = Math.max(1, ...candidates.map(({ in_flight }) => in_flight));
  const more = (candidates_total ?? 0) - candidates.length;
  return html("li", {},
    html("h3", {}, `${all > 1 ? `Attempt ${at}: ` : ""}${endpoint}`, " ", html("span", { class: answered && !(status >= 500) ? "muted" : "failing" }, ended)),
    html("p", { class: "muted small" }, notes.join(" · ")),
    candidates.length > 0 && html("table", { class: "candidates" }, html("caption", {}, `Requests in flight at the candidates${more > 0 ? ` (${number(more)} more)` : ""}`),
      html("thead", { class: "hidden-text" }, html("tr", {}, html("th", { scope: "col" }, "Endpoint"), html("th", { scope: "col" }, "In flight"))),
      html("tbody", {}, candidates.map((candidate, index) => row(candidate, index === 0, most)))));
}

function row({ endpoint, in_flight }, chosen, most) {
  const bar = queue();
  showQueue(bar, in_flight, most);
  return html("tr", {}, html("th", { scope: "row" }, endpoint, chosen && html("span", { class: "badge good" }, "chosen")), html("td", {}, bar));
}
