// Lines over time: uPlot as the reports have it, with marks for what was lost; and the same as SVG.
import { axis, draw, known, make, style, tooltip } from "./page.js";

export const colour = (index) => style(`--c-${index % 8}`);
const DASHES = [[], [8, 4], [2, 3]];
const dash = (index) => DASHES[Math.floor(index / 8) % DASHES.length];

/** A panel with lines. `lines`: names. `set({ x, y, marks })`: times, values by line, times of marks by line. */
export class Lines {
  constructor(title, unit, names, { height = 220 } = {}) {
    this.title = title;
    this.unit = unit;
    this.names = names;
    this.height = height;
    this.hidden = new Set();
    this.data = { x: [], y: names.map(() => []), marks: names.map(() => []) };
    this.place = make("div");
    this.words = make("p", { class: "note" });
    const svg = make("button", { type: "button", "aria-label": `${title}: save as SVG` }, "SVG");
    svg.addEventListener("click", () => this.onSave?.(this));
    this.panel = make("section", { class: "panel", "aria-label": title }, make("h2", {}, make("span", {}, title, make("small", {}, unit)), svg), this.place, this.words);
  }

  set(data) {
    this.data = data;
    this.words.replaceChildren(...this.summary());
    if (this.plot) this.plot.setData([data.x, ...data.y]);
    else this.draw();
  }

  hide(index, hide) {
    if (hide) this.hidden.add(index);
    else this.hidden.delete(index);
    this.plot?.setSeries(index + 1, { show: !hide });
  }

  /** Which line is which, and what each says last, for who does not see them, too. */
  summary() {
    const last = this.names.map((name, i) => [i, name, this.data.y[i].findLast(known)]).filter(([, , value]) => known(value));
    if (!last.length) return ["Nothing yet."];
    const most = 8;
    const said = last.slice(0, most).flatMap(([i, name, value], k) => [k ? ", " : "", make("span", { class: "line" }, make("span", { class: `swatch s${i % 8}` }), `${name} ${short(value)}`)]);
    return ["Last: ", ...said, `${last.length > most ? " …" : ""} ${this.unit.split(/[,;]/)[0]}.`];
  }

