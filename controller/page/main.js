// Starts the page: one view at a time, and one stream of the mesh for all of them.

import { announce } from "./announce.js";
import { decisions } from "./decisions.js";
import { live, once, query } from "./documents.js";
import { setAttribute, setText } from "./elements.js";
import { span } from "./format.js";
import { timeBar } from "./history.js";
import { keys } from "./keys.js";
import { overview } from "./overview.js";
import { schemeSwitch } from "./preferences.js";
import { receipts } from "./receipts.js";
import { onPlace, place, setFields } from "./router.js";
import { search } from "./search.js";
import { service, services } from "./service.js";
import { tap } from "./tap.js";
import { why } from "./why.js";

const VIEWS = { graph: overview, services, service, tap, why, receipts, decisions };
/** The server patches the time of the mesh every two seconds. */
const STALE_MS = 10_000;

const main = document.getElementById("main");
const freshness = document.getElementById("freshness");
const time = timeBar(document.getElementById("time"));
const state = { mesh: undefined, view: undefined, shown: "", followed: "", stop: () => {}, connection: "connecting", reason: "", retryAt: 0, changed: 0, at: 0 };

/** Shows the view of the current place. */
function show() {
  const { view, name } = place();
  const shown = `${view}/${name}`;
  const known = Object.hasOwn(VIEWS, view) ? view : "graph";
  if (state.shown !== shown) {
    const first = !state.shown;
    state.view?.close?.();
    state.shown = shown;
    state.view = VIEWS[known](name);
    main.replaceChildren(state.view.element);
    document.title = `${state.view.title} · Maglor`;
    state.view.open?.();
    if (state.mesh) state.view.mesh?.(state.mesh);
    scrollTo(0, 0);
    // The focus follows a navigation, but stays at the top after a load.
    if (!first) main.focus({ preventScroll: true });
  }
  const current = known === "service" ? "services" : known;
  for (const anchor of document.querySelectorAll(".views a")) setAttribute(anchor, "aria-current", anchor.dataset.view === current && "page");
  followMesh();
  state.view.place?.();
  time.update();
  report();
}

/** Follows the mesh by the vertices and at the time of the current place. */
function followMesh() {
  const { view, fields } = place();
  const at = state.view.usesHistory ? fields.get("at") : null;
  const by = view === "graph" || view === "" ? fields.get("by") ?? "service" : "service";
  const path = query("mesh", { view: by, at });
  if (path === state.followed) return;
  state.stop();
  state.followed = path;
  state.connection = "connecting";
  const on = {
    received(mesh) {
      state.connection = "open";
      if (mesh.at !== state.at) [state.at, state.changed] = [mesh.at, performance.now()];
    },
    change(mesh) {
      state.mesh = mesh;
      state.view.mesh?.(mesh);
      report();
    },
    state(connection, reason = "", retry = 0) {
      if (connection === "open") state.changed = performance.now();
      Object.assign(state, { connection, reason, retryAt: performance.now() + retry });
      report();
    },
  };
  state.stop = at ? once(path, on) : live(path, on);
}

/** Shows how old the data are. Only changes of the kind are announced, not each second. */
function report() {
  const now = performance.now();
  const age = now - state.changed;
  const past = state.view.usesHistory && place().fields.get("at");
  const [kind, text] =
    state.connection === "rejected" ? ["lost", state.reason]
    : state.connection === "lost" ? ["lost", `Connection lost${state.mesh ? `, data are ${span(age)} old` : ""}. ${state.reason}`.trim()]
    : past ? ["past", "History"]
    : state.connection === "connecting" && !state.changed ? ["connecting", "Connecting"]
    : age > STALE_MS ? ["stale", `Stale: no data for ${span(age)}`]
    : ["live", "Live"];
  const before = freshness.dataset.state;
  setText(freshness, text);
  if (before === kind) return;
  freshness.dataset.state = kind;
  if (before !== "connecting") announce(text);
}

schemeSwitch(document.getElementById("scheme"));
search(document.getElementById("search"), document.getElementById("results"), () => state.mesh?.vertices ?? {});
document.getElementById("skip").addEventListener("click", (event) => {
  // The address has the view in its fragment.
  event.preventDefault();
  main.focus();
});
keys({
  "/": () => document.getElementById("search").focus(),
  t: () => state.view.toggleTable?.(),
  p: () => state.view.pause?.(),
  l: () => time.goLive(),
  Escape: () => place().fields.has("select") && setFields({ select: null }),
}, document.getElementById("help"));
onPlace(show);
setInterval(report, 1000);
show();
