// The main values of a scenario as a form. What is typed here is set over the text: each field has a key, or the few keys of which one is
// meant. Several values in a field, between commas, are a run each; one that is emptied takes its key out.
import { make } from "./page.js";

/** In what a flow's amount is measured, and an example of each. */
const AMOUNTS = { bytes: "2MB", duration: "30s", segments: "1000" };
/** The most values in all fields together beyond the first of each. */
const MOST_MORE = 64;

export class ScenarioForm {
  /** Of a server that knows these kinds of `queues`; `changed` is called when a value was set. */
  constructor(queues, changed) {
    this.queues = queues;
    this.changed = changed;
    this.element = make("div");
    /** By field: what each of its values sets, as pairs of key and value, and the words for it. */
    this.set = new Map();
  }

  /** Forgets what was typed: there is another scenario. */
  clear() {
    this.set.clear();
    this.shape = null;
  }

  /** What is set at first: of each field its first value. */
  get settings() {
    return [...this.set.values()].flatMap(([first]) => first.settings);
  }

  /** What is to be checked: the first values, and each further one beside the first of all others. */
  get checks() {
    const others = [...this.set].flatMap(([field, [, ...more]]) => more.map(({ settings }) => [...this.set].flatMap(([key, [first]]) => (key === field ? settings : first.settings))));
    return [this.settings, ...others];
  }

  /** Each combination of values, with the words for what is different in it. */
  get combinations() {
    return [...this.set.values()].reduce((combined, values) => combined.flatMap((one) => values.map(({ settings, words }) => ({
      settings: [...one.settings, ...settings], words: values.length > 1 ? [...one.words, words] : one.words,
    }))), [{ settings: [], words: [] }]);
  }

  /** Marks the fields that `problems` are about. */
  mark(problems) {
    for (const input of this.element.querySelectorAll("[data-key]")) {
      input.setAttribute("aria-invalid", `${problems.some(({ key }) => key && key === input.dataset.key)}`);
    }
  }

  /** Shows the values of `form`. What is being typed into stays; fields are made anew where there are others. */
  fill(form) {
    const names = (all) => all.map(({ name }) => name);
    const shape = JSON.stringify([names(form.links), form.amounts.map(({ flow, unit }) => [flow, unit])]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.lay(form);
    }
    for (const renew of this.renewals) renew(form);
  }

