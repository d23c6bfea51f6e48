// Studies: the papers' sweeps, started, followed and resumed; their tables and figures as they fill, and their reports.
import { make } from "./page.js";
import { ask, attempt, once, say } from "./ask.js";
import { queue } from "./history.js";
import { Figures, statements, statementsNote, tables, tablesNote } from "./sheet.js";

/** How often a study that is followed is asked about. */
const FOLLOWED_MS = 3000;

export async function show(target, [kind, path]) {
  return path ? follow(target, kind, path) : list(target);
}

/** What a study has found so far, anew whenever more of its points are finished. */
async function follow(target, kind, path) {
  const lead = make("p", { class: "lead", role: "status" });
  const found = make("div");
  const legend = make("div", { class: "legend", role: "group", "aria-label": "Lines shown" });
  const charts = make("div", { class: "charts" });
  const figures = new Figures(charts, legend);
  target.append(make("h1", {}, path), lead, found, legend, charts);
  const end = path.split("/").map(encodeURIComponent).join("/");
  let timer;
  let shown = 0;
  const fill = async (finished) => {
    const page = await fetch(`/api/so-far/${kind}/${end}`);
    const text = await page.text();
    if (!page.ok) throw new Error(JSON.parse(text).error);
    const [, json] = text.match(/<script type="application\/json" id="data">([^]*?)<\/script>/);
    const data = JSON.parse(json);
    found.replaceChildren(
      ...(data.statements.length ? [make("h2", {}, "Statements"), make("p", { class: "note" }, statementsNote(data)), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Statements" }, statements(data))] : []),
      ...(data.tables.length ? [make("h2", {}, "Tables"), make("p", { class: "note" }, tablesNote(data)), ...tables(data)] : []),
      ...(data.figures.length ? [make("h2", {}, "Figures"), make("p", { class: "note" }, "Choose a name to hide or show its line.")] : []));
    figures.show(data.figures);
    shown = finished;
    document.documentElement.dataset.points = `${finished}`;
  };
  const look = async () => {
    const study = (await ask("/api/studies")).find((it) => it.path === path);
    if (!study) throw new Error(`there is no study ${path}`);
    const [finished, points] = kind === "quick" ? [study.quick_finished, study.quick_points] : [study.finished, study.points];
    lead.textContent = `${finished} of ${points} points are finished${finished < points ? "; what stands here is of these, and follows" : ""}.`;
    if (finished > shown) await fill(finished);
    return finished < points;
  };
  const renew = async () => {
    const more = document.hidden || await attempt(look) !== false;
    if (more) timer = setTimeout(renew, FOLLOWED_MS);
  };
  await renew();
  return { end: () => clearTimeout(timer), redraw: () => figures.figures && figures.draw() };
}

async function list(target) {
  target.append(make("h1", {}, "Studies"), make("p", { class: "lead" }, "The tables and figures of papers, from sweeps of runs. What is finished is kept: start one again and it goes on from there."));
  const rows = make("tbody");
  const queued = make("div");
  target.append(queued, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Studies" }, make("table", { class: "list" },
    make("thead", {}, make("tr", {}, ["Study", "Engine", "All points", "Fewer points", "Report"].map((head) => make("th", { scope: "col" }, head)))), rows)));
  const fill = async () => {
    const studies = await ask("/api/studies");
    rows.replaceChildren(...studies.map(row));
    if (!studies.length) rows.append(make("tr", {}, make("td", { colspan: "5" }, "No study is here: start the server where the folder papers is, or give it by --papers.")));
  };
  await fill();
  let before = "";
  let timer;
  const end = queue(queued, ({ running, waiting }) => {
    const own = JSON.stringify([running, waiting].map((all) => all.filter((it) => it.kind === "study").map((it) => it.id)));
    // While one runs its points are counted again now and then.
    if (own !== before || running.some((it) => it.kind === "study")) {
      before = own;
      timer ??= setTimeout(async () => {
        timer = undefined;
        await attempt(fill);
      }, 3000);
    }
  });
  return { end: () => { end(); clearTimeout(timer); } };
}

function row(study) {
  const start = (quick, points, finished) => {
    const done = finished >= points;
    const button = make("button", { type: "button" }, done ? "Make its tables" : finished ? "Go on" : "Start");
    button.setAttribute("aria-label", `${button.textContent}: ${study.path}${quick ? ", fewer points" : ""}`);
    button.addEventListener("click", once(async () => {
      await ask("/api/studies", { path: study.path, quick });
      say(`${study.path} is in the queue.`);
    }));
    const follow = make("a", { href: `#studies/${quick ? "quick" : "all"}/${encodeURIComponent(study.path)}`, "aria-label": `${finished} of ${points}: what ${study.path} has found so far${quick ? ", of fewer points" : ""}` }, `${finished} of ${points}`);
    return [finished ? follow : make("span", {}, `${finished} of ${points}`), " ", button];
  };
  const report = (kind, there) => (there ? make("a", { href: `/api/report/${kind}/${study.path.split("/").map(encodeURIComponent).join("/")}`, target: "_blank", rel: "noopener" }, kind === "quick" ? "of fewer points" : "of all points") : null);
  return make("tr", {}, make("th", { scope: "row" }, study.path), make("td", {}, study.engine), make("td", { "data-head": "All points" }, start(false, study.points, study.finished)),
    make("td", { "data-head": "Fewer points" }, study.quick_points < study.points ? start(true, study.quick_points, study.quick_finished) : "—"),
    make("td", { "data-head": "Report" }, study.report || study.quick_report ? [report("all", study.report), " ", report("quick", study.quick_report)] : []));
}
