"use strict";
// Curves as SVG: scales with round ticks, lines with bands and marks, and what is under the pointer.
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 40rem)");
const touch = matchMedia("(pointer: coarse)");

const colour = (series) => series.colour[dark.matches ? 1 : 0];
const dashes = { solid: "", dash: "7 4", dot: "2 3", longdash: "13 4", dashdot: "8 3 2 3" };
const marks = {
  circle: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", square: "M-4-4h8v8h-8z", diamond: "M0-5L5 0 0 5-5 0z",
  triangle: "M0-5L5 4H-5z", x: "M-5-3l2-2 3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3z",
  star: "M0-6L2-2 6-2 3 1 4 5 0 3-4 5-3 1-6-2-2-2z", cross: "M-5-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z",
};

function make(name, attributes = {}, ...children) {
  const part = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
  part.append(...children);
  return part;
}

// To the axis and back. "toward 1" is for metrics: from 0.9 to 0.99 is as far as to 0.999.
const scales = {
  linear: [(v) => v, (v) => v],
  log: [Math.log10, (v) => 10 ** v],
  "toward 1": [(v) => -Math.log10(1 - v), (v) => 1 - 10 ** -v],
};

// A map from values to pixels, with its inverse and round ticks.
function scale({ kind, low, high, from, to, count }) {
  const [forth, back] = scales[kind];
  const [a, b] = [forth(low), forth(high)];
  const map = (value) => from + ((forth(value) - a) / (b - a || 1)) * (to - from);
  map.invert = (pixel) => back(a + ((pixel - from) / (to - from)) * (b - a));
  map.ticks = ticks(kind, a, b, low, high, count)
    .filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9));
  return map;
}

function ticks(kind, a, b, low, high, count) {
  if (kind === "linear" || b - a < 1) return rounds(low, high, count);
  if (kind === "log") return powers(a, b, count);
  return powers(-b, -a, count).map((rest) => Number((1 - rest).toPrecision(12)));
}

