// Documents of the API, followed live by snapshots and merge patches, or fetched once.

import { follow } from "./stream.js";
import { load } from "./session.js";

/** Applies a JSON merge patch (RFC 7396), in place where possible. */
export function merge(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const merged = target !== null && typeof target === "object" && !Array.isArray(target) ? target : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete merged[name];
    else merged[name] = merge(merged[name], value);
  }
  return merged;
}

/**
 * Follows a document. `on.change(document)` is called after each event, at most once a frame;
 * `on.state` as in `follow`. Returns the function that ends it.
 */
export function live(path, on) {
  let current;
  let frame = 0;
  const stop = follow(path, {
    state: on.state,
    event(name, data) {
      if (name === "snapshot") current = data;
      else if (name === "patch" && current) current = merge(current, data);
      else return;
      on.received?.(current);
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        on.change(current);
      });
    },
  });
  return () => {
    stop();
    cancelAnimationFrame(frame);
  };
}

/** Fetches a document once, as `live` would. `on.ended(error)` is called at the end; `on.quiet`: asks for no token. */
export function once(path, on) {
  const aborted = new AbortController();
  let failure;
  load(path, { signal: aborted.signal, quiet: on.quiet }).then(
    (document) => {
      on.received?.(document);
      on.change(document);
    },
    (error) => {
      failure = error;
      if (!aborted.signal.aborted) on.state?.("rejected", error.message);
    },
  ).finally(() => on.ended?.(failure));
  return () => aborted.abort();
}

/**
 * Fetches a document now and then every `interval` milliseconds, or later if a response takes longer. `path()` returns its
 * current path. Ends when the user does not sign in, or may not see it.
 */
export function repeat(path, interval, on) {
  let stop;
  let pending;
  const begin = () => {
    pending = true;
    stop = once(path(), { ...on, ended });
  };
  const ended = (error) => {
    pending = false;
    if ([401, 403].includes(error?.status)) clearInterval(timer);
  };
  begin();
  const timer = setInterval(() => pending || document.visibilityState === "hidden" || begin(), interval);
  return () => {
    clearInterval(timer);
    stop();
  };
}

/** The query of a request, without fields that are not set. */
export function query(path, fields) {
  const set = Object.entries(fields).filter(([, value]) => value != null && value !== "");
  return set.length ? `${path}?${new URLSearchParams(set)}` : path;
}
