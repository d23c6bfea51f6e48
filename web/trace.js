// The page of a capture: the graphs of one stream at a time, after page.js and levels.js.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

const [FIN, SYN, RST, PSH, URG] = [1, 2, 4, 8, 32];
const [NEW, AGAIN, ORDER, PROBE] = [1, 2, 3, 4];
/** Marks that a picture draws of each kind at most. */
const MOST = 6000;

/** What is drawn, and its name. */
const KINDS = [
  ["new", "segments"], ["again", "retransmissions"], ["order", "out of order"], ["probe", "window probes"], ["ack", "acknowledged"],
  ["duplicate", "duplicate ACKs"], ["window", "window"], ["sack", "SACK blocks"], ["ends", "SYN, FIN, RST"],
];
const hidden = new Set();

/** The numbers in `text`: base64 of little-endian ones. */
function column(Type, text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return new Type(bytes.buffer);
}

/** Columns in the order of time: captures may go backwards. */
function ordered(columns) {
  const { time } = columns;
  if (time.every((at, i) => i === 0 || at >= time[i - 1])) return columns;
  const order = Array.from(time, (_, i) => i).sort((a, b) => time[a] - time[b]);
  return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values.map((_, i) => values[order[i]])]));
}

/** What the page says of one stream, as numbers. */
function decoded(stream) {
  const { segments, acks, sacks } = stream;
  return {
    segments: ordered({
      time: column(Float64Array, segments.time), start: column(Float64Array, segments.start), length: column(Uint32Array, segments.length),
      outstanding: column(Uint32Array, segments.outstanding), kind: column(Uint8Array, segments.kind), flags: column(Uint8Array, segments.flags),
    }),
    acks: ordered({
      time: column(Float64Array, acks.time), place: column(Float64Array, acks.place), window: column(Uint32Array, acks.window),
      rtt: column(Uint32Array, acks.rtt), duplicate: column(Uint8Array, acks.duplicate),
    }),
    sacks: ordered({ time: column(Float64Array, sacks.time), start: column(Float64Array, sacks.start), end: column(Float64Array, sacks.end) }),
  };
}

/** Levels of those of `length` marks that `wanted` chooses. */
function chosen(length, wanted, time, low, high) {
  let count = 0;
  for (let i = 0; i < length; i++) if (wanted(i)) count++;
  const columns = [new Float64Array(count), new Float64Array(count), new Float64Array(count)];
  for (let i = 0, at = 0; i < length; i++) {
    if (!wanted(i)) continue;
    columns[0][at] = time(i);
    columns[1][at] = low(i);
    columns[2][at] = high(i);
    at++;
  }
  return new Levels(...columns);
}

/** All that is drawn of one stream. */
function drawing(stream) {
  const { segments, acks, sacks } = decoded(stream);
  const end = (i) => segments.start[i] + segments.length[i];
  const ofSegments = (wanted) => chosen(segments.time.length, wanted, (i) => segments.time[i], (i) => segments.start[i], end);
  const ofAcks = (wanted, value) => chosen(acks.time.length, wanted, (i) => acks.time[i], value, value);
  const every = () => true;
  const place = (i) => acks.place[i];
  return {
    segments,
    new: ofSegments((i) => segments.kind[i] === NEW && segments.length[i] > 0),
    again: ofSegments((i) => segments.kind[i] === AGAIN),
    order: ofSegments((i) => segments.kind[i] === ORDER),
    probe: ofSegments((i) => segments.kind[i] === PROBE),
    ends: chosen(segments.time.length, (i) => segments.flags[i] & (SYN | FIN | RST), (i) => segments.time[i], end, end),
    endFlags: segments.flags.filter((flags) => flags & (SYN | FIN | RST)),
    ack: ofAcks(every, place),
    duplicate: ofAcks((i) => acks.duplicate[i], place),
    window: ofAcks(every, (i) => acks.place[i] + acks.window[i]),
    sack: new Levels(sacks.time, sacks.start, sacks.end),
    outstanding: chosen(segments.time.length, (i) => segments.length[i] > 0, (i) => segments.time[i], (i) => segments.outstanding[i], (i) => segments.outstanding[i]),
    advertised: ofAcks(every, (i) => acks.window[i]),
    rtt: ofAcks((i) => acks.rtt[i] > 0, (i) => acks.rtt[i] / 1e6),
    sent: sums(segments),
  };
}

