// Why episodes fail: classes of failures, each with examples.

import { api } from "../lib/api.js";
import { add, h } from "../lib/dom.js";
import { percent, plural, versions } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { untrusted } from "../lib/text.js";
import { badge, link } from "../components/parts.js";
import { empty, loaded } from "../components/state.js";

export function failures({ root, route, signal, title }) {
  title(`Failures of ${route.run}`);
  const body = h("div");
  const version = route.query.version;
  add(root, h("h1", {}, "Failures"),
    version ? h("p", {}, `Of version ${version}. `, link(to.failures(route.run), "Of all versions")) : null, body);
  loaded(body, signal, "the failures", (stop) => api.failures(route.run, { version }, stop), (found) =>
    found.classes?.length
      ? [h("p", { class: "muted" }, `${plural(found.n, "failed episode")}, by what went wrong.`), found.classes.map((each) => drawn(route.run, each, to.trajectories(route.run, { outcome: "failure", mode: each.name, version }))),
        found.conditions?.length ? [h("h2", { class: "part" }, "By the condition that was not met"), found.conditions.map((each) => drawn(route.run, each))] : null]
      : empty("No failure", "No episode has failed so far."));
}

/** all: the address of the list of all its episodes, where there is one. */
function drawn(run, each, all) {
  const bar = h("span", { class: "bar-of-share", "aria-hidden": "true" });
  bar.style.width = `${(each.share ?? 0) * 100}%`;
  return h("section", { class: "card" },
    h("h2", {}, untrusted(each.name), h("span", { class: "muted" }, each.family ? [" ", untrusted(each.suite ?? ""), " · ", untrusted(each.family), " · "] : null, ` ${plural(each.count, "episode")}, ${percent(each.share)}`)),
    h("div", { class: "share-track" }, bar),
    h("ul", { class: "examples" }, (each.examples ?? []).map((row) => h("li", {},
      badge(row.outcome), " ", link(to.row(run, row), untrusted(row.instruction || row.task_id)),
      h("span", { class: "muted" }, " ", untrusted(row.family ?? ""), ` · version ${versions(row.version_first, row.version_last)} · ${plural(row.steps, "step")}`)))),
    all ? h("p", {}, link(all, "All of its episodes", h("span", { class: "unseen" }, ": ", untrusted(each.name)))) : null);
}
