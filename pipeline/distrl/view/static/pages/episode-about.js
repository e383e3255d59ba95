// What is said of a whole episode: its head, the judges' verdicts side by side, and the record behind it.

import { api } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { NONE, chooser, count, duration, isNumber, plural, time, versions } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { block, json, untrusted } from "../lib/text.js";
import { badge, facts, link, section, table } from "../components/parts.js";
import { loaded } from "../components/state.js";

export function head(run, found) {
  return h("header", { class: "episode-head" },
    h("p", { class: "kicker" }, untrusted(found.suite ?? ""), " · ", untrusted(found.family ?? ""), " · ", untrusted(found.split ?? "")),
    h("h1", { class: "instruction" }, untrusted(found.instruction || found.task_id)),
    h("p", { class: "lead" }, badge(found.outcome), " ",
      found.outcome_source ? ["says ", untrusted(found.outcome_source)] : "nobody judged it",
      ` · ${plural(found.steps?.length ?? 0, "step")} · ${duration(found.finished_at - found.started_at)} · ${chosenBy(found)} · `,
      link(to.task(run, found.task_id), "All attempts at this task")));
}

/** Who chose the steps of an episode. */
function chosenBy({ version_first: first, version_last: last }) {
  if (!isNumber(last)) return "no version";
  return last < 0 ? `by ${chooser(last)}` : first === last ? `version ${last}` : `versions ${versions(first, last)}`;
}

const GROUND_TRUTH = "ground-truth";

/** The record's own verdict, and beside it those that `distrl judge` was given, which come from the store. */
export function verdicts(route, found, signal) {
  const own = found.judgements ?? [];
  const truth = own.find((each) => each.source === GROUND_TRUTH)?.outcome ?? null;
  const asked = h("div", {});
  loaded(asked, signal, "what judges said", (stop) => api.verdicts(route.run, route.topic, route.place, stop), ({ verdicts: said, spoilt }) => [
    said.length ? judgements(said, truth) : route.topic === "trajectories" ? h("p", { class: "muted" }, h("code", {}, "distrl judge"), " has not asked a judge about it.") : null,
    spoilt ? h("p", { class: "note" }, `${plural(spoilt, "verdict")} in the store cannot be read.`) : null,
  ]);
  return h("div", { class: "verdicts" },
    section("Verdicts", own.length ? judgements(own, null) : h("p", {}, "Nobody judged this episode."), asked,
      found.note ? facts([["Note", block(found.note)]]) : null),
    why(found));
}

/** truth: the outcome by the phone's own state, which each is compared with; null: with none. */
function judgements(said, truth) {
  return h("ul", { class: "judgements" }, said.map((each) => h("li", {},
    h("p", {}, badge(each.outcome), " ", h("b", {}, untrusted(each.source)),
      truth === null ? null : each.outcome === truth ? " agrees with the ground truth" : each.outcome === "unknown" ? " does not say" : " differs from the ground truth"),
    each.reason ? block(each.reason) : h("p", { class: "muted" }, "It gives no reason."))));
}

function why(found) {
  if (found.unmet?.length)
    return section("What failed", table("Conditions that the final state does not meet", [
      { name: "Condition", cell: (row) => h("code", {}, untrusted(row.path)) },
      { name: "Rule", cell: (row) => untrusted(row.rule) },
      { name: "Wanted", cell: (row) => untrusted(row.wanted, "wanted") },
      { name: "Found", cell: (row) => untrusted(row.found, "found") },
    ], found.unmet));
  if (found.outcome === "failure") return section("What failed", h("p", { class: "muted" }, "The record does not say which condition failed."));
  return null;
}

export function about(route, found) {
  const { run } = route;
  return section("The record", facts([
    ["Place in the log", h("code", {}, `${route.topic} ${route.place}`)],
    ["Task", link(to.task(run, found.task_id), h("code", { class: "hash" }, untrusted(found.task_id)))],
    ["Attempt", found.attempt_id ? h("code", { class: "hash" }, untrusted(found.attempt_id)) : null],
    ["Learned in", isNumber(found.learned_in) ? link(to.version(run, found.learned_in), `version ${found.learned_in}`) : "no version yet, or not recorded"],
    ["Lag", isNumber(found.lag) ? `${count(found.lag)} versions` : NONE],
    ["Worker", untrusted(found.worker ?? NONE)],
    ["Device", found.device ? link(to.trajectories(run, { device: found.device }), untrusted(found.device)) : NONE],
    ["Began", time(found.started_at)],
    ["Ended", time(found.finished_at)],
    ["Demonstration", found.expert ? "yes" : null],
    ["Note of its judge", found.reason && !(found.judgements ?? []).some((each) => each.reason === found.reason) ? block(found.reason) : null],
  ]), found.final_state ? h("details", {}, h("summary", {}, "The phone at the end: what differs from its start"), json(found.final_state)) : null);
}