  draw() {
    this.plot?.destroy();
    this.plot = null;
    const width = this.place.clientWidth;
    if (!width) return;
    const { x, y } = this.data;
    const options = {
      width,
      height: this.height,
      padding: [8, 12, 0, 0],
      cursor: { y: false, points: { size: 5 } },
      legend: { show: false },
      scales: { x: { time: false }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.05 : 1] } },
      axes: [{ ...axis(), size: 30, values: (_, ticks) => ticks.map((tick) => `${tick} s`) }, { ...axis(), size: 58, values: (_, ticks) => ticks.map(short) }],
      series: [{}, ...this.names.map((label, i) => ({ label, stroke: colour(i), dash: dash(i), width: 2, spanGaps: true, show: !this.hidden.has(i), points: { show: false } }))],
      plugins: [this.tip(), this.markers()],
    };
    this.plot = new uPlot(options, [x, ...y], this.place);
  }

  tip() {
    return tooltip((plot, at) => [make("strong", {}, `${plot.data[0][at].toFixed(1)} s`),
      ...this.names.map((name, i) => [name, plot.data[i + 1][at], i]).filter(([, value, i]) => known(value) && !this.hidden.has(i)).slice(0, 12)
        .map(([name, value, i]) => make("div", { class: "name" }, make("span", { class: `swatch s${i % 8}` }), name, make("b", {}, short(value))))]);
  }

  /** A stroke at the foot of the plot for each mark. */
  markers() {
    return {
      hooks: {
        draw: (plot) => {
          const { ctx, bbox } = plot;
          ctx.save();
          ctx.lineWidth = devicePixelRatio;
          this.data.marks?.forEach((times, i) => {
            if (this.hidden.has(i)) return;
            ctx.strokeStyle = colour(i);
            ctx.beginPath();
            for (const time of times) {
              const x = Math.round(plot.valToPos(time, "x", true));
              ctx.moveTo(x, bbox.top + bbox.height);
              ctx.lineTo(x, bbox.top + bbox.height - 9 * devicePixelRatio);
            }
            ctx.stroke();
          });
          ctx.restore();
        },
      },
    };
  }

  /** The panel as a file. */
  svg() {
    const [width, height, left, bottom, top] = [720, 360, 64, 40, 34];
    const { x, y, marks } = this.data;
    const shown = this.names.map((_, i) => i).filter((i) => !this.hidden.has(i));
    const most = Math.max(1e-9, ...shown.flatMap((i) => y[i].filter(known)));
    const end = x.at(-1) || 1;
    const at = (time, value) => `${(left + (time / end) * (width - left - 12)).toFixed(1)},${(height - bottom - (value / most) * (height - bottom - top)).toFixed(1)}`;
    const text = (at, words, attributes = {}) => {
      const element = draw("text", { x: at[0], y: at[1], fill: "#16202b", "font-size": 12, "font-family": "sans-serif", ...attributes });
      element.textContent = words;
      return element;
    };
    const root = draw("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height + 18 * shown.length}`, width, height: height + 18 * shown.length },
      draw("rect", { width: "100%", height: "100%", fill: "#ffffff" }), text([left, 20], `${this.title} (${this.unit})`, { "font-weight": "bold" }));
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      const [x0, y0] = at(0, part * most).split(",");
      root.append(draw("line", { x1: x0, x2: width - 12, y1: y0, y2: y0, stroke: "#dde2e8" }), text([left - 6, Number(y0) + 4], short(part * most), { "text-anchor": "end" }),
        text([left + part * (width - left - 12), height - bottom + 18], `${(part * end).toFixed(0)} s`, { "text-anchor": "middle" }));
    }
    const paper = ["#1d4fd1", "#c8452f", "#2c8a3d", "#a0449a", "#9a7300", "#1478a0", "#55616e", "#8a5a2b"];
    shown.forEach((i, row) => {
      const stroke = paper[i % 8];
      const points = x.map((time, k) => (known(y[i][k]) ? at(time, y[i][k]) : null)).filter(known);
      root.append(draw("polyline", { points: points.join(" "), fill: "none", stroke, "stroke-width": 1.6, "stroke-dasharray": dash(i).join(" ") || null }));
      for (const time of marks?.[i] ?? []) {
        const [mx] = at(time, 0).split(",");
        root.append(draw("line", { x1: mx, x2: mx, y1: height - bottom, y2: height - bottom - 8, stroke }));
      }
      root.append(draw("line", { x1: left, x2: left + 24, y1: height + 18 * row, y2: height + 18 * row, stroke, "stroke-width": 3 }), text([left + 32, height + 18 * row + 4], this.names[i]));
    });
    return new XMLSerializer().serializeToString(root);
  }
}

export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(0)}k`;
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return size < 1e-3 ? value.toExponential(1) : value.toPrecision(3);
}

/** The course of a run, taken from the lines of its feed: series by flow and link. */
export class Course {
  constructor() {
    this.outline = null;
    this.looks = [];
  }

  /** Takes lines of JSON; returns whether any came. */
  take(text) {
    for (const line of text.split("\n")) {
      if (!line) continue;
      const look = JSON.parse(line);
      if (look.flows && "at_s" in look) this.looks.push(look);
      else this.outline = look;
    }
    return this.looks.length > 0;
  }

  get x() {
    return this.looks.map((look) => look.at_s);
  }

  /** Mbit/s that flow `i` received, as the mean of the second before. */
  throughput(i) {
    let behind = 0;
    return this.looks.map((look) => {
      while (this.looks[behind].at_s < look.at_s - 1) behind++;
      const from = this.looks[Math.max(behind - 1, 0)];
      const time = look.at_s - from.at_s;
      return time > 0 ? (8e-6 * (look.flows[i].received_bytes - from.flows[i].received_bytes)) / time : 0;
    });
  }

  flow(i, key) {
    return this.looks.map((look) => look.flows[i][key]);
  }

  /** The TCP of a gateway, by which it sends a flow on. */
  leg(i, key) {
    return this.looks.map((look) => look.legs[i][key]);
  }

  link(i, key) {
    return this.looks.map((look) => look.links[i][key]);
  }

  /** When a count grew. */
  grew(values) {
    const times = [];
    values.forEach((value, k) => {
      if (k > 0 && known(value) && value > (values[k - 1] ?? 0)) times.push(this.looks[k].at_s);
    });
    return times;
  }
}
