// The testbed: which page is shown. Each is a module with `show(target, words)`, which returns what ends it.
import { make, theme } from "./page.js";
import * as run from "./run.js";
import * as watch from "./watch.js";
import * as compare from "./compare.js";
import * as history from "./history.js";
import * as studies from "./studies.js";
import * as gateway from "./gateway.js";
import { ask, attempt } from "./ask.js";

const PAGES = { run, watch, compare, history, studies, gateway };
const NAMES = { run: "Run", watch: "Watch", compare: "Compare", history: "History", studies: "Studies", gateway: "Gateway" };
const main = document.getElementById("main");
let end = () => {};
let redraw = () => {};
/** Only the page that was asked for last is shown. */
let turn = 0;

/** A word of the address; one that is encoded wrongly is what it is. */
function decoded(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

async function open() {
  const [name, ...words] = location.hash.slice(1).split("/").map(decoded);
  const page = PAGES[name] ?? run;
  const own = ++turn;
  // What a page tells of itself, for tests and tools, is gone with it.
  for (const key of ["shown", "checked", "asked", "looks", "state", "over", "compared", "points"]) delete document.documentElement.dataset[key];
  end();
  end = () => {};
  redraw = () => {};
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === (name in PAGES ? name : "run")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const target = make("div");
  main.replaceChildren(target);
  document.title = `bentpipe: ${(NAMES[name] ?? NAMES.run).toLowerCase()}`;
  const shown = await attempt(() => page.show(target, words));
  if (own !== turn) return shown?.end?.();
  end = shown?.end ?? end;
  redraw = shown?.redraw ?? redraw;
  document.documentElement.dataset.shown = location.hash;
}

document.getElementById("nav").append(...Object.keys(PAGES).map((name) => make("a", { href: `#${name}`, "data-page": name }, NAMES[name])));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
theme(() => redraw());
addEventListener("hashchange", open);
attempt(async () => {
  const about = await ask("/api/about");
  if (about.advisor) document.getElementById("nav").append(make("a", { href: "/advisor/" }, "Advisor"));
});
open();
