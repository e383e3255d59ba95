// The files of an export (`distrl view --export`) in place of a server: the same answers, under a path for each. Lists
// are there whole, and are filtered, sorted and cut into pages here.

import { ApiError, fetched } from "./fetched.js";
import { page, selected } from "./select.js";

/** Whether these pages are an export: it has another index.html. */
export const IS_EXPORT = document.querySelector("meta[name='distrl-answers']")?.content === "files";

const GONE = { error: "The export cannot be read.", fix: "A browser reads it from a server of files: `python -m http.server -d FOLDER`." };
const LEFT_OUT = "An export has some of a run's episodes: its overview says how many.";
const lists = new Map(); // run -> its rows, the oldest first
let last = { key: "", rows: [] }; // what was selected last: a list is asked for page by page

/** What the API says to `parts` and `query` (lib/api.js). Raises ApiError, AbortError. */
export async function exported(parts, query, signal) {
  const [kind, run, room, what] = parts.map(String);
  if (parts.length === 1) return file([kind], signal);
  if (kind === "reports") return file(["reports.d", run], signal, "Its list of reports names those that it has."); // no run is called so
  if (parts.length === 2) return file([run, "run"], signal);
  if (room === "series") return within(await file([run, "series"], signal), query);
  if (room === "trajectories" && parts.length === 3) return page(await chosen(run, query, signal), query);
  if (room === "tasks") return attempts(run, what, signal);
  if (room === "failures" && query.version) return file([run, room, query.version], signal, "Its list of versions names those that it has.");
  if (room === "trajectories.dlq") return deadLetter(run, what, signal);
  if (room === "dead-letters" || (room === "versions" && parts.length === 3)) return page((await file([run, room], signal)).rows, query);
  if (parts.length === 3) return file([run, room], signal);
  if (room === "verdicts") return file([run, room, what, parts[4].replace(":", "-")], signal);
  return file([run, room, what.replace(":", "-")], signal);
}

/** What an export says of itself: {made_at, runs: {RUN: {episodes, of, read_up_to}}}. */
export const manifest = (signal) => fetched("manifest.json", signal, GONE);

async function file(parts, signal, fix = LEFT_OUT) {
  try {
    return await fetched(`data/${parts.map(encodeURIComponent).join("/")}.json`, signal, GONE);
  } catch (error) {
    if (error.status === 404) throw new ApiError("This is not in the export.", fix, 404);
    throw error;
  }
}

/** All rows of a run. */
async function rowsOf(run, signal) {
  if (!lists.has(run)) {
    const { columns, rows } = await file([run, "trajectories"], signal);
    lists.set(run, rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index]]))));
  }
  return lists.get(run);
}

async function chosen(run, query, signal) {
  const { offset, limit, ...wanted } = query;
  const key = JSON.stringify([run, wanted]);
  if (last.key !== key) last = { key, rows: selected(await rowsOf(run, signal), wanted) };
  return last.rows;
}

async function deadLetter(run, place, signal) {
  const { rows } = await file([run, "dead-letters"], signal);
  const found = rows.find((row) => `${row.partition}:${row.offset}` === place);
  if (!found) throw new ApiError("This is not in the export.", "An export has a run's newest dead letters.", 404);
  return found;
}

/** A task, as its first attempt's record has it, and those attempts that are in the export. */
async function attempts(run, task, signal) {
  const rows = (await rowsOf(run, signal)).filter((row) => row.task_id === task);
  if (!rows.length) throw new ApiError("No episode of this task is in the export.", LEFT_OUT, 404);
  const [{ topic, partition, offset }] = rows;
  return { task: (await file([run, topic, `${partition}-${offset}`], signal)).task, attempts: rows };
}

/** Of the columns of a run's plots, what is of a time. The bins of the collection stay those of the whole run. */
function within(series, { from, to }) {
  const [low, high] = [from ? Number(from) : -Infinity, to ? Number(to) : Infinity];
  const cut = (columns) => {
    const keep = columns.at.map((at) => at === null || (at >= low && at <= high));
    const kept = (values) => (Array.isArray(values) ? values.filter((_, index) => keep[index]) : values);
    return Object.fromEntries(Object.entries(columns).map(([name, values]) =>
      [name, name === "metrics" ? Object.fromEntries(Object.entries(values).map(([metric, each]) => [metric, kept(each)])) : kept(values)]));
  };
  return Object.fromEntries(Object.entries(series).map(([name, each]) => [name, Array.isArray(each?.at) ? cut(each) : each]));
}
