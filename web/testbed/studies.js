// Studies: the papers' sweeps, started, followed and resumed; their reports.
import { make } from "./page.js";
import { ask, attempt, once, say } from "./ask.js";
import { queue } from "./history.js";

export async function show(target) {
  target.append(make("h1", {}, "Studies"), make("p", { class: "lead" }, "The tables and figures of papers, from sweeps of runs. What is finished is kept: start one again and it goes on from there."));
  const rows = make("tbody");
  const list = make("div");
  target.append(list, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Studies" }, make("table", { class: "list" },
    make("thead", {}, make("tr", {}, ["Study", "Engine", "All points", "Fewer points", "Report"].map((head) => make("th", { scope: "col" }, head)))), rows)));
  const fill = async () => {
    const studies = await ask("/api/studies");
    rows.replaceChildren(...studies.map(row));
    if (!studies.length) rows.append(make("tr", {}, make("td", { colspan: "5" }, "No study is here: start the server where the folder papers is, or give it by --papers.")));
  };
  await fill();
  let before = "";
  let timer;
  const end = queue(list, ({ running, waiting }) => {
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
    return [make("span", {}, `${finished} of ${points} `), button];
  };
  const report = (kind, there) => (there ? make("a", { href: `/api/report/${kind}/${study.path.split("/").map(encodeURIComponent).join("/")}`, target: "_blank", rel: "noopener" }, kind === "quick" ? "of fewer points" : "of all points") : null);
  return make("tr", {}, make("th", { scope: "row" }, study.path), make("td", {}, study.engine), make("td", {}, start(false, study.points, study.finished)),
    make("td", {}, study.quick_points < study.points ? start(true, study.quick_points, study.quick_finished) : "—"),
    make("td", {}, [report("all", study.report), " ", report("quick", study.quick_report)]));
}
