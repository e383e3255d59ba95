// A plot over time, or over another number (uPlot). The mouse drags a range; with the keyboard: arrows move, Shift and arrows mark a range,
// Enter opens what is there.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { announce, fill, h } from "../lib/dom.js";
import { isNumber, time } from "../lib/format.js";
import { colour } from "../lib/theme.js";

const HEIGHT = 190;
const DRAGGED_PX = 4;
const DAY_MS = 86_400_000;
const MINUTES_MS = 600_000;

/**
 * options: title; hint; at: ms since the epoch, or with x any numbers, ascending; x?: what these are; lines: [{name, values, colour: class, percent?, points?}];
 * band?: {low, high} around the first line; range: [from, to] in ms that all plots of a page share; percent?: y is a
 * share; width: of what each point stands for, from its place on; say(index): what is at a point; onRange(from, to)?, onPick(index)?: told what the reader marks and opens.
 */
export function plot(options, signal) {
  const { at, lines, band } = options;
  const readout = h("p", { class: "readout" }, options.hint ?? "");
  const canvas = h("div", { class: "plot-canvas" });
  const element = h("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${options.title}: a plot. Arrow keys move between points.` }, canvas);
  const root = h("figure", { class: "plot-figure" }, h("figcaption", {}, h("b", {}, options.title), " ", legend(lines)), element, readout);
  let drawn = null, index = -1, anchor = -1;

  function columns() {
    const values = lines.map((line) => line.values);
    return band ? [at, ...values, band.low, band.high] : [at, ...values];
  }

  function make() {
    drawn?.destroy();
    const ink = colour("plot-ink");
    const grid = { stroke: colour("plot-grid"), width: 1 };
    const axis = { stroke: ink, grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const series = lines.map((line) => {
      const stroke = colour(line.colour);
      return { label: line.name, stroke, width: 2, spanGaps: true, points: { show: line.points || at.length < 2, size: 7, fill: stroke } };
    });
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    const count = lines.length;
    drawn = new uPlot({
      width: Math.max(200, canvas.clientWidth), height: HEIGHT, ms: 1, legend: { show: false },
      series: [{}, ...series, ...(band ? [edge, edge] : [])],
      bands: band ? [{ series: [count + 2, count + 1], fill: faint(colour(lines[0].colour)) }] : [],
      scales: { x: { time: !options.x, range: () => options.range }, y: { range: options.percent ? [0, 1] : heights } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((tick) => (options.x ? short(tick) : clock(tick, options.range))) }, { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (options.percent ? `${Math.round(tick * 100)} %` : short(tick))) }],
      cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: options.x ?? "run" }, focus: { prox: 30 } },
      hooks: {
        setCursor: [(self) => isNumber(self.cursor.idx) && self.cursor.left >= 0 && tell(self.cursor.idx)],
        setSelect: [(self) => {
          if (self.select.width < DRAGGED_PX) return;
          options.onRange?.(self.posToVal(self.select.left, "x"), self.posToVal(self.select.left + self.select.width, "x"));
        }],
      },
    }, columns(), canvas);
    let pressed = null;
    drawn.over.addEventListener("mousedown", (event) => (pressed = event.clientX));
    drawn.over.addEventListener("click", (event) => {
      if (pressed !== null && Math.abs(event.clientX - pressed) < DRAGGED_PX && options.onPick && isNumber(drawn.cursor.idx)) options.onPick(drawn.cursor.idx);
    });
  }

  function tell(number) {
    index = number;
    fill(readout, options.say(number));
  }

  function move(number, marks) {
    const to = Math.max(0, Math.min(at.length - 1, number));
    if (marks && anchor < 0) anchor = Math.max(0, index);
    if (!marks) anchor = -1;
    const left = drawn.valToPos(at[to], "x");
    drawn.setCursor({ left, top: HEIGHT / 3 });
    tell(to); // after the cursor, which may be nearer to a neighbour
    announce(options.say(to)); // for the keyboard alone: a mouse that moves over a plot would be read out without end
    if (anchor < 0 || (anchor === to && !options.width)) return;
    const [from, last] = [at[anchor], at[to]].sort((a, b) => a - b);
    const until = last + (options.width ?? 0);
    const start = drawn.valToPos(from, "x");
    drawn.setSelect({ left: start, width: drawn.valToPos(until, "x") - start, top: 0, height: drawn.over.clientHeight }, false);
    options.onRange?.(from, until);
  }

  element.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: at.length - 1 }[event.key];
    if (to !== undefined) move(to, event.shiftKey);
    else if (event.key === "Enter" && index >= 0 && options.onPick) options.onPick(index);
    else return;
    event.preventDefault();
  });
  const seen = new ResizeObserver(() => {
    if (drawn === null) make();
    else if (canvas.clientWidth > 0 && canvas.clientWidth !== drawn.width) drawn.setSize({ width: canvas.clientWidth, height: HEIGHT });
  });
  seen.observe(canvas);
  window.addEventListener("themechange", make, { signal });
  signal.addEventListener("abort", () => {
    seen.disconnect();
    drawn?.destroy();
  });
  root.clear = () => drawn?.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  return root;
}

function legend(lines) {
  return lines.length < 2 ? null : h("span", { class: "plot-legend" }, lines.map((line) => [h("span", { class: `swatch ${line.colour}`, "aria-hidden": "true" }), line.name, " "]));
}

/** The range of y: that of the values, and some around it where they are all the same. */
function heights(_, low, high) {
  if (!isNumber(low) || !isNumber(high)) return [0, 1];
  if (low === high) return [Math.min(0, low * 1.25), Math.max(0, low * 1.25) || 1];
  return uPlot.rangeNum(low, high, 0.1, true);
}

/** A time below an axis: as much of it as tells two places of the range apart. */
function clock(ms, [from, until]) {
  const [day, at] = time(ms).split(" ");
  if (until - from > 4 * DAY_MS) return day;
  if (until - from > DAY_MS) return `${day.slice(5)} ${at.slice(0, 5)}`;
  return until - from > MINUTES_MS ? at.slice(0, 5) : at;
}

function faint(rgb) {
  const parts = rgb.match(/[\d.]+/g);
  return parts ? `rgba(${parts.slice(0, 3).join(",")},0.18)` : rgb;
}

function short(value) {
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(0);
  return String(Number(value.toPrecision(4)));
}
