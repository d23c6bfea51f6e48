// The report of a comparison: its table, and the congestion windows of the kernel and the simulator; after page.js.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const SIDES = ["kernel", "simulator"];

const manyFlows = new Set(data.rows.map((row) => row.flow)).size > 1;
const title = (row) => (manyFlows ? `${row.case}: ${row.flow}` : row.case);

function words() {
  document.getElementById("lead").textContent =
    `Scenario ${data.name}: the same flows over the same links with the same lost packets, on the kernel's TCP over ` +
    `the lab's emulator and on the simulator's in virtual time.`;
  document.getElementById("scenario").textContent = data.scenario;
  for (const [name, value] of data.manifest) put("how", make("dt", {}, name), make("dd", {}, value));
}

function goodput(side) {
  if (!side.n) return make("td", {}, "—");
  return make("td", {}, side.mean_mbps.toFixed(3), make("small", {}, `${side.min_mbps.toFixed(3)} to ${side.max_mbps.toFixed(3)}`));
}

/** A ratio's 95% confidence interval, where more than one seed tells of it. */
function interval(ratio) {
  if (!ratio || !known(ratio.half)) return "";
  return make("small", {}, `${ratio.mean.toFixed(2)} ±${ratio.half.toFixed(2)}`);
}

function table() {
  const names = ["case", "kernel, Mb/s", "simulator, Mb/s", "ratio", "cwnd apart", "sent again", "timeouts"];
  const head = make("tr", {}, names.map((name) => make("th", { scope: "col" }, name)));
  const pair = (row, key) => `${row.lab[key].toFixed(1)} / ${row.simulator[key].toFixed(1)}`;
  const body = data.rows.map((row) => make("tr", {},
    make("th", { scope: "row" }, title(row)), goodput(row.lab), goodput(row.simulator),
    make("td", { class: row.agrees ? "yes" : "no" }, known(row.ratio) ? `${row.ratio.toFixed(3)} ${row.agrees ? "✓" : "✗"}` : "—", interval(row.ratios.goodput)),
    make("td", {}, known(row.cwnd_apart) ? `${(row.cwnd_apart * 100).toFixed(1)}%` : "—"),
    make("td", {}, pair(row, "sent_again"), interval(row.ratios.sent_again)), make("td", {}, pair(row, "timeouts"))));
  put("table", make("thead", {}, head), make("tbody", {}, body));
}

let plots = [];
const hidden = new Set();

/** The mean of the runs at each time that all of them have. */
function mean(runs) {
  const length = Math.min(...runs.map((run) => run.length));
  return Array.from({ length }, (_, i) => runs.reduce((sum, run) => sum + run[i], 0) / runs.length);
}

function chart(panel, row) {
  const faint = row.cwnd.flatMap((runs, side) => runs.map((values) => ({ side, values, alpha: 0.16, width: 1 })));
  const bold = row.cwnd.flatMap((runs, side) => (runs.length ? [{ side, values: mean(runs), alpha: 1, width: 2 }] : []));
  const lines = [...faint, ...bold];
  const length = Math.max(0, ...lines.map((line) => line.values.length));
  if (!length) {
    panel.append(make("p", { class: "note" }, "No run of this case has a result."));
    return;
  }
  const x = Array.from({ length }, (_, i) => i / 10);
  const pad = (values) => x.map((_, i) => (i < values.length ? values[i] : null));
  const options = {
    width: panel.clientWidth - 34,
    height: 270,
    padding: [10, 18, 0, 0],
    cursor: { show: false },
    legend: { show: false },
    scales: { x: { time: false, range: [0, (length - 1) / 10 || 1] }, y: { range: (_, __, max) => [0, max * 1.04 || 1] } },
    axes: [{ ...axis(), size: 30, values: (_, ticks) => ticks.map((t) => `${t} s`) }, { ...axis(), size: 52 }],
    series: [{}, ...lines.map(({ side, alpha, width }) => ({
      label: SIDES[side], stroke: style(`--c-${side}`), width, alpha, dash: side ? [6, 3] : [], show: !hidden.has(side), points: { show: false },
    }))],
  };
  const target = make("div");
  panel.append(target);
  plots.push({ plot: new uPlot(options, [x, ...lines.map((line) => pad(line.values))], target), lines });
}

/** Draws all charts anew: at the start, and when colours or sizes change. */
function charts() {
  plots.forEach(({ plot }) => plot.destroy());
  plots = [];
  document.getElementById("charts").replaceChildren();
  const panels = data.rows.map((row) => {
    const runs = `${row.lab.n} and ${row.simulator.n} runs`;
    return make("div", { class: "panel" }, make("h3", {}, title(row), make("small", {}, runs)));
  });
  // All stand before the first is drawn: only then are their widths what they will be.
  put("charts", ...panels);
  data.rows.forEach((row, i) => chart(panels[i], row));
}

function legend() {
  SIDES.forEach((name, side) => {
    const mark = make("span", {}, side ? "╍" : "━");
    mark.style.color = `var(--c-${side})`;
    put("legend", toggle([mark, name], (hide) => {
      if (hide) hidden.add(side);
      else hidden.delete(side);
      for (const { plot, lines } of plots) {
        lines.forEach((line, i) => { if (line.side === side) plot.setSeries(i + 1, { show: !hide }); });
      }
    }));
  });
}

theme(charts);
words();
table();
legend();
charts();
document.documentElement.dataset.ready = "yes";
