// The advisor's page: asks the simulator whenever a slider rests, and shows what it says.
import { axis, known, make, put, style, theme, toggle, tooltip } from "./page.js";
import { Controls } from "./controls.js";
import { Pool, Superseded } from "./pool.js";

/** A slider rests when it was not moved for so long. */
const REST_MS = 60;
const pool = new Pool(Math.min(Math.max(navigator.hardwareConcurrency || 2, 1), 4));
const byId = (id) => document.getElementById(id);

let choices;
let controls;
/** What is shown: the question as text, its measures, its figures by `alternative measure`, the words. */
let shown = { question: "", measures: [], figures: new Map(), advice: null };
let alternative = null;
/** The reader chose the row, which from then on stays; before, it is that of what helps most. */
let chosen = false;
const hidden = new Set();
let plot = null;

const key = (row, column) => `${row} ${column}`;
const colour = (name) => style(`--c-${name}`);
const dash = (choice) => (choice.pep ? [] : [7, 4]);

function duration(seconds) {
  if (seconds >= 7200) return `${(seconds / 3600).toFixed(1)} h`;
  if (seconds >= 120) return `${(seconds / 60).toFixed(1)} min`;
  return `${seconds < 10 ? seconds.toFixed(2) : seconds.toFixed(1)} s`;
}

const rate = (mbps) => (mbps >= 10 ? mbps.toFixed(1) : mbps.toFixed(2));

/** The columns of figures: their heading, what a cell says, and how good it is: the smaller the better. */
function columns() {
  const times = shown.measures.map(({ name, label }) => ({
    label,
    measure: name,
    text: (figure) => (known(figure.seconds) ? duration(figure.seconds) : `> ${duration(figure.limit_s)}`),
    cost: (figure) => figure.seconds ?? Infinity,
  }));
  return [...times,
    { label: "throughput", unit: "Mbit/s", measure: "long", text: (figure) => rate(figure.goodput_mbps), cost: (figure) => 1 / figure.goodput_mbps, more: true },
    { label: "queue", unit: "ms, mean wait", measure: "long", text: (figure) => figure.evidence.wait_ms.toFixed(0), cost: (figure) => figure.evidence.wait_ms + 1, plain: true }];
}

function table() {
  const all = columns();
  const head = make("tr", {}, make("th", { scope: "col" }, "TCP over the link"),
    all.map(({ label, unit }) => make("th", { scope: "col" }, label, make("span", { class: "unit" }, unit ?? ""))));
  const figure = (choice, column) => shown.figures.get(key(choice.name, column.measure));
  const least = all.map((column) => Math.min(...choices.alternatives.map((choice) => figure(choice, column)).filter(known).map(column.cost)));
  const base = choices.alternatives[0];
  const body = choices.alternatives.map((choice) => {
    const radio = make("input", { type: "radio", name: "alternative", value: choice.name });
    radio.checked = choice.name === alternative;
    radio.addEventListener("change", () => {
      chosen = true;
      choose(choice.name);
    });
    const cells = all.map((column, i) => {
      const own = figure(choice, column);
      if (!own) return make("td", { class: "pending" }, "…", make("small", {}));
      const first = figure(base, column);
      const gain = first && choice !== base && !column.plain ? column.cost(first) / column.cost(own) : 1;
      const factor = gain >= 1.1 ? `${gain >= 10 ? gain.toFixed(0) : gain.toFixed(1)}× ${column.more ? "more" : "faster"}` : gain <= 0.9 ? (column.more ? "less" : "slower") : "";
      const best = column.cost(own) <= least[i] * 1.01 && !column.plain;
      return make("td", { class: best ? "best" : undefined }, column.text(own), make("small", {}, factor));
    });
    return make("tr", { class: choice.name === alternative ? "chosen" : undefined, "data-name": choice.name },
      make("th", { scope: "row" }, make("label", {}, radio, make("span", {}, choice.label, make("small", {}, choice.about)))), cells);
  });
  const focused = document.activeElement?.name === "alternative" ? document.activeElement.value : null;
  byId("table").replaceChildren(make("thead", {}, head), make("tbody", {}, body));
  if (focused) byId("table").querySelector(`input[value="${focused}"]`)?.focus();
}

