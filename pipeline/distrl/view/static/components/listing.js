// A table of any length: rows come in pages as they come into sight, and leave the document when they are out of it.
// The window scrolls, as on any page. Arrow keys, Page Up and Down, Home and End move between rows.

import { announce, fill, h } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { failed, retried } from "./state.js";
import { arrange, inSight } from "./virtual.js";

const PAGE = 200;
const MOST_PAGES = 60; // kept in memory: 12,000 rows
const EXTRA = 6;
// Browsers draw no page that is much higher.
const MOST_PX = 14_000_000;
// Rows that fly by are not asked for.
const REST_MS = 60;

const places = new Map(); // address -> where its reader was

/**
 * options: label; columns [{name, cell(row), class?, sort?}]; href(row) or null; name (of the columns' grid in the style
 * sheet); load(offset, limit, signal) -> {total, rows}; sort {by, order} and onSort(by) for sortable ones; none(): nodes
 * where nothing is found; first(found): told of the first page.
 * Returns {element, total()}.
 */
export function listing(options, signal) {
  const address = location.hash;
  const body = h("div", { class: "rows", role: "rowgroup" });
  const note = h("p", { class: "muted" });
  const element = h("div", { class: `listing cols-${options.name}`, role: "table", "aria-label": options.label, "aria-busy": "true" },
    h("div", { role: "rowgroup", class: "listing-head" }, h("div", { role: "row", class: "row" }, options.columns.map(header))), body);
  const root = h("div", {}, element, note);
  const pages = new Map();
  const shown = new Map();
  let total = 0, height = 44, active = 0, timer = 0, frame = 0, wantsFocus = false;
  let callOff = () => {}; // a retry that is to come

  function header(column) {
    const by = options.sort?.by === column.sort && column.sort;
    const order = by ? (options.sort.order === "asc" ? "ascending" : "descending") : null;
    return h("div", { role: "columnheader", class: column.class, "aria-sort": column.sort ? order ?? "none" : null },
      column.sort ? h("button", { type: "button", class: "sort", on: { click: () => options.onSort(column.sort) } },
        column.name, h("span", { "aria-hidden": "true" }, by ? (order === "ascending" ? " ▲" : " ▼") : "")) : column.name);
  }

  async function fetchPage(number) {
    if (pages.has(number)) return;
    pages.set(number, null);
    try {
      const found = await options.load(number * PAGE, PAGE, signal);
      pages.delete(number); // the newest is the last in the map
      pages.set(number, found.rows);
      for (const old of pages.keys()) {
        if (pages.size <= MOST_PAGES) break;
        pages.delete(old);
      }
      if (number === 0 && element.hasAttribute("aria-busy")) begin(found);
      else refresh(number);
    } catch (error) {
      if (error.name === "AbortError" || signal.aborted) return;
      pages.delete(number);
      if (!(error.status >= 0)) console.error(error);
      const [place, retry] = element.hasAttribute("aria-busy") ? [root, again] : [note, more];
      fill(place, failed(error, retry));
      callOff();
      callOff = retried(error, signal, retry);
    }
  }

  function again() {
    callOff(); // else what is asked for by hand now is asked for once more, and drawn over
    fill(root, element, note);
    fetchPage(0);
  }

  function more() {
    callOff();
    fill(note);
    draw();
  }

  function begin(found) {
    element.removeAttribute("aria-busy");
    options.first?.(found);
    announce(`${count(found.total)} rows`);
    if (found.total === 0) {
      fill(root, options.none());
      return;
    }
    total = Math.min(found.total, Math.floor(MOST_PX / measured()));
    if (total < found.total) fill(note, `The first ${count(total)} of ${count(found.total)} are listed: filter to see others.`);
    element.setAttribute("aria-rowcount", String(found.total + 1));
    draw();
    const place = places.get(address);
    if (place) {
      active = Math.min(place.active, total - 1);
      window.scrollTo(0, place.scroll);
      draw();
      shown.get(active)?.querySelector("a")?.focus({ preventScroll: true });
    }
  }

  function measured() {
    height = Number.parseFloat(getComputedStyle(element).getPropertyValue("--row")) || 44;
    return height;
  }

  const rowOf = (number) => pages.get(Math.floor(number / PAGE))?.[number % PAGE];

  function made(number) {
    const element = h("div", { role: "row", class: "row", "aria-rowindex": number + 2 });
    element.style.transform = `translateY(${number * height}px)`;
    written(element, number);
    return element;
  }

  function written(element, number) {
    const row = rowOf(number);
    const href = row ? options.href?.(row) : null;
    element.classList.toggle("waiting", !row);
    fill(element, options.columns.map((column, index) => {
      const content = row ? column.cell(row) : index === 0 ? "…" : "";
      return h("div", { role: "cell", class: column.class, data: { name: column.name } },
        href && column.link ? h("a", { href, class: "row-link", tabindex: number === active ? "0" : "-1", data: { number } }, content) : content);
    }));
  }

  function refresh(page) {
    for (const [number, element] of shown) if (Math.floor(number / PAGE) === page) written(element, number);
    if (wantsFocus && Math.floor(active / PAGE) === page) focusActive();
  }

  function draw() {
    frame = 0;
    if (!body.isConnected || total === 0) return;
    body.style.height = `${total * height}px`;
    const [first, last] = inSight(-body.getBoundingClientRect().top, innerHeight, height, total, EXTRA);
    const wanted = [];
    for (let number = first; number < last; number += 1) wanted.push(number);
    if (active < first) wanted.unshift(active);
    else if (active >= last && active < total) wanted.push(active);
    arrange(body, shown, wanted, made);
    clearTimeout(timer);
    timer = setTimeout(() => {
      for (let page = Math.floor(first / PAGE); page * PAGE < last; page += 1) fetchPage(page);
    }, REST_MS);
  }

  function drawSoon() {
    if (!frame) frame = requestAnimationFrame(draw);
  }

  function laidOut() {
    const before = height;
    if (measured() === before) return drawSoon();
    arrange(body, shown, [], made);
    return drawSoon();
  }

  function move(number) {
    const before = shown.get(active)?.querySelector("a");
    active = Math.max(0, Math.min(total - 1, number));
    before?.setAttribute("tabindex", "-1");
    const top = body.getBoundingClientRect().top + active * height;
    const head = height + 60;
    if (top < head) window.scrollBy(0, top - head);
    else if (top + height > innerHeight) window.scrollBy(0, top + height - innerHeight + 8);
    draw();
    focusActive();
  }

  function focusActive() {
    const link = shown.get(active)?.querySelector("a");
    wantsFocus = !link;
    link?.setAttribute("tabindex", "0");
    link?.focus({ preventScroll: true });
  }

  body.addEventListener("focusin", (event) => {
    const number = Number(event.target.dataset?.number ?? active);
    if (number === active) return;
    shown.get(active)?.querySelector("a")?.setAttribute("tabindex", "-1");
    active = number;
    event.target.setAttribute("tabindex", "0");
  });
  body.addEventListener("keydown", (event) => {
    const screen = Math.max(1, Math.floor(innerHeight / height) - 3);
    const to = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + screen, PageUp: active - screen, Home: 0, End: total - 1 }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(to);
  });
  body.addEventListener("click", () => places.set(address, { scroll: scrollY, active }));
  window.addEventListener("scroll", drawSoon, { passive: true, signal });
  window.addEventListener("resize", laidOut, { signal });
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    cancelAnimationFrame(frame);
  });
  fetchPage(0);
  return { element: root, total: () => total };
}
