// The search: a combobox over the names in the mesh.

import { html, replace, setAttribute } from "./elements.js";
import { link, place, serviceLink, setFields } from "./router.js";

const MOST = 12;

/** Connects the field. `names()` returns the vertices with their kinds. */
export function search(field, list, vertices) {
  let found = [];
  let at = 0;

  function show() {
    const words = field.value.trim().toLowerCase();
    found = words ? [...matches(vertices(), words), ...request(field.value.trim())] : [];
    at = 0;
    list.hidden = !words;
    setAttribute(field, "aria-expanded", String(Boolean(words)));
    replace(list, found.length ? found.map(option) : words && html("p", {}, "Nothing has this name."));
    mark();
  }

  function option([id, { kind }], index) {
    // Not "click": the field would lose the focus, and close the list, before it.
    return html("div", { role: "option", id: `option-${index}`, onpointerdown: (event) => { event.preventDefault(); choose(index); } }, html("span", {}, id), html("span", { class: "muted" }, kind ?? "service"));
  }

  function mark() {
    found.forEach((_, index) => setAttribute(list.children[index], "aria-selected", String(index === at)));
    setAttribute(field, "aria-activedescendant", found.length ? `option-${at}` : null);
    if (found.length) list.children[at].scrollIntoView({ block: "nearest" });
  }

  function choose(index) {
    const [id, { kind, service }] = found[index];
    close();
    if (kind === "request") return (location.hash = link("why", id));
    if (place().view === "graph") setFields({ select: id });
    else location.hash = kind === "node" ? link("graph", "", { by: "node", select: id }) : serviceLink(service ?? id);
  }

  function close() {
    field.value = "";
    show();
    field.blur();
  }

  field.addEventListener("input", show);
  field.addEventListener("blur", () => {
    list.hidden = true;
    setAttribute(field, "aria-expanded", "false");
  });
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      at = (at + step + found.length) % found.length;
      mark();
    } else if (event.key === "Enter" && found.length) choose(at);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
}

/** Names that begin with the words come first, then those that contain them. */
function matches(vertices, words) {
  const rank = ([id, { name }]) => (String(name ?? id).toLowerCase().startsWith(words) ? 0 : 1);
  return Object.entries(vertices).filter(([id]) => id.toLowerCase().includes(words)).sort((a, b) => rank(a) - rank(b) || a[0].localeCompare(b[0])).slice(0, MOST);
}

/** A text that may be the identifier of a request or a trace is offered as one. */
function request(text) {
  return /^[\w.:-]*\d[\w.:-]*$/.test(text) && text.length >= 8 ? [[text, { kind: "request" }]] : [];
}
