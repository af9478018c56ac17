// Why a request failed or was slow: a search, the list of what is kept, and the explanation of one request.

import { announce } from "./announce.js";
import { once, query, repeat } from "./documents.js";
import { html, notice, replace, setText } from "./elements.js";
import { filterForm } from "./filter.js";
import { count } from "./format.js";
import { link, place, setFields } from "./router.js";
import { explanation, storyTable } from "./stories.js";

/** How often the list is fetched again. */
const LIST_MS = 3000;
const FIELDS = [
  { name: "service", label: "Service", placeholder: "shop/cart", list: "why-services" },
  { name: "kind", label: "Requests", options: [["", "failed and slow"], ["slowest", "slowest"]] },
  { name: "flag", label: "Flag", placeholder: "UF" },
  { name: "client", label: "Client contains", placeholder: "10.1.0.9" },
];

/** Creates the view; `id` is the identifier of a request, or empty for the list. */
export function why(id) {
  const field = html("input", { type: "search", name: "id", value: id, autocomplete: "off", spellcheck: "false", required: true, placeholder: "x-request-id or trace" });
  const find = html("form", { class: "fields finding", role: "search", "aria-label": "Request", onsubmit: search }, html("label", {}, "Identifier of a request or a trace", field), html("button", { class: "button" }, "Explain"));
  const problem = notice();
  const status = html("p", { class: "muted small" });
  const content = html("div", { class: "explained" }, id && html("p", { class: "empty card" }, "Waiting for data."));
  const element = html("div", { class: "view" },
    html("div", { class: "toolbar" }, html("h1", {}, "Why"), html("span", { class: "spacer" }), status, id && html("a", { class: "button", href: link("why") }, "All")),
    html("section", { class: "card" }, find), problem.element, content);
  const list = id ? undefined : recent(content);
  let [stop, path] = [() => {}, ""];

  function search(event) {
    event.preventDefault();
    const wanted = field.value.trim();
    if (wanted) location.hash = link("why", wanted);
  }

  function show(document) {
    problem.show();
    setText(status, reach(document));
    if (list) return list.show(document.stories);
    replace(content, explanation(document));
    announce(document.sentence);
  }

  function failed(kind, reason) {
    if (kind !== "rejected") return;
    problem.show(reason);
    setText(status, "");
    if (id) replace(content);
  }

  return {
    element,
    title: id ? `Why ${id}` : "Why",
    mesh: ({ vertices }) => list?.names(Object.entries(vertices).filter(([, { kind }]) => kind !== "node").map(([name]) => name)),
    place() {
      const fields = place().fields;
      const next = id ? query("why", { id, proxy: fields.get("proxy") })
        : query("why", { service: fields.get("service"), slowest: fields.get("kind") === "slowest" ? "true" : null, flag: fields.get("flag"), client: fields.get("client") });
      if (next === path) return;
      path = next;
      stop();
      const on = { change: show, state: failed };
      stop = id ? once(path, on) : repeat(() => path, LIST_MS, on);
    },
    close() {
      stop();
      list?.close();
    },
  };
}

/** What the answer does not contain, because a proxy did not respond or keeps nothing. */
function reach({ proxies, without_stories = [], unreachable = {}, dropped }) {
  const away = Object.keys(unreachable);
  return [
    count(proxies, "proxy", "proxies"),
    away.length && `no response from ${away.join(", ")}`,
    without_stories.length && (without_stories.length === proxies ? "no proxy keeps stories, because `stories` is false in its configuration or the MeshConfig" : `nothing is kept by ${without_stories.join(", ")}`),
    dropped > 0 && `${count(dropped, "story", "stories")} had no room`,
  ].filter(Boolean).join(" · ");
}

/** The list of what is kept, with filters in the address. */
function recent(content) {
  const names = html("datalist", { id: "why-services" });
  const filters = filterForm(FIELDS, (values) => place().view === "why" && setFields(values), Object.fromEntries(place().fields));
  const none = html("p", { class: "empty" }, "Waiting for data.");
  const table = storyTable("Failed and slow requests");
  table.hidden = true;
  content.append(html("section", { class: "card" }, filters.element, names), html("section", { class: "card" }, none, html("div", { class: "scroll" }, table)));

  return {
    names: (all) => names.children.length === all.length || names.replaceChildren(...all.map((value) => html("option", { value }))),
    show(stories) {
      setText(none, "Nothing is kept that matches. Proxies keep failed requests and the slowest 1 % for ten minutes.");
      none.hidden = stories.length > 0;
      table.hidden = stories.length === 0;
      table.show(stories);
    },
    close: filters.close,
  };
}
