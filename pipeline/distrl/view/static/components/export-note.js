// The line that says of an export when it was made, and what it has.

import { add, h } from "../lib/dom.js";
import { manifest } from "../lib/exported.js";
import { count, isNumber, time } from "../lib/format.js";
import { untrusted } from "../lib/text.js";
import { facts } from "./parts.js";

/** An element that fills itself. */
export function exportNote() {
  const element = h("div", { class: "export-note", role: "note" });
  manifest().then((found) => add(element, drawn(found)), () => add(element, "An export. Its manifest.json cannot be read."));
  return element;
}

function drawn(found) {
  return h("details", {}, h("summary", {}, `An export, made ${time(found.made_at)}: it does not change.`),
    facts([
      ...Object.entries(found.runs ?? {}).map(([run, each]) => [untrusted(run), [
        h("p", {}, `${count(each.episodes)} of ${count(each.of)} episodes`, isNumber(each.absent) && each.absent > 0 ? `; ${count(each.absent)} steps have no screenshot` : ""),
        h("p", { class: "muted" }, "Log read up to: ", untrusted(offsets(each.read_up_to))),
      ]]),
      ["Not exported", found.not_exported?.length ? untrusted(found.not_exported.join(", ")) : null],
      ["Written by", `DistRL ${found.written_by?.distrl ?? ""}`],
    ]));
}

const offsets = (topics) => Object.entries(topics ?? {}).map(([topic, marks]) =>
  `${topic} ${Object.entries(marks).map(([partition, to]) => `${partition}:${to}`).join(" ")}`).join(", ");
