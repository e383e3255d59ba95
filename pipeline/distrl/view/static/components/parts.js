// Small parts that several pages show.

import { h } from "../lib/dom.js";
import { NONE, interval, isNumber, percent } from "../lib/format.js";
import { untrusted } from "../lib/text.js";

const OUTCOMES = { success: "✓", failure: "✗", unknown: "?", interrupted: "‖" };

/** An outcome: by its word and sign, not by its colour alone. */
export function badge(outcome) {
  const known = outcome in OUTCOMES;
  return h("span", { class: `badge ${known ? outcome : "unknown"}` },
    h("span", { "aria-hidden": "true" }, OUTCOMES[outcome] ?? "?"), " ", known ? outcome : untrusted(outcome ?? "unknown"));
}

/** A rate with its interval as a bar: the dot is the rate, the line the interval. */
export function rateBar(success) {
  if (!success || !isNumber(success.rate)) return h("span", { class: "muted" }, NONE);
  const range = h("span", { class: "rate-range" });
  const dot = h("span", { class: "rate-dot" });
  const low = success.low ?? success.rate;
  range.style.left = `${low * 100}%`;
  range.style.width = `${((success.high ?? success.rate) - low) * 100}%`;
  dot.style.left = `${success.rate * 100}%`;
  return h("span", { class: "rate", title: interval(success) },
    h("span", { class: "rate-number" }, percent(success.rate)),
    h("span", { class: "rate-track", "aria-hidden": "true" }, range, dot),
    h("span", { class: "unseen" }, ` ${interval(success)}`));
}

/** Names and values: [[name, value], …]; a pair whose value is null or undefined is left out. */
export function facts(pairs, name = "") {
  const given = pairs.filter(([, value]) => value !== null && value !== undefined);
  return h("dl", { class: `facts ${name}`.trim() },
    given.map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value))));
}

/** A part of a page under a heading. */
export function section(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", {}, title) : null, children);
}

/** A real table for few rows; it scrolls sideways in itself. columns: [{name, cell(row), number?}]. */
export function table(caption, columns, rows) {
  const numeric = (column) => (column.number ? "number" : null);
  return h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((each) => h("th", { scope: "col", class: numeric(each) }, each.name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((each) => h("td", { class: numeric(each) }, each.cell(row))))))));
}

export const link = (href, ...children) => h("a", { href }, children);

/** A count of shares: [{name, count, name of a class}], as one bar with a legend. */
export function shares(label, parts) {
  const all = parts.reduce((sum, part) => sum + part.count, 0);
  if (!all) return null;
  return h("div", { class: "shares" },
    h("div", { class: "shares-bar", "aria-hidden": "true" }, parts.map((part) => {
      const piece = h("span", { class: `share-${part.name}` });
      piece.style.flexGrow = String(part.count);
      return piece;
    })),
    h("ul", { class: "shares-legend", "aria-label": label }, parts.map((part) =>
      h("li", {}, badge(part.name), ` ${part.count.toLocaleString("en")} (${percent(part.count / all)})`))));
}

export { NONE };
