// What a page shows while it has nothing else: loading, an error with what fixes it, or nothing found.

import { add, fill, h } from "../lib/dom.js";
import { block, untrusted } from "../lib/text.js";

// A quick answer shows no sign of loading: a flash distracts.
const PATIENCE_MS = 150;
// An index that is being made, or a broker that is away, is asked again.
const AGAIN_MS = 1500;
const NOT_YET = 503;

/** A sign of loading in `root`, after a moment. Returns what ends it. */
export function loading(root, what) {
  root.setAttribute("aria-busy", "true");
  const timer = setTimeout(() => fill(root, h("div", { class: "state" },
    h("div", { class: "skeleton" }), h("div", { class: "skeleton" }), h("div", { class: "skeleton" }), h("p", {}, `Loading ${what} …`))), PATIENCE_MS);
  return () => {
    clearTimeout(timer);
    root.removeAttribute("aria-busy");
  };
}

/** An error; retry: called by its button. */
export function failed(error, retry) {
  const locked = error.status === 401;
  return h("div", { class: "state error", role: "alert" },
    h("h2", {}, error.status === 404 ? "This is not there" : error.status === NOT_YET ? "Not yet: this is asked for again by itself" : locked ? "The token is missing" : "This could not be loaded"),
    block(error.message),
    error.fix ? h("p", { class: "fix" }, untrusted(error.fix)) : null,
    h("p", {}, h("button", { type: "button", on: { click: locked ? () => location.reload() : retry } }, locked ? "Enter it" : "Try again")));
}

/** Calls `again` after a moment where the server says that it cannot answer yet. Returns what calls that off. */
export function retried(error, signal, again) {
  if (error.status !== NOT_YET) return () => {};
  const timer = setTimeout(() => {
    stop();
    again();
  }, AGAIN_MS);
  const stop = () => {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop); // `signal` may last as long as the page, which may ask for hours
  };
  signal.addEventListener("abort", stop);
  return stop;
}

/** Nothing is there. title and why: texts of the program; more: nodes. */
export function empty(title, why, ...more) {
  return add(h("div", { class: "state" }, h("h2", {}, title), h("p", {}, why)), more);
}

/**
 * Loads and draws a part of a page: `load(signal)`, then `draw(found)` gives nodes. Errors are drawn with a retry.
 * Returns a function that does it again, showing no loading sign over what is there already; it aborts a call that still
 * waits, so that no older answer is drawn over a newer one.
 */
export function loaded(root, signal, what, load, draw) {
  let newest = new AbortController();
  let done = () => {};
  signal.addEventListener("abort", () => done());

  async function once(quiet) {
    newest.abort();
    newest = new AbortController();
    const until = AbortSignal.any([signal, newest.signal]);
    if (!quiet) {
      done();
      done = loading(root, what);
    }
    try {
      const found = await load(until);
      if (until.aborted) return;
      done();
      fill(root, draw(found));
    } catch (error) {
      if (until.aborted) return;
      done();
      if (!(error.status >= 0)) console.error(error);
      fill(root, failed(error, () => once(false)));
      retried(error, until, () => once(true));
    }
  }
  once(false);
  return () => once(true);
}
