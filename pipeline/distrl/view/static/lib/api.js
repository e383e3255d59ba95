// What the server says, or the files of an export. Addresses are relative to the document, so that the pages work behind
// a proxy that adds a folder.

import { IS_EXPORT, exported } from "./exported.js";
import { fetched } from "./fetched.js";

const GONE = { error: "The server does not answer.", fix: "Is `distrl view` still running? Start it again, then retry." };

function path(parts) {
  return "api/" + parts.map((part) => encodeURIComponent(part).replaceAll("%3A", ":")).join("/");
}

async function get(parts, query, signal) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  if (IS_EXPORT) return exported(parts, Object.fromEntries(given), signal);
  return fetched(path(parts) + (given.length ? `?${new URLSearchParams(given)}` : ""), signal, GONE);
}

export const api = {
  /** again: only what is known by now, of runs that are being read since the list was asked for first. */
  runs: (signal, again = false) => get(["runs"], again ? { again: 1 } : {}, signal),
  run: (run, signal) => get(["runs", run], {}, signal),
  series: (run, query, signal) => get(["runs", run, "series"], query, signal),
  versions: (run, query, signal) => get(["runs", run, "versions"], query, signal),
  version: (run, version, signal) => get(["runs", run, "versions", version], {}, signal),
  trajectories: (run, query, signal) => get(["runs", run, "trajectories"], query, signal),
  episode: (run, topic, place, signal) => get(["runs", run, topic, place], {}, signal),
  verdicts: (run, topic, place, signal) => get(["runs", run, "verdicts", topic, place], {}, signal),
  task: (run, task, signal) => get(["runs", run, "tasks", task], {}, signal),
  failures: (run, query, signal) => get(["runs", run, "failures"], query, signal),
  devices: (run, signal) => get(["runs", run, "devices"], {}, signal),
  deadLetters: (run, query, signal) => get(["runs", run, "dead-letters"], query, signal),
  deadLetter: (run, place, signal) => get(["runs", run, "trajectories.dlq", place], {}, signal),
  reports: (signal) => get(["reports"], {}, signal),
  report: (id, signal) => get(["reports", id], {}, signal),
  counts: (run, signal) => get(["runs", run, "counts"], {}, signal),
  eventsAddress: (run) => path(["runs", run, "events"]),
};
