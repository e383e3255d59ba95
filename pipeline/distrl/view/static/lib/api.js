// What the server says. Addresses are relative to the document, so that the pages work behind a proxy that adds a folder.

/** What went wrong, and what fixes it; both for people and untrusted. */
export class ApiError extends Error {
  constructor(message, fix = "", status = 0) {
    super(message);
    this.fix = fix;
    this.status = status;
  }
}

function path(parts) {
  return "api/" + parts.map((part) => encodeURIComponent(part).replaceAll("%3A", ":")).join("/");
}

async function get(parts, query, signal) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  let answer;
  try {
    answer = await fetch(path(parts) + search, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer.", "Is `distrl view` still running? Start it again, then retry.");
  }
  let found = null;
  try {
    found = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!answer.ok) throw new ApiError(found?.error ?? `The server answered ${answer.status}.`, found?.fix ?? "", answer.status);
  if (found === null) throw new ApiError("The answer is no JSON.", "Is this address that of `distrl view`?");
  return found;
}

export const api = {
  runs: (signal) => get(["runs"], {}, signal),
  run: (run, signal) => get(["runs", run], {}, signal),
  series: (run, query, signal) => get(["runs", run, "series"], query, signal),
  versions: (run, query, signal) => get(["runs", run, "versions"], query, signal),
  version: (run, version, signal) => get(["runs", run, "versions", version], {}, signal),
  trajectories: (run, query, signal) => get(["runs", run, "trajectories"], query, signal),
  episode: (run, topic, place, signal) => get(["runs", run, topic, place], {}, signal),
  task: (run, task, signal) => get(["runs", run, "tasks", task], {}, signal),
  failures: (run, query, signal) => get(["runs", run, "failures"], query, signal),
  devices: (run, signal) => get(["runs", run, "devices"], {}, signal),
  deadLetters: (run, query, signal) => get(["runs", run, "dead-letters"], query, signal),
  eventsAddress: (run) => path(["runs", run, "events"]),
};
