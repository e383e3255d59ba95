// A screenshot with the touch of its action drawn on it.

import { fill, h, svg } from "../lib/dom.js";
import { isNumber } from "../lib/format.js";
import { plain, untrusted } from "../lib/text.js";

// As shares of the screenshot's width, like `distrl.evaluate.touches`: about a fingertip, and an arrow's head.
const RADIUS = 0.055;
const HEAD = 0.075;
const HEAD_ANGLE = 0.45;
const SMALL_FACTOR = 2.2;
// px of the last screenshot that was seen, for those whose record does not say: the proportions of a phone at first.
let usual = [9, 20];

/** The size of a step's screenshot in px, as far as it is known. */
const sizeOf = (step) => (step.width > 0 && step.height > 0 ? [step.width, step.height] : usual);

/** Where a point is on a screenshot, px; null for none. Points outside of it are at its edge. Pure. */
export function place(point, width, height) {
  if (!Array.isArray(point) || !point.every(isNumber)) return null;
  const [x, y] = point.map((share) => Math.min(1, Math.max(0, share)));
  return [x * width, y * height];
}

/** The touch of an action as SVG over a screenshot of that size; null for an action without one. factor: how much larger
 * than a fingertip it is drawn. */
export function touch(action, width, height, factor = 1) {
  const start = place(action?.touch, width, height);
  if (!start) return null;
  const end = place(action.lift, width, height);
  const moves = end && (end[0] !== start[0] || end[1] !== start[1]);
  // Twice: a wide line in the colour of paper, so that the mark is seen on any screen.
  const unit = width * factor;
  const drawn = ["halo", "ink"].map((name) =>
    svg("g", { class: name, "stroke-width": (name === "halo" ? 0.026 : 0.012) * unit }, moves ? arrow(start, end, unit) : ring(start, unit)));
  return svg("svg", { class: "touch", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, drawn);
}

function ring([cx, cy], unit) {
  return [svg("circle", { class: "ring", cx, cy, r: RADIUS * unit }), dot([cx, cy], unit)];
}

const dot = ([cx, cy], unit) => svg("circle", { class: "dot", cx, cy, r: (RADIUS * unit) / 4 });

function arrow(start, end, unit) {
  const angle = Math.atan2(end[1] - start[1], end[0] - start[0]);
  const corner = (side) => [end[0] - HEAD * unit * Math.cos(angle + side), end[1] - HEAD * unit * Math.sin(angle + side)];
  const points = [end, corner(-HEAD_ANGLE), corner(HEAD_ANGLE)].map((each) => each.join(",")).join(" ");
  return [
    dot(start, unit),
    svg("line", { x1: start[0], y1: start[1], x2: end[0], y2: end[1] }),
    svg("polygon", { class: "dot", points }),
  ];
}

/** An action in words. Untrusted: it holds what a policy typed. */
export function inWords(action) {
  if (!action) return "the end";
  const points = [action.touch, action.lift].filter(Boolean).map(([x, y]) => `(${Number(x).toFixed(2)}, ${Number(y).toFixed(2)})`);
  const text = action.text ? ` “${action.text}”` : "";
  return `${action.kind}${points.length ? " " : ""}${points.join(" to ")}${text}`;
}

/** A box of a screenshot's proportions with the picture and the touch. alt: untrusted. small: of a film strip. */
export function picture(step, alt, small = false) {
  const [width, height] = sizeOf(step);
  const box = h("div", { class: "picture" });
  if (!step.image) return gone(box, step.image_absent || "The record names no screenshot.");
  const image = h("img", { alt: plain(alt), width, height, decoding: "async", draggable: "false", loading: small ? "lazy" : null });
  const drawn = touch(step.action, width, height, small ? SMALL_FACTOR : 1);
  box.style.setProperty("--ratio", width / height);
  image.addEventListener("error", () => explain(box, step.image));
  image.addEventListener("load", () => {
    // A record may not know its screenshots' size: then the picture does.
    if (step.width > 0 || !image.naturalWidth) return;
    usual = [image.naturalWidth, image.naturalHeight];
    [image.width, image.height] = usual;
    box.style.setProperty("--ratio", usual[0] / usual[1]);
    drawn?.replaceWith(touch(step.action, ...usual, small ? SMALL_FACTOR : 1));
  });
  image.src = step.image;
  return fill(box, image, drawn);
}

function gone(box, why) {
  box.classList.add("gone");
  return fill(box, h("p", {}, "No screenshot"), h("p", { class: "muted" }, untrusted(why)));
}

async function explain(box, address) {
  let why = "It could not be loaded.";
  try {
    const answer = await fetch(address);
    if (!answer.ok) why = (await answer.json()).error ?? why;
  } catch {
    // the general words stay
  }
  gone(box, why);
}
