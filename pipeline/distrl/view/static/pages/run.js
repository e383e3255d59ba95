// A run: what it has, how well it does, what it learned from and how fast.

import { api } from "../lib/api.js";
import { add, fill, h } from "../lib/dom.js";
import { count, interval, plural, time } from "../lib/format.js";
import { replace } from "../lib/router.js";
import { to } from "../lib/routes.js";
import { block, untrusted } from "../lib/text.js";
import { facts, link, section, shares } from "../components/parts.js";
import { loaded } from "../components/state.js";
import { status } from "../components/status.js";
import { trends } from "./run-trends.js";

// While the index is made, its progress is asked for.
const INDEXING_MS = 1000;
const SHARES = ["success", "failure", "unknown", "interrupted"];

export function run({ root, route, signal, title }) {
  title(route.run);
  let query = route.query;
  let has = null, timer = 0, reads = false;
  const counts = h("div", { class: "counts" });
  const about = h("div");
  const plots = h("div");
  const live = status({
    run: route.run,
    counts: showCounts,
    words(now) {
      if (has !== null && begunAgain(now, has)) return "Show the run as it was begun again";
      const added = has === null ? 0 : now.trajectories + now.evaluations - has.trajectories - has.evaluations;
      const version = has !== null && now.version > has.version ? `version ${now.version}` : "";
      return [version, added > 0 ? plural(added, "new episode") : ""].filter(Boolean).join(" and ") && `Show ${[version, added > 0 ? plural(added, "new episode") : ""].filter(Boolean).join(" and ")}`;
    },
    show: drawAll,
  }, signal);
  add(root, h("h1", {}, untrusted(route.run)), live.element, counts, plots, about);

  function showCounts(now) {
    fill(counts, facts([
      ["Version", link(to.versions(route.run), count(now.version))],
      ["Updates", count(now.updates)],
      ["Trajectories", link(to.trajectories(route.run, { topic: "trajectories" }), count(now.trajectories))],
      ["Evaluations", link(to.trajectories(route.run, { topic: "evaluations" }), count(now.evaluations))],
      ["Dead letters", link(to.deadLetters(route.run), count(now.dead_letters))],
    ], "tiles"));
  }

  function draw(found) {
    has = found;
    showCounts(live.newest() ?? found);
    clearTimeout(timer);
    if (found.indexing) timer = setTimeout(drawAbout, INDEXING_MS);
    else if (reads) drawTrends();
    reads = Boolean(found.indexing);
    return [found.indexing ? indexing(found.indexing) : null, found.notes?.length ? notes(found.notes) : null, described(found)];
  }

  const drawAbout = loaded(about, signal, "the run", (stop) => api.run(route.run, stop), draw);
  const drawTrends = trends(plots, route.run, () => query, (wanted) => {
    query = wanted;
    replace(to.run(route.run, query));
    drawTrends();
  }, signal);
  function drawAll() {
    drawAbout();
    drawTrends();
  }
  signal.addEventListener("abort", () => clearTimeout(timer));
  return {
    update(wanted) {
      query = wanted;
      drawTrends();
    },
  };
}

/** Whether the run was removed and begun again, or its log has lost its tail: a count that only grows has fallen. */
const begunAgain = (now, has) => ["trajectories", "evaluations", "demonstrations", "version"].some((name) => now[name] < has[name]);

function indexing({ done, total }) {
  const label = `Reading the log: ${count(done)} of ${count(total)} records. What is below is of those read so far.`;
  return h("p", { class: "note" }, h("label", {}, label, h("progress", { value: done, max: total || 1 })));
}

function notes(lines) {
  return h("div", { class: "note" }, lines.map((line) => block(line)));
}

function described(found) {
  const parts = SHARES.filter((name) => found.outcomes?.[name]).map((name) => ({ name, count: found.outcomes[name] }));
  return section("The run",
    shares("Outcomes", parts),
    facts([
      ["Success of the newest evaluated version", found.success ? [link(to.version(found.run, found.success.version), `version ${found.success.version}`), `: ${interval(found.success)}`] : "not evaluated yet"],
      ["Algorithm", untrusted(found.algorithm ?? "not recorded")],
      ["Base model", untrusted(found.base_model ?? "not recorded")],
      ["First record", time(found.first_at)],
      ["Last record", time(found.last_at)],
      ["Log read up to", readUpTo(found.read_up_to)],
      ["Suites", listed(found.suites, (suite) => to.trajectories(found.run, { suite }))],
      ["Families", listed(found.families, (family) => to.trajectories(found.run, { family }))],
      ["Devices", listed(found.devices, (device) => to.trajectories(found.run, { device }))],
    ]));
}

/** Topics with the offset after the last record that is known, for each partition. */
function readUpTo(topics) {
  const known = Object.entries(topics ?? {});
  return known.length ? h("ul", { class: "chips" }, known.map(([topic, marks]) =>
    h("li", {}, `${topic} `, h("code", {}, Object.entries(marks).map(([partition, to]) => `${partition}:${to}`).join(" "))))) : null;
}

function listed(names, address) {
  if (!names?.length) return "none yet";
  return h("ul", { class: "chips" }, names.map((name) => h("li", {}, link(address(name), untrusted(name)))));
}
