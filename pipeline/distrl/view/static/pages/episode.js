// One episode: its film strip, the chosen step's screenshot with the touch on it, and what was said of it.

import { api } from "../lib/api.js";
import { add, announce, fill, h, isScrolling, isTyping } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { go, replace } from "../lib/router.js";
import { parse, to } from "../lib/routes.js";
import { plain } from "../lib/text.js";
import { loaded } from "../components/state.js";
import { inWords, picture } from "../components/screen.js";
import { strip } from "../components/strip.js";
import { about, head, verdicts } from "./episode-about.js";
import { stepFacts } from "./episode-step.js";

const HELP = "Keys: ← → steps · Home End first and last · p n, or [ ], previous and next episode · Esc back to the list";

const SCROLLS = ["ArrowLeft", "ArrowRight", "Home", "End"];

export function episode({ root, route, signal, title }) {
  title(`Episode ${route.topic} ${route.place}`);
  const body = h("div");
  add(root, body);
  let viewer = null;
  loaded(body, signal, "the episode", (stop) => api.episode(route.run, route.topic, route.place, stop), (found) => {
    title(plain(found.instruction).slice(0, 120) || "Episode");
    viewer = view(route, found, signal);
    return viewer.nodes;
  });
  document.addEventListener("keydown", (event) => {
    if (viewer && !event.altKey && !event.ctrlKey && !event.metaKey && !event.shiftKey && !isTyping(event.target) && !(SCROLLS.includes(event.key) && isScrolling(event.target)) && viewer.key(event.key)) event.preventDefault();
  }, { signal });
}

/** Step `final` or an index -> the number of its frame; the first for one that is not there. */
function frameOf(step, frames) {
  const index = step === "final" ? frames.findIndex((each) => each.step === "final") : Number(step ?? 0);
  return index >= 0 && index < frames.length ? index : 0;
}

function framesOf(found) {
  const frames = (found.steps ?? []).map((each, index) => ({
    ...each, step: index, title: String(index + 1),
    marked: each.valid === false || each.action?.kind === "invalid" || (each.held_back && each.held_back !== "no"),
  }));
  if (found.final) frames.push({ ...found.final, step: "final", title: "End", action: null, width: frames[0]?.width, height: frames[0]?.height });
  return frames;
}

function view(route, found, signal) {
  const frames = framesOf(found);
  const here = h("a", { class: "permalink" });
  const stage = h("div", { class: "stage" });
  const details = h("div", { class: "details" });
  const film = strip(frames, (index) => choose(index), signal);
  let current = 0;

  function choose(index, quiet = false) {
    current = Math.max(0, Math.min(frames.length - 1, index));
    const frame = frames[current];
    const name = frame.step === "final" ? "The end" : `Step ${count(current + 1)} of ${count(found.steps.length)}`;
    const address = to.episode(route.run, route.topic, route.place, frame.step);
    if (!quiet) replace(address);
    here.href = address;
    here.textContent = `${route.topic}/${route.place}/${frame.step}`;
    film.select(current);
    fill(stage, picture(frame, `${name}: ${inWords(frame.action)}`));
    fill(details, h("h2", {}, name), stepFacts(route.run, frame, found));
    if (!quiet) announce(`${name}: ${plain(inWords(frame.action)).slice(0, 200)}`);
    for (const near of [frames[current + 1], frames[current - 1]]) if (near?.image) new Image().src = near.image;
  }

  const neighbour = (place, name, words) => place
    ? h("a", { class: "button", href: to.episode(route.run, route.topic, place), rel: name }, words)
    : h("span", { class: "button off", "aria-disabled": "true" }, words);

  const nodes = [
    head(route.run, found),
    h("div", { class: "episode-bar" }, neighbour(found.previous, "prev", "← Previous episode"), neighbour(found.next, "next", "Next episode →"),
      h("span", { class: "muted place" }, "This place: ", here)),
    frames.length ? [film.element, h("div", { class: "episode" },
      h("div", {}, stage, h("div", { class: "steps-bar" },
        h("button", { type: "button", on: { click: () => choose(current - 1) } }, "← Step"),
        h("button", { type: "button", on: { click: () => choose(current + 1) } }, "Step →"))),
      details, verdicts(route, found, signal)), h("p", { class: "muted keys" }, HELP)]
      : [h("p", { class: "note" }, "This episode has no steps."), verdicts(route, found, signal)],
    about(route, found),
  ];
  // The strip measures itself once it is in the document.
  if (frames.length) {
    choose(frameOf(route.step, frames), true);
    requestAnimationFrame(() => !signal.aborted && film.select(current));
  }

  function key(name) {
    const wanted = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: frames.length - 1 }[name];
    if (wanted !== undefined && frames.length) choose(wanted);
    else if (["p", "["].includes(name) && found.previous) go(to.episode(route.run, route.topic, found.previous));
    else if (["n", "]"].includes(name) && found.next) go(to.episode(route.run, route.topic, found.next));
    else if (name === "Escape") back(route.run);
    else return false;
    return true;
  }
  return { nodes, key };
}

// The last page that was no episode, and whether it was the one before this: of an episode after another, the way back
// leads past those between.
let list = null;
let cameFromList = false;
window.addEventListener("hashchange", (event) => {
  const before = new URL(event.oldURL).hash;
  cameFromList = parse(before).page !== "episode";
  if (cameFromList) list = before;
});

/** Back to where the reader came from; to the list of all for one that came by a link. */
function back(run) {
  if (cameFromList) history.back();
  else go(list ?? to.trajectories(run));
}
