// The demo's report: throughput over time (uPlot) and the time-to-complete panels (SVG).
"use strict";

const hidden = new Set();
let plots = [];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** uPlot plugin: names and values under the pointer. */
function tooltip(rows, index) {
  const tip = make("div", { class: "tip", hidden: "" });
  return {
    hooks: {
      init: (plot) => plot.over.append(tip),
      setCursor: (plot) => {
        const at = plot.cursor.idx;
        tip.hidden = at === null || at === undefined || plot.cursor.left < 0;
        if (tip.hidden) return;
        const lines = rows
          .map((row) => [row, cellOf(row, index).series[at]])
          .filter(([row, value]) => finite(value) && !hidden.has(row.key))
          .sort((a, b) => b[1] - a[1]);
        tip.replaceChildren(make("strong", {}, `second ${plot.data[0][at]}`),
          ...lines.map(([row, value]) => make("div", { class: "name" }, sample(row), fullName(row), make("b", {}, value.toFixed(2)))));
        const right = plot.cursor.left > plot.over.clientWidth / 2;
        tip.style.left = right ? "" : `${plot.cursor.left + 14}px`;
        tip.style.right = right ? `${plot.over.clientWidth - plot.cursor.left + 14}px` : "";
        tip.style.top = "8px";
      },
    },
  };
}

/** The line of the limit, across the whole plot. */
function limitLine(limit) {
  return {
    hooks: {
      drawSeries: (plot, series) => {
        if (series !== 1) return;
        const y = Math.round(plot.valToPos(limit, "y", true));
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.strokeStyle = style("--soft");
        ctx.lineWidth = devicePixelRatio;
        ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
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
  const pad = (series) => Array.from({ length: seconds }, (_, i) => series[i] ?? null);
  const axis = { stroke: style("--soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const options = {
    width: panel.clientWidth - 34,
    height: 250,
    padding: [10, 8, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { show: false },
    scales: { x: { time: false, range: [0.5, seconds] }, y: { range: (_, __, max) => [0, Math.max(data.setting.rate_mbps * 1.02, max * 1.03)] } },
    axes: [{ ...axis, size: 30, values: (_, ticks) => ticks.map((t) => `${t} s`) }, { ...axis, size: 64, values: (_, ticks) => ticks.map((t) => `${t} Mb/s`) }],
    series: [{}, ...rows.map((row) => ({
      label: fullName(row), stroke: colour(row), width: row.ours ? 3 : 2, dash: dash(row), show: !hidden.has(row.key), points: { show: false },
    }))],
    plugins: [tooltip(rows, index), limitLine(data.setting.limits[index])],
  };
  const target = make("div");
  panel.append(target);
  plots.push({ plot: new uPlot(options, [x, ...rows.map((row) => pad(cellOf(row, index).series))], target), rows, panel });
}

/** Draws all charts anew: at the start, and when the colours change. */
function charts() {
  plots.forEach(({ plot }) => plot.destroy());
  plots = [];
  document.getElementById("charts").replaceChildren();
  data.setting.losses.forEach((loss, index) => {
    const limit = data.setting.limits[index].toFixed(2);
    const panel = make("div", { class: "panel" }, make("h3", {}, `${percent(loss)} loss`, make("small", {}, `limit ${limit} Mb/s`)));
    put("charts", panel);
    chart(panel, index);
  });
}

function legend() {
  for (const row of data.rows) {
    const button = make("button", { type: "button", "aria-pressed": "true" }, sample(row), fullName(row));
    button.addEventListener("click", () => {
      if (!hidden.delete(row.key)) hidden.add(row.key);
      button.setAttribute("aria-pressed", `${!hidden.has(row.key)}`);
      for (const { plot, rows } of plots) {
        const at = rows.indexOf(row);
        if (at >= 0) plot.setSeries(at + 1, { show: !hidden.has(row.key) });
      }
    });
    put("legend", button);
  }
}

const LABELS = 128;
const WIDTH = 360;
const STEP = 22;

/** One panel: a dot a run and a bar for the median, on a logarithmic scale of seconds. */
function timePanel(name, index, key) {
  const cutoff = data.setting.cutoff_s;
  const times = data.rows.map((row) => cellOf(row, index)[key]);
  const known = times.flatMap((time) => time.all).filter(finite);
  const low = Math.min(0.5, ...known);
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
    time.all.filter(finite).forEach((value) => dot(value, 0.55));
    if (finite(time.median)) {
      const mark = draw("line", { x1: scale(time.median), x2: scale(time.median), y1: y - 7, y2: y + 7, "stroke-width": 3 });
      mark.style.stroke = `var(--c-${row.key})`;
      svg.append(mark);
      text(Math.max(...time.all.filter(finite).map(scale)) + 8, y + 4, seconds(time.median));
    } else {
      text(scale(cutoff), y + 4, time.cut ? `> ${cutoff}` : "failed", { "text-anchor": "middle" });
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

legend();
times();
charts();
document.addEventListener("theme", charts);
let resizing;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(charts, 120);
});
document.documentElement.dataset.ready = "yes";
