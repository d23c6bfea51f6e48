// The demo's report: throughput over time (uPlot) and the time-to-complete panels (SVG).
"use strict";

const hidden = new Set();
let plots = [];
/** Seconds that one point of a rate line is the mean of. */
const WINDOW = 3;
const VIEWS = {
  rate: {
    name: "Throughput",
    unit: "Mb/s",
    note: `What the terminal received, as the mean of the last ${WINDOW} seconds of the bulk download. TCP hands data over in order: what waited for a lost packet comes at once, so a line may fall to nothing and then jump over the limit.`,
    points: (series) => series.map((_, i) => {
      const last = series.slice(Math.max(0, i + 1 - WINDOW), i + 1);
      return last.reduce((sum, value) => sum + value, 0) / last.length;
    }),
    // Jumps are cut off: to show them whole would press everything else flat.
    top: (max) => Math.min(Math.max(data.setting.rate_mbps * 1.02, max * 1.03), data.setting.rate_mbps * 1.5),
    limit: (limit) => [limit, limit],
  },
  amount: {
    name: "Data received",
    unit: "MB",
    note: "What the terminal had received by then; the steeper, the faster.",
    points: (series) => {
      let sum = 0;
      return series.map((value) => (sum += value / 8));
    },
    top: (max) => Math.max(max, (data.setting.rate_mbps * data.setting.bulk_s) / 8),
    limit: (limit, seconds) => [0, (limit * seconds) / 8],
  },
};
let view = VIEWS.rate;

/** Names and values under the pointer. */
const values = (rows) => tooltip((plot, at) => {
  const lines = rows
    .map((row, i) => [row, plot.data[i + 1][at]])
    .filter(([row, value]) => known(value) && !hidden.has(row.key))
    .sort((a, b) => b[1] - a[1]);
  return [make("strong", {}, `second ${plot.data[0][at]}`),
    ...lines.map(([row, value]) => make("div", { class: "name" }, sample(row), fullName(row), make("b", {}, value.toFixed(2))))];
});

/** The line of the limit, across the whole plot. */
function limitLine(limit) {
  return {
    hooks: {
      drawSeries: (plot, series) => {
        if (series !== 1) return;
        const last = plot.data[0].at(-1);
        const [from, to] = view.limit(limit, last);
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
        ctx.clip();
        ctx.strokeStyle = style("--soft");
        ctx.lineWidth = devicePixelRatio;
        ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
        ctx.beginPath();
        ctx.moveTo(plot.valToPos(0, "x", true), plot.valToPos(from, "y", true));
        ctx.lineTo(plot.valToPos(last, "x", true), plot.valToPos(to, "y", true));
        ctx.stroke();
        ctx.restore();
      },
    },
  };
}

