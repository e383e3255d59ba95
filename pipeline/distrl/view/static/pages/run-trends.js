// The plots of a run. A marked range leads to the trajectories of that time; a point of success to its version.

import { api } from "../lib/api.js";
import { add, fill, h } from "../lib/dom.js";
import { count, duration, isNumber, number, percent, time } from "../lib/format.js";
import { go } from "../lib/router.js";
import { to } from "../lib/routes.js";
import { plain, untrusted } from "../lib/text.js";
import { link, table } from "../components/parts.js";
import { plot } from "../components/plot.js";
import { empty, loaded } from "../components/state.js";

const LOSSES = /loss|entropy|kl|grad/i;
const SHOWN_AT_FIRST = 2;
const ROWS = 200;

/**
 * Draws into `root`. query() -> {from?, to?, metrics?} of the address; edit(query): changes it.
 * Returns a function that draws what the server has by now.
 */
export function trends(root, run, query, edit, signal) {
  let plotsOf = null;
  const range = h("div", { class: "range", "aria-live": "polite" });
  const body = h("div");
  add(root, range, body);

  function draw(found) {
    plotsOf?.abort();
    plotsOf = new AbortController();
    const within = AbortSignal.any([signal, plotsOf.signal]);
    const span = spanOf(found, query());
    rangeLine(null);
    if (!span) return empty("Nothing to plot yet", "Plots begin with the first evaluation, update or episode. This page offers them when they come.");
    const shared = { range: span, onRange: (from, until) => rangeLine([from, until]) };
    const plots = [success(whole(timed(found.success)), run, shared, within), ...collection(found.collection, shared, within), reloads(timed(found.reloads), shared, within)].filter(Boolean);
    return [h("div", { class: "plots" }, plots), losses(found.updates, query(), edit, shared, within), asTable(found.success, run)];
  }

  function rangeLine(marked) {
    const { from, to: until } = query();
    const zoomed = from || until;
    const [start, end] = (marked ?? [Number(from) || null, Number(until) || null]).map((ms) => (ms === null ? null : Math.round(ms)));
    fill(range, marked || zoomed ? [
      h("span", {}, `${time(start)} to ${time(end)} `),
      link(to.trajectories(run, { from: start, to: end }), "Show its trajectories"),
      marked ? h("button", { type: "button", on: { click: () => edit({ ...query(), from: start, to: end }) } }, "Zoom in") : null,
      zoomed ? h("button", { type: "button", on: { click: () => edit({ ...query(), from: null, to: null }) } }, "Whole run") : null,
    ] : h("span", { class: "muted" }, "Drag over a plot to mark a time: its trajectories are one click away. Keys: arrows, Shift and arrows, Enter."));
  }

  return loaded(body, signal, "the plots", (stop) => {
    const { from, to: until } = query();
    return api.series(run, { from, to: until }, stop);
  }, draw);
}

/** The time that all plots show: [from, to] in ms; null where nothing is there. */
function spanOf(found, { from, to: until }) {
  const all = ["success", "updates", "collection", "versions"].flatMap((name) => found[name]?.at ?? []).filter(isNumber);
  if (!all.length) return null;
  const least = Number(from) || all.reduce((a, b) => Math.min(a, b));
  const most = Number(until) || all.reduce((a, b) => Math.max(a, b));
  const margin = Math.max(500, (most - least) * 0.02);
  return [least - margin, most + margin];
}

/** Those of its columns' places whose time is known, in its order: an agent without weights was never published. */
function timed(found) {
  const order = (found?.at ?? []).map((at, index) => index).filter((index) => isNumber(found.at[index])).sort((a, b) => found.at[a] - found.at[b]);
  return Object.fromEntries(Object.entries(found ?? {}).map(([name, column]) => [name, Array.isArray(column) ? order.map((index) => column[index]) : column]));
}

/** Those whose evaluation has ended: the tasks that end soon come first, and are the easy ones. */
function whole(found) {
  const left = (column) => column.filter((_, index) => !found.unfinished?.[index]);
  return Object.fromEntries(Object.entries(found).map(([name, column]) => [name, Array.isArray(column) ? left(column) : column]));
}

