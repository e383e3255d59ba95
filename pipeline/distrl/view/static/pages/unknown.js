// An address that names no page.

import { add, h } from "../lib/dom.js";
import { to } from "../lib/routes.js";
import { empty } from "../components/state.js";

export function unknown({ root, title }) {
  title("No such page");
  add(root, h("h1", {}, "No such page"), empty("This address names no page", "A link may have been cut off.", h("a", { href: to.runs() }, "All runs")));
}
