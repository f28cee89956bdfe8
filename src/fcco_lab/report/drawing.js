"use strict";
// From a figure's numbers and the state of its buttons to what Plotly and the legend show.
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 40rem)");
const touch = matchMedia("(pointer: coarse)");
const clear = "rgba(0, 0, 0, 0)";

const colour = (series) => series.colour[dark.matches ? 1 : 0];
const faint = (hex) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16))}, 0.16)`;

// Two traces a series, the band before its line, both hidden together.
function traces(figure, state) {
  const profiles = figure.kind === "profiles";
  const { log } = figure.y[state.y];
  const curves = figure.series.map((series) => series.curves[state.x][state.y]);
  const smallest = curves.flatMap((curve) => curve.mean).reduce((a, b) => Math.min(a, b), Infinity);
  return figure.series.flatMap((series, i) => {
    const { x, mean, sd } = curves[i];
    const ink = colour(series);
    // On a log scale a band that reaches below zero has no lower edge of its own.
    const floor = log ? smallest / 2 : -Infinity;
    const upper = sd.map((s, k) => mean[k] + s);
    const lower = sd.map((s, k) => Math.max(mean[k] - s, floor));
    const common = { type: "scatter", name: series.html, visible: !state.hidden.has(series.name) };
    const band = {
      ...common, mode: "lines", hoverinfo: "skip", line: { width: 0 },
      x: sd.length ? [...x, ...[...x].reverse()] : [], y: [...upper, ...lower.reverse()],
      fill: "toself", fillcolor: faint(ink),
    };
    const line = {
      ...common, mode: series.mark ? "lines+markers" : "lines", x, y: mean,
      line: { color: ink, width: 2.2, dash: series.dash, shape: profiles ? "hv" : "linear" },
      marker: { symbol: series.mark || "circle", size: 7, maxdisplayed: 12 },
      text: sd.map((s) => ` ± ${Number(s.toPrecision(2))}`),
      hovertemplate: profiles
        ? "<b>%{fullData.name}</b><br>%{y:.0%} within %{x:.3~g} times the best<extra></extra>"
        : "<b>%{fullData.name}</b><br>%{y:.4~g}%{text}<br>at %{x:,.4~r}<extra></extra>",
    };
    return [band, line];
  });
}

function layout(figure, state) {
  const profiles = figure.kind === "profiles";
  const css = getComputedStyle(document.documentElement);
  const [text, quiet, line, raised] =
    ["--text", "--quiet", "--line", "--raised"].map((name) => css.getPropertyValue(name).trim());
  const axis = { gridcolor: line, linecolor: line, zeroline: false, automargin: true, tickfont: { color: quiet } };
  const title = (words) => ({ text: words, font: { size: 13, color: quiet }, standoff: 10 });
  const { log } = figure.y[state.y];
  return {
    paper_bgcolor: clear, plot_bgcolor: clear,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: text },
    margin: { l: 10, r: narrow.matches ? 8 : 16, t: touch.matches || narrow.matches ? 10 : 30, b: 10 },
    showlegend: false, hovermode: "closest", dragmode: touch.matches ? false : "zoom",
    hoverlabel: { bgcolor: raised, bordercolor: line, font: { color: text }, align: "left", namelength: -1 },
    modebar: { bgcolor: clear, color: quiet, activecolor: text },
    xaxis: {
      ...axis, title: title(figure.x[state.x].title), nticks: narrow.matches ? 5 : 10,
      ...(profiles ? { type: "log", range: [0, 1], tickvals: [1, 2, 3, 5, 10] } : { rangemode: "tozero" }),
    },
    yaxis: {
      ...axis, title: title(figure.y[state.y].title), nticks: log ? 5 : 8,
      ...(log ? { type: "log", tickformat: "~g" } : { type: "linear" }),
      ...(profiles ? { range: [-0.03, 1.05], tickformat: ".0%" } : {}),
    },
  };
}

const dashes = { solid: "", dash: "7 4", dot: "2 3", longdash: "12 4", dashdot: "8 3 2 3" };
const marks = {
  circle: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", square: "M-4-4h8v8h-8z", diamond: "M0-5L5 0 0 5-5 0z",
  "triangle-up": "M0-5L5 4H-5z", x: "M-5-3l2-2 3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3z",
  star: "M0-6L2-2 6-2 3 1 4 5 0 3-4 5-3 1-6-2-2-2z", cross: "M-5-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z",
};

function swatch(series) {
  const namespace = "http://www.w3.org/2000/svg";
  const make = (name, attributes) => {
    const part = document.createElementNS(namespace, name);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    return part;
  };
  const ink = colour(series);
  const svg = make("svg", { width: 30, height: 12, "aria-hidden": "true" });
  const dash = { "stroke-dasharray": dashes[series.dash] ?? "12 3 2 3" };
  svg.append(make("line", { x1: 0, x2: 30, y1: 6, y2: 6, stroke: ink, "stroke-width": 2.5, ...dash }));
  if (series.mark) svg.append(make("path", { d: marks[series.mark], fill: ink, transform: "translate(15 6)" }));
  return svg;
}
