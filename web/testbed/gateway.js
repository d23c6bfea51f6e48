// Gateway: what one on this machine says of itself, each second; bypass and reload.
import { known, make } from "./page.js";
import { ask, attempt, once, say } from "./ask.js";

/** What becomes of new connections, by `admission` of the status (docs/operating.md). */
const HEALTH = {
  serving: "Well: new connections are split.",
  suspended: "At a limit: new connections pass unsplit.",
  bypassed: "Bypassed, as somebody wanted: new connections pass unsplit.",
  draining: "It ends: new connections pass unsplit, those that stand go on.",
  impaired: "Impaired: something that splitting needs is missing. New connections pass unsplit, those that stand may hang. Its log has the reason.",
};

export async function show(target) {
  target.append(make("h1", {}, "Gateway"));
  const health = make("p", { class: "lead", role: "status" });
  const view = make("div");
  const actions = make("div", { class: "actions", hidden: "" });
  for (const [order, label] of [["bypass-on", "Bypass: split no new connections"], ["bypass-off", "Split again"], ["reload", "Reload its configuration"]]) {
    const button = make("button", { type: "button" }, label);
    button.addEventListener("click", once(async () => {
      await ask(`/api/gateway/${order}`, {});
      say("Done.");
    }));
    actions.append(button);
  }
  target.append(health, actions, view);
  let timer;
  const look = async () => {
    const status = document.hidden ? undefined : await attempt(() => ask("/api/gateway"));
    if (status) {
      actions.hidden = known(status.absent);
      const words = status.absent ?? HEALTH[status.admission] ?? status.admission;
      if (health.textContent !== words) health.textContent = words;
      health.className = ["suspended", "impaired"].includes(status.admission) ? "lead bad" : "lead";
      renew(view, known(status.absent) ? [] : tables(status));
    }
    timer = setTimeout(look, known(status?.absent) ? 5000 : 1000);
  };
  await look();
  return { end: () => clearTimeout(timer) };
}

/** Puts `parts` in the place of what `view` had; what was scrolled stays so, and what had the focus keeps it. */
function renew(view, parts) {
  const regions = () => [...view.querySelectorAll(".scroll")];
  const before = new Map(regions().map((it) => [it.ariaLabel, it.scrollLeft]));
  const focused = view.contains(document.activeElement) ? document.activeElement.ariaLabel : null;
  view.replaceChildren(...parts.flat(Infinity));
  for (const region of regions()) {
    region.scrollLeft = before.get(region.ariaLabel) ?? 0;
    if (region.ariaLabel === focused) region.focus({ preventScroll: true });
  }
}

/** All that the status says: plain values in one list, each object in one of its own, each list in a table. What is 0 is counted only. */
function tables(status) {
  const isPlain = ([, value]) => value === null || typeof value !== "object";
  const entries = Object.entries(status);
  const place = (key) => (key in TITLES ? Object.keys(TITLES).indexOf(key) : entries.length);
  const parts = entries.filter((entry) => !isPlain(entry)).sort(([a], [b]) => place(a) - place(b));
  return [
    values(entries.filter(isPlain)),
    make("div", { class: "parts" }, parts.map(([key, value]) => {
      const title = TITLES[key] ?? words(key);
      return make("section", Array.isArray(value) ? { class: "wide" } : {}, make("h2", {}, title), Array.isArray(value) ? rows(title, value) : values(flat(value)));
    })),
  ];
}

/** What stands first, and under which heading. */
const TITLES = { flows: "Flows", busiest: "The busiest flows", lan: "Leg towards the ground (lan)", sat: "Leg towards the satellite (sat)", counters: "Counters", limits: "Limits", passed: "Passed unsplit, packets by policy", unsplit: "Passed unsplit, by reason", lacks: "What this machine lacks" };

/** A value with its unit, by its key: the status has seconds, bytes, bytes a second and, of links, bit/s. */
function said(key, value) {
  if (typeof value !== "number") return `${value}`;
  if (/rtt/.test(key)) return `${(1000 * value).toPrecision(3)} ms`;
  if (/^(uptime|rates over)$/.test(words(key))) return `${value.toFixed(1)} s`;
  if (/to (lan|sat) rate$/.test(words(key))) return `${(8e-6 * value).toPrecision(3)} Mbit/s`;
  if (/(^| )(bytes|buffered|to (lan|sat)|waiting)( |$)/.test(words(key))) return amount(value);
  if (words(key) === "rate") return `${(1e-6 * value).toPrecision(3)} Mbit/s`;
  return key === "pid" ? `${value}` : value.toLocaleString("en");
}

/** So many octets, with three digits from 1,000 on. */
function amount(octets) {
  const power = Math.max(0, Math.min(4, Math.floor(Math.log10(octets) / 3)));
  return power ? `${(octets / 1000 ** power).toPrecision(3)} ${["", "k", "M", "G", "T"][power]}B` : `${octets} B`;
}

const words = (key) => key.replaceAll("_", " ");
const isNothing = (value) => value === 0 || value === null || value === "";

function values(entries) {
  const telling = entries.filter(([, value]) => !isNothing(value));
  const rest = entries.length - telling.length;
  return [
    telling.length ? make("dl", { class: "how" }, telling.map(([key, value]) => [make("dt", {}, words(key)), make("dd", {}, said(key, value))])) : [],
    rest ? make("p", { class: "note" }, telling.length ? `${rest} more are 0 or not set.` : "All are 0 or not set.") : [],
  ].flat();
}

/** The values in an object and below, by their paths. */
function flat(value, before = "") {
  return Object.entries(value).flatMap(([key, it]) => (it !== null && typeof it === "object" && !Array.isArray(it) ? flat(it, `${before}${key} `) : [[`${before}${key}`, Array.isArray(it) ? it.map((one) => (typeof one === "object" ? JSON.stringify(one) : one)).join(", ") : it]]));
}

/** The table of a list that is called `name`. */
function rows(name, list) {
  const idle = (one) => typeof one === "object" && Object.values(one).every((value) => isNothing(value) || typeof value === "string");
  const all = list.length;
  list = list.filter((one) => !idle(one));
  if (!list.length) return make("p", { class: "note" }, all ? `All ${all} are 0.` : "None.");
  if (typeof list[0] !== "object") return make("p", {}, list.join(", "));
  const keys = [...new Set(list.flatMap((one) => flat(one).map(([key]) => key)))];
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, make("table", {}, make("thead", {}, make("tr", {}, keys.map((key) => make("th", { scope: "col" }, key.replaceAll("_", " "))))),
    make("tbody", {}, list.slice(0, 200).map((one) => {
      const values = new Map(flat(one));
      return make("tr", {}, keys.map((key) => make("td", {}, values.has(key) ? said(key, values.get(key)) : "")));
    }))));
}
