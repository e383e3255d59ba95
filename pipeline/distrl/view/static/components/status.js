// The line above a page that says whether it is live, and offers what is new without drawing it by itself.

import { fill, h } from "../lib/dom.js";
import { follow } from "../lib/live.js";

const STATES = { live: "live", waiting: "connecting again …", still: "not live", exported: "as it was exported" };

/**
 * options: run; words(counts) -> text of what is new since `take`, "" for nothing; counts(counts): told of each change;
 * show(): draws what is new. Returns {element, take(counts)}: `take` says what the page shows by now.
 */
export function status(options, signal) {
  const state = h("span", { class: "live" }, STATES.waiting);
  const offer = h("button", { type: "button", class: "offer", hidden: true, on: { click: () => {
    offer.hidden = true;
    options.show();
  } } });
  const element = h("div", { class: "status" }, state, h("span", { role: "status" }, offer));
  let newest = null;

  follow(options.run, signal, (counts) => {
    newest = counts;
    options.counts?.(counts);
    const words = options.words(counts);
    offer.hidden = !words;
    if (offer.textContent !== words) fill(offer, words);
  }, (name) => {
    state.textContent = STATES[name];
    state.dataset.state = name;
  });
  return { element, newest: () => newest };
}
