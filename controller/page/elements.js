// Creates and updates elements. Every text goes through `textContent`: names come from the network.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else setAttribute(element, name, value);
  }
  for (const child of children.flat()) {
    if (child != null && child !== false) element.append(child);
  }
  return element;
}

/** Creates an HTML element. `on…` attributes are listeners; null and false leave an attribute out. */
export function html(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Creates an SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Terms and their descriptions, as children of a `dl`. */
export function pairs(entries) {
  return entries.flatMap(([term, description]) => [html("dt", {}, term), html("dd", {}, description)]);
}

/** A place for a problem, which is announced. `show(reason)` shows it, or nothing without a reason. */
export function notice() {
  const element = html("p", { class: "notice", role: "alert", hidden: true });
  const show = (reason) => {
    element.hidden = !reason;
    setText(element, reason ?? "");
  };
  return { element, show };
}

/** Sets an attribute if it differs, because each write invalidates style. Null and false remove it. */
export function setAttribute(element, name, value) {
  if (value == null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** Sets the text of an element if it differs. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Makes the children of `parent` correspond to `items`, in order. Children are reused by key, so focus,
 * selection and transitions survive an update.
 */
export function keyed(parent, items, key, create, update) {
  const previous = parent.keyedChildren ?? new Map();
  const next = new Map();
  let position = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    if (next.has(id)) continue;
    const child = previous.get(id) ?? create(item);
    previous.delete(id);
    next.set(id, child);
    update?.(child, item);
    if (child === position) position = position.nextSibling;
    else parent.insertBefore(child, position);
  }
  for (const child of previous.values()) child.remove();
  parent.keyedChildren = next;
}

/** Replaces the children of `parent`. */
export function replace(parent, ...children) {
  parent.keyedChildren = undefined;
  parent.replaceChildren(...children.flat().filter((child) => child != null && child !== false));
}