/** Bytes of data up to each segment, that one included. */
function sums({ length }) {
  const totals = new Float64Array(length.length);
  for (let i = 0, total = 0; i < length.length; i++) totals[i] = total += length[i];
  return totals;
}

function tidy(value) {
  const round = (number) => `${+number.toPrecision(6)}`;
  const size = Math.abs(value);
  if (size >= 1e9) return `${round(value / 1e9)}G`;
  if (size >= 1e6) return `${round(value / 1e6)}M`;
  return size >= 1e4 ? `${round(value / 1e3)}k` : round(value);
}

let shown;
let plots = [];
/** The times that are shown, and the sequence numbers if they were chosen too. */
let view = { from: 0, to: 1, y: undefined };

function begin(context, plot) {
  const ratio = uPlot.pxRatio;
  context.save();
  context.beginPath();
  context.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
  context.clip();
  context.lineWidth = 1.2 * ratio;
  return {
    ratio,
    x: (time) => plot.valToPos(time, "x", true),
    y: (value) => plot.valToPos(value, "y", true),
  };
}

/** Whether segments are so far apart that each has room for its signs. */
function alone(plot) {
  const { time } = shown.segments;
  return lowerBound(time, view.to) - lowerBound(time, view.from) < plot.bbox.width / uPlot.pxRatio / 5;
}

/** A stroke from low to high at each mark; `arrows` have heads where there is room. */
function strokes(plot, levels, colour, arrows) {
  const context = plot.ctx;
  const { x, y, ratio } = begin(context, plot);
  const level = levels.between(view.from, view.to, MOST);
  const heads = arrows && level.single && alone(plot);
  context.strokeStyle = colour;
  context.beginPath();
  for (let i = level.begin; i < level.end; i++) {
    const [low, high] = [y(level.low[i]), y(level.high[i])];
    const [left, right] = [x(level.first[i]), x(level.last[i])];
    const top = Math.min(high, low - ratio);
    if (right - left > 2 * ratio) {
      context.moveTo(left, low);
      context.lineTo(right, top);
      continue;
    }
    context.moveTo(left, low);
    context.lineTo(left, top);
    if (heads) {
      const size = 3 * ratio;
      context.moveTo(left - size, low - size);
      context.lineTo(left, low);
      context.lineTo(left + size, low - size);
      context.moveTo(left - size, top + size);
      context.lineTo(left, top);
      context.lineTo(left + size, top + size);
    }
  }
  context.stroke();
  context.restore();
}

/** A line that stays until the next mark. */
function steps(plot, levels, colour, width = 1.2) {
  const context = plot.ctx;
  const { x, y, ratio } = begin(context, plot);
  const level = levels.between(view.from, view.to, MOST);
  context.strokeStyle = colour;
  context.lineWidth = width * ratio;
  context.beginPath();
  let before;
  for (let i = level.begin; i < level.end; i++) {
    const [left, low, high] = [x(level.first[i]), y(level.low[i]), y(level.high[i])];
    if (before === undefined) context.moveTo(left, low);
    else context.lineTo(left, before);
    context.lineTo(left, low);
    context.lineTo(x(level.last[i]), high);
    before = high;
  }
  if (before !== undefined && level.end === level.first.length) context.lineTo(Math.max(x(view.to), x(level.last[level.end - 1])), before);
  context.stroke();
  context.restore();
}

