// The reports of ablations and experiments that were found.

import { api } from "../lib/api.js";
import { add, h } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { untrusted } from "../lib/text.js";
import { link, table } from "../components/parts.js";
import { empty, loaded } from "../components/state.js";

const COLUMNS = [
  { name: "Report", cell: (row) => (row.problem ? untrusted(row.title) : link(to.report(row.id), untrusted(row.title))) },
  { name: "Folder", cell: (row) => h("code", {}, untrusted(row.name)) },
  { name: "Kind", cell: (row) => row.kind ?? "–" },
  { name: "Arms", number: true, cell: (row) => count(row.arms) },
  { name: "State", cell: (row) => state(row) },
];

export function reports({ root, signal, title }) {
  title("Reports");
  const body = h("div");
  add(root, h("h1", {}, "Reports"), body);
  loaded(body, signal, "the reports", (stop) => api.reports(stop), (found) => found.reports.length
    ? table("Reports of ablations and experiments", COLUMNS, found.reports)
    : empty("No report", "No report.json of an ablation or an experiment was found. These commands write some:",
      h("p", {}, h("code", {}, "distrl ablate"), ", ", h("code", {}, "distrl experiment")),
      h("p", {}, "Those in another folder than out/ablations and out/experiments are found by ", h("code", {}, "distrl view --reports DIR"))));
}

function state(row) {
  if (row.problem) return [untrusted(row.problem.error, "found"), " ", untrusted(row.problem.fix)];
  return row.complete ? "complete" : "not complete: some arms are missing";
}
