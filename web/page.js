// What all pages have: elements, light and dark, and what their charts have in common. A module; in reports, which are
// one file, it stands before their own scripts without the word `export` (crates/report/build.rs).
"use strict";

/** An element with attributes and children; a string child is text, never markup. */
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (known(value)) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter(known));
  return element;
}

export const put = (id, ...children) => document.getElementById(id).append(...children);
export const known = (value) => value !== null && value !== undefined;

/** The value of a custom property of the style sheet. */
export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Light or dark: the reader's system decides until the button does, or `#dark` and `#light` in the address. Charts, whose
 * colours do not follow by themselves, are drawn anew by `redraw`, and so they are when the window has another size. */
export function theme(redraw) {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const wanted = location.hash.match(/\b(dark|light)\b/)?.[0];
  const set = (name) => {
    root.dataset.theme = name;
    root.style.colorScheme = name;
  };
  const change = (name) => {
    set(name);
    redraw();
  };
  set(wanted ?? (system.matches ? "dark" : "light"));
  // Paper is light.
  let screen;
  addEventListener("beforeprint", () => {
    screen = root.dataset.theme;
    change("light");
  });
  addEventListener("afterprint", () => change(screen));
  system.addEventListener("change", () => change(system.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => change(root.dataset.theme === "dark" ? "light" : "dark"));
  let resizing;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(redraw, 120);
  });
}

/** How an axis of uPlot looks. */
export const axis = () => ({ stroke: style("--soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18 });

/** uPlot plugin: the elements that `say(plot, index)` makes of the place under the pointer. */
export function tooltip(say) {
  const tip = make("div", { class: "tip", hidden: "" });
  return {
    hooks: {
      init: (plot) => plot.over.append(tip),
      setCursor: (plot) => {
        const at = plot.cursor.idx;
        tip.hidden = !known(at) || plot.cursor.left < 0;
        if (tip.hidden) return;
        tip.replaceChildren(...say(plot, at));
        const right = plot.cursor.left > plot.over.clientWidth / 2;
        tip.style.left = right ? "" : `${plot.cursor.left + 14}px`;
        tip.style.right = right ? `${plot.over.clientWidth - plot.cursor.left + 14}px` : "";
        tip.style.top = "8px";
      },
    },
  };
}

/** A button of a legend, which hides and shows what it names: `toggle(hidden)`. */
export function toggle(children, hide) {
  const button = make("button", { type: "button", "aria-pressed": "true" }, children);
  button.addEventListener("click", () => {
    const hidden = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", `${!hidden}`);
    hide(hidden);
  });
  return button;
}