function points(plot, levels, colour, sign) {
  const context = plot.ctx;
  const { x, y, ratio } = begin(context, plot);
  const level = levels.between(view.from, view.to, MOST);
  context.fillStyle = colour;
  context.strokeStyle = colour;
  for (let i = level.begin; i < level.end; i++) {
    const [left, low, high] = [x(level.first[i]), y(level.low[i]), y(level.high[i])];
    if (sign) sign(context, left, high, ratio, i);
    else context.fillRect(left - ratio, Math.min(high, low) - ratio, 2 * ratio, Math.abs(low - high) + 2 * ratio);
  }
  context.restore();
}

function diamond(context, x, y, size) {
  context.beginPath();
  context.moveTo(x, y - size);
  context.lineTo(x + size, y);
  context.lineTo(x, y + size);
  context.lineTo(x - size, y);
  context.closePath();
  context.fill();
}

/** SYN, FIN and RST with their names, and the letters of PSH and URG where segments stand alone. */
function signs(plot) {
  const { segments } = shown;
  const flagNames = (flags) => [[SYN, "SYN"], [FIN, "FIN"], [RST, "RST"]].filter(([flag]) => flags & flag).map(([, name]) => name).join(" ");
  if (!hidden.has("ends")) {
    const single = shown.ends.length <= 200;
    points(plot, shown.ends, style("--k-ends"), (context, x, y, ratio, i) => {
      diamond(context, x, y, 4 * ratio);
      context.font = `${11 * ratio}px system-ui, sans-serif`;
      if (single) context.fillText(flagNames(shown.endFlags[i]), x + 6 * ratio, y - 4 * ratio);
    });
  }
  if (!alone(plot)) return;
  const context = plot.ctx;
  const { x, y, ratio } = begin(context, plot);
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  for (let i = lowerBound(segments.time, view.from); i < lowerBound(segments.time, view.to); i++) {
    const [left, top] = [x(segments.time[i]), y(segments.start[i] + segments.length[i])];
    const [name, letter] = { [AGAIN]: ["again", "R"], [ORDER]: ["order", "O"], [PROBE]: ["probe", "P"] }[segments.kind[i]] ?? ["new", ""];
    if (hidden.has(name)) continue;
    context.fillStyle = style(`--k-${name}`);
    if (segments.flags[i] & PSH && segments.length[i]) diamond(context, left, top, 3 * ratio);
    const letters = letter + (segments.flags[i] & URG ? "U" : "");
    if (letters) context.fillText(letters, left + 4 * ratio, top - 5 * ratio);
  }
  context.restore();
}

function sequence(plot) {
  const colour = (kind) => style(`--k-${kind}`);
  if (!hidden.has("window")) steps(plot, shown.window, colour("window"));
  if (!hidden.has("ack")) steps(plot, shown.ack, colour("ack"));
  for (const kind of ["new", "order", "probe", "sack", "again"]) if (!hidden.has(kind)) strokes(plot, shown[kind], colour(kind), kind !== "sack");
  if (!hidden.has("duplicate")) {
    points(plot, shown.duplicate, colour("duplicate"), (context, x, y, ratio) => context.fillRect(x - ratio / 2, y, 1.2 * ratio, 5 * ratio));
  }
  signs(plot);
}

/** Bits per second in some 200 spans of what is shown. */
function throughput(plot) {
  const { segments, sent } = shown;
  const spans = 200;
  const span = (view.to - view.from) / spans;
  const until = (time) => sent[lowerBound(segments.time, time) - 1] ?? 0;
  const columns = [new Float64Array(spans), new Float64Array(spans)];
  let before = until(view.from);
  for (let i = 0; i < spans; i++) {
    const now = until(view.from + (i + 1) * span);
    columns[0][i] = view.from + i * span;
    columns[1][i] = ((now - before) * 8) / span;
    before = now;
  }
  if (plot) steps(plot, new Levels(columns[0], columns[1], columns[1]), style("--accent"), 1.5);
  return [0, columns[1].reduce((most, value) => Math.max(most, value), 1)];
}

