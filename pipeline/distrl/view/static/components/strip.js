// The film strip of an episode: a list of its screens side by side, of which those in sight are in the document.

import { h } from "../lib/dom.js";
import { untrusted } from "../lib/text.js";
import { inWords, picture } from "./screen.js";
import { arrange, inSight } from "./virtual.js";

const ITEM = 80; // px from one to the next; the style sheet has the same
const EXTRA = 4;

/**
 * frames: [{image, width, height, action, title, marked}]; choose(index): told when the reader chooses another.
 * Returns {element, select(index)}.
 */
export function strip(frames, choose, signal) {
  const track = h("div", { class: "strip-track", role: "presentation" });
  const element = h("div", { class: "strip", role: "listbox", tabindex: "0", "aria-label": "Steps", "aria-orientation": "horizontal" }, track);
  const shown = new Map();
  let selected = 0, frame = 0;
  track.style.width = `${frames.length * ITEM}px`;

  function made(index) {
    const each = frames[index];
    const item = h("div", {
      class: `strip-item ${each.marked ? "marked" : ""}`, role: "option", id: `frame-${index}`, "aria-setsize": frames.length,
      "aria-posinset": index + 1, "aria-selected": String(index === selected), on: { click: () => choose(index) },
    }, picture(each, "", true), h("span", { class: "strip-name" }, h("b", {}, each.title), " ", untrusted(each.action ? inWords({ ...each.action, touch: null, lift: null }) : "")));
    item.style.transform = `translateX(${index * ITEM}px)`;
    return item;
  }

  function draw() {
    frame = 0;
    const [first, last] = inSight(element.scrollLeft, element.clientWidth || innerWidth, ITEM, frames.length, EXTRA);
    const wanted = new Set([selected]);
    for (let index = first; index < last; index += 1) wanted.add(index);
    arrange(track, shown, [...wanted].sort((a, b) => a - b), made);
  }

  function drawSoon() {
    if (!frame) frame = requestAnimationFrame(draw);
  }

  element.addEventListener("scroll", drawSoon, { passive: true });
  window.addEventListener("resize", drawSoon, { signal });
  signal.addEventListener("abort", () => cancelAnimationFrame(frame));

  return {
    element,
    select(index) {
      shown.get(selected)?.setAttribute("aria-selected", "false");
      selected = index;
      const left = index * ITEM;
      if (left < element.scrollLeft || left + ITEM > element.scrollLeft + element.clientWidth)
        element.scrollLeft = left - element.clientWidth / 2 + ITEM / 2;
      draw();
      shown.get(index)?.setAttribute("aria-selected", "true");
      element.setAttribute("aria-activedescendant", `frame-${index}`);
    },
  };
}
