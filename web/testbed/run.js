// Run: a scenario is chosen, edited as a form or as TOML, and run with each control and PEP that is ticked.
import { make, put } from "./page.js";
import { ask, attempt, once, say } from "./ask.js";
import { queue } from "./history.js";
import { ScenarioForm } from "./scenario-form.js";

/** A text rests when it was not changed for so long. */
const REST_MS = 250;

export async function show(target) {
  const [entries, about] = await Promise.all([ask("/api/scenarios"), ask("/api/about")]);
  target.append(make("h1", {}, "Run"), make("p", { class: "lead" }, "Choose a scenario, change what you like, tick what is to be compared: each tick is a run."));
  const editor = new Editor(target, entries, about);
  await editor.choose(editor.select.value);
  const heading = make("h2", {}, "Queue");
  const list = make("div");
  target.append(heading, list);
  const ended = queue(list);
  return { end: () => { editor.end(); ended(); } };
}

class Editor {
  constructor(target, entries, about) {
    this.entries = entries;
    this.about = about;
    this.rows = [];
    this.turn = 0;
    this.choice = 0;
    const groups = [...new Set(entries.map((entry) => entry.group))];
    this.select = make("select", { id: "scenario" }, groups.map((group) => make("optgroup", { label: group },
      entries.filter((entry) => entry.group === group).map((entry) => make("option", { value: entry.id }, entry.name)))));
    this.select.value = "scenarios/split.toml";
    this.note = make("p", { class: "note" });
    this.select.addEventListener("change", () => attempt(() => this.choose(this.select.value)));
    this.text = make("textarea", { id: "text", spellcheck: "false", autocapitalize: "off", "aria-describedby": "problems" });
    this.text.addEventListener("input", () => this.rest());
    this.problems = make("ul", { class: "problems", id: "problems", "aria-live": "polite" });
    this.form = new ScenarioForm(about.queues, (refused) => {
      if (refused) say(refused);
      this.check();
    });
    this.engine = ["simulator", "lab"].map((name) => make("input", { type: "radio", name: "engine", value: name }));
    this.engine[0].checked = true;
    this.engine[1].disabled = !about.root;
    this.engine.forEach((input) => input.addEventListener("change", () => this.check()));
    this.controls = make("div", { class: "ticks" });
    this.peps = make("div", { class: "ticks" });
    this.alternatives = make("fieldset", { hidden: "" });
    this.capture = make("input", { type: "checkbox", name: "capture" });
    this.count = make("span", { class: "note" });
    this.start = make("button", { type: "button", class: "main", id: "start" }, "Run");
    this.start.addEventListener("click", once(() => this.run()));
    target.append(make("label", { class: "field", for: "scenario" }, "Scenario ", this.select), this.note, make("div", { class: "two" },
      make("div", {},
        this.values = make("fieldset", {}, make("legend", {}, "Main values"), this.form.element),
        this.alternatives,
        this.controlSet = make("fieldset", {}, make("legend", {}, "Senders' congestion control"), this.controls),
        this.pepSet = make("fieldset", {}, make("legend", {}, "PEPs"), this.peps),
        make("fieldset", {}, make("legend", {}, "Engine"),
          make("label", { class: "tick" }, this.engine[0], make("span", {}, "simulator: in virtual time, no rights needed")),
          make("label", { class: "tick" }, this.engine[1], make("span", {}, about.root ? "lab: the kernel's TCP, in wall time, one run at a time" : "lab: the kernel's TCP; needs root, which this server is not (sudo bentpipe web)")),
          make("label", { class: "tick" }, this.capture, make("span", {}, "capture each end of each link (pcapng)"))),
        make("div", { class: "actions" }, this.start, this.count)),
      make("div", {},
        make("label", { for: "text" }, "The scenario, as TOML"), this.text, this.problems)));
    this.onTick = () => this.counted();
    target.addEventListener("change", this.onTick);
  }

  end() {
    clearTimeout(this.resting);
  }

  get lab() {
    return this.engine[1].checked;
  }

  /** Shows a scenario. Until it has come nothing can be written, for it would be written over; of several the last counts. */
  async choose(id) {
    const own = ++this.choice;
    const entry = this.entries.find((entry) => entry.id === id);
    this.note.textContent = entry.about;
    this.text.readOnly = this.values.disabled = this.start.disabled = true;
    // A check of the text before has nothing to say any more.
    this.end();
    this.turn += 1;
    const preset = id.startsWith("presets/");
    const path = id.split("/").map(encodeURIComponent).join("/");
    try {
      const asked = await ask(preset ? `/api/alternatives/${path}` : `/api/scenarios/${path}`);
      if (own !== this.choice) return;
      this.rows = preset ? asked : [];
      this.text.value = preset ? asked[0].text : asked.text;
    } finally {
      if (own === this.choice) this.text.readOnly = this.values.disabled = false;
    }
    // What was said of the text before is not said of this one.
    this.problems.replaceChildren();
    this.form.clear();
    this.shape = null;
    this.alternatives.hidden = !preset;
    this.alternatives.replaceChildren(make("legend", {}, "TCP over the link"), make("div", { class: "ticks" },
      this.rows.map((row, i) => tick(`row-${i}`, row.label, row.about, i < 1))));
    await this.check();
  }