/** The least and greatest of `levels` in what is shown, with some room; `floor` if that is shown too. */
function range(levels, floor) {
  const extents = levels.map((one) => one.extent(view.from, view.to)).filter(Boolean);
  let least = Math.min(...extents.map(([low]) => low));
  const most = Math.max(...extents.map(([, high]) => high));
  if (!extents.length) return [0, 1];
  if (floor !== undefined) least = Math.min(floor, least);
  const room = (most - least || 1) * 0.04;
  return [floor === undefined ? least - room : least, most + room];
}

const GRAPHS = [
  { id: "sequence", height: 520, draw: sequence, range: () => view.y ?? range(["new", "again", "order", "sack", "ack", "ends"].filter((kind) => !hidden.has(kind)).map((kind) => shown[kind])) },
  { id: "throughput", height: 220, draw: throughput, range: () => [0, throughput()[1] * 1.06] },
  { id: "outstanding", height: 220, draw: (plot) => { steps(plot, shown.advertised, style("--k-window")); steps(plot, shown.outstanding, style("--k-new")); }, range: () => range([shown.outstanding], 0) },
  { id: "rtt", height: 220, draw: (plot) => points(plot, shown.rtt, style("--accent")), range: () => range([shown.rtt], 0) },
];

let whole = [0, 1];

/** Shows the times from `from` to `to` in all graphs. */
function show(from, to, y) {
  const shortest = 1e-6;
  view = { from: Math.max(whole[0], from), to: Math.min(whole[1], Math.max(to, from + shortest)), y };
  for (const { plot, graph } of plots) {
    const [min, max] = graph.range();
    plot.batch(() => {
      plot.setScale("x", { min: view.from, max: view.to });
      plot.setScale("y", { min, max });
      // Hiding a kind may leave both as they are.
      plot.redraw(false);
    });
  }
}

/** What is at the pointer: the nearest segment before it. */
function readout(plot) {
  const { left, top } = plot.cursor;
  const line = document.getElementById("readout");
  if (left < 0) return;
  const [time, place] = [plot.posToVal(left, "x"), plot.posToVal(top, "y")];
  const { segments } = shown;
  const near = lowerBound(segments.time, time);
  let best;
  for (let i = Math.max(0, near - 200); i < Math.min(segments.time.length, near + 200); i++) {
    const apart = Math.hypot(plot.valToPos(segments.time[i], "x") - left, plot.valToPos(segments.start[i] + segments.length[i] / 2, "y") - top);
    if (apart < 14 && (best === undefined || apart < best.apart)) best = { i, apart };
  }
  let words = `${time.toFixed(6)} s, ${Math.round(place)}`;
  if (best) {
    const { i } = best;
    const kind = { [AGAIN]: ", sent again", [ORDER]: ", out of order", [PROBE]: ", window probe" }[segments.kind[i]] ?? "";
    words += ` · segment at ${segments.time[i].toFixed(6)} s: ${segments.start[i]} to ${segments.start[i] + segments.length[i]}, ${segments.length[i]} bytes${kind}; ${segments.outstanding[i]} outstanding`;
  }
  line.textContent = words;
}

function build(graph) {
  const target = document.getElementById(graph.id);
  target.replaceChildren();
  const main = graph.id === "sequence";
  const options = {
    width: Math.max(200, target.clientWidth),
    height: graph.height,
    padding: [10, 14, 0, 0],
    legend: { show: false },
    cursor: { points: { show: false }, drag: { x: true, y: main, setScale: false, uni: 24 }, sync: { key: "trace", setSeries: false }, bind: { dblclick: () => () => show(...whole) } },
    select: { show: true },
    scales: { x: { time: false, auto: false, range: (_, min, max) => [min, max] }, y: { auto: false, range: (_, min, max) => [min, max] } },
    axes: [
      { ...axis(), values: (_, ticks) => ticks.map((tick) => `${+tick.toPrecision(9)}`), size: 30 },
      { ...axis(), size: 64, values: (_, ticks) => ticks.map(tidy) },
    ],
    series: [{}, { show: true, paths: () => null, points: { show: false } }],
    hooks: {
      draw: [graph.draw],
      setCursor: main ? [readout] : [],
      setSelect: [(plot) => {
        const { left, top, width, height } = plot.select;
        if (width < 4 && height < 4) return;
        const from = width < 4 ? view.from : plot.posToVal(left, "x");
        const to = width < 4 ? view.to : plot.posToVal(left + width, "x");
        const all = height < 4 || height >= plot.over.clientHeight - 1;
        const y = main && !all ? [plot.posToVal(top + height, "y"), plot.posToVal(top, "y")] : undefined;
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        show(from, to, y);
      }],
    },
  };
  const plot = new uPlot(options, [[whole[0], whole[1]], [0, 0]], target);
  plot.over.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = plot.posToVal(event.offsetX, "x");
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    show(at - (at - view.from) * factor, at + (view.to - at) * factor);
  }, { passive: false });
  move(plot);
  return { plot, graph };
}