  lay(form) {
    this.renewals = [];
    const ways = (form) => form.links.flatMap(({ name, directions }) => directions.map((direction) => ({ name, ...direction })));
    const table = (label, heads, rows) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, make("table", { class: "grid" },
      make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, rows.map(([head, ...cells]) => make("tr", {}, make("th", { scope: "row" }, head), cells.map((cell, i) => make("td", { "data-head": heads[i + 1] }, cell)))))));
    const links = ways(form).map(({ name, from, to, key }, i) => [`${name}, ${from} → ${to}`,
      ...[["rate", "rate"], ["delay", "delay"], ["packet_error_rate", "loss"]].map(([end, word]) => this.field(`${key}.${end}`, `${name}, ${from} to ${to}: ${word}`, (form) => ways(form)[i][end]))]);
    const queues = ways(form).map((way, i) => [`${way.name}, ${way.from} → ${way.to}`, ...this.queue(way, (form) => ways(form)[i].queue)]);
    const amounts = form.amounts.map((amount) => [amount.flow, ...this.amount(amount)]);
    this.element.replaceChildren(
      make("label", { class: "field" }, "Time limit ", this.field("time_limit", "Time limit", (form) => form.time_limit)),
      make("label", { class: "field" }, "Seed ", this.field("seed", "Seed", (form) => `${form.seed}`)),
      table("Links", ["Link", "Rate", "Delay", "Loss"], links),
      table("Queues", ["Queue", "Kind", "Size", "More keys"], queues),
      amounts.length ? table("Amounts", ["Flow", "By", "Amount"], amounts) : "",
      form.more_amounts ? make("p", { class: "note" }, `${form.more_amounts} more flows are in the text alone.`) : "",
      make("p", { class: "note" }, "What is written here is set over the text beside it. Units as there: 10Mbit/s, 300ms, 1%, 750kB, 500 packets. Several values between commas are a run each: 5Mbit/s, 10Mbit/s. All else (other keys, other axes) is changed in the text."));
  }

  /** Notes what the values of a field set, `of` each one; the words for it are `label` and the value. */
  put(field, typed, label, of) {
    const values = typed.split(",").map((value) => value.trim());
    const beyond = [...this.set].reduce((sum, [key, all]) => sum + (key === field ? 0 : all.length - 1), values.length - 1);
    const kept = beyond > MOST_MORE ? values.slice(0, 1) : values;
    this.set.set(field, kept.map((value) => ({ settings: of(value), words: `${label} ${value || "none"}` })));
    this.changed(kept === values ? null : `${values.length} values: expected at most ${MOST_MORE} in all fields; the first one is taken`);
  }

  /** A field of one key, whose value in the form is `said`. */
  field(key, label, said) {
    const input = make("input", { type: "text", "data-key": key, "aria-label": label });
    input.addEventListener("change", () => this.put(key, input.value, key.replace(/^links\./, "").replaceAll(".", " "), (value) => [[key, written(key, value)]]));
    this.renewals.push((form) => {
      if (input !== document.activeElement && !(this.set.get(key)?.length > 1)) input.value = said(form);
    });
    return input;
  }

  /** The fields of a queue: whichever of them changes, the whole queue is set. */
  queue({ name, from, to, key }, said) {
    const [field, place] = [`${key}.queue`, `${name}, ${from} to ${to}`];
    const of = { "data-key": field };
    const kind = make("select", { ...of, "data-part": "kind", "aria-label": `${place}: kind of queue` }, this.queues.map(({ name, about }) => make("option", { value: name, title: about }, name)));
    const size = make("input", { type: "text", ...of, "data-part": "size", "aria-label": `${place}: size of the queue` });
    const keys = make("input", { type: "text", ...of, "data-part": "keys", "aria-label": `${place}: more keys of the queue` });
    const set = () => this.put(field, size.value, `${field.replace(/^links\./, "").replaceAll(".", " ")} of`, (value) => {
      const packets = value.match(/^(\d+)\s*packets?$/);
      const limit = packets ? `packets = ${packets[1]}` : `bytes = ${JSON.stringify(value)}`;
      return [[field, `{ kind = ${JSON.stringify(kind.value)}, ${limit}${keys.value.trim() ? `, ${keys.value}` : ""} }`]];
    });
    kind.addEventListener("change", () => {
      keys.value = this.queues.find((it) => it.name === kind.value).keys;
      // The examples of keys are lengths in packets, and so must the size be that they go with.
      if (keys.value) size.value = size.value.split(",").map(inPackets).join(", ");
      set();
    });
    size.addEventListener("change", set);
    keys.addEventListener("change", set);
    this.renewals.push((form) => {
      const queue = said(form);
      const several = this.set.get(field)?.length > 1;
      for (const [input, part] of [[kind, "kind"], [size, "size"], [keys, "keys"]]) {
        if (input !== document.activeElement && !(several && part === "size")) input.value = queue[part];
      }
    });
    return [kind, size, keys];
  }

  /** How much a flow sends: by what, and how much. The key that it is by is set, the others are taken out. */
  amount({ flow, unit, value }) {
    const field = `flows.${flow}`;
    const by = make("select", { "aria-label": `${flow}: amount by` }, Object.keys(AMOUNTS).map((unit) => make("option", { value: unit }, unit)));
    const input = make("input", { type: "text", "data-key": `${field}.${unit}`, "aria-label": `amount of ${flow}` });
    [by.value, input.value] = [unit, value];
    const set = () => {
      const chosen = by.value;
      input.dataset.key = `${field}.${chosen}`;
      const others = Object.keys(AMOUNTS).filter((it) => it !== chosen).map((it) => [`${field}.${it}`, ""]);
      this.put(field, input.value, `${flow} ${chosen}`, (value) => [...others, [`${field}.${chosen}`, written(`.${chosen}`, value)]]);
    };
    by.addEventListener("change", () => {
      input.value = by.value === unit ? value : AMOUNTS[by.value];
      set();
    });
    input.addEventListener("change", set);
    // The form says what the text has: what is set over it stays.
    this.renewals.push((form) => {
      const own = form.amounts.find((it) => it.flow === flow);
      if (input !== document.activeElement && !this.set.has(field)) input.value = own.value;
    });
    return [by, input];
  }
}

/** `value` of this key as TOML; nothing stays nothing. */
function written(key, value) {
  return value === "" || (/^seed$|\.segments$/.test(key) && /^\d+$/.test(value)) ? value : JSON.stringify(value);
}

/** A size such as `750kB` in packets of 1,500 B; what is none stays for the parser to say so. */
function inPackets(size) {
  const [, number, unit] = size.match(/^\s*([\d.]+)\s*([kMG]?)B\s*$/) ?? [];
  return number ? `${Math.max(1, Math.round((number * { "": 1, k: 1e3, M: 1e6, G: 1e9 }[unit]) / 1500))} packets` : size;
}
