// The figures of a study's report (uPlot), after study.js.
"use strict";

let plots = [];
const hidden = new Set();
const names = distinct(data.figures.flatMap((figure) => figure.lines.map((line) => line.label)));
const colour = (name) => style(`--c-${names.indexOf(name) % 8}`);
const DASHES = [undefined, [6, 4], [2, 3]];
const dash = (name) => DASHES[Math.min(Math.floor(names.indexOf(name) / 8), 2)];

/** All lines over one x axis, as uPlot wants them: where a line has no point there is a gap to span.
 * A line with a band has three series: itself and its two edges. */
const joined = (lines) => uPlot.join(lines.map((line) =>
  (line.low.length ? [line.x, line.y, line.low, line.high] : [line.x, line.y])));

function axisY(tick) {
  if (Math.abs(tick) >= 1e6) return `${tick / 1e6}M`;
  return Math.abs(tick) >= 1e4 ? `${tick / 1e3}k` : `${tick}`;
}

/** Names and values under the pointer. */
const values = (series, one) => tooltip((plot, at) => {
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

function chart(panel, one, limit) {
  const lines = cut(one.lines, limit);
  const category = one.ticks.length > 0;
  const log = one.log && !known(limit);
  const places = lines.flatMap((line) => line.x);
  const last = category ? one.ticks.length - 1 : Math.max(...places);
  const first = log ? Math.min(...places) : 0;
  const width = panel.clientWidth - 34;
  // A slot for each label: half a one of margin at both ends, some 7 pixels a character.
  const labels = one.ticks.map((tick) => wrapped(tick, (width - 70) / one.ticks.length / 7));
  const rows = Math.max(1, ...labels.map((lines) => lines.length));
  const dots = category || lines.every((line) => line.x.length <= 60);
  const series = lines.flatMap((line) => {
    const own = { name: line.label, edge: false };
    return line.low.length ? [own, { ...own, edge: true }, { ...own, edge: true }] : [own];
  });
  const bands = series.flatMap((entry, i) => (entry.edge || !series[i + 1]?.edge ? [] : [{ series: [i + 3, i + 2], fill: `${colour(entry.name)}24` }]));
  const options = {
    width,
    height: 275 + 15 * rows,
    padding: [10, 18, 0, 0],
    cursor: { points: { size: 6 } },
    legend: { show: false },
    scales: {
      x: { time: false, range: category ? [-0.5, last + 0.5] : [first, last || 1], distr: log ? 3 : 1 },
      y: { range: (_, min, max) => [min < 0 ? min * 1.04 : 0, max * 1.04 || 1] },
    },
    axes: [
      { ...axis(), label: known(limit) ? `${one.x}, enlarged up to ${limit}` : one.x, size: 15 + 15 * rows, splits: category ? one.ticks.map((_, i) => i) : undefined, values: category ? (_, at) => at.map((i) => labels[i]?.join("\n") ?? "") : (_, at) => at.map((x) => (known(x) ? axisY(x) : "")) },
      { ...axis(), size: 52, values: (_, ticks) => ticks.map(axisY) },
    ],
    series: [{}, ...series.map((entry) => ({
      label: entry.name, stroke: entry.edge ? "transparent" : colour(entry.name), width: entry.edge ? 0 : 2, dash: dash(entry.name), spanGaps: true,
      show: !hidden.has(entry.name), points: { show: dots && !entry.edge, size: 5 },
    }))],
    bands,
    plugins: [values(series, one)],
  };
  const target = make("div");
  panel.append(target);
  plots.push({ plot: new uPlot(options, joined(lines), target), series });
}

/** Draws all figures anew: at the start, and when colours or sizes change. */
function figures() {
  plots.forEach(({ plot }) => plot.destroy());
  plots = [];
  document.getElementById("figures").replaceChildren();
  const panels = data.figures.map((one) => {
    const note = one.band ? `${one.y} (${one.band})` : one.y;
    const panel = make("div", { class: "panel" }, make("h3", {}, one.heading), make("p", { class: "note" }, note));
    put("figures", panel);
    return [panel, one];
  });
  // All panels first: their width depends on how many there are.
  for (const [panel, one] of panels) {
    if (!one.lines.some((line) => line.x.length)) {
      panel.append(make("p", { class: "note" }, "No point of this figure was run."));
      continue;
    }
    chart(panel, one);
    if (known(one.zoom)) chart(panel, one, one.zoom);
  }
}

function legend() {
  names.forEach((name, index) => {
    const mark = make("span", {}, index >= 8 ? "╍" : "━");
    mark.style.color = `var(--c-${index % 8})`;
    put("legend", toggle([mark, name], (hide) => {
      if (hide) hidden.add(name);
      else hidden.delete(name);
      for (const { plot, series } of plots) {
        series.forEach((entry, i) => { if (entry.name === name) plot.setSeries(i + 1, { show: !hide }); });
      }
    }));
  });
}

theme(data.figures.length ? figures : () => {});
words();
statements();
tables();
graphs();
if (data.figures.length) {
  legend();
  figures();
} else {
  document.getElementById("figures-section").remove();
}
document.documentElement.dataset.ready = "yes";