function chart(panel, index) {
  const rows = data.rows.filter((row) => cellOf(row, index).series.length);
  if (!rows.length) {
    panel.append(make("p", { class: "note" }, "No bulk run of this loss rate has a result."));
    return;
  }
  const seconds = Math.max(...rows.map((row) => cellOf(row, index).series.length));
  const x = Array.from({ length: seconds }, (_, i) => i + 1);
  const points = rows.map((row) => view.points(cellOf(row, index).series));
  const pad = (series) => Array.from({ length: seconds }, (_, i) => series[i] ?? null);
  const options = {
    width: panel.clientWidth - 34,
    height: 250,
    padding: [10, 18, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { show: false },
    scales: { x: { time: false, range: [0.5, seconds] }, y: { range: (_, __, max) => [0, view.top(max)] } },
    axes: [{ ...axis(), size: 30, values: (_, ticks) => ticks.map((t) => `${t} s`) }, { ...axis(), size: 64, values: (_, ticks) => ticks.map((t) => `${t} ${view.unit}`) }],
    series: [{}, ...rows.map((row) => ({
      label: fullName(row), stroke: colour(row), width: row.ours ? 3 : 2, dash: dash(row), show: !hidden.has(row.key), points: { show: false },
    }))],
    plugins: [values(rows), limitLine(data.setting.limits[index])],
  };
  const target = make("div");
  panel.append(target);
  plots.push({ plot: new uPlot(options, [x, ...points.map(pad)], target), rows, panel });
}

/** Draws all charts anew: at the start, and when the colours change. */
function charts() {
  plots.forEach(({ plot }) => plot.destroy());
  plots = [];
  document.getElementById("charts").replaceChildren();
  document.getElementById("rate-note").textContent = `${view.note} Broken lines run end to end; solid ones, and the dotted one of the stock terminal, through the gateway. The grey dotted line is the limit. Choose a name to hide or show its line.`;
  data.setting.losses.forEach((loss, index) => {
    const limit = data.setting.limits[index].toFixed(2);
    const panel = make("div", { class: "panel" }, make("h3", {}, `${percent(loss)} loss`, make("small", {}, `limit ${limit} Mb/s`)));
    put("charts", panel);
    chart(panel, index);
  });
}

function views() {
  const buttons = Object.values(VIEWS).map((choice) => {
    const button = make("button", { type: "button", "aria-pressed": `${choice === view}` }, choice.name);
    button.addEventListener("click", () => {
      view = choice;
      buttons.forEach((other) => other.setAttribute("aria-pressed", `${other === button}`));
      charts();
    });
    return button;
  });
  put("views", ...buttons);
}

function legend() {
  for (const row of data.rows) {
    put("legend", toggle([sample(row), fullName(row)], (hide) => {
      if (hide) hidden.add(row.key);
      else hidden.delete(row.key);
      for (const { plot, rows } of plots) {
        const at = rows.indexOf(row);
        if (at >= 0) plot.setSeries(at + 1, { show: !hide });
      }
    }));
  }
}

const LABELS = 128;
const WIDTH = 360;
const STEP = 22;

/** One panel: a dot a run and a bar for the median, on a logarithmic scale of seconds. */
function timePanel(name, index, key) {
  const cutoff = data.setting.cutoff_s;
  const times = data.rows.map((row) => cellOf(row, index)[key]);
  const finished = times.flatMap((time) => time.all).filter(known);
  const low = Math.min(0.5, ...finished);
  const scale = (value) => LABELS + 8 + (Math.log(value / low) / Math.log(cutoff / low)) * (WIDTH - LABELS - 46);
  const height = data.rows.length * STEP + 30;
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${name}: time to complete` });
  const text = (x, y, content, attributes = {}) => {
    const element = draw("text", { x, y, ...attributes });
    element.textContent = content;
    svg.append(element);
  };
  for (const tick of [1, 3, 10, 30, cutoff]) {
    const x = scale(tick);
    svg.append(draw("line", { class: "grid", x1: x, x2: x, y1: 4, y2: height - 24 }));
    text(x, height - 8, tick === cutoff ? `${tick} s` : `${tick}`, { "text-anchor": "middle" });
  }
  data.rows.forEach((row, i) => {
    const y = 4 + STEP * (i + 0.5);
    text(LABELS, y + 4, `${row.mode === "split" ? "gw " : ""}${row.short}`, { "text-anchor": "end", class: "label" });
    const time = times[i];
    const dot = (value, opacity) => {
      const mark = draw("circle", { cx: scale(value), cy: y, r: 3.5, opacity });
      mark.style.fill = `var(--c-${row.key})`;
      svg.append(mark);
    };
    time.all.filter(known).forEach((value) => dot(value, 0.55));
    if (known(time.median)) {
      const mark = draw("line", { x1: scale(time.median), x2: scale(time.median), y1: y - 7, y2: y + 7, "stroke-width": 3 });
      mark.style.stroke = `var(--c-${row.key})`;
      svg.append(mark);
      text(Math.max(...time.all.filter(known).map(scale)) + 8, y + 4, seconds(time.median));
    } else {
      text(scale(cutoff), y + 4, time.cut ? `> ${cutoff}` : missing(time), { "text-anchor": "middle" });
    }
  });
  return make("div", { class: "panel" }, make("h3", {}, name, make("small", {}, `${percent(data.setting.losses[index])} loss`)), svg);
}

function times() {
  document.getElementById("times-note").textContent =
    "Seconds from connect() to the last byte, logarithmic. A dot is one run, a tick the median; gw stands for the gateway.";
  for (const [name, key] of [["100 kB", "t_100kB"], ["2 MB", "t_2MB"]]) {
    data.setting.losses.forEach((_, index) => put("times", timePanel(name, index, key)));
  }
}

theme(charts);
views();
legend();
times();
charts();
document.documentElement.dataset.ready = "yes";
