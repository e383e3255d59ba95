// A task: all attempts at it, over versions.

import { api } from "../lib/api.js";
import { add, fill, h } from "../lib/dom.js";
import { plural } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { json, plain, untrusted } from "../lib/text.js";
import { listing } from "../components/listing.js";
import { facts, section } from "../components/parts.js";
import { empty, loaded } from "../components/state.js";
import { COLUMNS } from "./trajectories.js";

export function task({ root, route, signal, title }) {
  title(`Task ${plain(route.task)}`);
  const heading = h("h1", {}, untrusted(route.task));
  const body = h("div");
  add(root, h("p", { class: "kicker" }, "Task"), heading, body);
  loaded(body, signal, "the task", (stop) => api.task(route.run, route.task, stop), (found) => {
    const of = found.task ?? {};
    fill(heading, untrusted(of.instruction ?? route.task));
    const columns = COLUMNS.map((column) => ({ ...column, sort: undefined }));
    const attempts = found.attempts ?? [];
    const shown = listing({
      label: "Attempts", name: "trajectories", columns, href: (row) => to.row(route.run, row),
      load: async (offset, limit) => ({ total: attempts.length, rows: attempts.slice(offset, offset + limit) }),
      none: () => empty("No attempt yet", "The task was fed and nobody has played it."),
    }, signal);
    return [
      section("The task", facts([
        ["Task", h("code", { class: "hash" }, untrusted(route.task))],
        ["Suite and family", [untrusted(of.suite ?? "–"), " · ", untrusted(of.family ?? "–")]],
        ["Split", untrusted(of.split ?? "–")],
        ["Most steps", of.max_steps ?? "–"],
        ["Phone's seed", of.phone_seed ?? "–"],
        ["Parameters", of.params && Object.keys(of.params).length ? json(of.params) : null],
        ["Start of the phone", of.setup && of.setup !== "{}" ? json(of.setup) : null],
      ])),
      h("h2", {}, plural(attempts.length, "attempt")), shown.element,
    ];
  });
}
