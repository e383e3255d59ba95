// What the run has by now, as the server says it. Pages draw nothing anew by themselves: they offer it.

import { api } from "./api.js";
import { IS_EXPORT } from "./exported.js";

// A browser opens six connections to a server and a stream holds one of them: one window of a browser has the stream,
// and each other one asks.
const STREAM = "distrl-events";
const ASK_MS = 2000;

/**
 * Follows a run until `signal` aborts, while its window is shown. changed(counts): {trajectories, evaluations,
 * demonstrations, version, updates, dead_letters}; state("live" | "waiting" | "still" | "exported"): waiting while the
 * server does not answer or has no such run, as one that is removed and begun again, still where it refuses, exported
 * where nothing ever changes.
 */
export function follow(run, signal, changed, state) {
  if (IS_EXPORT) {
    state("exported");
    return;
  }
  let shown = null; // aborts when the window is hidden
  let last = "";

  function found(counts) {
    const text = JSON.stringify(counts);
    if (text !== last) changed(counts);
    last = text;
  }

  function look() {
    shown?.abort();
    if (document.hidden || signal.aborted) return;
    shown = new AbortController();
    ask(shown.signal);
  }

  async function ask(until) {
    if (!(await streamed(run, until, found, state, () => count(until)))) count(until);
  }

  async function count(until) {
    try {
      found(await api.counts(run, until));
      if (!until.aborted) state("live");
    } catch (error) {
      if (until.aborted) return;
      const refused = [400, 401, 403].includes(error.status);
      state(refused ? "still" : "waiting");
      if (refused) return;
    }
    const timer = setTimeout(() => {
      until.removeEventListener("abort", stop); // `until` lasts as long as the window is seen, which may be weeks
      ask(until);
    }, ASK_MS);
    const stop = () => clearTimeout(timer);
    until.addEventListener("abort", stop, { once: true });
  }

  document.addEventListener("visibilitychange", look, { signal });
  signal.addEventListener("abort", look);
  look();
}

/**
 * Whether this window has the stream, which it then holds until `until` aborts, or until the server gives none: then
 * `ended` is called. A page without TLS has no locks.
 */
function streamed(run, until, found, state, ended) {
  return new Promise((answer) => {
    if (!navigator.locks) return answer(false);
    navigator.locks.request(STREAM, { ifAvailable: true }, (lock) => {
      answer(lock !== null);
      if (lock === null || until.aborted) return null;
      return new Promise((release) => stream(run, until, found, state, release)).then(() => {
        if (!until.aborted) ended();
      });
    });
  });
}

/** Listens until `until` aborts, or the server gives no stream, be it for now; then calls `release`. */
function stream(run, until, found, state, release) {
  const source = new EventSource(api.eventsAddress(run));
  source.addEventListener("open", () => state("live"));
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) end(); // a browser tries again by itself only after some errors
    else state("waiting");
  });
  source.addEventListener("changed", (event) => {
    try {
      found(JSON.parse(event.data));
    } catch {
      // a line of another version of the server
    }
  });
  until.addEventListener("abort", end);

  function end() {
    until.removeEventListener("abort", end);
    source.close();
    release();
  }
}
