// The phones of a run: how much they play, and how fast.

import { api } from "../lib/api.js";
import { add, h } from "../lib/dom.js";
import { count, duration, percent, time } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { untrusted } from "../lib/text.js";
import { link, table } from "../components/parts.js";
import { empty, loaded } from "../components/state.js";

export function devices({ root, route, signal, title }) {
  title(`Devices of ${route.run}`);
  const body = h("div");
  add(root, h("h1", {}, "Devices"), body);
  const columns = [
    { name: "Device", cell: (row) => link(to.trajectories(route.run, { device: row.device }), untrusted(row.device)) },
    { name: "Worker", cell: (row) => untrusted(row.worker ?? "–") },
    { name: "Episodes", number: true, cell: (row) => count(row.episodes) },
    { name: "Success", number: true, cell: (row) => percent(row.success) },
    { name: "Interrupted", number: true, cell: (row) => count(row.interrupted) },
    { name: "Mean step, median", number: true, cell: (row) => duration(row.step_ms?.median) },
    { name: "95 of 100 within", number: true, cell: (row) => duration(row.step_ms?.p95) },
    { name: "Last record", cell: (row) => time(row.last_at) },
  ];
  loaded(body, signal, "the devices", (stop) => api.devices(route.run, stop), (found) =>
    found.rows?.length ? table("Devices", columns, found.rows) : empty("No device yet", "No episode has been played."));
}
