// A form of filters: fields of text and choices, which are read shortly after the last change.

import { html } from "./elements.js";

/** Pause after the last change in milliseconds. */
const PAUSE = 350;

/**
 * Creates a form. Fields are `{name, label, placeholder, options, list}`; `changed(values)` gets the values by name, which
 * are those of `initial` first.
 */
export function filterForm(fields, changed, initial = {}) {
  let timer;
  const inputs = new Map(fields.map((field) => [field.name, input(field, initial[field.name] ?? "")]));
  const values = () => Object.fromEntries([...inputs].map(([name, { value }]) => [name, value.trim()]));
  const oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(() => changed(values()), PAUSE);
  };
  const labels = fields.map(({ name, label }) => html("label", {}, label, inputs.get(name)));
  const element = html("form", { class: "fields", "aria-label": "Filter", onsubmit: (event) => event.preventDefault(), oninput }, labels);
  return { element, values, close: () => clearTimeout(timer) };
}

function input({ name, placeholder, options, list }, value) {
  if (!options) return html("input", { name, value, placeholder, list, autocomplete: "off", spellcheck: "false" });
  return html("select", { name }, options.map(([option, text]) => html("option", { value: option, selected: option === value }, text)));
}