/** Shift and drag moves what is shown. */
function move(plot) {
  plot.over.addEventListener("mousedown", (event) => {
    if (!event.shiftKey) return;
    event.stopImmediatePropagation();
    const [begun, from, to] = [event.clientX, view.from, view.to];
    const each = (to - from) / plot.over.clientWidth;
    const drag = (now) => {
      const by = Math.min(Math.max((begun - now.clientX) * each, whole[0] - from), whole[1] - to);
      show(from + by, to + by);
    };
    const end = () => {
      removeEventListener("mousemove", drag);
      removeEventListener("mouseup", end);
    };
    addEventListener("mousemove", drag);
    addEventListener("mouseup", end);
  }, true);
}

function rebuild() {
  plots.forEach(({ plot }) => plot.destroy());
  plots = GRAPHS.map(build);
  show(view.from, view.to, view.y);
}

function counts(connection) {
  const [a, b] = connection.letters;
  const value = (one) => (one === null ? "—" : typeof one === "number" && !Number.isInteger(one) ? one.toFixed(3) : `${one}`);
  const head = make("tr", {}, ["count", `${a} → ${b}`, `${b} → ${a}`].map((name) => make("th", { scope: "col" }, name)));
  const rows = connection.counts.map(([label, unit, from, back]) => make("tr", {}, make("th", { scope: "row" }, unit ? `${label}, ${unit}` : label), make("td", {}, value(from)), make("td", {}, value(back))));
  document.getElementById("counts").replaceChildren(make("thead", {}, head), make("tbody", {}, rows));
}

function select(choice) {
  const [index, side] = choice.split(" ").map(Number);
  const connection = data.connections[index];
  shown = drawing(connection.streams[side]);
  whole = [0, connection.seconds || 1e-3];
  view = { from: whole[0], to: whole[1], y: undefined };
  counts(connection);
  rebuild();
}

function controls() {
  document.title = `bentpipe trace: ${data.title}`;
  document.getElementById("title").textContent = data.title;
  const menu = document.getElementById("stream");
  const bytes = (stream) => (stream.segments.length.length * 3) / 4;
  data.connections.forEach((connection, index) => {
    const streams = [[connection.a, connection.b], [connection.b, connection.a]].map(([from, to], side) => make("option", { value: `${index} ${side}` }, `${connection.number}: ${from} → ${to}`));
    // First the one with more segments.
    if (bytes(connection.streams[1]) > bytes(connection.streams[0])) streams.reverse();
    menu.append(...streams);
  });
  menu.addEventListener("change", () => select(menu.value));
  document.getElementById("whole").addEventListener("click", () => show(...whole));
  for (const [kind, name] of KINDS) {
    const mark = make("span", {}, "━");
    mark.style.color = `var(--k-${kind})`;
    put("legend", toggle([mark, name], (hide) => {
      if (hide) hidden.add(kind);
      else hidden.delete(kind);
      show(view.from, view.to, view.y);
    }));
  }
  theme(rebuild);
  select(menu.value);
  document.documentElement.dataset.ready = "yes";
}

controls();
