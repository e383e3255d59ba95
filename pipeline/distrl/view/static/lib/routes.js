// Addresses of pages: `#/RUN/…`, so that the server needs to know one document. Pure.

const REPORTS = "~reports"; // in place of a run, whose name never begins so
const EPISODES = ["trajectories", "evaluations", "demonstrations"];
const DEAD_LETTERS = "trajectories.dlq";
const PLACE = /^\d+:\d+$/;

/** {page, run?, …, query} of the part of an address behind `#`; page is "unknown" for one that is none. */
export function parse(hash) {
  const [path, query = ""] = split(hash.replace(/^#?\/?/, ""));
  const found = named(path.split("/").filter((part) => part !== "").map(decoded));
  return { ...found, query: Object.fromEntries(new URLSearchParams(query)) };
}

function named(parts) {
  const [run, room, what, step, ...rest] = parts;
  if (run === undefined) return { page: "runs" };
  if (run === REPORTS && room === undefined) return { page: "reports" };
  if (run === REPORTS && what === undefined) return { page: "report", report: room };
  if (rest.length) return { page: "unknown", run };
  if (room === undefined) return { page: "run", run };
  if (EPISODES.includes(room) && PLACE.test(what ?? "") && /^(\d+|final)?$/.test(step ?? ""))
    return { page: "episode", run, topic: room, place: what, step: step ?? null };
  if (room === DEAD_LETTERS && PLACE.test(what ?? "") && step === undefined) return { page: "dead-letter", run, place: what };
  if (room === "tasks" && what !== undefined && step === undefined) return { page: "task", run, task: what };
  if (room === "versions" && /^-?\d+$/.test(what ?? "") && step === undefined)
    return { page: "version", run, version: Number(what) };
  if (what === undefined && ["trajectories", "versions", "failures", "devices", "dead-letters"].includes(room))
    return { page: room, run };
  return { page: "unknown", run };
}

function split(text) {
  const at = text.indexOf("?");
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function address(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return "#/" + parts.map((part) => encodeURIComponent(part).replaceAll("%3A", ":")).join("/") + (search ? `?${search}` : "");
}

export const to = {
  runs: () => "#/",
  reports: () => address([REPORTS]),
  report: (id, query) => address([REPORTS, id], query),
  run: (run, query) => address([run], query),
  versions: (run) => address([run, "versions"]),
  version: (run, version) => address([run, "versions", version]),
  trajectories: (run, query) => address([run, "trajectories"], query),
  episode: (run, topic, place, step) => address([run, topic, place, ...(step === undefined || step === null ? [] : [step])]),
  row: (run, row) => to.episode(run, row.topic, `${row.partition}:${row.offset}`),
  task: (run, task) => address([run, "tasks", task]),
  failures: (run, query) => address([run, "failures"], query),
  devices: (run) => address([run, "devices"]),
  deadLetters: (run, query) => address([run, "dead-letters"], query),
  deadLetter: (run, place) => address([run, DEAD_LETTERS, place]),
};
