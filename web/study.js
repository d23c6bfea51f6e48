// The report of a study: its tables, its figures, and what was run; after page.js and sheet.js.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

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

/** Fills the section of that name by `fill`, or takes it away where there is nothing for it. */
function section(name, there, fill) {
  if (there) fill();
  else document.getElementById(`${name}-section`).remove();
}

let figures;
theme(() => figures?.draw());
words();
section("statements", data.statements.length, () => {
  document.getElementById("statements-note").textContent = statementsNote(data);
  put("statements", statements(data));
});
section("tables", data.tables.some((table) => table.cells.length), () => {
  document.getElementById("tables-note").textContent = tablesNote(data);
  put("tables", ...tables(data));
});
graphs();
section("figures", data.figures.length, () => {
  figures = new Figures(document.getElementById("figures"), document.getElementById("legend"));
  figures.show(data.figures);
});
document.documentElement.dataset.ready = "yes";
