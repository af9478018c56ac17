// Follows a stream of server-sent events with `fetch`, because EventSource cannot send a token. Reconnects by itself.

import { Rejected, request } from "./session.js";

const FIRST_DELAY = 500;
const LONGEST_DELAY = 10_000;
/** The server sends at least a comment every 5 s. A stream that is silent for longer has lost its connection. */
const SILENCE = 15_000;

/** Parses the lines of a stream: calls `event(name, data)` for each event. */
export function parser(event) {
  let rest = "";
  let name = "";
  let data = [];
  return (text) => {
    const lines = (rest + text).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length) event(name || "message", data.join("\n"));
        name = "";
        data = [];
      } else if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    }
  };
}

/**
 * Follows `path` until the returned function is called.
 * `on.event(name, data)` gets each event; `on.state(state, reason, retry)` gets "open", "lost" and "rejected".
 * Hidden tabs close their streams, since a browser has only six connections to a server.
 */
export function follow(path, on) {
  let stopped = false;
  let attempt;
  let delay = FIRST_DELAY;
  let timer;

  async function connect() {
    const current = (attempt = new AbortController());
    let silence;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => current.abort(), SILENCE);
    };
    try {
      const response = await request(path, { signal: current.signal, stream: true });
      on.state?.("open");
      alive();
      const feed = parser((name, data) => {
        delay = FIRST_DELAY;
        on.event(name, JSON.parse(data));
      });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        alive();
        if (!stopped) feed(value);
      }
      retry();
    } catch (error) {
      retry(error);
    } finally {
      clearTimeout(silence);
    }
    function retry(error) {
      if (stopped || attempt !== current) return;
      const rejected = error instanceof Rejected;
      // A wrong query, an unknown name or a user who does not sign in does not change by itself.
      if (rejected && [400, 401, 404].includes(error.status)) return on.state?.("rejected", error.message);
      if (rejected) delay = Math.max(delay, 5000);
      const wait = delay * (0.75 + Math.random() / 2);
      delay = Math.min(delay * 2, LONGEST_DELAY);
      on.state?.("lost", rejected ? error.message : "", wait);
      timer = setTimeout(connect, wait);
    }
  }

  function close() {
    clearTimeout(timer);
    const closed = attempt;
    attempt = undefined;
    closed?.abort();
  }

  function visibility() {
    close();
    if (document.visibilityState === "visible") {
      delay = FIRST_DELAY;
      connect();
    }
  }

  document.addEventListener("visibilitychange", visibility);
  connect();
  return () => {
    stopped = true;
    document.removeEventListener("visibilitychange", visibility);
    close();
  };
}
