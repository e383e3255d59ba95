// What the run has by now, as the server says it. Pages draw nothing anew by themselves: they offer it.

import { api } from "./api.js";
import { IS_EXPORT } from "./exported.js";

/**
 * Follows a run until `signal` aborts. changed(counts): {trajectories, evaluations, version, updates, dead_letters};
 * state("live" | "waiting" | "still" | "exported"): waiting while the browser connects again,
 * still where the server refuses, exported where nothing ever changes.
 */
export function follow(run, signal, changed, state) {
  if (IS_EXPORT) {
    state("exported");
    return;
  }
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