function tableNote() {
  const question = JSON.parse(shown.question);
  const who = question.users > 1 ? `All ${question.users} users begin at the same moment; the time is that of the one in the middle, the throughput that of all. ` : "";
  byId("table-note").textContent =
    `${who}From the first SYN to the last byte, each over new connections. A page is 30 objects of 30 kB over six connections, one after another on each. ` +
    "Throughput and queue are those of the long transfer: what waits in front of the satellite, a call beside it waits for as well. Choose a row for its gateway and its proof.";
}

/** What was received by when, a line a row. */
function chart() {
  plot?.destroy();
  plot = null;
  const panel = byId("chart");
  panel.replaceChildren();
  const rows = choices.alternatives.filter((choice) => shown.figures.get(key(choice.name, "long"))?.curve.length);
  if (!rows.length) return;
  const figures = rows.map((choice) => shown.figures.get(key(choice.name, "long")));
  const lines = figures.map(({ curve }) => [curve.map((point) => point.seconds), curve.map((point) => point.megabytes)]);
  const ends = figures.map((figure) => figure.seconds ?? figure.limit_s);
  // The slow ones may take hours: the page shows where they are when the quickest has long been ready.
  const last = Math.min(Math.max(...ends) * 1.02, Math.min(...ends) * 4);
  const long = last >= 600;
  const options = {
    width: Math.max(240, panel.clientWidth - 34),
    height: 260,
    padding: [10, 14, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    scales: { x: { time: false, range: [0, last] }, y: { range: (_, __, most) => [0, most * 1.03 || 1] } },
    axes: [{ ...axis(), size: 30, values: (_, ticks) => ticks.map((tick) => (long ? `${+(tick / 60).toFixed(1)} min` : `${+tick.toFixed(2)} s`)) },
      { ...axis(), size: 60, values: (_, ticks) => ticks.map((tick) => `${+tick.toFixed(1)} MB`) }],
    series: [{}, ...rows.map((choice) => ({
      label: choice.label, stroke: colour(choice.name), dash: dash(choice), width: choice.name === alternative ? 3.5 : 1.8, spanGaps: true,
      show: !hidden.has(choice.name), points: { show: false },
    }))],
    plugins: [tooltip((drawn, at) => {
      const seconds = drawn.data[0][at];
      // Lines have points of their own: the newest before the pointer counts.
      const until = (line) => line[1][line[0].findLastIndex((x) => x <= seconds)];
      const values = rows.map((choice, i) => [choice, until(lines[i])]).filter(([choice]) => !hidden.has(choice.name)).sort((a, b) => b[1] - a[1]);
      return [make("strong", {}, duration(seconds)), ...values.map(([choice, value]) => {
        const mark = make("span", {}, choice.pep ? "━" : "╍");
        mark.style.color = colour(choice.name);
        return make("div", {}, mark, choice.label, make("b", {}, `${value.toFixed(1)} MB`));
      })];
    })],
  };
  plot = new uPlot(options, uPlot.join(lines), panel);
  plot.rows = rows;
  panel.setAttribute("role", "img");
  panel.setAttribute("aria-label", `Received over time: ${rows.map((choice, i) => `${choice.label}, ready after ${duration(ends[i])}`).join("; ")}`);
}

function legend() {
  byId("chart-note").textContent = "What all users had received by then. Broken lines run end to end. Choose a name to hide or show its line.";
  for (const choice of choices.alternatives) {
    const mark = make("span", {}, choice.pep ? "━" : "╍");
    mark.style.color = `var(--c-${choice.name})`;
    put("legend", toggle([mark, choice.label], (hide) => {
      if (hide) hidden.add(choice.name);
      else hidden.delete(choice.name);
      const at = plot?.rows.indexOf(choice) ?? -1;
      if (at >= 0) plot.setSeries(at + 1, { show: !hide });
    }));
  }
}

/** The row whose gateway and proof are shown. */
function choose(name) {
  alternative = name;
  for (const row of byId("table").querySelectorAll("tbody tr")) {
    row.classList.toggle("chosen", row.dataset.name === name);
    row.querySelector("input").checked = row.dataset.name === name;
  }
  plot?.rows.forEach((choice, i) => { plot.series[i + 1].width = choice.name === name ? 3.5 : 1.8; });
  plot?.redraw();
  texts();
}

/** The gateway's configuration, the scenario, and the commands that prove the figure. */
async function texts() {
  const { question, figures } = shown;
  const measure = byId("measure").value;
  const figure = figures.get(key(alternative, measure));
  const choice = choices.alternatives.find(({ name }) => name === alternative);
  if (!figure) return;
  const [gateway, scenario] = await Promise.all([
    pool.urgent("gateway_text", question, alternative),
    pool.urgent("scenario_text", question, alternative, measure, figure.seed),
  ]);
  if (shown.question !== question) return;
  byId("gateway-note").textContent = gateway ? `For “${choice.label}”: ${choice.about}.` : `“${choice.label}” takes no gateway: choose another row for its gateway.toml.`;
  byId("gateway").textContent = gateway || "# none";
  byId("copy-gateway").hidden = !gateway;
  byId("scenario").textContent = scenario;
  const seeds = figure.runs > 1 ? ` It is the middle of the seeds 1 to ${figure.runs}${JSON.parse(question).users > 1 ? " and their users" : ""}, that of seed ${figure.seed}.` : "";
  byId("proof-note").textContent = `It is completion_s of flow ${figure.flow}: ${known(figure.seconds) ? `${figure.seconds} s` : "null, for it was cut off"}.${seeds}`;
  byId("commands").textContent = `bentpipe sim run advisor.toml --json - | jq '.flows[] | select(.name == "${figure.flow}").completion_s'\n` +
    (measure === "page" ? "# The lab has no requests and answers: choose 100 kB or more for real TCP." : "sudo bentpipe lab run advisor.toml       # the same on the kernel's own TCP");
}

function measures() {
  const select = byId("measure");
  const before = select.value;
  select.replaceChildren(...shown.measures.map(({ name, label }) => make("option", { value: name }, label)));
  if (shown.measures.some(({ name }) => name === before)) select.value = before;
}

function status(text, bad = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("bad", bad);
}

/** What the address says after `#`, so that a link to a question can be given away. */
function remember(values) {
  history.replaceState(null, "", `#${new URLSearchParams(values)}`);
}

/** All rows of all measures: what is quick, what the words need, and then what takes longest, so that no worker is left with that in the end. */
function inOrder(measures) {
  const rows = choices.alternatives.map(({ name }) => name);
  const short = measures.filter(({ name }) => name !== "long").flatMap(({ name }) => rows.map((row) => [row, name]));
  const [first, ...long] = rows.map((row) => [row, "long"]);
  return [...short, first, ...long.reverse()];
}

let generation = 0;

/** Asks for all figures of what the sliders have said since then, the quick ones first. */
async function ask(since) {
  const own = ++generation;
  const values = controls.values;
  const question = JSON.stringify(values);
  pool.clear();
  remember(values);
  byId("answer").classList.add("stale");
  byId("answer").setAttribute("aria-busy", "true");
  try {
    const answers = { question, measures: JSON.parse(await pool.urgent("measures", question)), figures: new Map(), advice: null };
    const headline = answers.measures.find((measure) => measure.headline).name;
    const has = (row, column) => answers.figures.has(key(row, column));
    const worded = () => has("cubic", "long") && choices.alternatives.every(({ name }) => has(name, headline));
    let words = null;
    let painted = since;
    const jobs = inOrder(answers.measures);
    await Promise.all(jobs.map(async ([row, column]) => {
      const figure = JSON.parse(await pool.call("figure", question, row, column));
      if (own !== generation) return;
      answers.figures.set(key(row, column), figure);
      if (!words && worded()) {
        words = pool.urgent("advice", question, JSON.stringify([...answers.figures.values()]));
        answers.advice = JSON.parse(await words);
      } else if (performance.now() - painted < 300) {
        return;
      }
      if (own !== generation) return;
      painted = performance.now();
      if (answers.advice) document.documentElement.dataset.worded ??= (painted - since).toFixed(0);
      show(answers);
    }));
    if (own !== generation) return;
    show(answers);
    byId("answer").removeAttribute("aria-busy");
    const took = performance.now() - since;
    status(`${jobs.length} figures, simulated in ${(took / 1000).toFixed(2)} s on this machine.`);
    document.documentElement.dataset.took = took.toFixed(0);
    document.documentElement.dataset.answered = question;
  } catch (error) {
    if (!(error instanceof Superseded) && own === generation) status(`${error.message}. Move a slider to try again.`, true);
  }
}

function show(answers) {
  byId("answer").classList.remove("stale");
  const other = shown.question !== answers.question || shown.measures !== answers.measures;
  shown = answers;
  if (other) measures();
  if (answers.advice) {
    byId("holds").textContent = answers.advice.holds;
    byId("helps").textContent = answers.advice.helps;
    if (!chosen) alternative = answers.advice.best;
  }
  tableNote();
  table();
  chart();
  texts().catch((error) => { if (!(error instanceof Superseded)) status(error.message, true); });
}

function presets() {
  const matches = (preset) => Object.entries(preset.sliders).every(([name, value]) => controls.values[name] === value);
  const buttons = choices.presets.map((preset) => {
    const button = make("button", { type: "button" }, preset.name);
    button.addEventListener("click", () => {
      controls.set(preset.sliders);
      rested(0);
    });
    return [button, preset];
  });
  put("presets", ...buttons.map(([button]) => button));
  return () => {
    const current = buttons.filter(([button, preset]) => {
      const yes = matches(preset);
      button.setAttribute("aria-pressed", `${yes}`);
      return yes;
    });
    const [about] = current.map(([, preset]) => preset.about);
    byId("about").textContent = about ? `${about[0].toUpperCase()}${about.slice(1)}.` : "A link of your own.";
  };
}

let marks = () => {};
let resting;
function rested(after = REST_MS) {
  marks();
  delete document.documentElement.dataset.answered;
  delete document.documentElement.dataset.worded;
  clearTimeout(resting);
  resting = setTimeout(ask, after, performance.now());
}

function copies(button, from) {
  byId(button).addEventListener("click", async () => {
    const text = byId(from).textContent;
    try {
      await navigator.clipboard.writeText(text);
      byId(button).textContent = "Copied";
    } catch {
      // Without the right to write there, what is marked can be copied by hand.
      getSelection().selectAllChildren(byId(from));
      byId(button).textContent = "Marked: press Ctrl+C";
    }
    setTimeout(() => { byId(button).textContent = "Copy"; }, 2000);
  });
}

async function begin() {
  theme(() => shown.question && chart());
  byId("question").addEventListener("submit", (event) => event.preventDefault());
  try {
    choices = JSON.parse(await pool.urgent("choices"));
  } catch (error) {
    status(`The simulator could not be loaded: ${error.message}. A browser with WebAssembly, and a web server that sends this folder as it is, are what it takes.`, true);
    return;
  }
  controls = new Controls(choices.ranges, () => rested());
  controls.set(choices.presets[0].sliders);
  controls.set(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  marks = presets();
  legend();
  byId("measure").addEventListener("change", () => texts());
  byId("save-scenario").addEventListener("click", () => {
    byId("save-scenario").href = URL.createObjectURL(new Blob([byId("scenario").textContent], { type: "application/toml" }));
  });
  copies("copy-gateway", "gateway");
  copies("copy-scenario", "scenario");
  rested(0);
}

begin();
