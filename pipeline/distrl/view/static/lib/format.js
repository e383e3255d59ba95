// Numbers, times and names for people. null is a dash.

export const NONE = "–";
const COUNT = new Intl.NumberFormat("en");
const HUNDRED_YEARS_MS = 4e12;

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (isNumber(value) ? COUNT.format(value) : NONE);

export const number = (value, digits = 4) => (isNumber(value) ? String(Number(value.toPrecision(digits))) : NONE);

/** A share in [0, 1] as percent. */
export const percent = (share) => (isNumber(share) ? `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %` : NONE);

/** {rate, low, high, n} in words. */
export const interval = (success) =>
  success ? `${percent(success.rate)} (${percent(success.low)} to ${percent(success.high)}, n = ${count(success.n)})` : NONE;

/** A duration given in ms. */
export function duration(ms) {
  if (!isNumber(ms)) return NONE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.round(ms / 60_000);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A time in ms since the epoch, in the reader's zone; to the second. */
export function time(ms) {
  if (!isNumber(ms) || ms <= 0 || ms > HUNDRED_YEARS_MS) return NONE;
  const at = new Date(ms);
  const two = (part) => String(part).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function bytes(size) {
  if (!isNumber(size)) return NONE;
  if (size < 1000) return `${size} B`;
  if (size < 1e6) return `${(size / 1e3).toFixed(1)} kB`;
  return size < 1e9 ? `${(size / 1e6).toFixed(1)} MB` : `${(size / 1e9).toFixed(1)} GB`;
}

/** Who chose a step; the numbers below 0 are those of `distrl.types`. */
export function chooser(version) {
  if (version === -1) return "a script or a person";
  if (version === -2) return "a prompted model";
  return isNumber(version) ? `version ${version}` : NONE;
}

/** The versions that chose the steps of an episode. */
export function versions(first, last) {
  if (!isNumber(first) || !isNumber(last)) return NONE;
  if (first < 0 && last < 0) return chooser(last);
  return first === last ? String(last) : `${first}–${last}`;
}

export const short = (sha256) => (sha256 ? String(sha256).slice(0, 12) : NONE);

export const plural = (amount, one, many = `${one}s`) => `${count(amount)} ${amount === 1 ? one : many}`;
