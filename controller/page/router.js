// The address of a view: `#/VIEW/NAME?FIELD=VALUE`. All state that is worth a link is in it.

const listeners = new Set();

/** The current place: the view, the name behind it, and further fields. */
export function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const slash = path.indexOf("/");
  const [view, name] = slash < 0 ? [path, ""] : [path.slice(0, slash), path.slice(slash + 1)];
  return { view: view || "graph", name: decoded(name), fields: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The link to a view. */
export function link(view, name = "", fields = {}) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value != null && value !== ""));
  const path = name ? `${view}/${name.split("/").map(encodeURIComponent).join("/")}` : view === "graph" ? "" : view;
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

/** The link to the details of a service, workload or node. */
export const serviceLink = (name) => link("service", name);

/** Changes fields of the current place without an entry in the browser's history. */
export function setFields(changes) {
  const { view, name, fields } = place();
  const merged = { ...Object.fromEntries(fields), ...changes };
  history.replaceState(null, "", link(view, name, merged));
  notify();
}

/** Calls `listener` whenever the place changes. */
export function onPlace(listener) {
  listeners.add(listener);
}

function notify() {
  for (const listener of listeners) listener(place());
}

addEventListener("hashchange", notify);
