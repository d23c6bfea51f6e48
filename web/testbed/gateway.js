// Gateway: what one on this machine says of itself, each second; bypass and reload.
import { known, make } from "./page.js";
import { ask, attempt, once, say } from "./ask.js";

export async function show(target) {
  target.append(make("h1", {}, "Gateway"));
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
  target.append(actions, view);
  let timer;
  const look = async () => {
    const status = document.hidden ? undefined : await attempt(() => ask("/api/gateway"));
    if (status) {
      actions.hidden = known(status.absent);
      view.replaceChildren(...(known(status.absent) ? [make("p", { class: "lead" }, status.absent)] : tables(status)));
    }
    timer = setTimeout(look, known(status?.absent) ? 5000 : 1000);
  };
  await look();
  return { end: () => clearTimeout(timer) };
}

/** All that the status says: plain values in one table, each object or list in one of its own. */
function tables(status) {
  const plain = Object.entries(status).filter(([, value]) => value === null || typeof value !== "object");
  const rest = Object.entries(status).filter(([, value]) => value !== null && typeof value === "object");
  return [
    make("dl", { class: "how" }, plain.map(([key, value]) => [make("dt", {}, key.replaceAll("_", " ")), make("dd", {}, `${value}`)])),
    ...rest.flatMap(([key, value]) => [make("h2", {}, key.replaceAll("_", " ")), Array.isArray(value) ? rows(value) : make("dl", { class: "how" }, flat(value).map(([name, it]) => [make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, `${it}`)]))]),
  ];
}

/** The values in an object and below, by their paths. */
function flat(value, before = "") {
  return Object.entries(value).flatMap(([key, it]) => (it !== null && typeof it === "object" && !Array.isArray(it) ? flat(it, `${before}${key} `) : [[`${before}${key}`, Array.isArray(it) ? it.map((one) => (typeof one === "object" ? JSON.stringify(one) : one)).join(", ") : it]]));
}

function rows(list) {
  if (!list.length) return make("p", { class: "note" }, "None.");
  if (typeof list[0] !== "object") return make("p", {}, list.join(", "));
  const keys = [...new Set(list.flatMap((one) => flat(one).map(([key]) => key)))];
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows" }, make("table", {}, make("thead", {}, make("tr", {}, keys.map((key) => make("th", { scope: "col" }, key.replaceAll("_", " "))))),
    make("tbody", {}, list.slice(0, 200).map((one) => {
      const values = new Map(flat(one));
      return make("tr", {}, keys.map((key) => make("td", {}, `${values.get(key) ?? ""}`)));
    }))));
}
