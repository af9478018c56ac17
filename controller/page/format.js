// Formats values. An unknown value is "–", never 0.

/** The text for an unknown value. */
export const UNKNOWN = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits without an exponent. */
function digits(value) {
  const size = Math.abs(value);
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return trimmed(value.toFixed(1));
  return trimmed(value.toFixed(2));
}

const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

function scaled(value, steps) {
  const [size, unit] = steps.find(([size]) => Math.abs(value) >= size) ?? steps[steps.length - 1];
  return [digits(value / size), unit];
}

/** A number without a unit. */
export function number(value) {
  if (!known(value)) return UNKNOWN;
  if (Math.abs(value) < 1e4) return digits(value);
  return scaled(value, [[1e6, "M"], [1e3, "k"]]).join("");
}

/** A rate a second. */
export function rate(value) {
  return known(value) ? `${number(value)}/s` : UNKNOWN;
}

/** A duration in milliseconds. */
export function milliseconds(value) {
  if (!known(value)) return UNKNOWN;
  return scaled(value, [[60_000, " min"], [1000, " s"], [1, " ms"]]).join("");
}

/** A share from 0 to 1 as per cent. A share below 1 is never rounded to 100 %, one above 0 never to 0 %. */
export function percent(value) {
  if (!known(value)) return UNKNOWN;
  const shown = value * 100;
  if (value < 1 && shown > 99.99) return "> 99.99 %";
  if (value > 0 && shown < 0.01) return "< 0.01 %";
  const places = shown > 99 || shown < 1 ? 2 : 1;
  return `${trimmed(shown.toFixed(places))} %`;
}

/** A number of bytes. */
export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  return scaled(value, [[2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]]).join("");
}

/** A number and its noun, e.g. "1 pod", "2 pods". */
export function count(value, noun, plural = `${noun}s`) {
  return known(value) ? `${number(value)} ${value === 1 ? noun : plural}` : `${UNKNOWN} ${plural}`;
}

/** The time of day, of milliseconds since 1970. */
export function clock(at, fraction = false) {
  if (!known(at)) return UNKNOWN;
  const time = new Date(at);
  const text = [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0"))
    .join(":");
  return fraction ? `${text}.${String(time.getMilliseconds()).padStart(3, "0")}` : text;
}

/** Date and time of day, where the date is not today's. */
export function moment(at, now = Date.now()) {
  if (!known(at)) return UNKNOWN;
  const time = new Date(at);
  if (time.toDateString() === new Date(now).toDateString()) return clock(at);
  const day = time.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return `${day}, ${clock(at)}`;
}

/** The length of a time span, in its largest unit. */
export function span(length) {
  if (!known(length)) return UNKNOWN;
  const seconds = Math.max(0, Math.round(length / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const rest = minutes % 60;
  return rest ? `${Math.floor(minutes / 60)} h ${rest} min` : `${minutes / 60} h`;
}

/** A qualified name, split into its namespace and the rest. */
export function split(name) {
  const at = name.indexOf("/");
  return at < 0 ? { namespace: "", name } : { namespace: name.slice(0, at), name: name.slice(at + 1) };
}

/** The status of a request, with its response flag if it has one. */
export function statusText(status, flag) {
  return [status ?? UNKNOWN, flag].filter((part) => part && part !== "-").join(" ");
}

/** The share of calls by mutual TLS, or whether it is used where no calls are known. */
export function mtlsText({ mtls, mtls_share }) {
  if (mtls_share !== undefined) return percent(mtls_share);
  return mtls === undefined ? UNKNOWN : mtls ? "yes" : "no";
}

/** The same from 0 to 1; undefined if unknown. */
export function mtlsShare({ mtls, mtls_share }) {
  return mtls_share ?? (mtls === undefined ? undefined : Number(mtls));
}

/** Success of calls: a class of the style sheet, by the same bounds as in `maglor graph`. */
export function health(success) {
  if (!known(success)) return "idle";
  if (success >= 0.99) return "good";
  return success >= 0.95 ? "degraded" : "failing";
}
