// Run: a scenario is chosen, edited as a form or as TOML, and run with each control and PEP that is ticked.
import { make, put } from "./page.js";
import { ask, attempt, once, say } from "./ask.js";
import { queue } from "./history.js";

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
    /** Set over the text: values by key. */
    this.settings = new Map();
    this.rows = [];
    this.turn = 0;
    const groups = [...new Set(entries.map((entry) => entry.group))];
    this.select = make("select", { id: "scenario" }, groups.map((group) => make("optgroup", { label: group },
      entries.filter((entry) => entry.group === group).map((entry) => make("option", { value: entry.id }, entry.name)))));
    this.select.value = "scenarios/split.toml";
    this.note = make("p", { class: "note" });
    this.select.addEventListener("change", () => attempt(() => this.choose(this.select.value)));
    this.text = make("textarea", { id: "text", spellcheck: "false", autocapitalize: "off", "aria-describedby": "problems" });
    this.text.addEventListener("input", () => this.rest());
    this.problems = make("ul", { class: "problems", id: "problems", "aria-live": "polite" });
    this.form = make("div");
    this.engine = ["simulator", "lab"].map((name) => make("input", { type: "radio", name: "engine", value: name }));
    this.engine[0].checked = true;
    this.engine[1].disabled = !about.root;
    this.engine.forEach((input) => input.addEventListener("change", () => this.check()));
    this.controls = make("div", { class: "ticks" });
    this.peps = make("div", { class: "ticks" });
    this.alternatives = make("fieldset", { hidden: "" });
    this.capture = make("input", { type: "checkbox" });
    this.count = make("span", { class: "note" });
    this.start = make("button", { type: "button", class: "main", id: "start" }, "Run");
    this.start.addEventListener("click", once(() => this.run()));
    target.append(make("label", { class: "field", for: "scenario" }, "Scenario ", this.select), this.note, make("div", { class: "two" },
      make("div", {},
        make("fieldset", {}, make("legend", {}, "Main values"), this.form),
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

  async choose(id) {
    const entry = this.entries.find((entry) => entry.id === id);
    this.note.textContent = entry.about;
    const preset = id.startsWith("presets/");
    const path = id.split("/").map(encodeURIComponent).join("/");
    this.rows = preset ? await ask(`/api/alternatives/${path}`) : [];
    const { text } = preset ? this.rows[0] : await ask(`/api/scenarios/${path}`);
    this.text.value = text;
    this.settings.clear();
    this.alternatives.hidden = !preset;
    this.alternatives.replaceChildren(make("legend", {}, "TCP over the link"), make("div", { class: "ticks" },
      this.rows.map((row, i) => tick(`row-${i}`, row.label, row.about, i < 1))));
    await this.check(true);
  }

  rest() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.check(), REST_MS);
  }

  /** Has the text read by the server's own parser; what is wrong stands under it, by line. */
  async check(fresh = false) {
    const own = ++this.turn;
    const checked = await attempt(() => ask("/api/check", { text: this.text.value, settings: [...this.settings], lab: this.lab }));
    if (!checked || own !== this.turn) return;
    this.told(checked.problems);
    this.start.disabled = checked.problems.length > 0;
    if (checked.form) this.fill(checked.form, fresh);
    this.counted();
    document.documentElement.dataset.checked = `${this.turn}`;
  }

  told(problems) {
    this.text.setAttribute("aria-invalid", `${problems.some((it) => it.line)}`);
    for (const input of this.form.querySelectorAll("[data-key]")) {
      input.setAttribute("aria-invalid", `${problems.some((it) => it.key && it.key === input.dataset.key)}`);
    }
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

  fill(form, fresh) {
    const shape = JSON.stringify([form.links.map(({ name }) => name), form.flows.map(({ name }) => name), form.gateways.map(({ name }) => name), form.peps.map(({ name }) => name), form.amounts.map(({ key }) => key)]);
    this.current = form;
    // What is being typed into stays; values alone are renewed.
    if (!fresh && shape === this.shape) {
      for (const input of this.form.querySelectorAll("[data-key]")) {
        if (input !== document.activeElement) input.value = this.value(form, input.dataset.key, input.dataset.part) ?? input.value;
      }
      return;
    }
    this.shape = shape;
    const field = (key, label) => {
      const input = make("input", { type: "text", "data-key": key, "aria-label": label });
      input.value = this.value(form, key) ?? "";
      input.addEventListener("change", () => {
        this.settings.set(key, /^seed$|\.segments$/.test(key) ? input.value : JSON.stringify(input.value));
        this.check();
      });
      return input;
    };
    const table = (label, heads, rows) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, make("table", { class: "grid" },
      make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, rows.map(([head, ...cells]) => make("tr", {}, make("th", { scope: "row" }, head), cells.map((cell) => make("td", {}, cell)))))));
    const directions = form.links.flatMap(({ name, directions }) => directions.map((direction) => ({ name, ...direction })));
    this.form.replaceChildren(
      make("label", { class: "field" }, "Time limit ", field("time_limit", "Time limit")),
      make("label", { class: "field" }, "Seed ", field("seed", "Seed")),
      table("Links", ["Link", "Rate", "Delay", "Loss"], directions.map(({ name, from, to, key }) => [`${name}, ${from} → ${to}`,
        ...[["rate", "rate"], ["delay", "delay"], ["packet_error_rate", "loss"]].map(([end, label]) => field(`${key}.${end}`, `${name}, ${from} to ${to}: ${label}`))])),
      table("Queues", ["Queue", "Kind", "Size", "More keys"], directions.map((direction) => [`${direction.name}, ${direction.from} → ${direction.to}`, ...this.queue(direction)])),
      form.amounts.length ? table("Amounts", ["Flow, by", "Amount"], form.amounts.map(({ key, label }) => [label, field(key, `amount of ${label}`)])) : "",
      make("p", { class: "note" }, "What is written here is set over the text beside it. Units as there: 10Mbit/s, 300ms, 1%, 750kB, 500 packets."));
    this.controls.replaceChildren(tick("control-", "as written", form.flows.map((flow) => flow.variant ?? flow.control).filter((it, i, all) => it && all.indexOf(it) === i).join(", "), true),
      ...this.about.controls.map(({ name, about }) => tick(`control-${name}`, name, about)));
    const switches = [...form.gateways.map((it) => ({ ...it, key: `gateways.${it.name}` })), ...form.peps.map((it) => ({ ...it, key: `peps.${it.name}` }))];
    this.switches = switches;
    this.pepSet.hidden = !switches.length;
    this.controlSet.hidden = this.rows.length > 0;
    this.peps.replaceChildren(tick("pep-", "as written", "", true), tick("pep-none", "none", "end to end"),
      ...(switches.length > 1 ? switches.map(({ name, about }) => tick(`pep-${name}`, `${name} alone`, about)) : []));
  }

  /** The fields of a queue: whichever of them changes, the whole queue is set. */
  queue({ name, from, to, key, queue }) {
    const place = `${name}, ${from} to ${to}`;
    const said = { "data-key": `${key}.queue` };
    const kind = make("select", { ...said, "data-part": "kind", "aria-label": `${place}: kind of queue` }, this.about.queues.map(({ name, about }) => make("option", { value: name, title: about }, name)));
    const size = make("input", { type: "text", ...said, "data-part": "size", "aria-label": `${place}: size of the queue` });
    const keys = make("input", { type: "text", ...said, "data-part": "keys", "aria-label": `${place}: more keys of the queue` });
    [kind.value, size.value, keys.value] = [queue.kind, queue.size, queue.keys];
    const set = () => {
      const packets = size.value.match(/^\s*(\d+)\s*packets?\s*$/);
      const limit = packets ? `packets = ${packets[1]}` : `bytes = ${JSON.stringify(size.value)}`;
      this.settings.set(`${key}.queue`, `{ kind = ${JSON.stringify(kind.value)}, ${limit}${keys.value.trim() ? `, ${keys.value}` : ""} }`);
      this.check();
    };
    kind.addEventListener("change", () => {
      keys.value = this.about.queues.find((it) => it.name === kind.value).keys;
      // The examples of keys are lengths in packets, and so must the size be that they go with.
      if (keys.value) size.value = inPackets(size.value);
      set();
    });
    size.addEventListener("change", set);
    keys.addEventListener("change", set);
    return [kind, size, keys];
  }

  value(form, key, part) {
    if (key === "time_limit" || key === "seed") return `${form[key]}`;
    const amount = form.amounts.find((it) => it.key === key);
    if (amount) return this.settings.has(key) ? this.settings.get(key).replace(/^"|"$/g, "") : amount.value;
    const direction = form.links.flatMap((link) => link.directions).find((it) => key.startsWith(`${it.key}.`) && !key.slice(it.key.length + 1).includes("."));
    const value = direction?.[key.slice(direction.key.length + 1)];
    return part ? value?.[part] : value;
  }

  ticked(box, prefix) {
    return [...box.querySelectorAll(`input[name^="${prefix}"]`)].filter((input) => input.checked).map((input) => input.name.slice(prefix.length));
  }

  /** A run for each combination that is ticked. */
  variants() {
    const form = this.current;
    if (!form) return [];
    const base = [...this.settings];
    if (this.rows.length) {
      const edited = this.text.value !== this.rows[0].text;
      return this.ticked(this.alternatives, "row-").map((i) => ({ label: `${this.name}, ${this.rows[i].label}`, text: edited && i === "0" ? this.text.value : this.rows[i].text, settings: base }));
    }
    const variants = [];
    for (const control of this.ticked(this.controls, "control-")) {
      for (const pep of this.ticked(this.peps, "pep-").length ? this.ticked(this.peps, "pep-") : [""]) {
        const settings = [...base];
        if (control) settings.push(["flows.*.congestion_control", JSON.stringify(control)]);
        if (pep) settings.push(...this.switches.map(({ key, name }) => [`${key}.enabled`, `${name === pep}`]));
        const words = [form.name, control, pep && (pep === "none" ? "no PEP" : `${pep} alone`)];
        variants.push({ label: words.filter(Boolean).join(", "), text: this.text.value, settings });
      }
    }
    return variants;
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
    if (!variants.length) throw new Error("nothing is ticked: tick a control or a row");
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

/** A size such as `750kB` in packets of 1,500 B; what is none stays for the parser to say so. */
function inPackets(size) {
  const [, number, unit] = size.match(/^\s*([\d.]+)\s*([kMG]?)B\s*$/) ?? [];
  return number ? `${Math.max(1, Math.round((number * { "": 1, k: 1e3, M: 1e6, G: 1e9 }[unit]) / 1500))} packets` : size;
}

function tick(name, label, about, checked = false) {
  const input = make("input", { type: "checkbox", name });
  input.checked = checked;
  return make("label", {}, input, make("span", {}, label, about ? [" ", make("small", {}, about.length > 60 ? `${about.slice(0, 58)}…` : about)] : []));
}
