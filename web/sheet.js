// What a study found: its statements, tables and figures, in its report and on the testbed's page. A module; a report has it as
// page.js, without `import` and `export`.
"use strict";
import { axis, known, make, style, toggle, tooltip } from "./page.js";

/** Whole where numbers are whole or large, with three digits where they are small. */
function number(value, percent = false) {
  const size = Math.abs(value);
  // Adding 0 makes 0 of -0.
  if (percent) return `${Math.round(value) + 0}%`;
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(3);
}

const distinct = (values) => [...new Set(values)];

function cellOf(cell, percent) {
  if (!cell) return make("td", {}, "—");
  const within = () => {
    if (!known(cell.within)) return null;
    const met = known(cell.mean) && cell.mean <= cell.within;
    return make("small", {}, `≤ ${number(cell.within, percent)}`, make("span", { class: met ? "yes" : "no" }, met ? " ✓" : " ✗"));
  };
  if (!known(cell.mean)) {
    const otherwise = known(cell.otherwise) ? ` (${number(cell.otherwise, percent)})` : "";
    return make("td", {}, `—${otherwise}`, within());
  }
  const inside = known(cell.paper) && cell.paper >= cell.min && cell.paper <= cell.max;
  const parts = [
    make("b", {}, number(cell.mean, percent), cell.half ? make("span", { class: "half", title: "95% confidence interval of the mean" }, ` ± ${number(cell.half, percent)}`) : null),
  ];
  if (cell.min !== cell.max) parts.push(make("small", {}, `${number(cell.min, percent)} to ${number(cell.max, percent)}`));
  if (cell.n < cell.runs) parts.push(make("small", { title: "runs that have the measure" }, `${cell.n} of ${cell.runs} runs`));
  if (known(cell.paper)) parts.push(make("small", { title: "the paper's single run" }, `paper ${number(cell.paper, percent)}${inside ? "" : " *"}`));
  if (known(cell.reference)) {
    const verdict = known(cell.agrees) ? make("span", { class: cell.agrees ? "yes" : "no" }, cell.agrees ? " ✓" : " ✗") : null;
    parts.push(make("small", { title: "mean of the reference" }, `ref ${number(cell.reference, percent)}`, verdict));
  }
  return make("td", {}, parts, within());
}

/** What stands in the cells of the tables of `data`. */
export function tablesNote(data) {
  const cells = data.tables.flatMap((table) => table.cells);
  const note = [cells.some((cell) => cell.runs > 1) ? "Each cell: mean over the seeds with its 95% confidence interval, least and greatest" : "Each cell: one run"];
  if (cells.some((cell) => known(cell.paper))) note.push("the paper's value, with * where it lies outside that range");
  if (cells.some((cell) => known(cell.reference))) note.push("the reference's mean, ✓ where ours agrees with it");
  if (cells.some((cell) => known(cell.within))) note.push("≤ the target, ✓ where it is met");
  return `${note.join("; ")}.`;
}

/** The tables of `data`, each under its heading. */
export function tables(data) {
  return data.tables.filter((table) => table.cells.length).flatMap((table) => {
    const columns = distinct(table.cells.map((cell) => cell.column));
    const rows = distinct(table.cells.map((cell) => cell.row));
    const head = make("tr", {}, make("td"), columns.map((column) => make("th", { scope: "col" }, column)));
    const body = rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row), columns.map((column) =>
      cellOf(table.cells.find((cell) => cell.row === row && cell.column === column), table.percent))));
    const title = `Table ${table.name}. ${table.title}`;
    return [make("h3", {}, title), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      make("table", { class: "cells" }, make("thead", {}, head), make("tbody", {}, body)))];
  });
}

/** What is to be known of the statements of `data`. */
export function statementsNote(data) {
  const references = data.statements.some((one) => known(one.reference));
  return `Each is checked on the points that were run.${references ? " The figure beside is the reference simulator's, of those of the points that it has." : ""}`;
}

