// Where it starts: which page shows which address, and what is around every page.

import { exportNote } from "./components/export-note.js";
import { fill, h } from "./lib/dom.js";
import { IS_EXPORT } from "./lib/exported.js";
import { to } from "./lib/routes.js";
import { start } from "./lib/router.js";
import { untrusted } from "./lib/text.js";
import { themeControl } from "./lib/theme.js";
import { deadLetter } from "./pages/dead-letter.js";
import { deadLetters } from "./pages/dead-letters.js";
import { devices } from "./pages/devices.js";
import { episode } from "./pages/episode.js";
import { failures } from "./pages/failures.js";
import { report } from "./pages/report.js";
import { reports } from "./pages/reports.js";
import { run } from "./pages/run.js";
import { runs } from "./pages/runs.js";
import { task } from "./pages/task.js";
import { trajectories } from "./pages/trajectories.js";
import { unknown } from "./pages/unknown.js";
import { version } from "./pages/version.js";
import { versions } from "./pages/versions.js";

const PAGES = { runs, reports, report, run, versions, version, trajectories, episode, task, failures, devices, "dead-letters": deadLetters, "dead-letter": deadLetter, unknown };
const ROOMS = [
  ["Overview", to.run, ["run"]],
  ["Versions", to.versions, ["versions", "version"]],
  ["Trajectories", to.trajectories, ["trajectories", "episode", "task"]],
  ["Failures", to.failures, ["failures"]],
  ["Devices", to.devices, ["devices"]],
  ["Dead letters", to.deadLetters, ["dead-letters", "dead-letter"]],
];

const top = document.getElementById("top");
const main = document.getElementById("main");
const where = h("nav", { "aria-label": "Where you are", class: "crumbs" });
const rooms = h("nav", { "aria-label": "Of this run", class: "rooms" });
top.append(h("div", { class: "bar" }, where, themeControl()), rooms);
if (IS_EXPORT) top.append(exportNote());

const crumb = (href, name) => [h("span", { class: "muted", "aria-hidden": "true" }, "/"), h("a", { href, class: "crumb" }, name)];

/** Draws what is around a page. */
function shell(route) {
  fill(where, h("a", { href: to.runs(), class: "brand", "aria-current": route.page === "runs" ? "page" : null }, "DistRL"),
    route.run ? crumb(to.run(route.run), untrusted(route.run)) : null,
    ["reports", "report"].includes(route.page) ? crumb(to.reports(), "Reports") : null);
  rooms.hidden = !route.run;
  fill(rooms, route.run ? ROOMS.map(([name, address, pages]) =>
    h("a", { href: address(route.run), "aria-current": pages.includes(route.page) ? "page" : null }, name)) : null);
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the page
  main.focus();
});
start(PAGES, main, shell);
