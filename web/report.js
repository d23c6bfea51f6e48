// The demo's report: words, cards, table and provenance, after page.js. charts.js draws what moves.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

const percent = (value) => `${+(value * 100).toFixed(1)}%`;
const spaced = (text) => text.replace(/^([\d.]+)(\D+)$/, "$1\u00a0$2");
const rate = (value) => value.toFixed(2);
const seconds = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(1));
const colour = (row) => style(`--c-${row.key}`);
const DASHES = { "e2e-reno": [3, 3], "e2e-cubic": [8, 4], "e2e-bbr": [10, 3, 2, 3], "e2e-hybla": [5, 3], "split-rate-stock": [2, 3] };
const dash = (row) => DASHES[row.key] ?? [];
const fullName = (row) => `${row.mode === "split" ? "gateway, " : "end to end, "}${row.label}`;

/** A short piece of a row's line, for legends. */
function sample(row) {
  const line = draw("line", { x1: 0, y1: 4, x2: 26, y2: 4, "stroke-width": row.ours ? 3.5 : 2.5, "stroke-dasharray": dash(row).join(" ") });
  line.style.stroke = `var(--c-${row.key})`;
  return draw("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }, line);
}

function lead() {
  const s = data.setting;
  document.getElementById("lead").textContent =
    `A terminal behind a geostationary satellite downloads from a server: ${s.rate_mbps} Mb/s, ${s.rtt_ms} ms round trip, ` +
    `a queue of ${spaced(s.queue)}, and 0 to ${percent(Math.max(...s.losses))} of the packets corrupted on the way. Every figure is real Linux TCP ` +
    `over an emulated link, once end to end and once through the bentpipe gateway, which ends the server's connection ` +
    `on the ground and speaks to the terminal in a way that suits the satellite.`;
  const svg = draw("svg", { class: "path", viewBox: "0 0 840 120", role: "img", "aria-label": "Server, gateway, satellite link, terminal" });
  const box = (x, name, sub) => {
    svg.append(draw("rect", { class: "box", x, y: 40, width: 150, height: 56, rx: 9 }));
    const label = draw("text", { x: x + 75, y: 65 });
    label.textContent = name;
    const small = draw("text", { class: "sub", x: x + 75, y: 84 });
    small.textContent = sub;
    svg.append(label, small);
  };
  svg.append(draw("path", { class: "wire", d: "M151 68H244" }), draw("path", { class: "space", d: "M396 68C460 8 610 8 688 68" }));
  box(1, "server", "sends the data");
  box(245, "gateway", "splits TCP, or routes");
  box(689, "terminal", "connects, downloads");
  const space = draw("text", { class: "sub", x: 543, y: 68 });
  space.textContent = `${s.rate_mbps} Mb/s, ${s.rtt_ms / 2} ms each way`;
  svg.append(space);
  put("path", svg);
}

const cellOf = (row, index) => row.cells[index];
const findRow = (key) => data.rows.find((row) => row.key === key);
/** What stands where there is no figure; nothing was asked for where none was tried. */
const missing = (cell, name, failed) => (cell.not_run.includes(name) ? "not run" : failed ? "failed" : "—");
const shown = (cell, name, cutoff) => {
  const time = cell[name];
  return time.cut ? `> ${cutoff} s` : known(time.median) ? `${seconds(time.median)} s` : missing(cell, name, time.failed);
};

/** One card a loss rate: the default of most servers against ours, and the best end-to-end row beside. */
function cards() {
  const before = findRow("e2e-cubic");
  const after = findRow("split-rate");
  if (!before || !after) return document.getElementById("short").remove();
  data.setting.losses.forEach((loss, index) => {
    const [from, to] = [cellOf(before, index), cellOf(after, index)];
    if (!known(from.goodput) || !known(to.goodput)) return;
    const factor = to.goodput / from.goodput;
    const rivals = data.rows.filter((row) => row.mode === "end-to-end" && known(cellOf(row, index).goodput));
    const best = rivals.reduce((a, b) => (cellOf(a, index).goodput >= cellOf(b, index).goodput ? a : b));
    const line = (name, left, right) => [make("dt", {}, name), make("dd", {}, left), make("dd", {}, right)];
    const cutoff = data.setting.cutoff_s;
    const list = make("dl", {},
      make("dt", { class: "head" }, ""), make("dd", { class: "head" }, "end to end"), make("dd", { class: "head" }, "gateway"),
      line("bulk, Mb/s", rate(from.goodput), rate(to.goodput)),
      line("100 kB", shown(from, "t_100kB", cutoff), shown(to, "t_100kB", cutoff)),
      line("2 MB", shown(from, "t_2MB", cutoff), shown(to, "t_2MB", cutoff)));
    put("cards", make("div", { class: "card" },
      make("h3", {}, loss ? `${percent(loss)} of the packets lost` : "No packet lost"),
      make("div", { class: "big" }, `${factor >= 10 ? factor.toFixed(0) : factor.toFixed(2)}×`),
      make("p", { class: "what" }, `the throughput of ${before.label} end to end, and ${percent(to.share)} of what the link can carry. ` +
        (best === before ? "" : `The best end-to-end control is ${best.label} with ${rate(cellOf(best, index).goodput)} Mb/s.`)),
      list));
  });
}

/** The best of a column: the largest or the smallest, when anything was measured. */
function best(values, pick) {
  const measured = values.filter(known);
  return measured.length ? pick(...measured) : undefined;
}

function tableHead() {
  const { losses, limits } = data.setting;
  const head = make("thead");
  head.append(make("tr", {}, make("th", { rowspan: 2, scope: "col" }, "Congestion control"),
    losses.map((loss, i) => make("th", { colspan: 3, scope: "colgroup", class: "first loss" }, `${percent(loss)} loss`,
      make("span", { class: "unit" }, `limit ${limits[i].toFixed(2)} Mb/s`)))));
  const unit = (name, text, first) => make("th", { scope: "col", class: first ? "first" : undefined }, name, make("span", { class: "unit" }, text));
  head.append(make("tr", {}, losses.map(() => [unit("bulk", "Mb/s, share of limit", true), unit("100 kB", "s"), unit("2 MB", "s")])));
  return head;
}

/** Beside a figure that a pause of the host disturbed in every try. */
const paused = (ms) => (known(ms) ? make("small", { class: "paused" }, `host paused ${ms.toFixed(0)} ms`) : null);

function absent(cell, name, failed, also = "") {
  const text = missing(cell, name, failed);
  return make("td", { class: also + (text === "failed" ? "bad" : "cut") }, text);
}

function goodputCell(cell, isBest) {
  if (!known(cell.goodput)) return absent(cell, "goodput", true, "first ");
  const bar = make("i");
  bar.style.width = `${Math.min(100, cell.share * 100)}%`;
  return make("td", { class: `first share${isBest ? " best" : ""}`, title: known(cell.most_retransmitted) ? `${percent(cell.most_retransmitted)} retransmitted` : undefined },
    rate(cell.goodput), make("small", {}, `${Math.round(cell.share * 100)}%`), make("span", { class: "fill" }, bar), paused(cell.host_paused_ms) ?? "");
}

function timeCell(cell, name, isBest) {
  const time = cell[name];
  const mark = paused(time.host_paused_ms) ?? "";
  if (time.cut) return make("td", { class: "cut" }, `> ${data.setting.cutoff_s}`, mark);
  if (!known(time.median)) return absent(cell, name, time.failed);
  const title = time.all.length > 1 ? `median of ${time.all.length}: ${time.all.map((t) => (known(t) ? seconds(t) : "cut off")).join(", ")} s` : "one run";
  return make("td", { class: isBest ? "best" : undefined, title }, seconds(time.median), mark);
}

function table() {
  const body = make("tbody");
  const top = data.setting.losses.map((_, i) => ({
    goodput: best(data.rows.map((row) => cellOf(row, i).goodput), Math.max),
    t_100kB: best(data.rows.map((row) => cellOf(row, i).t_100kB.median), Math.min),
    t_2MB: best(data.rows.map((row) => cellOf(row, i).t_2MB.median), Math.min),
  }));
  let mode = null;
  for (const row of data.rows) {
    if (row.mode !== mode) {
      mode = row.mode;
      const name = mode === "split" ? "Through the gateway, by the control of its satellite leg" : "End to end, by the server's control";
      body.append(make("tr", { class: "group" }, make("th", { colspan: 1 + 3 * top.length, scope: "rowgroup" }, name)));
    }
    body.append(make("tr", { class: row.ours ? "ours" : undefined }, make("th", { scope: "row" }, row.label),
      row.cells.map((cell, i) => [
        goodputCell(cell, cell.goodput === top[i].goodput),
        timeCell(cell, "t_100kB", cell.t_100kB.median === top[i].t_100kB),
        timeCell(cell, "t_2MB", cell.t_2MB.median === top[i].t_2MB),
      ])));
  }
  document.getElementById("table").append(tableHead(), body);
  const s = data.setting;
  document.getElementById("table-note").textContent =
    `Bulk is the goodput of a ${s.bulk_s} s download over its whole time, start included. 100 kB and 2 MB run from connect() to the last byte, ` +
    `${s.repeats > 1 ? `medians of up to ${s.repeats} runs, ` : ""}cut off at ${s.cutoff_s} s. ` +
    `Limit = rate × 1448/1500 × (1 − loss). The best of each column is bold and green. Where the host paused in every try, ` +
    `the figure says for how long: the emulated link stood still meanwhile.` +
    (data.rows.some((row) => row.cells.some((cell) => cell.not_run.length)) ? " For what was not run there was no time." : "");
}

function failures() {
  if (!data.failures.length) return;
  put("failures", make("div", { class: "alert", role: "alert" }, make("strong", {}, "Some runs failed; where there is no other of the kind, the cell says so."),
    make("ul", {}, data.failures.map((text) => make("li", {}, text)))));
}

function how() {
  put("how", make("dl", { class: "how" }, data.manifest.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
  const head = ["run", "seed", "result", "retransmitted", "lateness p99", "attempts"];
  const rows = data.runs.map((run) => make("tr", {}, make("th", { scope: "row" }, make("code", {}, run.name)), make("td", {}, `${run.seed}`),
    make("td", {}, run.result), make("td", {}, known(run.most_retransmitted) ? percent(run.most_retransmitted) : "—"),
    make("td", {}, known(run.lateness_ms) ? `${run.lateness_ms.toFixed(2)} ms` : "—"), make("td", {}, `${run.attempts}`)));
  put("how", make("details", {}, make("summary", {}, `All ${data.runs.length} runs`),
    make("p", { class: "note" }, data.rerun),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, head.map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, rows)))));
}

failures();
lead();
cards();
table();
how();
