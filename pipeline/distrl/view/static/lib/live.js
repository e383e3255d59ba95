// What the run has by now, as the server says it. Pages draw nothing anew by themselves: they offer it.

import { api } from "./api.js";

/**
 * Follows a run until `signal` aborts. changed(counts): {trajectories, evaluations, version, updates, dead_letters};
 * state("live" | "waiting" | "still"): waiting while the browser connects again,
 * still where the server refuses.
 */
export function follow(run, signal, changed, state) {
  const source = new EventSource(api.eventsAddress(run));
  source.addEventListener("open", () => state("live"));
  source.addEventListener("error", () => state(source.readyState === EventSource.CLOSED ? "still" : "waiting"));
  source.addEventListener("changed", (event) => {
    try {
      changed(JSON.parse(event.data));
    } catch {
      // a line of another version of the server
    }
  });
  signal.addEventListener("abort", () => source.close());
}
