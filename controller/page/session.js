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

/**
 * Sends a request. If the server requires a token, or the user of the present one has no permission, it asks for another
 * one, and repeats the request. `quiet`: it does not ask. A user who cancels has status 401.
 */
export async function request(path, { signal, stream = false, quiet = false } = {}) {
  for (;;) {
    const sent = token();
    const headers = { Accept: stream ? "text/event-stream" : "application/json" };
    if (sent) headers.Authorization = `Bearer ${sent}`;
    const response = await fetch(`api/v1/${path}`, { headers, signal, cache: "no-store" });
    if (response.ok) return response;
    const message = await reason(response);
    const asks = response.status === 401 || (response.status === 403 && sent);
    if (quiet || !asks) throw new Rejected(response.status, message);
    // Another request may have received a token in the meantime.
    if (token() === sent) {
      const entered = await (asking ??= ask(sent ? message : "").finally(() => (asking = undefined)));
      if (!entered) throw new Rejected(401, message);
    }
    signal?.throwIfAborted();
  }
}

/** Fetches a JSON document. */
export async function load(path, options) {
  return (await request(path, options)).json();
}

async function reason(response) {
  try {
    return (await response.json()).error ?? response.statusText;
  } catch {
    return `The server responded with status ${response.status}.`;
  }
}

/** Asks the user for a token; returns whether one has been entered. */
function ask(message) {
  return new Promise((ended) => {
    let entered = false;
    const field = html("input", { type: "password", id: "token", autocomplete: "off", required: true });
    const submit = (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      entered = true;
      try {
        sessionStorage.setItem(KEY, field.value.trim());
      } finally {
        dialog.close();
      }
    };
    const dialog = html("dialog", { "aria-labelledby": "token-title" },
      html("form", { class: "fields", onsubmit: submit },
        html("h2", { id: "token-title" }, "Sign in"),
        html("p", { class: "muted" }, "A Kubernetes token is required, because your permissions apply. It stays in this tab. For example: ",
          html("code", {}, "kubectl create token NAME")),
        message && html("p", { class: "notice", role: "alert" }, message),
        html("label", {}, "Token", field),
        html("div", { class: "toolbar" }, html("button", { class: "button" }, "Sign in"), html("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      ended(entered);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
