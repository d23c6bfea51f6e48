// The report of a study: its tables, its figures, and what was run.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

/** An element with attributes and children; a string child is text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

const put = (id, ...children) => document.getElementById(id).append(...children);
const known = (value) => value !== null && value !== undefined;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Whole where numbers are whole or large, with three digits where they are small. */
function number(value, percent = false) {
  const size = Math.abs(value);
  // Adding 0 makes 0 of -0.
  if (percent) return `${Math.round(value) + 0}%`;
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(3);
}

const distinct = (values) => [...new Set(values)];

function words() {
  document.title = `bentpipe: ${data.name}`;
  document.getElementById("name").textContent = data.name;
  document.getElementById("lead").textContent =
    `${data.points} simulations by bentpipe ${data.version}. The same scenario and seed give the same result, bit for bit.`;
  document.getElementById("scenario").textContent = data.scenario;
  for (const [name, values] of data.axes) put("axes", make("dt", {}, name), make("dd", {}, values));
}

function cellOf(cell, percent) {
  if (!cell || !known(cell.mean)) return make("td", {}, "—");
  const inside = known(cell.paper) && cell.paper >= cell.min && cell.paper <= cell.max;
  const parts = [
    make("b", {}, number(cell.mean, percent)),
    make("small", {}, `${number(cell.min, percent)} to ${number(cell.max, percent)}`),
  ];
  if (known(cell.paper)) parts.push(make("small", { title: "the paper's single run" }, `paper ${number(cell.paper, percent)}${inside ? "" : " *"}`));
  if (known(cell.reference)) {
    const verdict = known(cell.agrees) ? make("span", { class: cell.agrees ? "yes" : "no" }, cell.agrees ? " ✓" : " ✗") : null;
    parts.push(make("small", { title: "mean of the reference" }, `ref ${number(cell.reference, percent)}`, verdict));
  }
  return make("td", {}, parts);
}

function tables() {
  const cells = data.tables.flatMap((table) => table.cells);
  const note = ["Each cell: mean over the seeds, least and greatest"];
  if (cells.some((cell) => known(cell.paper))) note.push("the paper's value, with * where it lies outside that range");
  if (cells.some((cell) => known(cell.reference))) note.push("the reference's mean, ✓ where ours agrees with it");
  document.getElementById("tables-note").textContent = `${note.join("; ")}.`;
  for (const table of data.tables) {
    const columns = distinct(table.cells.map((cell) => cell.column));
    const rows = distinct(table.cells.map((cell) => cell.row));
    const head = make("tr", {}, make("th", {}, ""), columns.map((column) => make("th", { scope: "col" }, column)));
    const body = rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row), columns.map((column) =>
      cellOf(table.cells.find((cell) => cell.row === row && cell.column === column), table.percent))));
    put("tables", make("h3", {}, `Table ${table.name}. ${table.title}`), make("div", { class: "scroll", tabindex: "0" },
      make("table", {}, make("thead", {}, head), make("tbody", {}, body))));
  }
}

let plots = [];
const hidden = new Set();
const names = distinct(data.figures.flatMap((figure) => figure.lines.map((line) => line.label)));
const colour = (name) => style(`--c-${names.indexOf(name) % 8}`);

/** All lines over one x axis, as uPlot wants them: where a line has no point there is a gap to span. */
const joined = (lines) => uPlot.join(lines.map((line) => [line.x, line.y]));

function axisY(tick) {
  if (tick >= 1e6) return `${tick / 1e6}M`;
  return tick >= 1e4 ? `${tick / 1e3}k` : `${tick}`;
}

function figure(panel, one) {
  const axis = { stroke: style("--soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18 };
  const category = one.ticks.length > 0;
  const last = category ? one.ticks.length - 1 : Math.max(...one.lines.flatMap((line) => line.x));
  const options = {
    width: panel.clientWidth - 34,
    height: 270,
    padding: [10, 18, 0, 0],
    cursor: { points: { size: 6 } },
    legend: { show: false },
    scales: { x: { time: false, range: [0, last || 1] }, y: { range: (_, __, max) => [0, max * 1.04 || 1] } },
    axes: [
      { ...axis, label: one.x, size: 30, splits: category ? one.ticks.map((_, i) => i) : undefined, values: category ? (_, at) => at.map((i) => one.ticks[i] ?? "") : undefined },
      { ...axis, size: 52, values: (_, ticks) => ticks.map(axisY) },
    ],
    series: [{}, ...one.lines.map((line) => ({
      label: line.label, stroke: colour(line.label), width: 2, spanGaps: true, show: !hidden.has(line.label), points: { show: category, size: 6 },
    }))],
  };
  const target = make("div");
  panel.append(target);
  plots.push({ plot: new uPlot(options, joined(one.lines), target), one });
}

/** Draws all figures anew: at the start, and when colours or sizes change. */
function figures() {
  plots.forEach(({ plot }) => plot.destroy());
  plots = [];
  document.getElementById("figures").replaceChildren();
  const panels = data.figures.map((one) => {
    const panel = make("div", { class: "panel" }, make("h3", {}, `Figure ${one.name}. ${one.title}`), make("p", { class: "note" }, one.y));
    put("figures", panel);
    return [panel, one];
  });
  // All panels first: their width depends on how many there are.
  for (const [panel, one] of panels) {
    if (one.lines.some((line) => line.x.length)) figure(panel, one);
    else panel.append(make("p", { class: "note" }, "No point of this figure was run."));
  }
}

function legend() {
  names.forEach((name, index) => {
    const mark = make("span", {}, "━");
    mark.style.color = `var(--c-${index % 8})`;
    const button = make("button", { type: "button", "aria-pressed": "true" }, mark, name);
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", `${!hidden.has(name)}`);
      for (const { plot, one } of plots) {
        one.lines.forEach((line, i) => { if (line.label === name) plot.setSeries(i + 1, { show: !hidden.has(name) }); });
      }
    });
    put("legend", button);
  });
}

function theme() {
  const root = document.documentElement;
  if (matchMedia("(prefers-color-scheme: dark)").matches) root.dataset.theme = "dark";
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    figures();
  });
}

theme();
words();
tables();
if (data.figures.length) {
  legend();
  figures();
} else {
  document.getElementById("figures-section").remove();
}
let resizing;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(figures, 120);
});
document.documentElement.dataset.ready = "yes";