function success(found, run, shared, signal) {
  if (!found?.at?.length) return null;
  const title = ["Success of evaluated versions", found.suite, found.split].filter(Boolean).join(" · ");
  return plot({
    ...shared, title: plain(title), hint: "A click on a point opens its version.", percent: true, at: found.at,
    lines: [{ name: "success", values: found.rate, colour: "plot-success", points: true }],
    band: { low: found.low, high: found.high },
    say: (index) => `version ${found.version[index]}: ${percent(found.rate[index])} (${percent(found.low[index])} to ${percent(found.high[index])}, n = ${count(found.n[index])}), ${time(found.at[index])}`,
    onPick: (index) => isNumber(found.version[index]) && found.version[index] >= 0 && go(to.version(run, found.version[index])),
  }, signal);
}

function collection(found, shared, signal) {
  if (!found?.at?.length) return [];
  const say = (index) => `${time(found.at[index])}: ${count(found.episodes[index])} episodes, ${percent(found.success[index])} succeed, lag ${number(found.lag[index], 3)} versions, ${duration(found.seconds[index] * 1000)} each`;
  const drawn = { ...shared, at: found.at, width: found.bin_ms, say };
  return [
    plot({ ...drawn, title: "Success while collecting", percent: true, lines: [{ name: "success", values: found.success, colour: "plot-collection" }] }, signal),
    plot({ ...drawn, title: "Episodes", lines: [{ name: "episodes", values: found.episodes, colour: "plot-episodes" }] }, signal),
    plot({ ...drawn, title: "Lag in versions", lines: [{ name: "lag", values: found.lag, colour: "plot-lag" }] }, signal),
  ];
}

function reloads(found, shared, signal) {
  if (!found.at?.length) return null;
  return plot({
    ...shared, title: "Reload of a version by the workers, in s", at: found.at,
    lines: [{ name: "median", values: found.median, colour: "plot-episodes", points: true }, { name: "slowest", values: found.worst, colour: "plot-loss", points: true }],
    say: (index) => `version ${found.version[index]}: first step after ${number(found.median[index], 3)} s at the median worker, ${number(found.worst[index], 3)} s at the slowest`,
  }, signal);
}

function losses(found, query, edit, shared, signal) {
  const names = Object.keys(found?.metrics ?? {}).sort();
  if (!names.length)
    return h("p", { class: "muted" }, found?.at?.length ? `${count(found.at.length)} updates; the log records no losses of them.` : "No update yet.");
  const wanted = query.metrics === undefined ? atFirst(names) : query.metrics.split(",").map(decodeURIComponent);
  const chosen = names.filter((name) => wanted.includes(name));
  const box = (name) => h("label", { class: "chip" }, h("input", { type: "checkbox", checked: chosen.includes(name), data: { metric: name }, on: { change: (event) => {
    const next = event.target.checked ? [...chosen, name] : chosen.filter((each) => each !== name);
    edit({ ...query, metrics: next.length ? next.map(encodeURIComponent).join(",") : "none" });
  } } }), untrusted(name));
  const drawn = chosen.map((name) => plot({
    ...shared, title: plain(name), at: found.at, lines: [{ name, values: found.metrics[name], colour: "plot-loss" }],
    say: (index) => `update ${count(found.update[index])}: ${number(found.metrics[name][index])}, ${time(found.at[index])}`,
  }, signal));
  return h("section", {}, h("h2", {}, "What the learner measured"), h("fieldset", { class: "chips" }, h("legend", { class: "unseen" }, "Metrics"), names.map(box)), h("div", { class: "plots" }, drawn));
}

function atFirst(names) {
  const found = names.filter((name) => LOSSES.test(name));
  return (found.length ? found : names).slice(0, SHOWN_AT_FIRST);
}

function asTable(found, run) {
  if (!found?.at?.length) return null;
  const rows = found.at.map((at, index) => index).reverse().slice(0, ROWS);
  return h("details", { class: "as-table" }, h("summary", {}, "Evaluated versions as a table"), table("Evaluated versions", [
    { name: "Version", cell: (index) => (found.version[index] >= 0 ? link(to.version(run, found.version[index]), `version ${found.version[index]}`) : plain(found.policy?.[index] ?? found.version[index])) },
    { name: "Success", number: true, cell: (index) => `${percent(found.rate[index])}${found.unfinished?.[index] ? " so far" : ""}` },
    { name: "95 % interval", number: true, cell: (index) => `${percent(found.low[index])} to ${percent(found.high[index])}` },
    { name: "Episodes", number: true, cell: (index) => count(found.n[index]) },
    { name: "At", cell: (index) => time(found.at[index]) },
  ], rows));
}
