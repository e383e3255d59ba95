// The published versions of a run, the newest first.

import { api } from "../lib/api.js";
import { add, h } from "../lib/dom.js";
import { bytes, count, short, time } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { listing } from "../components/listing.js";
import { rateBar } from "../components/parts.js";
import { empty } from "../components/state.js";

export function versions({ root, route, signal, title }) {
  title(`Versions of ${route.run}`);
  const shown = listing({
    label: "Versions", name: "versions",
    columns: [
      { name: "Version", link: true, cell: (row) => `version ${row.version}` },
      { name: "Success", cell: (row) => rateBar(row.success) },
      { name: "Parent", class: "number", cell: (row) => count(row.parent) },
      { name: "Updates", class: "number", cell: (row) => count(row.updates) },
      { name: "Trajectories", class: "number", cell: (row) => count(row.trajectories) },
      { name: "Weights", class: "mono", cell: (row) => short(row.sha256) },
      { name: "Size", class: "number", cell: (row) => bytes(row.size) },
      { name: "Published", class: "when", cell: (row) => time(row.at) },
    ],
    href: (row) => to.version(route.run, row.version),
    load: (offset, limit, stop) => api.versions(route.run, { offset, limit }, stop),
    none: () => empty("No version yet", "The learner publishes version 0 when it starts."),
  }, signal);
  add(root, h("h1", {}, "Versions"), shown.element);
}
