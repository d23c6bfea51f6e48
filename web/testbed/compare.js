// Compare: runs side by side. The address is a permanent link: it names their folders.
import { known, make } from "./page.js";
import { ask, attempt, save, say } from "./ask.js";
import { Course, Lines, short } from "./lines.js";
import { captures, cell } from "./watch.js";

const OVER = ["done", "failed", "stopped", "interrupted"];

export async function show(target, [words]) {
  const ids = (words ?? "").split(",").filter(Boolean).slice(0, 24);
  target.append(make("h1", {}, "Compare"));
  if (!ids.length) {
    target.append(make("p", { class: "lead" }, "Tick runs in ", make("a", { href: "#history" }, "History"), "."));
    return undefined;
  }
  const view = new View(target, ids);
  await view.renew();
  return { end: () => clearTimeout(view.timer), redraw: () => view.panels.forEach((panel) => panel.draw()) };
}

class View {
  constructor(target, ids) {
    this.ids = ids;
    this.panels = [];
    this.lead = make("p", { class: "lead", role: "status" });
    this.tables = make("div");
    this.charts = make("div", { class: "charts" });
    this.below = make("div");
    const button = (label, work) => {
      const element = make("button", { type: "button" }, label);
      element.addEventListener("click", work);
      return element;
    };
    this.actions = make("div", { class: "actions" },
      button("Save as CSV", () => save("compare.csv", "text/csv", this.csv())),
      button("Save as JSON", () => save("compare.json", "application/json", JSON.stringify(this.runs.map(({ id, label, command, result }) => ({ id, label, command, result })), null, 2))),
      button("Copy the link", () => attempt(async () => {
        await navigator.clipboard.writeText(location.href);
        say("The link is copied; it holds as long as the folders are there.");
      })));
    target.append(this.lead, this.actions, this.tables, this.charts, this.below);
  }

  /** Asks for all runs, again while some go on. */
  async renew() {
    this.runs = await Promise.all(this.ids.map((id) => ask(`/api/runs/${id}`)));
    const open = this.runs.filter((run) => !OVER.includes(run.state));
    this.lead.textContent = open.length ? `${open.length} of ${this.runs.length} runs are not over yet.` : `${this.runs.length === 1 ? "One run" : `${this.runs.length} runs`}; differences are from the first.`;
    this.tables.replaceChildren(this.table());
    this.below.replaceChildren(make("h2", {}, "The same runs by hand"), ...this.runs.map((run) => make("div", {}, make("a", { href: `#watch/${run.id}` }, run.label),
      make("pre", { tabindex: "0", "aria-label": `Command of ${run.label}` }, `${run.command}    # in ${run.id}/`), captures(run))));
    if (open.length) {
      this.timer = setTimeout(() => attempt(() => this.renew()), 1000);
      return;
    }
    await this.lines();
    document.documentElement.dataset.compared = this.ids.join(",");
  }

  /** Measures by row, runs by column. */
  measures() {
    const names = [...new Set(this.runs.flatMap((run) => Object.keys(run.result?.measures ?? {})))];
    return names.map((name) => {
      const of = (run) => run.result?.measures?.[name];
      return { name, unit: this.runs.map(of).find(known).unit, values: this.runs.map((run) => of(run)?.value) };
    }).filter(({ values }) => values.some((value) => value));
  }

  table() {
    const rows = this.measures();
    if (!rows.length) return make("p", { class: "note" }, "No run has a result yet.");
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Measures" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "measure"), this.runs.map((run, i) => make("th", { scope: "col" }, make("span", { class: `swatch s${i % 8}` }), run.label, make("span", { class: "unit" }, `${run.kind}, ${run.state}`))))),
      make("tbody", {}, rows.map(({ name, unit, values }) => make("tr", {}, make("th", { scope: "row" }, name.replaceAll("_", " "), make("small", { class: "diff" }, unit)),
        values.map((value, i) => make("td", {}, cell(value), i > 0 && known(value) && known(values[0]) ? make("small", { class: "diff" }, difference(value, values[0])) : [])))))));
  }

  csv() {
    const quote = (text) => `"${`${text ?? ""}`.replaceAll('"', '""')}"`;
    const rows = this.measures().map(({ name, unit, values }) => [name, unit, ...values].map(quote).join(","));
    return [["measure", "unit", ...this.runs.map((run) => run.label)].map(quote).join(","), ...rows].join("\n") + "\n";
  }

  /** The courses of all runs over each other: of each run all its flows together, by the window the first flow. */
  async lines() {
    const courses = await Promise.all(this.runs.map(async (run) => {
      const course = new Course();
      if (!run.files.some(([name]) => name === "live.jsonl")) return course;
      const text = await (await fetch(`/api/runs/${run.id}/files/live.jsonl`)).text();
      await attempt(() => course.take(text));
      return course;
    }));
    if (!courses.some((course) => course.looks.length)) return;
    const x = [...new Set(courses.flatMap((course) => course.x))].sort((a, b) => a - b);
    const on = (course, values) => {
      const at = new Map(course.x.map((time, k) => [time, values[k]]));
      return x.map((time) => at.get(time) ?? null);
    };
    const labels = this.runs.map((run) => run.label);
    const sum = (course) => {
      const flows = course.outline?.flows ?? [];
      const all = flows.map((_, i) => course.throughput(i));
      return course.looks.map((_, k) => all.reduce((total, values) => total + values[k], 0));
    };
    const longest = (course) => course.looks.map((look) => Math.max(0, ...look.links.map((link) => link.waiting_packets)));
    // Behind a split it is the gateway's TCP that crosses the satellite link.
    const crossing = (course, key) => {
      const leg = (course.outline.legs ?? []).findLastIndex(({ flow }) => flow === course.outline.flows[0]);
      return leg < 0 ? course.flow(0, key) : course.leg(leg, key);
    };
    const again = (course) => course.grew(crossing(course, "segments_again"));
    const has = (course) => course.outline?.flows.length > 0;
    for (const [title, unit, values, marks] of [
      ["Throughput", "Mbit/s, all flows, mean of a second", sum, again],
      ["Window", "segments, of the first flow: of its last gateway that splits, or else its source", (course) => (has(course) ? crossing(course, "cwnd_segments") : []), again],
      ["Round-trip time", "ms, smoothed, of the same", (course) => (has(course) ? crossing(course, "srtt_ms") : [])],
      ["Queue", "packets, of the longest queue", longest],
    ]) {
      const panel = new Lines(title, unit, labels);
      panel.onSave = () => save(`compare-${title.toLowerCase().replaceAll(" ", "-")}.svg`, "image/svg+xml", panel.svg());
      this.charts.append(panel.panel);
      this.panels.push(panel);
      panel.set({ x, y: courses.map((course) => on(course, values(course))), marks: courses.map((course) => (marks && has(course) ? marks(course) : [])) });
    }
  }
}

function difference(value, base) {
  if (base === 0) return value === 0 ? "the same" : "";
  const share = value / base - 1;
  if (Math.abs(share) < 5e-4) return "the same";
  return value / base >= 3 ? `${short(value / base)}×` : `${share > 0 ? "+" : "−"}${(100 * Math.abs(share)).toFixed(1)}%`;
}
