// A version: where it comes from, what it was trained on, how well it does.

import { api } from "../lib/api.js";
import { add, h } from "../lib/dom.js";
import { bytes, count, interval, isNumber, percent, time } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { untrusted } from "../lib/text.js";
import { facts, link, rateBar, section, table } from "../components/parts.js";
import { loaded } from "../components/state.js";

export function version({ root, route, signal, title }) {
  title(`Version ${route.version} of ${route.run}`);
  const body = h("div");
  add(root, h("h1", {}, `Version ${route.version}`), body);
  loaded(body, signal, "the version", (stop) => api.version(route.run, route.version, stop), (found) => drawn(route.run, found));
}

function drawn(run, found) {
  return [
    h("p", { class: "lead" }, rateBar(found.success), " ", link(to.trajectories(run, { version: found.version }), "Episodes that it played")),
    section("Where it comes from", facts([
      ["Published", time(found.at)],
      ["Parent", isNumber(found.parent) ? link(to.version(run, found.parent), `version ${found.parent}`) : "none: it is the first"],
      ["Updates since the parent", count(found.updates)],
      ["sha256 of the weights", h("code", { class: "hash" }, found.sha256 ?? "not recorded")],
      ["sha256 of the parent's", h("code", { class: "hash" }, found.parent_sha256 ?? "not recorded")],
      ["Size", bytes(found.size)],
    ])),
    learned(found.learned_from),
    evaluated(found.evaluations),
    changed(found.settings),
  ];
}

function learned(from) {
  if (!from) return section("What it was trained on", h("p", {}, "The log does not say."));
  const suites = Object.entries(from.suites ?? {});
  return section("What it was trained on", facts([
    ["Trajectories", count(from.trajectories)],
    ["Of these successful", isNumber(from.success) && from.trajectories ? `${count(from.success)} (${percent(from.success / from.trajectories)})` : count(from.success)],
    ...suites.map(([suite, amount]) => [untrusted(suite), count(amount)]),
  ]));
}

function evaluated(evaluations) {
  if (!evaluations?.length) return section("Evaluations", h("p", {}, "It has not been evaluated."));
  const names = [...new Set(evaluations.flatMap((each) => Object.keys(each)))].filter((name) => !["rate", "low", "high", "n", "version", "at"].includes(name));
  return section("Evaluations", table("Evaluations", [
    ...names.map((name) => ({ name, cell: (row) => untrusted(String(row[name] ?? "–")) })),
    { name: "Success", cell: (row) => rateBar(row) },
    { name: "In words", cell: interval },
  ], evaluations));
}

function changed(settings) {
  const entries = Object.entries(settings ?? {});
  if (!entries.length) return null;
  return section("Settings in force", h("details", {}, h("summary", {}, `${entries.length} settings`),
    facts(entries.map(([name, value]) => [untrusted(name), untrusted(typeof value === "string" ? value : JSON.stringify(value))]), "settings")));
}
