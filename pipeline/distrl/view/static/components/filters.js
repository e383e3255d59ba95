// The filters of the list of trajectories. The address holds them, so a filtered list is a link.

import { h } from "../lib/dom.js";
import { plain } from "../lib/text.js";

const OUTCOMES = ["success", "failure", "unknown", "interrupted"];
const TOPICS = ["trajectories", "evaluations", "demonstrations"];
const SPLITS = ["train", "validation", "test"];
const MODES = ["wrong goal", "stuck midway", "failed to recover", "no steps"];
const MORE = ["split", "mode", "version", "device", "worker", "from", "to", "from_offset", "to_offset"];
export const SORTS = [
  ["finished_at", "time"], ["steps", "steps"], ["lag", "lag"], ["version_last", "version"], ["outcome", "outcome"],
  ["family", "family"], ["instruction", "instruction"],
];
// A word is typed before it is searched for.
const TYPING_MS = 300;

/**
 * run: what the server says of it (suites, families, devices); query: the filters now; change(query, typed): told of
 * new ones, `typed` where the reader is still in a field, and of none after `signal`. Returns {element, set(query)}.
 */
export function filterBar(run, query, change, signal) {
  let now = { ...query };
  let timer = 0, typing = null; // the edit that is made once the reader stops typing

  function choice(name, label, values) {
    const given = now[name] && !values.includes(now[name]) ? [now[name], ...values] : values;
    return labelled(label, h("select", { name, on: { change: (event) => edit(name, event.target.value) } },
      h("option", { value: "" }, "any"), given.map((each) => h("option", { value: each }, plain(each)))));
  }

  function field(name, label, type, more = {}) {
    return labelled(label, h("input", { name, type, ...more, autocomplete: "off", on: { input: (event) => {
      if (typing?.name !== name) settle();
      typing = { name, value: event.target.value.trim() };
      clearTimeout(timer);
      timer = setTimeout(settle, TYPING_MS);
    } } }));
  }

  function moment(name, label) {
    return labelled(label, h("input", { name, type: "datetime-local", step: "1", on: { change: (event) => {
      const at = new Date(event.target.value).getTime();
      edit(name, Number.isNaN(at) ? "" : String(at));
    } } }));
  }

  function settle() {
    clearTimeout(timer);
    const typed = typing;
    typing = null;
    if (typed !== null && !signal.aborted) edit(typed.name, typed.value, true);
  }

  function edit(name, value, typed = false) {
    if (!typed) settle();
    now = { ...now, [name]: value };
    if (!value) delete now[name];
    change(now, typed);
    clear.hidden = !given(now);
  }

  const clear = h("button", { type: "button", class: "quiet", on: { click: () => {
    now = Object.fromEntries(Object.entries(now).filter(([name]) => ["sort", "order"].includes(name)));
    set(now);
    change(now, false);
  } } }, "Clear filters");
  const element = h("form", { class: "filters", role: "search", "aria-label": "Filter trajectories", on: { submit: (event) => event.preventDefault() } },
    field("text", "Text", "search", { placeholder: "instruction or task" }),
    choice("outcome", "Outcome", OUTCOMES),
    choice("topic", "Kind", TOPICS),
    choice("suite", "Suite", run.suites ?? []),
    choice("family", "Family", run.families ?? []),
    h("details", { class: "more-filters" },
      h("summary", {}, "More filters"),
      h("div", { class: "filters-more" },
        choice("split", "Split", SPLITS),
        choice("mode", "How it failed", MODES),
        field("version", "Version", "number", { min: "-2", step: "1" }),
        choice("device", "Device", run.devices ?? []),
        field("worker", "Worker", "text"),
        moment("from", "From"),
        moment("to", "Until"),
        field("from_offset", "From offset", "number", { min: "0", step: "1" }),
        field("to_offset", "Before offset", "number", { min: "0", step: "1" }),
        labelled("Sort by", h("select", { name: "sort", on: { change: (event) => edit("sort", event.target.value) } },
          SORTS.map(([value, name]) => h("option", { value }, name)))),
        labelled("Order", h("select", { name: "order", on: { change: (event) => edit("order", event.target.value) } },
          h("option", { value: "desc" }, "descending"), h("option", { value: "asc" }, "ascending"))))),
    clear);

  function set(wanted) {
    typing = null;
    now = { ...wanted };
    if (MORE.some((name) => now[name])) element.querySelector("details").open = true;
    for (const control of element.querySelectorAll("[name]")) {
      const value = now[control.name] ?? { sort: "finished_at", order: "desc" }[control.name] ?? "";
      const shown = control.type === "datetime-local" ? local(value) : value;
      if (control.value !== shown) control.value = shown; // a date that is typed in parts begins again where it is set
    }
    clear.hidden = !given(now);
  }

  set(now);
  return { element, set };
}

const given = (query) => Object.keys(query).some((name) => !["sort", "order"].includes(name));

function labelled(label, control) {
  return h("label", {}, h("span", {}, label), control);
}

/** ms since the epoch as the value of a field for a local date and time. */
function local(ms) {
  if (!ms) return "";
  const at = new Date(Number(ms));
  if (Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
