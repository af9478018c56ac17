// Requests to the API, with a token where the server requires one.

import { html } from "./elements.js";

const KEY = "token";
let asking;

function token() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** An error response, with the server's sentence. */
export class Rejected extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Sends a request. After 401 it asks for a token, and repeats the request. */
export async function request(path, { signal, stream = false } = {}) {
  for (;;) {
    const sent = token();
    const headers = { Accept: stream ? "text/event-stream" : "application/json" };
    if (sent) headers.Authorization = `Bearer ${sent}`;
    const response = await fetch(`api/v1/${path}`, { headers, signal, cache: "no-store" });
    if (response.ok) return response;
    const message = await reason(response);
    if (response.status !== 401) throw new Rejected(response.status, message);
    // Another request may have received a token in the meantime.
    if (token() === sent) await (asking ??= ask(sent ? message : "").finally(() => (asking = undefined)));
    signal?.throwIfAborted();
  }
}

/** Fetches a JSON document. */
export async function load(path, signal) {
  return (await request(path, { signal })).json();
}

async function reason(response) {
  try {
    return (await response.json()).error ?? response.statusText;
  } catch {
    return `The server responded with status ${response.status}.`;
  }
}

/** Asks the user for a token until one has been entered. */
function ask(message) {
  return new Promise((entered) => {
    const field = html("input", { type: "password", id: "token", autocomplete: "off", required: true });
    const submit = (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      try {
        sessionStorage.setItem(KEY, field.value.trim());
      } finally {
        dialog.close();
      }
    };
    const dialog = html("dialog", { "aria-labelledby": "token-title", oncancel: (event) => event.preventDefault() },
      html("form", { class: "fields", onsubmit: submit },
        html("h2", { id: "token-title" }, "Sign in"),
        html("p", { class: "muted" }, "This server requires a Kubernetes token. It stays in this tab. For example: ",
          html("code", {}, "kubectl create token NAME")),
        message && html("p", { class: "notice", role: "alert" }, message),
        html("label", {}, "Token", field),
        html("button", { class: "button" }, "Sign in")));
    dialog.addEventListener("close", () => {
      dialog.remove();
      entered();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
