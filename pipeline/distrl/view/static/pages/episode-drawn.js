// When the learner drew a step, and what it held of the step then.

import { h } from "../lib/dom.js";
import { NONE, count, isNumber, number, plural } from "../lib/format.js";
import { table } from "../components/parts.js";

/** What stands in place of V, advantage and priority of a step. draws: of the episode; columns: the step's own, or null. */
export function missing(draws, columns) {
  const words = columns ? "this algorithm has none"
    : !draws ? "an evaluation: no learner draws it"
    : !draws.recorded ? "not recorded: this run records none"
    : "not drawn yet";
  return h("span", { class: "muted" }, words);
}

/** In which updates a step was drawn: in words, and each of them in a table that opens. */
export function drawnIn(draws, columns) {
  if (!columns?.u?.length) {
    if (!draws?.recorded || !draws.updates) return missing(draws, null);
    return h("span", { class: "muted" }, `not drawn yet; other steps of the episode in ${plural(draws.updates, "update")}`);
  }
  const times = columns.times.reduce((sum, each) => sum + each, 0);
  const rows = columns.u.map((u, index) => ({ u, index }));
  const updates = columns.u.length;
  const cut = draws.updates > draws.shown ? ` of the last ${count(draws.shown)} that drew the episode` : "";
  return [
    `${plural(times, "time")} in ${plural(updates, "update")}${cut}, last in ${count(columns.u[0])}`,
    h("details", { class: "drawn" }, h("summary", {}, "Each of them"), table("Updates that drew this step", [
      { name: "Update", number: true, cell: (row) => count(row.u) },
      { name: "Times", number: true, cell: (row) => count(columns.times[row.index]) },
      ...COLUMNS.filter(([name]) => columns[name]?.some(isNumber)).map(([name, title]) => (
        { name: title, number: true, cell: (row) => (isNumber(columns[name][row.index]) ? number(columns[name][row.index]) : NONE) })),
    ], rows)),
  ];
}

const COLUMNS = [["value", "V"], ["advantage", "Advantage"], ["td_error", "Td error"], ["ratio", "ρ"], ["priority", "Priority"]];
