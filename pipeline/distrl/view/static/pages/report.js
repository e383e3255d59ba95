// One report: what its arms are worth against each other, how they learned, and what they were computed under.

import { api } from "../lib/api.js";
import { add, fill, h } from "../lib/dom.js";
import { NONE, isNumber, number } from "../lib/format.js";
import { replace } from "../lib/router.js";
import { to } from "../lib/routes.js";
import { json, plain, untrusted } from "../lib/text.js";
import { facts, section, table } from "../components/parts.js";
import { plot } from "../components/plot.js";
import { loaded } from "../components/state.js";

// As many as there are colours of lines that are told apart.
const COLOURS = ["plot-success", "plot-loss", "plot-collection", "plot-lag", "plot-episodes"];
// A line of fewer points shows each of them.
const FEW = 50;

export function report({ root, route, signal, title }) {
  title("Report");
  const heading = h("h1", {}, "Report");
  const body = h("div");
  add(root, heading, body);
  loaded(body, signal, "the report", (stop) => api.report(route.report, stop), (found) => {
    title(plain(found.title));
    fill(heading, untrusted(found.title));
    return [
      h("p", { class: "kicker" }, found.kind, " · ", untrusted(found.name)),
      h("p", {}, untrusted(found.about)),
      found.complete ? null : h("p", { class: "note" }, "This report is not complete: the same command goes on with the arms that are missing."),
      found.notes.length ? h("div", { class: "note" }, found.notes.map((line) => h("p", {}, untrusted(line)))) : null,
      section("What was asked", facts(found.facts.map(([name, value]) => [name, untrusted(value)]))),
      found.tables.map(drawnTable),
      found.curves.length ? curves(found.curves, route, signal) : null,
      section("Settings", h("details", {}, h("summary", {}, "What it was computed under"), json(found.settings))),
    ];
  });
}

function drawnTable({ title, columns, rows, note }) {
  const numbers = columns.map((_, place) => rows.some((row) => typeof row[place] === "number"));
  const cells = columns.map((name, place) => ({ name: untrusted(name), number: numbers[place], cell: (row) => cell(row[place]) }));
  return section(title, table(title, cells, rows), note ? h("p", { class: "muted" }, note) : null);
}

/** A text, a number, or [value, low, high] of an interval. */
function cell(value) {
  if (value === null || value === undefined) return NONE;
  if (isNumber(value)) return number(value);
  if (typeof value === "string") return untrusted(value);
  const [mean, low, high] = value;
  return h("span", { class: "interval" }, number(mean), isNumber(low) && isNumber(high) ? h("span", { class: "muted" }, ` (${number(low)} to ${number(high)})`) : null);
}

/** One curve at a time, of some arms; the address says which. all: curves with a line for each arm, in the same order. */
function curves(all, route, signal) {
  const names = all[0].lines.map((line) => plain(line.name));
  const place = h("div");
  let query = { ...route.query };
  let drawn = null;

  const chosen = () => (query.arms === undefined ? names.map((_, arm) => arm) : query.arms.split(",").map(Number).filter((arm) => arm in names)).slice(0, COLOURS.length);
  const curve = () => all.find((each) => each.name === query.curve) ?? all[0];

  function edit(change) {
    query = { ...query, ...change };
    replace(to.report(route.report, query));
    draw();
  }

  function choose(arm, checked) {
    const arms = checked ? [...chosen(), arm].sort((a, b) => a - b) : chosen().filter((each) => each !== arm);
    edit({ arms: arms.join(",") || "none" });
  }

  const select = h("select", { on: { change: () => edit({ curve: select.value }) } },
    all.map((each) => h("option", { value: each.name, selected: each === curve() }, plain(each.name))));
  const boxes = names.map((_, arm) => h("input", { type: "checkbox", on: { change: (event) => choose(arm, event.target.checked) } }));

  function draw() {
    drawn?.abort();
    drawn = new AbortController();
    const [of, arms] = [curve(), chosen()];
    boxes.forEach((box, arm) => {
      box.checked = arms.includes(arm);
      box.disabled = !box.checked && arms.length >= COLOURS.length;
    });
    const lines = arms.map((arm, index) => ({ name: names[arm], values: of.lines[arm].values, colour: COLOURS[index], points: of.at.length < FEW }));
    fill(place, lines.length ? plot({
      title: plain(of.name), hint: `By ${of.x}.`, at: of.at, x: of.x, lines, range: spanOf(of.at),
      say: (index) => `${of.x} ${number(of.at[index])}: ${lines.map((line) => `${line.name} ${number(line.values[index])}`).join(", ")}`,
    }, AbortSignal.any([signal, drawn.signal])) : h("p", { class: "muted" }, "No arm is chosen."));
  }

  draw();
  return section("Curves", h("label", { class: "choice" }, "Curve", select),
    h("fieldset", { class: "chips" }, h("legend", { class: "muted" }, `Arms, at most ${COLOURS.length}`),
      boxes.map((box, arm) => h("label", { class: "chip" }, box, untrusted(names[arm])))), place);
}

function spanOf(at) {
  const [first, last] = [at[0], at[at.length - 1]];
  const margin = (last - first) * 0.02 || 1;
  return [first - margin, last + margin];
}
