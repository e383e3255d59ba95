// The line above a page that says whether it is live, and offers what is new without drawing it by itself.

import { fill, h } from "../lib/dom.js";
import { follow } from "../lib/live.js";

const STATES = { live: "live", waiting: "connecting again …", still: "not live", exported: "as it was exported" };

/**
 * options: run; words(counts) -> text of what is new on the page, "" for nothing; counts?(counts): called with each change;
 * show(): draws what is new. Returns {element, newest(), offer()}: `offer` asks for the words again, as the page has changed.
 */
export function status(options, signal) {
  const state = h("span", { class: "live" }, STATES.waiting);
  const button = h("button", { type: "button", class: "offer", hidden: true, on: { click: () => {
    button.hidden = true;
    options.show();
  } } });
  const element = h("div", { class: "status" }, state, h("span", { role: "status" }, button));
  let newest = null;

  function offer() {
    const words = newest === null ? "" : options.words(newest);
    button.hidden = !words;
    if (button.textContent !== words) fill(button, words);
  }

  follow(options.run, signal, (counts) => {
    newest = counts;
    options.counts?.(counts);
    offer();
  }, (name) => {
    state.textContent = STATES[name];
    state.dataset.state = name;
  });
  return { element, newest: () => newest, offer };
}