/** The statements of `data`: a row each, or one for each model that it is checked under. */
export function statements(data) {
  const end = (value) => (known(value) ? number(value) : "∞");
  const between = (range) => (range && range[0] !== range[1] ? make("small", { title: "by 95% confidence intervals" }, `${end(range[0])} to ${end(range[1])}`) : null);
  const figure = (value, points, range) => make("td", {}, known(value) ? number(value) : "—", between(range), points > 1 ? make("small", {}, `of ${points} points`) : null);
  const verdict = (value, holds) => make("td", {}, make("span", { class: known(holds) ? (holds ? "yes" : "no") : null }, known(holds) ? (holds ? "yes" : "no") : known(value) ? "not resolved" : "—"));
  const models = data.statements.some((one) => known(one.model));
  const references = data.statements.some((one) => known(one.reference));
  const names = ["statement", ...(models ? ["model"] : []), "ours", "holds", ...(references ? ["reference", "holds"] : [])];
  const head = names.map((name) => make("th", { scope: "col" }, name));
  const body = data.statements.map((one, i) => {
    const first = data.statements[i - 1]?.statement !== one.statement;
    const words = first ? [one.text, make("small", {}, `${one.place}. Checked: ${one.check}`), one.why ? make("small", {}, `→ ${one.why}`) : null] : [];
    return make("tr", { class: first ? null : "again" }, make("th", { scope: "row" }, words), models ? make("td", {}, one.model ?? "") : null,
      figure(one.ours, one.points, one.range), verdict(one.ours, one.holds),
      references ? [figure(one.reference, one.reference_points), verdict(one.reference, one.reference_holds)] : null);
  });
  return make("table", { class: "cells statements" }, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body));
}

/** All lines over one x axis, as uPlot wants them: where a line has no point there is a gap to span.
 * A line with a band has three series: itself and its two edges. */
const joined = (lines) => uPlot.join(lines.map((line) =>
  (line.low.length ? [line.x, line.y, line.low, line.high] : [line.x, line.y])));

function axisY(tick) {
  if (Math.abs(tick) >= 1e6) return `${tick / 1e6}M`;
  return Math.abs(tick) >= 1e4 ? `${tick / 1e3}k` : `${tick}`;
}

/** Names and values under the pointer. */
const values = (series, one, { hidden, colour }) => tooltip((plot, at) => {
  const x = plot.data[0][at];
  const rows = series
    .map((entry, i) => [entry, plot.data[i + 1][at]])
    .filter(([entry, value]) => !entry.edge && known(value) && !hidden.has(entry.name))
    .sort((a, b) => b[1] - a[1]);
  const lines = rows.map(([entry, value]) => {
    const mark = make("span", {}, "━");
    mark.style.color = colour(entry.name);
    return make("div", {}, mark, entry.name, make("b", {}, number(value)));
  });
  return [make("strong", {}, `${one.x} ${one.ticks[x] ?? x}`), ...lines];
});

/** The lines up to `limit`, all of them without one. */
function cut(lines, limit) {
  if (!known(limit)) return lines;
  return lines.map((line) => {
    const inside = (values) => values.filter((_, i) => line.x[i] <= limit);
    return { ...line, x: inside(line.x), y: inside(line.y), low: inside(line.low), high: inside(line.high) };
  });
}

