// Untrusted text: what policies typed, judges said and tasks ask. It is shown, never interpreted.

import { h } from "./dom.js";

// Control characters, and those that are invisible or turn the direction of a line. New lines and tabs stay in blocks.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;
const UNSEEN_IN_BLOCK = new RegExp(UNSEEN.source.replace("\\u0000-\\u001f", "\\u0000-\\u0008\\u000b-\\u001f"), "gu");
// A longer text is folded: a record may hold megabytes in one field.
const FOLDED_FROM = 600;

/** How an unseen character is written, like Python does. */
export function escaped(character) {
  const code = character.codePointAt(0);
  if (code === 9) return "\\t";
  if (code === 10) return "\\n";
  if (code === 13) return "\\r";
  if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
  return code < 0x10000 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
}

/** One line of untrusted text for attributes and titles. */
export function plain(text) {
  return String(text ?? "").replace(UNSEEN, escaped);
}

/** Untrusted text in a line, isolated from the direction of what is around it; unseen characters stand out. */
export function untrusted(text, name = "") {
  return h("bdi", { class: name || null, dir: "auto" }, pieces(String(text ?? ""), UNSEEN));
}

/** Untrusted text as a block that keeps its lines; a very long one is folded until it is asked for. */
export function block(text, name = "") {
  const whole = String(text ?? "");
  const shown = h("pre", { class: `block ${name}`.trim(), dir: "auto" });
  if (whole.length <= FOLDED_FROM) {
    shown.append(...pieces(whole, UNSEEN_IN_BLOCK));
    return shown;
  }
  shown.append(...pieces(whole.slice(0, FOLDED_FROM), UNSEEN_IN_BLOCK), "…");
  const more = h("button", { type: "button", class: "quiet", on: { click: () => {
    shown.replaceChildren(...pieces(whole, UNSEEN_IN_BLOCK));
    more.remove();
  } } }, `Show all ${whole.length.toLocaleString("en")} characters`);
  return h("div", { class: "folded" }, shown, more);
}

/** JSON, indented; as it is where it is none. */
export function json(value) {
  if (typeof value !== "string") return block(JSON.stringify(value, null, 1));
  try {
    return block(JSON.stringify(JSON.parse(value), null, 1));
  } catch {
    return block(value);
  }
}

function pieces(text, unseen) {
  const found = [];
  let last = 0;
  for (const match of text.matchAll(unseen)) {
    if (match.index > last) found.push(document.createTextNode(text.slice(last, match.index)));
    found.push(h("span", { class: "unseen-character" }, escaped(match[0])));
    last = match.index + match[0].length;
  }
  if (last < text.length || found.length === 0) found.push(document.createTextNode(text.slice(last)));
  return found;
}
