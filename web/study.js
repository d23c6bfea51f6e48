// The report of a study: its tables, its figures, and what was run; after page.js.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

/** Whole where numbers are whole or large, with three digits where they are small. */
function number(value, percent = false) {
  const size = Math.abs(value);
  // Adding 0 makes 0 of -0.
  if (percent) return `${Math.round(value) + 0}%`;
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(3);
}

const distinct = (values) => [...new Set(values)];

function words() {
  document.title = `bentpipe: ${data.name}`;
  document.getElementById("name").textContent = data.name;
  document.getElementById("lead").textContent =
    data.lab
      ? `${data.points} runs of real programs on the kernel's network, in the lab of bentpipe ${data.version}. Another run gives slightly other figures.`
      : `${data.points} simulations by bentpipe ${data.version}. The same scenario and seed give the same result, bit for bit.`;
  document.getElementById("scenario").textContent = data.scenario;
  for (const [name, values] of data.axes) put("axes", make("dt", {}, name), make("dd", {}, values));
}

function cellOf(cell, percent) {
  if (!cell) return make("td", {}, "—");
  const within = () => {
    if (!known(cell.within)) return null;
    const met = known(cell.mean) && cell.mean <= cell.within;
    return make("small", {}, `≤ ${number(cell.within, percent)}`, make("span", { class: met ? "yes" : "no" }, met ? " ✓" : " ✗"));
  };
  if (!known(cell.mean)) {
    const otherwise = known(cell.otherwise) ? ` (${number(cell.otherwise, percent)})` : "";
    return make("td", {}, `—${otherwise}`, within());
  }
  const inside = known(cell.paper) && cell.paper >= cell.min && cell.paper <= cell.max;
  const parts = [
    make("b", {}, number(cell.mean, percent), cell.half ? make("span", { class: "half", title: "95% confidence interval of the mean" }, ` ± ${number(cell.half, percent)}`) : null),
  ];
  if (cell.min !== cell.max) parts.push(make("small", {}, `${number(cell.min, percent)} to ${number(cell.max, percent)}`));
  if (cell.n < cell.runs) parts.push(make("small", { title: "runs that have the measure" }, `${cell.n} of ${cell.runs} runs`));
  if (known(cell.paper)) parts.push(make("small", { title: "the paper's single run" }, `paper ${number(cell.paper, percent)}${inside ? "" : " *"}`));
  if (known(cell.reference)) {
    const verdict = known(cell.agrees) ? make("span", { class: cell.agrees ? "yes" : "no" }, cell.agrees ? " ✓" : " ✗") : null;
    parts.push(make("small", { title: "mean of the reference" }, `ref ${number(cell.reference, percent)}`, verdict));
  }
  return make("td", {}, parts, within());
}

function tables() {
  const cells = data.tables.flatMap((table) => table.cells);
  if (!cells.length) {
    document.getElementById("tables-section").remove();
    return;
  }
  const note = [cells.some((cell) => cell.runs > 1) ? "Each cell: mean over the seeds with its 95% confidence interval, least and greatest" : "Each cell: one run"];
  if (cells.some((cell) => known(cell.paper))) note.push("the paper's value, with * where it lies outside that range");
  if (cells.some((cell) => known(cell.reference))) note.push("the reference's mean, ✓ where ours agrees with it");
  if (cells.some((cell) => known(cell.within))) note.push("≤ the target, ✓ where it is met");
  document.getElementById("tables-note").textContent = `${note.join("; ")}.`;
  for (const table of data.tables) {
    const columns = distinct(table.cells.map((cell) => cell.column));
    const rows = distinct(table.cells.map((cell) => cell.row));
    const head = make("tr", {}, make("th", {}, ""), columns.map((column) => make("th", { scope: "col" }, column)));
    const body = rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row), columns.map((column) =>
      cellOf(table.cells.find((cell) => cell.row === row && cell.column === column), table.percent))));
    put("tables", make("h3", {}, `Table ${table.name}. ${table.title}`), make("div", { class: "scroll", tabindex: "0" },
      make("table", {}, make("thead", {}, head), make("tbody", {}, body))));
  }
}

/** Time-sequence graphs, drawn already; what they show is the program's own, never another's text. */
function graphs() {
  if (!data.graphs.length) {
    document.getElementById("graphs-section").remove();
    return;
  }
  for (const { name, title, svg } of data.graphs) {
    const drawing = make("div", { class: "scroll", tabindex: "0" });
    drawing.innerHTML = svg;
    const heading = /^[0-9]/.test(name) ? `Figure ${name}. ${title}` : title;
    put("graphs", make("h3", {}, heading), drawing);
  }
}

/** Statements: a row each, or one for each model that it is checked under. */
function statements() {
  if (!data.statements.length) {
    document.getElementById("statements-section").remove();
    return;
  }
  const end = (value) => (known(value) ? number(value) : "∞");
  const between = (range) => (range && range[0] !== range[1] ? make("small", { title: "by 95% confidence intervals" }, `${end(range[0])} to ${end(range[1])}`) : null);
  const figure = (value, points, range) => make("td", {}, known(value) ? number(value) : "—", between(range), points > 1 ? make("small", {}, `of ${points} points`) : null);
  const verdict = (value, holds) => make("td", {}, make("span", { class: known(holds) ? (holds ? "yes" : "no") : null }, known(holds) ? (holds ? "yes" : "no") : known(value) ? "not resolved" : "—"));
  const models = data.statements.some((one) => known(one.model));
  const references = data.statements.some((one) => known(one.reference));
  if (references) document.getElementById("statements-note").textContent += " The figure beside is the reference simulator's, of those of the points that it has.";
  const names = ["statement", ...(models ? ["model"] : []), "ours", "holds", ...(references ? ["reference", "holds"] : [])];
  const head = names.map((name) => make("th", { scope: "col" }, name));
  const body = data.statements.map((one, i) => {
    const first = data.statements[i - 1]?.statement !== one.statement;
    const words = first ? [one.text, make("small", {}, `${one.place}. Checked: ${one.check}`), one.why ? make("small", {}, `→ ${one.why}`) : null] : [];
    return make("tr", { class: first ? null : "again" }, make("th", { scope: "row" }, words), models ? make("td", {}, one.model ?? "") : null,
      figure(one.ours, one.points, one.range), verdict(one.ours, one.holds),
      references ? [figure(one.reference, one.reference_points), verdict(one.reference, one.reference_holds)] : null);
  });
  put("statements", make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body)));
}
