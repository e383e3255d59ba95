// Dark, light, or as the system has it; the choice is kept in this browser.

import { h } from "./dom.js";

const KEY = "distrl-theme";
const CHOICES = ["system", "light", "dark"];

function chosen() {
  try {
    const kept = localStorage.getItem(KEY);
    return CHOICES.includes(kept) ? kept : "system";
  } catch {
    return "system"; // no storage is allowed here
  }
}

function apply(choice) {
  document.documentElement.dataset.theme = choice;
  window.dispatchEvent(new Event("themechange"));
}

/** The control that chooses. Plots draw themselves again at the window's event `themechange`. */
export function themeControl() {
  const control = h("select", { "aria-label": "Colours", class: "theme", on: { change: () => {
    try {
      localStorage.setItem(KEY, control.value);
    } catch {
      // it holds until the page is left
    }
    apply(control.value);
  } } }, CHOICES.map((each) => h("option", { value: each, selected: each === chosen() }, each)));
  apply(chosen());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("themechange")));
  return control;
}

/** The colour that a class gives, as the browser resolves it; canvases cannot read variables. */
export function colour(name) {
  const probe = h("span", { class: name, hidden: true });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
