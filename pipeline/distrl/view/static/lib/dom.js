// Elements from plain values. Every text becomes a text node: no function here takes markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. `attributes`: `class`, `on` ({event: listener}), `data` ({name: value}), any other attribute by its name;
 * null, undefined and false leave one out, true gives an empty one. Children: nodes, texts, numbers, arrays; null is
 * left out.
 */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

/** Appends what `h` takes as children. */
export function add(element, ...children) {
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

/** Puts new children in place of all that are there. */
export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

/** Says a text to screen readers. */
export function announce(text) {
  document.getElementById("announce").textContent = text;
}

/** Whether arrows, Home and End scroll what has the focus. */
export const isScrolling = (target) => target instanceof Element && target.closest(".scroll-x") !== null;

/** Whether a key belongs to the element that has the focus, such as a field that is typed into. */
export function isTyping(target) {
  return target instanceof Element && target.closest("input, select, textarea, [contenteditable], dialog[open]") !== null;
}
