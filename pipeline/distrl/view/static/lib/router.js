// Shows the page of the address. A page is a function `(context) -> {update?(query), leave?()}`; one that has `update`
// stays when only the query changes, so that a filter keeps the focus and the place of its reader.

import { announce, fill } from "./dom.js";
import { parse } from "./routes.js";

/** Follows the address. pages: name -> page; shell(route): called before each page, draws what is around it. */
export function start(pages, main, shell) {
  let now = null;

  function show() {
    if (location.hash === "#main") return; // the link that skips to the content
    const route = parse(location.hash);
    const key = JSON.stringify({ ...route, query: null });
    if (now && now.key === key && now.shown.update) {
      now.shown.update(route.query);
      return;
    }
    now?.shown.leave?.();
    now?.gone.abort();
    const gone = new AbortController();
    const root = fill(main);
    shell(route);
    const context = {
      root,
      route,
      signal: gone.signal,
      title(text) {
        document.title = `${text} · DistRL`;
        announce(text);
      },
    };
    now = { key, gone, shown: {} };
    now.shown = pages[route.page](context) ?? {};
    if (!root.contains(document.activeElement)) root.focus({ preventScroll: true });
    if (!now.shown.keepsScroll) window.scrollTo(0, 0);
  }

  window.addEventListener("hashchange", show);
  show();
}

/** Changes the address of the page that is shown without an entry in the history, and without drawing it anew. */
export function replace(hash) {
  history.replaceState(history.state, "", hash);
}

/** Goes to a page. */
export function go(hash) {
  if (location.hash !== hash) location.hash = hash;
}
