// History: the result folders; and the queue, which Run shows too.
import { known, make } from "./page.js";
import { ask, attempt, clock, duration, once } from "./ask.js";

const KINDS = { simulator: "simulator", lab: "lab", study: "study" };

export async function show(target) {
  target.append(make("h1", {}, "History"), make("p", { class: "lead" }, "The result folders on this server's disk, the newest first. Tick some to compare them."));
  const go = make("button", { type: "button", class: "main" }, "Compare");
  const find = make("input", { type: "search" });
  const rows = make("tbody");
  target.append(make("div", { class: "actions" }, go, make("label", { class: "field" }, "Find ", find)),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" }, make("table", { class: "list" },
      make("thead", {}, make("tr", {}, ["Run", "Engine", "Asked for (UTC)", "Took", "State"].map((head) => make("th", { scope: "col" }, head)), make("td"))), rows)));
  const notes = await ask("/api/runs");
  const ticked = () => [...rows.querySelectorAll("input:checked")].map((input) => input.value);
  const fill = () => {
    const words = find.value.toLowerCase();
    const found = notes.filter((note) => `${note.label} ${note.id} ${note.kind} ${note.state}`.toLowerCase().includes(words));
    rows.replaceChildren(...found.slice(0, 500).map(row));
    if (!found.length) rows.append(make("tr", {}, make("td", { colspan: "6" }, "No run is here yet.")));
  };
  find.addEventListener("input", fill);
  go.addEventListener("click", once(async () => {
    if (!ticked().length) throw new Error("tick the runs that are to be compared");
    location.hash = `compare/${ticked().join(",")}`;
  }));
  fill();
}

function row(note) {
  const input = make("input", { type: "checkbox", value: note.id, "aria-label": `compare ${note.label}` });
  if (note.kind === "study" || note.state !== "done") input.disabled = true;
  const page = note.kind === "study" ? "#studies" : `#watch/${note.id}`;
  return make("tr", {}, make("th", { scope: "row" }, make("label", { class: "tick" }, input, make("a", { href: page }, note.label))),
    make("td", {}, KINDS[note.kind]), make("td", { "data-head": "Asked for (UTC)" }, clock(note.asked)),
    make("td", { class: "number", "data-head": "Took" }, known(note.ended) && known(note.began) ? duration(note.ended - note.began) : ""),
    make("td", {}, make("span", { class: `state-${note.state}` }, note.state), note.why ? make("span", { class: "why" }, note.why.slice(0, 300)) : []),
    make("td", {}, note.state === "queued" || note.state === "running" ? stopper(note.id) : again(note)));
}

function again(note) {
  const button = make("button", { type: "button" }, "Again");
  button.setAttribute("aria-label", `run ${note.label} again`);
  button.addEventListener("click", once(async () => {
    const [{ id }] = await ask(`/api/runs/${note.id}/again`, {});
    location.hash = note.kind === "study" ? "studies" : `watch/${id}`;
  }));
  return button;
}

export function stopper(id) {
  const button = make("button", { type: "button" }, "Stop");
  button.addEventListener("click", once(() => ask(`/api/runs/${id}/stop`, {})));
  return button;
}

/** How long a run goes on, by how far it is: at the most. */
export function left(run, now) {
  if (!run.at_most_s || run.at_s <= 0) return null;
  const taken = now - run.began;
  return Math.max(0, (taken / run.at_s) * (run.at_most_s - run.at_s));
}

/** Shows what runs and what waits in `target`, once a second; returns what ends that. */
export function queue(target, renew = () => {}) {
  let timer;
  let shown;
  const look = async () => {
    if (!document.hidden) {
      const queued = await attempt(() => ask("/api/queue"));
      if (queued) fill(queued);
    }
    timer = setTimeout(look, 1000);
  };
  const fill = ({ now, running, waiting }) => {
    renew({ running, waiting });
    // Buttons are renewed with the rows that they stand in alone, lest they lose the focus.
    const rows = JSON.stringify([running.map((it) => it.id), waiting.map((it) => it.id)]);
    if (rows !== shown) {
      shown = rows;
      target.replaceChildren(running.length + waiting.length ? make("table", { class: "list" },
        make("thead", {}, make("tr", {}, ["Run", "Engine", "Progress"].map((head) => make("th", { scope: "col" }, head)), make("td"))),
        make("tbody", {}, [...running, ...waiting].map((note) => make("tr", { "data-id": note.id },
          make("th", { scope: "row" }, make("a", { href: note.kind === "study" ? "#studies" : `#watch/${note.id}` }, note.label)), make("td", {}, KINDS[note.kind]),
          make("td", { class: "progress" }, note.state === "queued" ? "waits" : "runs"), make("td", {}, stopper(note.id)))))) : make("p", { class: "note" }, "Nothing runs, nothing waits."));
    }
    for (const run of running) {
      const cell = target.querySelector(`tr[data-id="${run.id}"] .progress`);
      const most = left(run, now);
      if (!cell || !known(most)) continue;
      cell.replaceChildren(make("progress", { max: run.at_most_s, value: run.at_s, "aria-label": `progress of ${run.label}` }), ` at most ${duration(most)} left`);
    }
  };
  look();
  return () => clearTimeout(timer);
}
