// Records that could not be decoded or used.

import { api } from "../lib/api.js";
import { add, h } from "../lib/dom.js";
import { bytes, time } from "../lib/format.js";
import { untrusted } from "../lib/text.js";
import { listing } from "../components/listing.js";
import { empty } from "../components/state.js";

export function deadLetters({ root, route, signal, title }) {
  title(`Dead letters of ${route.run}`);
  const shown = listing({
    label: "Dead letters", name: "letters",
    columns: [
      { name: "Offset", class: "number", cell: (row) => `${row.partition}:${row.offset}` },
      { name: "Reason", class: "what", cell: (row) => untrusted(row.reason ?? "not recorded") },
      { name: "From", cell: (row) => [untrusted(row.from_topic ?? "–"), ` ${row.from_partition ?? "–"}:${row.from_offset ?? "–"}`] },
      { name: "Size", class: "number", cell: (row) => bytes(row.bytes) },
      { name: "At", class: "when", cell: (row) => time(row.at) },
    ],
    load: (offset, limit, stop) => api.deadLetters(route.run, { offset, limit }, stop),
    none: () => empty("No dead letter", "Every record of this run could be read."),
  }, signal);
  add(root, h("h1", {}, "Dead letters"), h("p", { class: "muted" }, "What to do with them: ", h("code", {}, "distrl dlq --help")), shown.element);
}
