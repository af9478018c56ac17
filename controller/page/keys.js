// Keys that act everywhere, and the list of all keys.

import { html, pairs } from "./elements.js";

/** The views in the order of the navigation: the keys 1, 2, … lead to them. */
const VIEWS = [...document.querySelectorAll(".views a")];
const LIST = [
  ["/", "Search"], [`1 … ${VIEWS.length}`, VIEWS.map(({ textContent }) => textContent).join(", ")], ["t", "Graph or table"], ["p", "Pause or resume the tap"], ["l", "Back to the present"],
  ["arrows", "In the graph: to the next service"], ["Space", "In the graph: select"], ["Enter", "In the graph: open"], ["+ − 0", "In the graph: zoom in, out, show all"], ["Esc", "Clear the selection"], ["?", "This list"],
];

/** Connects the keys. `actions` maps a key to its action. */
export function keys(actions, button) {
  const all = { ...actions, "?": help };
  VIEWS.forEach(({ hash }, at) => (all[at + 1] = () => (location.hash = hash)));
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=range]), select, textarea, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !all[event.key]) return;
    event.preventDefault();
    all[event.key]();
  });
  button.addEventListener("click", help);
}

function help() {
  if (document.querySelector("dialog")) return;
  const entries = pairs(LIST.map(([key, text]) => [html("kbd", {}, key), text]));
  const dialog = html("dialog", { "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    html("h2", { id: "keys-title" }, "Keys"), html("dl", {}, entries), html("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Close"));
  document.body.append(dialog);
  dialog.showModal();
}
