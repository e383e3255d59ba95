// Filters and sorts rows of episodes as the server does (distrl/view/filters.py): for an export, which has no server.
// Pure.

import { ApiError } from "./fetched.js";

const EQUAL = ["topic", "outcome", "suite", "family", "split", "device", "worker", "task_id", "mode"];
const SORTED = ["finished_at", "steps", "lag", "version_last", "outcome", "family", "instruction"];
const NATURAL = /^\d{1,15}$/;
const WHOLE = { version: /^-?\d{1,15}$/, from: NATURAL, to: NATURAL, from_offset: NATURAL, to_offset: NATURAL };
const KNOWN = [...EQUAL, ...Object.keys(WHOLE), "text", "sort", "order"];
// In place of a mode: a failure without steps has none.
const NO_STEPS = "no steps";

/** The rows that a query names, in its order. rows: the oldest first. Raises ApiError for a query that is malformed. */
export function selected(rows, query) {
  const unknown = Object.keys(query).find((name) => !KNOWN.includes(name));
  if (unknown !== undefined) throw new ApiError(`${unknown.slice(0, 40)}: is no parameter of this address`, `use one of: ${KNOWN.join(", ")}`, 400);
  const { version, from, to, from_offset: first, to_offset: end } = Object.fromEntries(Object.keys(WHOLE).map((name) => [name, whole(query, name)]));
  const equal = EQUAL.filter((name) => query[name]);
  const text = query.text ? lower(query.text) : null;
  const found = rows.filter((row) =>
    equal.every((name) => (name === "mode" ? modeOf(row) : row[name]) === query[name]) &&
    (first === null || row.offset >= first) && (end === null || row.offset < end) &&
    (version === null || played(row, version)) &&
    (text === null || lower(row.instruction).includes(text) || lower(row.task_id).includes(text)) &&
    (from === null || row.finished_at >= from) && (to === null || row.finished_at < to));
  const { sort = "finished_at", order = "desc" } = query;
  if (!SORTED.includes(sort)) throw refused("sort", sort, `use one of: ${SORTED.join(", ")}`);
  if (!["asc", "desc"].includes(order)) throw refused("order", order, "use one of: asc, desc");
  if (order === "desc") found.reverse(); // of equal ones the newest is first
  return found.sort((a, b) => compared(a[sort], b[sort], order === "asc" ? 1 : -1));
}

/** Some of the rows, as `offset` and `limit` of a query say. */
export function page(rows, { offset = 0, limit = 100 }) {
  const first = Number(offset);
  return { total: rows.length, rows: rows.slice(first, first + Number(limit)) };
}

/** Whether a version acted in an episode; of an evaluation, whether it was the one evaluated. */
function played(row, version) {
  if (row.evaluated !== null) return row.evaluated === version;
  return row.version_first !== null && row.version_first <= version && row.version_last >= version;
}

const modeOf = (row) => row.mode ?? (row.outcome === "failure" ? NO_STEPS : null);

/** null is last in either order. */
function compared(a, b, sign) {
  if (a === b) return 0;
  if (a === null || b === null) return a === null ? 1 : -1;
  return a < b ? -sign : sign;
}

/** Letters of ASCII alone, as SQLite's LIKE. */
const lower = (text) => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());

function whole(query, name) {
  const text = String(query[name] ?? "").trim();
  if (!text) return null;
  if (!WHOLE[name].test(text)) throw refused(name, text, `write ${name}=1, or leave it out`);
  return Number(text);
}

const refused = (name, value, fix) => new ApiError(`${name}: '${String(value).slice(0, 40)}' is not known`, fix, 400);
