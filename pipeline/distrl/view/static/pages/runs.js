// All runs of a broker, side by side.

import { api } from "../lib/api.js";
import { add, h } from "../lib/dom.js";
import { count, time } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { untrusted } from "../lib/text.js";
import { link, rateBar, table } from "../components/parts.js";
import { empty, loaded } from "../components/state.js";

// How soon a run that is being read is looked at again, at first and at last.
const AGAIN_MS = 3000;
const LATEST_MS = 60_000;
const COLUMNS = [
  { name: "Run", cell: (row) => link(to.run(row.run), untrusted(row.run)) },
  { name: "Success", cell: (row) => rateBar(row.success) },
  { name: "Algorithm", cell: (row) => untrusted(row.algorithm ?? "not recorded") },
  { name: "Base model", cell: (row) => untrusted(row.base_model ?? "not recorded", "clip") },
  { name: "Version", number: true, cell: (row) => count(row.version) },
  { name: "Updates", number: true, cell: (row) => count(row.updates) },
  { name: "Trajectories", number: true, cell: (row) => count(row.trajectories) },
  { name: "Evaluations", number: true, cell: (row) => count(row.evaluations) },
  { name: "Dead letters", number: true, cell: (row) => (row.dead_letters ? link(to.deadLetters(row.run), count(row.dead_letters)) : count(row.dead_letters)) },
  { name: "First record", cell: (row) => time(row.first_at) },
  { name: "Last record", cell: (row) => time(row.last_at) },
];

export function runs({ root, signal, title }) {
  title("Runs");
  const body = h("div");
  add(root, h("h1", {}, "Runs"), body, h("p", {}, link(to.reports(), "Reports of ablations and experiments")));
  let timer = 0;
  let pause = AGAIN_MS;
  let known = false;
  signal.addEventListener("abort", () => clearTimeout(timer));
  const again = loaded(body, signal, "the runs", (stop) => api.runs(stop, known), (found) => {
    known = true;
    if (found.runs.some((row) => row.reading)) wait();
    return drawn(found);
  });

  /** Asks again. A reader who is in the table is not disturbed. */
  function wait() {
    clearTimeout(timer);
    timer = setTimeout(() => (body.contains(document.activeElement) ? wait() : again()), pause);
    pause = Math.min(2 * pause, LATEST_MS);
  }
}

function drawn(found) {
  return [
    (found.problems ?? []).map(problem),
    found.runs.length ? table("Runs of this broker", COLUMNS, found.runs) : empty("No run yet", "No topic on this broker belongs to a run. Start one, then load this page again:", h("p", {}, h("code", {}, "distrl demo"))),
  ];
}

/** A run that cannot be shown. */
function problem(each) {
  return h("div", { class: "note" }, h("p", {}, h("b", {}, untrusted(each.run)), ": ", untrusted(each.error)), each.fix ? h("p", {}, untrusted(each.fix)) : null);
}
