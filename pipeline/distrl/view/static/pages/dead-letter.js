// One record that could not be decoded or used.

import { api } from "../lib/api.js";
import { add, h } from "../lib/dom.js";
import { bytes, count, time } from "../lib/format.js";
import { to } from "../lib/routes.js";
import { block } from "../lib/text.js";
import { facts, link, section } from "../components/parts.js";
import { loaded } from "../components/state.js";
import { cameFrom } from "./dead-letters.js";

export function deadLetter({ root, route, signal, title }) {
  title(`Dead letter ${route.place} of ${route.run}`);
  const body = h("div");
  add(root, h("h1", {}, `Dead letter ${route.place}`), body);
  loaded(body, signal, "the dead letter", (stop) => api.deadLetter(route.run, route.place, stop), (row) => [
    section("Why", block(row.reason ?? "not recorded")),
    section("The record", facts([
      ["Place in the log", h("code", {}, `${row.topic} ${row.partition}:${row.offset}`)],
      ["From", cameFrom(row)],
      ["Size", bytes(row.bytes)],
      ["Copies", count(row.copies)],
      ["At", time(row.at)],
      ["Its bytes and headers", h("code", {}, `distrl dlq show ${row.offset} -s run=${route.run}`)],
    ])),
    h("p", {}, link(to.deadLetters(route.run), "All dead letters")),
  ]);
}
