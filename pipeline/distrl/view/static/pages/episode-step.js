// What the record says of one step.

import { h } from "../lib/dom.js";
import { NONE, chooser, duration, isNumber, number, short, time } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { block, untrusted } from "../lib/text.js";
import { badge, facts } from "../components/parts.js";
import { inWords } from "../components/screen.js";
import { drawnIn, missing } from "./episode-drawn.js";

const UNRECORDED = () => h("span", { class: "muted" }, "not recorded");
const HELD_BACK = {
  unsent: "an app that is not allowed was in front: the action was not sent",
  undone: "it opened an app that is not allowed, which was left again",
  refused: "the phone cannot do it: nothing was sent",
};

/** frame: a step as the server gives it, or the end of the episode. */
export function stepFacts(run, frame, found) {
  if (frame.step === "final") return [h("p", {}, badge(found.outcome)), h("p", { class: "muted" }, "The screen when the episode was over.")];
  const held = (name) => (isNumber(frame[name]) ? number(frame[name]) : missing(found.draws, frame.drawn));
  return [
    h("p", { class: "action" }, h("b", { class: "kind" }, frame.action?.kind ?? "?"), " ", untrusted(inWords(frame.action).slice((frame.action?.kind ?? "").length).trim())),
    marks(frame),
    facts([
      ["The policy wrote", frame.action_text ? block(frame.action_text) : h("span", { class: "muted" }, "nothing")],
      ["Chosen by", chosenBy(run, frame)],
      ["Versions behind", isNumber(frame.behind) ? String(frame.behind) : null],
      ["Tokens", isNumber(frame.tokens) ? String(frame.tokens) : null],
      ["Probability", probability(frame)],
      ["Entropy", isNumber(frame.entropy) ? `${number(frame.entropy)} nats a token` : UNRECORDED()],
      ["V of the screen", held("value")],
      ["Advantage", held("advantage")],
      ["Priority", held("priority")],
      ["Drawn", drawnIn(found.draws, frame.drawn)],
      ["At", [time(frame.at), isNumber(frame.at) && isNumber(found.started_at) ? h("span", { class: "muted" }, `, ${duration(Math.max(0, frame.at - found.started_at))} after the start`) : null]],
      ["Took", timings(frame)],
    ]),
  ];
}

function marks(frame) {
  const found = [
    frame.action?.kind === "invalid" ? "no valid action" : null,
    frame.valid === false ? "a judge: it cannot be done on this screen" : null,
    HELD_BACK[frame.held_back] ?? null,
    frame.restless ? "the screen never came to rest" : null,
  ].filter(Boolean);
  return found.length ? h("ul", { class: "marks" }, found.map((each) => h("li", {}, each))) : null;
}

function chosenBy(run, frame) {
  if (!(frame.version >= 0)) return chooser(frame.version);
  return [h("a", { href: to.version(run, frame.version) }, chooser(frame.version)),
    frame.version_sha256 ? h("span", { class: "muted mono" }, ` ${short(frame.version_sha256)}`) : null];
}

function probability({ logprob }) {
  if (!isNumber(logprob)) return UNRECORDED();
  if (logprob > 0) return `log-probability ${number(logprob)}`;
  return `${number(Math.exp(logprob), 3)} (log ${logprob.toFixed(2)})`;
}

function timings(frame) {
  const spent = [["policy", frame.policy_ms], ["phone", frame.phone_ms], ["adb", frame.adb_ms], ["store", frame.publish_ms]].filter(([, ms]) => isNumber(ms) && ms > 0);
  return spent.length ? spent.map(([name, ms]) => `${name} ${duration(ms)}`).join(", ") : NONE;
}