  rest() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.check(), REST_MS);
  }

  /** Has the text read by the server's own parser, with each value of the form; what is wrong stands under it, by line. */
  async check() {
    const own = ++this.turn;
    const checks = this.form.checks.map((settings) => ask("/api/check", { text: this.text.value, settings, lab: this.lab }));
    const checked = await attempt(() => Promise.all(checks));
    if (!checked || own !== this.turn) return;
    const problems = new Map(checked.flatMap(({ problems }) => problems).map((problem) => [JSON.stringify(problem), problem]));
    this.told([...problems.values()]);
    this.start.disabled = problems.size > 0;
    if (checked[0].form) this.fill(checked[0].form);
    this.counted();
    document.documentElement.dataset.checked = `${this.turn}`;
  }

  told(problems) {
    this.text.setAttribute("aria-invalid", `${problems.some((it) => it.line)}`);
    this.form.mark(problems);
    this.problems.replaceChildren(...problems.map(({ line, column, key, words }) => {
      const place = line ? make("button", { type: "button" }, `line ${line}`) : make("strong", {}, key ?? "the scenario");
      if (line) place.addEventListener("click", () => this.go(line, column));
      return make("li", {}, place, ` ${words}`);
    }), ...(problems.length ? [] : [make("li", { class: "right" }, "The scenario is right.")]));
    this.problems.classList.toggle("fine", !problems.length);
  }

  go(line, column) {
    const before = this.text.value.split("\n").slice(0, line - 1).reduce((sum, it) => sum + it.length + 1, 0);
    this.text.focus();
    this.text.setSelectionRange(before + column - 1, before + column - 1);
    this.text.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(this.text).lineHeight));
  }

  fill(form) {
    this.current = form;
    this.form.fill(form);
    const written = form.flows.map((flow) => flow.variant ?? flow.control).filter((it, i, all) => it && all.indexOf(it) === i).join(", ");
    const switches = [...form.gateways.map((it) => ({ ...it, key: `gateways.${it.name}` })), ...form.peps.map((it) => ({ ...it, key: `peps.${it.name}` }))];
    const shape = JSON.stringify([written, switches]);
    if (shape === this.shape) return;
    const before = new Map(this.shape ? this.ticks.map(({ name, checked }) => [name, checked]) : []);
    this.shape = shape;
    this.switches = switches;
    this.controlSet.hidden = this.pepSet.hidden = this.rows.length > 0;
    this.controls.replaceChildren(tick("control-", "as written", written, true), ...this.about.controls.map(({ name, about }) => tick(`control-${name}`, name, about)));
    this.peps.replaceChildren(...(switches.length
      ? [tick("pep-", "as written", "", true), tick("pep-none", "none", "end to end"), ...(switches.length > 1 ? switches.map(({ name, about }) => tick(`pep-${name}`, `${name} alone`, about)) : [])]
      : [make("p", { class: "note" }, "This scenario has none. Choose a link at the top (GEO, MEO, …), over which TCP is run in seven ways, or write a gateway or a PEP into the text.")]));
    // What was ticked stays so, and what was not.
    for (const input of this.ticks) input.checked = before.get(input.name) ?? input.checked;
  }

  get ticks() {
    return [...this.controls.querySelectorAll("input"), ...this.peps.querySelectorAll("input")];
  }

  ticked(box, prefix) {
    return [...box.querySelectorAll(`input[name^="${prefix}"]`)].filter((input) => input.checked).map((input) => input.name.slice(prefix.length));
  }

  /** A run for each combination of the form's values and what is ticked. */
  variants() {
    const form = this.current;
    if (!form) return [];
    return this.form.combinations.flatMap(({ settings, words }) => {
      if (this.rows.length) {
        const edited = this.text.value !== this.rows[0].text;
        return this.ticked(this.alternatives, "row-").map((i) => ({ label: [this.name, this.rows[i].label, ...words].join(", "), text: edited && i === "0" ? this.text.value : this.rows[i].text, settings }));
      }
      const peps = this.switches.length ? this.ticked(this.peps, "pep-") : [""];
      return this.ticked(this.controls, "control-").flatMap((control) => peps.map((pep) => {
        const ticks = control ? [["flows.*.congestion_control", JSON.stringify(control)]] : [];
        if (pep) ticks.push(...this.switches.map(({ key, name }) => [`${key}.enabled`, `${name === pep}`]));
        const label = [form.name, control, pep && (pep === "none" ? "no PEP" : `${pep} alone`), ...words].filter(Boolean).join(", ");
        return { label, text: this.text.value, settings: [...settings, ...ticks] };
      }));
    });
  }

  get name() {
    return this.entries.find((entry) => entry.id === this.select.value).name;
  }

  counted() {
    const count = this.variants().length;
    this.count.textContent = count === 1 ? "one run" : `${count} runs`;
    this.start.textContent = count > 1 ? `Run all ${count}` : "Run";
  }

  async run() {
    const variants = this.variants();
    if (!variants.length) throw new Error("nothing is ticked: tick a control and a PEP, or a row");
    try {
      const notes = await ask("/api/runs", { variants, lab: this.lab, capture: this.capture.checked });
      say(`${notes.length === 1 ? "One run is" : `${notes.length} runs are`} in the queue.`);
      document.documentElement.dataset.asked = notes.map((note) => note.id).join(",");
      const ids = notes.map((note) => note.id).join(",");
      location.hash = notes.length === 1 ? `watch/${ids}` : `compare/${ids}`;
    } catch (error) {
      if (error.problems) this.told(error.problems);
      throw error;
    }
  }
}

function tick(name, label, about, checked = false) {
  const input = make("input", { type: "checkbox", name });
  input.checked = checked;
  return make("label", {}, input, make("span", {}, label, about ? [" ", make("small", {}, about.length > 60 ? `${about.slice(0, 58)}…` : about)] : []));
}
