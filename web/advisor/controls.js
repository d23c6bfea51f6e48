// The sliders: a number and a range each, which say the same.
import { make, put } from "./page.js";

const log = (least, most) => ({
  at: (value) => (1000 * Math.log(value / least)) / Math.log(most / least),
  value: (at) => +(least * (most / least) ** (at / 1000)).toPrecision(2),
});
const linear = (least, most, step) => ({
  at: (value) => (1000 * (value - least)) / (most - least),
  value: (at) => Math.round((least + ((most - least) * at) / 1000) / step) * step,
});
/** None at the left end, a logarithm to its right. */
const fromNone = (least, most) => {
  const rest = log(least, most);
  return {
    at: (value) => (value <= 0 ? 0 : Math.max(1, rest.at(value))),
    value: (at) => (at < 1 ? 0 : rest.value(at)),
  };
};

const NUMBERS = [
  { name: "down_mbps", group: "link", label: "Rate to the users", unit: "Mbit/s", scale: log },
  { name: "up_mbps", group: "link", label: "Rate from them", unit: "Mbit/s", scale: log },
  { name: "round_trip_ms", group: "link", label: "Round trip over the satellite", unit: "ms", scale: log },
  { name: "loss_percent", group: "link", label: "Lost", unit: "%", scale: (_, most) => fromNone(0.001, most) },
  { name: "losses", group: "link", label: "How it comes", options: { random: "packets at random", bursts: "bursts of 8 packets", handovers: "handovers, every 15 s" } },
  { name: "server_ms", group: "link", label: "Round trip from the hub to servers", unit: "ms", scale: (least, most) => linear(least, most, 5) },
  { name: "users", group: "people", label: "Busy at the same moment", unit: "", scale: (least, most) => linear(least, most, 1) },
  { name: "activity", group: "people", label: "What they do", options: { pages: "load pages", download: "fetch files", upload: "send files", calls: "call, while files are fetched" } },
];

/** The form, which calls `changed` whenever something was set. */
export class Controls {
  #values = {};
  #fields = {};
  #ranges;
  #changed;

  constructor(ranges, changed) {
    this.#ranges = Object.fromEntries(ranges.map((range) => [range.name, range]));
    this.#changed = changed;
    for (const entry of NUMBERS) {
      this.#fields[entry.name] = entry.options ? this.#choice(entry) : this.#number(entry);
    }
  }

  /** What the simulator is asked: see `Sliders` in crates/advisor. */
  get values() {
    return { ...this.#values };
  }

  /** Sets all that `values` has and that is in its range. */
  set(values) {
    for (const { name, options } of NUMBERS) {
      const value = options ? values[name] : Number(values[name] ?? NaN);
      const { least, most } = this.#ranges[name] ?? {};
      if (options ? options[value] !== undefined : value >= least && value <= most) {
        this.#values[name] = value;
        this.#fields[name](value);
      }
    }
  }

  #say(name, value) {
    this.#values[name] = value;
    this.#changed();
  }

  #choice({ name, group, label, options }) {
    const choices = Object.entries(options).map(([value, text]) => make("option", { value }, text));
    const select = make("select", { id: name }, choices);
    select.addEventListener("change", () => this.#say(name, select.value));
    put(group, make("div", { class: "control" }, make("label", { for: name }, label), select));
    return (value) => { select.value = value; };
  }

  #number({ name, group, label, unit, scale }) {
    const { least, most } = this.#ranges[name];
    const { at, value } = scale(least, most);
    const number = make("input", { type: "number", id: name, min: least, max: most, step: "any", "aria-describedby": unit ? `${name}-unit` : undefined });
    const range = make("input", { type: "range", min: 0, max: 1000, "aria-label": label });
    const show = (now) => {
      range.value = at(now);
      range.setAttribute("aria-valuetext", `${now} ${unit}`);
      if (Number(number.value) !== now || number.value === "") number.value = now;
      number.removeAttribute("aria-invalid");
    };
    range.addEventListener("input", () => {
      const now = Math.min(Math.max(value(Number(range.value)), least), most);
      show(now);
      this.#say(name, now);
    });
    // A step of the range's own would be too fine to be of use.
    range.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
      if (!steps) return;
      event.preventDefault();
      let place = Number(range.value);
      const before = this.#values[name];
      while (place >= 0 && place <= 1000 && Math.min(Math.max(value(place), least), most) === before) place += 5 * steps;
      range.value = place;
      range.dispatchEvent(new Event("input"));
    });
    number.addEventListener("input", () => {
      const now = Number(number.value);
      if (number.value === "" || !(now >= least && now <= most)) {
        number.setAttribute("aria-invalid", "true");
        return;
      }
      show(now);
      this.#say(name, now);
    });
    number.addEventListener("change", () => show(this.#values[name]));
    put(group, make("div", { class: "control" }, make("label", { for: name }, label),
      make("span", { class: "exact" }, number, unit ? make("span", { id: `${name}-unit` }, ` ${unit}`) : null), range));
    return (now) => {
      number.value = now;
      show(now);
    };
  }
}
