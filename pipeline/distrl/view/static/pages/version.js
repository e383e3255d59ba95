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
  loaded(body, signal, "the version", async (stop) => {
    const found = await api.version(route.run, route.version, stop);
    const parent = isNumber(found.parent) ? await api.version(route.run, found.parent, stop).catch(missing) : null;
    return [found, parent];
  }, ([found, parent]) => drawn(route.run, found, parent));
}

/** A parent that is not in the log leaves its place empty; any other error is one. */
function missing(error) {
  if (error.status === 404) return null;
  throw error;
}

function drawn(run, found, parent) {
  return [
    h("p", { class: "lead" }, rateBar(found.success), " ", link(to.trajectories(run, { version: found.version }), "Episodes that it played"),
      " · ", link(to.failures(run, { version: found.version }), "How they failed")),
    section("Where it comes from", facts([
      ["Published", time(found.at)],
      ["Parent", isNumber(found.parent) ? link(to.version(run, found.parent), `version ${found.parent}`) : "none: it is the first"],
      ["Updates folded", count(found.updates)],
      ["sha256 of the weights", h("code", { class: "hash" }, found.sha256 ?? "not recorded")],
      ["sha256 of the parent's", h("code", { class: "hash" }, found.parent_sha256 ?? "not recorded")],
      ["Size", bytes(found.size)],
      ["sha256 of the base model", h("code", { class: "hash" }, found.base_model_sha256)],
      ["Fingerprint of its settings", h("code", { class: "hash" }, found.fingerprint)],
    ])),
    parent ? difference(run, found, parent) : null,
    learned(run, found.learned_from),
    evaluated(found.evaluations),
    inForce(found.settings),
  ];
}

function difference(run, found, parent) {
  const [now, before] = [found.settings ?? {}, parent.settings ?? {}];
  const names = [...new Set([...Object.keys(before), ...Object.keys(now)])].filter((name) => said(before[name]) !== said(now[name])).sort();
  return section("Difference to its parent", facts([
    ["Success", rateBar(found.success)],
    ["Success of the parent", [rateBar(parent.success), " ", link(to.version(run, parent.version), `version ${parent.version}`)]],
    ["Updates", count(found.updates - parent.updates)],
    ["Settings", names.length ? facts(names.map((name) => [untrusted(name), [untrusted(said(before[name])), " → ", untrusted(said(now[name]))]])) : found.settings ? "the same" : "not recorded"],
  ]));
}

const said = (value) => (value === undefined ? "unset" : typeof value === "string" ? value : JSON.stringify(value));

/** Of each topic, the records that were folded first since the parent. */
function learned(run, { trajectories, demonstrations }) {
  const listed = (topic, { from, to: end, episodes }) => (episodes
    ? link(to.trajectories(run, { topic, from_offset: from, to_offset: end }), count(episodes)) : count(episodes));
  return section("What it learned from since its parent", facts([
    ["Trajectories", listed("trajectories", trajectories)],
    ["Of these successful", trajectories.episodes ? `${count(trajectories.success)} (${percent(trajectories.success / trajectories.episodes)})` : count(0)],
    ...Object.entries(trajectories.suites).map(([suite, amount]) => [untrusted(suite), count(amount)]),
    ["Demonstrations", listed("demonstrations", demonstrations)],
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

function inForce(settings) {
  const entries = Object.entries(settings ?? {});
  if (!entries.length) return null;
  return section("Settings in force", h("details", {}, h("summary", {}, `${entries.length} settings`),
    facts(entries.map(([name, value]) => [untrusted(name), untrusted(said(value))]), "settings")));
}
