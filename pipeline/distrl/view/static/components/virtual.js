// Of very many items only those in sight are in the document.

/** The items [first, last) that are in sight, and `extra` more on either side. All lengths in px. Pure. */
export function inSight(scrolled, viewport, size, total, extra) {
  const first = Math.max(0, Math.floor(scrolled / size) - extra);
  const last = Math.min(total, Math.ceil((scrolled + viewport) / size) + extra);
  return [Math.min(first, total), Math.max(first, last)];
}

/**
 * Makes the children of `root` those of `wanted` (ascending numbers). shown: Map number -> element, changed here;
 * make(number): a new element. An element that stays is never moved, so that it keeps the focus.
 */
export function arrange(root, shown, wanted, make) {
  const keep = new Set(wanted);
  for (const [number, element] of shown)
    if (!keep.has(number)) {
      element.remove();
      shown.delete(number);
    }
  let next = root.firstChild;
  for (const number of wanted) {
    let element = shown.get(number);
    if (element === undefined) {
      element = make(number);
      shown.set(number, element);
      root.insertBefore(element, next);
    }
    next = element.nextSibling;
  }
}
