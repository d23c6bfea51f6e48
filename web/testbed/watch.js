// Watch: one run while it goes on, and afterwards.
import { known, make, toggle } from "./page.js";
import { ask, attempt, duration, once, save } from "./ask.js";
import { Course, Lines } from "./lines.js";
import { left, queue, stopper } from "./history.js";

export async function show(target, [id]) {
  if (!id) {
    target.append(make("h1", {}, "Watch"), make("p", { class: "lead" }, "Choose a run that goes on, or one of the past in History."));
    const list = make("div");
    target.append(list);
    return { end: queue(list) };
  }
  const run = await ask(`/api/runs/${id}`);
  const view = new View(target, run);
  await view.begin();
  return { end: () => view.end(), redraw: () => view.redraw() };
}

class View {
  constructor(target, run) {
    this.run = run;
    this.course = new Course();
    this.panels = [];
    this.state = make("span");
    this.charts = make("div", { class: "charts" });
    this.legend = make("div", { class: "legend", role: "group", "aria-label": "Flows shown" });
    this.below = make("div");
    this.stop = stopper(run.id);
    target.append(make("h1", {}, run.label), make("p", { class: "lead" }, this.state), make("div", { class: "actions" }, this.stop), this.legend, this.charts, this.below);
  }

  async begin() {
    const { state } = this.run;
    this.told(state);
    if (state === "queued" || state === "running") this.follow();
    else await this.past();
  }

  end() {
    this.events?.close();
    clearTimeout(this.timer);
    if (this.frame) cancelAnimationFrame(this.frame);
  }

  redraw() {
    this.panels.forEach(({ panel }) => panel.draw());
  }

  told(state) {
    this.state.className = `state-${state}`;
    this.state.textContent = state;
    this.stop.hidden = !["queued", "running"].includes(state);
    document.documentElement.dataset.state = state;
  }

  /** Listens to a run; one that waits is asked about until it begins. */
  async follow() {
    const run = await attempt(() => ask(`/api/runs/${this.run.id}`));
    if (!run) {
      this.timer = setTimeout(() => this.follow(), 2000);
      return;
    }
    this.run = run;
    this.told(run.state);
    if (run.state === "queued") {
      this.timer = setTimeout(() => this.follow(), 500);
      return;
    }
    if (run.state !== "running") {
      await this.past();
      return;
    }
    this.course = new Course();
    this.events = new EventSource(`/api/runs/${run.id}/events`);
    this.events.onmessage = ({ data }) => {
      this.course.take(data);
      this.draw();
    };
    const over = () => {
      this.events.close();
      this.timer = setTimeout(() => this.follow(), 300);
    };
    this.events.addEventListener("end", over);
    this.events.onerror = over;
  }

  /** A run that is over: its record, its figures, its files. */
  async past() {
    const { id, files } = this.run;
    this.told(this.run.state);
    if (files.some(([name]) => name === "live.jsonl")) {
      this.course = new Course();
      const text = await (await fetch(`/api/runs/${id}/files/live.jsonl`)).text();
      attempt(() => this.course.take(text));
      this.draw();
    }
    this.below.replaceChildren(...ended(this.run));
    document.documentElement.dataset.over = id;
  }

