// Records that could not be decoded or used; reasons whole, so a page of them at a time.

import { api } from "../lib/api.js";
import { add, h } from "../lib/dom.js";
import { bytes, count, plural, time } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { block, untrusted } from "../lib/text.js";
import { link, table } from "../components/parts.js";
import { empty, loaded } from "../components/state.js";

const PAGE = 50;
const columnsOf = (run) => [
  { name: "Place", cell: (row) => link(to.deadLetter(run, `${row.partition}:${row.offset}`), h("code", {}, `${row.partition}:${row.offset}`)) },
  { name: "Reason", cell: (row) => block(row.reason ?? "not recorded") },
  { name: "From", cell: cameFrom },
  { name: "Size", number: true, cell: (row) => bytes(row.bytes) },
  { name: "Copies", number: true, cell: (row) => count(row.copies) },
  { name: "At", cell: (row) => time(row.at) },
];

export function deadLetters({ root, route, signal, title }) {
  title(`Dead letters of ${route.run}`);
  const body = h("div");
  let offset = begin(route.query);
  add(root, h("h1", {}, "Dead letters"), h("p", { class: "muted" }, "What to do with them: ", h("code", {}, "distrl dlq --help")), body);
  const again = loaded(body, signal, "the dead letters", (stop) => api.deadLetters(route.run, { offset, limit: PAGE }, stop), (found) =>
    found.total === 0
      ? empty("No dead letter", "Every record of this run could be read.")
      : [table("Dead letters", columnsOf(route.run), found.rows), turns(route.run, offset, found)]);
  return {
    update(query) {
      offset = begin(query);
      again();
    },
  };
}

/** The place of the record that a dead letter is of. */
export const cameFrom = (row) => [untrusted(row.from_topic ?? "–"), ` ${row.from_partition ?? "–"}:${row.from_offset ?? "–"}`];

const begin = (query) => Math.max(0, Math.trunc(Number(query.offset) || 0));

function turns(run, offset, found) {
  const last = offset + found.rows.length;
  return h("p", {}, offset > 0 ? [link(to.deadLetters(run, { offset: Math.max(0, offset - PAGE) || null }), "← Newer"), " "] : null,
    h("span", { class: "muted" }, `${count(offset + 1)} to ${count(last)} of ${plural(found.total, "dead letter")} `),
    last < found.total ? link(to.deadLetters(run, { offset: last }), "Older →") : null);
}