/** A label in lines of at most `most` characters, at commas, and where blanks allow. */
function wrapped(label, most) {
  if (label.length <= most) return [label];
  return label.split(/(?<=,) /).flatMap((part) => {
    const lines = [];
    for (const word of part.split(" ")) {
      const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
      if (lines.length && longer.length <= most) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    return lines;
  });
}

/** A chart of `one`, up to `limit`; `looks`: which lines are hidden, and how each looks. */
function chart(panel, one, limit, looks) {
  const { hidden, colour, dash } = looks;
  const lines = cut(one.lines, limit);
  const category = one.ticks.length > 0;
  const log = one.log && !known(limit);
  const places = lines.flatMap((line) => line.x);
  const last = category ? one.ticks.length - 1 : Math.max(...places);
  const first = log ? Math.min(...places) : 0;
  const width = panel.clientWidth - 34;
  // A slot for each label: half a one of margin at both ends, some 7 pixels a character.
  const labels = one.ticks.map((tick) => wrapped(tick, (width - 70) / one.ticks.length / 7));
  // Where even single words are wider than their slots, labels stand upright.
  const longest = Math.max(0, ...labels.flat().map((line) => 7 * line.length));
  const upright = longest > (width - 70) / one.ticks.length;
  const high = upright ? 7 * Math.max(...one.ticks.map((tick) => tick.length)) : 15 * Math.max(1, ...labels.map((lines) => lines.length));
  const dots = category || lines.every((line) => line.x.length <= 60);
  const series = lines.flatMap((line) => {
    const own = { name: line.label, edge: false };
    return line.low.length ? [own, { ...own, edge: true }, { ...own, edge: true }] : [own];
  });
  const bands = series.flatMap((entry, i) => (entry.edge || !series[i + 1]?.edge ? [] : [{ series: [i + 3, i + 2], fill: `${colour(entry.name)}24` }]));
  const options = {
    width,
    height: 275 + high,
    padding: [10, 18, 0, 0],
    cursor: { points: { size: 6 } },
    legend: { show: false },
    scales: {
      x: { time: false, range: category ? [-0.5, last + 0.5] : [first, last || 1], distr: log ? 3 : 1 },
      y: { range: (_, min, max) => [min < 0 ? min * 1.04 : 0, max * 1.04 || 1] },
    },
    axes: [
      { ...axis(), label: known(limit) ? `${one.x}, enlarged up to ${limit}` : one.x, size: 15 + high, rotate: upright ? -90 : 0, splits: category ? one.ticks.map((_, i) => i) : undefined, values: category ? (_, at) => at.map((i) => (upright ? one.ticks[i] : labels[i]?.join("\n")) ?? "") : (_, at) => at.map((x) => (known(x) ? axisY(x) : "")) },
      { ...axis(), size: 52, values: (_, ticks) => ticks.map(axisY) },
    ],
    series: [{}, ...series.map((entry) => ({
      label: entry.name, stroke: entry.edge ? "transparent" : colour(entry.name), width: entry.edge ? 0 : 2, dash: dash(entry.name), spanGaps: true,
      show: !hidden.has(entry.name), points: { show: dots && !entry.edge, size: 5 },
    }))],
    bands,
    plugins: [values(series, one, looks)],
  };
  const target = make("div");
  panel.append(target);
  return { plot: new uPlot(options, joined(lines), target), series };
}

const DASHES = [undefined, [6, 4], [2, 3]];

/** Figures as charts in `target`, and in `legend` a button for each line. */
export class Figures {
  constructor(target, legend) {
    this.target = target;
    this.legend = legend;
    this.names = [];
    this.plots = [];
    this.looks = {
      hidden: new Set(),
      colour: (name) => style(`--c-${this.names.indexOf(name) % 8}`),
      dash: (name) => DASHES[Math.min(Math.floor(this.names.indexOf(name) / 8), 2)],
    };
  }

  /** Shows these; lines that are hidden stay so while the same ones are there. */
  show(figures) {
    this.figures = figures;
    const names = distinct(figures.flatMap((figure) => figure.lines.map((line) => line.label)));
    if (names.join("\n") !== this.names.join("\n")) {
      this.names = names;
      this.looks.hidden.clear();
      this.legend.replaceChildren(...names.map((name, index) => {
        const mark = make("span", {}, index >= 8 ? "╍" : "━");
        mark.style.color = `var(--c-${index % 8})`;
        return toggle([mark, name], (hide) => this.hide(name, hide));
      }));
    }
    this.draw();
  }

  hide(name, hide) {
    if (hide) this.looks.hidden.add(name);
    else this.looks.hidden.delete(name);
    for (const { plot, series } of this.plots) {
      series.forEach((entry, i) => { if (entry.name === name) plot.setSeries(i + 1, { show: !hide }); });
    }
  }

  /** Draws all figures anew: at the start, and when colours or sizes change. */
  draw() {
    this.plots.forEach(({ plot }) => plot.destroy());
    this.plots = [];
    const panels = this.figures.map((one) => {
      const note = one.band ? `${one.y} (${one.band})` : one.y;
      return make("div", { class: "panel" }, make("h3", {}, one.heading), make("p", { class: "note" }, note));
    });
    // All panels first: their width depends on how many there are.
    this.target.replaceChildren(...panels);
    this.figures.forEach((one, i) => {
      if (!one.lines.some((line) => line.x.length)) {
        panels[i].append(make("p", { class: "note" }, "No point of this figure was run."));
        return;
      }
      this.plots.push(chart(panels[i], one, undefined, this.looks));
      if (known(one.zoom)) this.plots.push(chart(panels[i], one, one.zoom, this.looks));
    });
  }
}