function rounds(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const length = Math.max(0, Math.floor(high / step + 1e-9) - first + 1);
  return Array.from({ length }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function powers(a, b, count) {
  const every = Math.max(1, Math.ceil((b - a) / count));
  const factors = b - a < 3 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = Math.floor(a); power <= b; power += every) {
    for (const factor of factors) ticks.push(Number(`${factor}e${power}`));
  }
  return ticks;
}

function written(value, digits = 4) {
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e12)) return Number(value.toPrecision(digits)).toExponential().replace("e+", "e");
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${Number((value / unit).toPrecision(digits))}${letter}`;
  }
  return String(Number(value.toPrecision(digits)));
}

const percent = (value) => `${Math.round(100 * value)}%`;

// What is drawn of each visible series: its points, and the edges of its band.
function shown(figure, state) {
  const { scale: kind } = figure.y[state.y];
  const curves = figure.series.map((series) => ({ series, ...series.curves[state.x][state.y] }));
  const visible = curves.filter(({ series, x }) => x.length && !state.hidden.has(series.name));
  const means = visible.flatMap((curve) => curve.mean);
  // A band below 0, or above 1, has no edge on these scales.
  const floor = kind === "log" ? Math.min(...means) / 2 : -Infinity;
  const ceiling = kind === "toward 1" ? (1 + Math.max(...means)) / 2 : Infinity;
  return visible.map((curve) => ({
    ...curve,
    upper: curve.sd.map((s, k) => Math.min(curve.mean[k] + s, ceiling)),
    lower: curve.sd.map((s, k) => Math.max(curve.mean[k] - s, floor)),
  }));
}

function limits(figure, state, lines) {
  if (state.zoom) return state.zoom;
  if (figure.kind === "profiles") return { x: [1, 10], y: [-0.03, 1.05] };
  const [forth, back] = scales[figure.y[state.y].scale];
  const across = lines.flatMap((line) => line.x);
  const up = lines.flatMap((line) => [...line.mean, ...line.upper, ...line.lower]);
  const [low, high] = [forth(Math.min(...up)), forth(Math.max(...up))];
  const room = 0.04 * (high - low) || Math.abs(high) / 10 || 1;
  return { x: [0, Math.max(...across) || 1], y: [back(low - room), back(high + room)] };
}

// Draw into the canvas; returns the lines in pixels and the scales, for the pointer.
function draw(canvas, figure, state) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const lines = shown(figure, state);
  const svg = canvas.querySelector("svg");
  svg.replaceChildren();
  const label = `${figure.y[state.y].title} against ${figure.x[state.x].title}`;
  for (const [key, value] of Object.entries({ width, height, "aria-label": label })) svg.setAttribute(key, value);
  const box = { left: 62, right: width - 14, top: 10, bottom: height - 48 };
  // A page that is not laid out yet, or is hidden, has no room; it is drawn when it has.
  if (!lines.length || box.right <= box.left || box.bottom <= box.top) return { points: [] };
  const profiles = figure.kind === "profiles";
  const found = limits(figure, state, lines);
  const x = scale({ kind: profiles ? "log" : "linear", low: found.x[0], high: found.x[1], from: box.left, to: box.right, count: narrow.matches ? 4 : 8 });
  const y = scale({ kind: figure.y[state.y].scale, low: found.y[0], high: found.y[1], from: box.bottom, to: box.top, count: 6 });
  const say = profiles ? percent : written;
  const grid = make("g", { class: "grid" });
  for (const tick of x.ticks) {
    grid.append(make("line", { x1: x(tick), x2: x(tick), y1: box.top, y2: box.bottom }));
    grid.append(make("text", { x: x(tick), y: box.bottom + 18, "text-anchor": "middle" }, written(tick)));
  }
  for (const tick of y.ticks) {
    grid.append(make("line", { x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }));
    grid.append(make("text", { x: box.left - 8, y: y(tick) + 4, "text-anchor": "end" }, say(tick, 8)));
  }
  const middle = (box.top + box.bottom) / 2;
  grid.append(
    make("text", { class: "xtitle", x: (box.left + box.right) / 2, y: height - 8, "text-anchor": "middle" }, figure.x[state.x].title),
    make("text", { class: "ytitle", transform: `translate(14 ${middle}) rotate(-90)`, "text-anchor": "middle" }, figure.y[state.y].title),
  );
  const clip = `clip${canvas.parentElement.dataset.figure}`;
  const frame = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
  const data = make("g", { "clip-path": `url(#${clip})` });
  svg.append(make("clipPath", { id: clip }, make("rect", frame)), grid, data);
  const points = lines.map((line) => drawLine(data, line, x, y, profiles));
  return { points, x, y, box };
}

function drawLine(data, line, x, y, profiles) {
  const ink = colour(line.series);
  const along = (values) => values.map((value, k) => [x(line.x[k]), y(value)]);
  if (line.sd.length) {
    const edge = [...along(line.upper), ...along(line.lower).reverse()];
    data.append(make("path", { class: "band", d: `M${edge.join("L")}Z`, fill: ink }));
  }
  const points = along(line.mean);
  const path = points.map(([px, py], k) => (k === 0 ? `M${px},${py}` : profiles ? `H${px}V${py}` : `L${px},${py}`));
  data.append(make("path", { class: "line", d: path.join(""), stroke: ink, "stroke-dasharray": dashes[line.series.dash] }));
  if (line.series.mark) {
    const every = Math.ceil(points.length / 12);
    points.forEach(([px, py], k) => {
      if (k % every === 0) data.append(make("path", { class: "mark", d: marks[line.series.mark], fill: ink, transform: `translate(${px} ${py})` }));
    });
  }
  return points.map(([px, py], k) => ({ px, py, line, k }));
}

function swatch(series) {
  const ink = colour(series);
  const svg = make("svg", { width: 34, height: 12, "aria-hidden": "true" });
  svg.append(make("line", { x1: 0, x2: 34, y1: 6, y2: 6, stroke: ink, "stroke-width": 2.5, "stroke-dasharray": dashes[series.dash] }));
  if (series.mark) svg.append(make("path", { d: marks[series.mark], fill: ink, transform: "translate(17 6)" }));
  return svg;
}