  /** At the next frame: however fast looks come, a screen is drawn once. */
  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.drawNow();
    });
  }

  drawNow() {
    const { outline, looks, x } = this.course;
    if (!outline) return;
    if (!this.panels.length) this.lay(outline);
    this.panels.forEach(({ panel, fill }) => panel.set(fill(x)));
    const at = looks.at(-1)?.at_s;
    if (this.run.state === "running" && known(at)) {
      const most = left({ at_s: at, at_most_s: outline.at_most_s, began: this.run.began }, Date.now() / 1000);
      this.state.textContent = `running: ${at.toFixed(1)} s of at most ${outline.at_most_s.toFixed(0)} s${known(most) ? `, at most ${duration(most)} left` : ""}`;
    }
    document.documentElement.dataset.looks = `${looks.length}`;
  }

  lay({ flows, links, legs = [] }) {
    const names = links.map(({ link, from, to }) => `${link}, ${from} → ${to}`);
    // Behind the flows stand the TCPs of gateways that split them; a flow's lines are shown and hidden together.
    const tcps = [...flows, ...legs.map(({ flow, gateway }) => `${flow}, at ${gateway}`)];
    const owner = (i) => (i < flows.length ? i : flows.indexOf(legs[i - flows.length].flow));
    const tcp = (i, key) => (i < flows.length ? this.course.flow(i, key) : this.course.leg(i - flows.length, key));
    const of = (title, unit, lines, values, marks) => {
      const panel = new Lines(title, unit, lines);
      panel.onSave = () => save(`${this.run.id}-${title.toLowerCase().replaceAll(" ", "-")}.svg`, "image/svg+xml", panel.svg());
      this.charts.append(panel.panel);
      this.panels.push({ panel, lines, fill: (x) => ({ x, y: lines.map((_, i) => values(i)), marks: lines.map((_, i) => marks?.(i) ?? []) }) });
    };
    const again = (i) => this.course.grew(tcp(i, "segments_again"));
    const own = (flow) => tcps.map((_, i) => i).filter((i) => owner(i) === flow);
    const who = legs.length ? "source and gateway" : "source";
    of("Throughput", "Mbit/s, mean of a second; strokes: segments sent again", flows, (i) => this.course.throughput(i), (i) => own(i).flatMap(again));
    of("Window", `segments, of the ${who}; strokes: segments sent again`, tcps, (i) => tcp(i, "cwnd_segments"), again);
    of("Round-trip time", `ms, smoothed, of the ${who}`, tcps, (i) => tcp(i, "srtt_ms"));
    of("Queue", "packets that wait; strokes: packets dropped or lost", names, (i) => this.course.link(i, "waiting_packets"), (i) => this.course.grew(this.course.link(i, "dropped_packets")));
    this.legend.append(...flows.map((name, i) => toggle([make("span", { class: `swatch s${i % 8}` }), name], (hide) => {
      for (const { panel, lines } of this.panels) {
        if (lines === flows) panel.hide(i, hide);
        else if (lines === tcps) own(i).forEach((line) => panel.hide(line, hide));
      }
    })));
  }
}

/** What is shown of a run that is over. */
function ended(run) {
  const parts = [];
  if (run.why) parts.push(make("div", { class: "alert" }, make("strong", {}, "It has no result. "), run.why));
  if (run.result?.flows) parts.push(make("h2", {}, "Flows"), flows(run.result.flows));
  const captured = captures(run);
  if (captured.length) parts.push(make("h2", {}, "Captures"), ...captured);
  parts.push(make("h2", {}, "Files"), make("ul", { class: "files" }, run.files.filter(([name]) => !name.includes("/")).map(([name, size]) =>
    make("li", {}, make("a", { class: "button", href: `/api/runs/${run.id}/files/${encodeURIComponent(name)}`, download: "" }, `${name}, ${bytes(size)}`)))));
  parts.push(make("h2", {}, "The same run by hand"), make("pre", { tabindex: "0", "aria-label": "Command" }, run.command));
  if (run.kind !== "study") {
    const again = make("button", { type: "button" }, "Run again");
    again.addEventListener("click", once(async () => {
      const [{ id }] = await ask(`/api/runs/${run.id}/again`, {});
      location.hash = `watch/${id}`;
    }));
    parts.push(make("div", { class: "actions" }, again, make("a", { class: "button", href: `#compare/${run.id}` }, "Compare")));
  }
  return parts;
}

/** The captures of a run, as time and sequence, and as files. */
export function captures(run) {
  const files = run.files.filter(([name]) => name.startsWith("captures/") && name.endsWith(".pcapng"));
  if (!files.length) return [];
  return [make("ul", { class: "files" }, files.map(([name, size]) => {
    const end = encodeURIComponent(name.slice(9));
    return make("li", {}, make("a", { class: "button", href: `/api/runs/${run.id}/trace/${end}`, target: "_blank", rel: "noopener" }, `${name.slice(9)}: time and sequence`), " ",
      make("a", { class: "button", href: `/api/runs/${run.id}/captures/${end}`, download: "" }, `pcapng, ${bytes(size)}`));
  }))];
}

const COLUMNS = [["outcome", "outcome"], ["congestion_control", "control"], ["goodput_mbps", "goodput, Mbit/s"], ["completion_s", "completion, s"], ["connect_s", "connect, s"], ["segments_again", "sent again, segments"], ["timeouts", "timeouts"], ["mean_queueing_ms", "queueing, ms"]];

export const cell = (value) => (typeof value === "number" ? (Number.isInteger(value) ? `${value}` : Math.abs(value) < 1e-3 ? value.toExponential(3) : value.toPrecision(5)) : known(value) ? `${value}` : "—");

function flows(all) {
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Flows" }, make("table", {},
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "flow"), COLUMNS.map(([, head]) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, all.map((flow) => make("tr", {}, make("th", { scope: "row" }, flow.name), COLUMNS.map(([key]) => make("td", {}, cell(flow[key]))))))));
}

function bytes(size) {
  return size >= 1e6 ? `${(size / 1e6).toFixed(1)} MB` : size >= 1e3 ? `${(size / 1e3).toFixed(0)} kB` : `${size} B`;
}
