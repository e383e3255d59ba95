// The list of trajectories: filtered, sorted and as long as the log.

import { api } from "../lib/api.js";
import { add, fill, h } from "../lib/dom.js";
import { count, duration, isNumber, plural, time, versions } from "../lib/format.js";
import { replace } from "../lib/router.js";
import { to } from "../lib/routes.js";
import { untrusted } from "../lib/text.js";
import { filterBar } from "../components/filters.js";
import { listing } from "../components/listing.js";
import { badge } from "../components/parts.js";
import { empty, loaded } from "../components/state.js";
import { status } from "../components/status.js";

export const COLUMNS = [
  { name: "Outcome", sort: "outcome", class: "outcome", cell: (row) => badge(row.outcome) },
  { name: "Task", sort: "instruction", class: "what", link: true, cell: (row) => [untrusted(row.instruction, "line"), row.expert ? h("span", { class: "tag" }, "demonstration") : null] },
  { name: "Family", sort: "family", class: "family", cell: (row) => [untrusted(row.suite ?? ""), " · ", untrusted(row.family ?? "")] },
  { name: "Steps", sort: "steps", class: "number", cell: (row) => count(row.steps) },
  { name: "Versions", sort: "version_last", class: "number", cell: (row) => versions(row.version_first, row.version_last) },
  { name: "Lag", sort: "lag", class: "number", cell: (row) => (isNumber(row.lag) ? count(row.lag) : "–") },
  { name: "Device", class: "device", cell: (row) => untrusted(row.device ?? "") },
  { name: "Took", class: "number took", cell: (row) => duration(row.finished_at - row.started_at) },
  { name: "Ended", sort: "finished_at", class: "when", cell: (row) => time(row.finished_at) },
];

export function trajectories({ root, route, signal, title }) {
  title(`Trajectories of ${route.run}`);
  let query = route.query;
  let listed = null, bar = null, upto = null;
  const filters = h("div", { class: "filters-place" });
  const total = h("p", { class: "total", role: "status" });
  const list = h("div");
  const live = status({
    run: route.run,
    words(now) {
      // `upto` is the number of the newest record that the list may have: records are numbered as they come.
      const added = upto === null ? 0 : now.trajectories + now.evaluations + now.demonstrations - upto;
      if (added < 0) return "Show the run as it was begun again";
      return added > 0 ? `Show ${plural(added, "new record")}` : "";
    },
    show: () => draw(),
  }, signal);
  add(root, h("h1", {}, "Trajectories"), filters, h("div", { class: "list-head" }, total, live.element), list);

  loaded(filters, signal, "the filters", (stop) => api.run(route.run, stop), (run) => {
    bar = filterBar(run, query, edit, signal);
    return bar.element;
  });

  function edit(wanted, typed) {
    const address = to.trajectories(route.run, wanted);
    if (!typed) {
      location.hash = address; // an entry in the history; `update` draws it
      return;
    }
    replace(address);
    query = wanted;
    draw();
  }

  function draw() {
    listed?.abort();
    listed = new AbortController();
    upto = null;
    const { sort = "finished_at", order = "desc" } = query;
    const shown = listing({
      label: "Trajectories", name: "trajectories", columns: COLUMNS, sort: { by: sort, order },
      href: (row) => to.row(route.run, row),
      async load(offset, limit, stop) {
        const found = await api.trajectories(route.run, { ...query, offset, limit, upto }, stop);
        upto ??= found.upto ?? null;
        return found;
      },
      onSort: (by) => edit({ ...query, sort: by, order: by === sort && order === "desc" ? "asc" : "desc" }, false),
      first(found) {
        fill(total, plural(found.total, "episode"));
        live.offer();
      },
      none: () => nothing(query, route.run),
    }, AbortSignal.any([signal, listed.signal]));
    fill(list, shown.element);
  }

  draw();
  return {
    update(wanted) {
      query = wanted;
      bar?.set(query);
      draw();
    },
  };
}

function nothing(query, run) {
  const filtered = Object.keys(query).some((name) => !["sort", "order"].includes(name));
  if (filtered) return empty("No episode matches", "Fewer filters find more.", h("p", {}, h("a", { href: to.trajectories(run) }, "All episodes")));
  return empty("No episode yet", "Episodes appear here when workers have played them. ",
    h("p", {}, h("code", {}, "distrl status"), " says what the run is doing."));
}
