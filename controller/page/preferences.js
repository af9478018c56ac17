// The switch of the colour scheme: the system's, light, or dark.

import { announce } from "./announce.js";

const ORDER = ["auto", "light", "dark"];
const NAMES = { auto: "as the system", light: "light", dark: "dark" };

/** Connects the switch. */
export function schemeSwitch(button) {
  const root = document.documentElement;
  const current = () => root.dataset.theme ?? "auto";
  const label = () => {
    const text = `Colours: ${NAMES[current()]}`;
    button.setAttribute("aria-label", text);
    button.title = text;
  };
  button.addEventListener("click", () => {
    const next = ORDER[(ORDER.indexOf(current()) + 1) % ORDER.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      if (next === "auto") localStorage.removeItem("theme");
      else localStorage.setItem("theme", next);
    } catch {
      // Storage is blocked: the choice applies to this page only.
    }
    label();
    announce(`Colours: ${NAMES[next]}`);
  });
  label();
}
