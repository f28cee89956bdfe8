// Each figure of the page: buttons, legend and pointer change its state, and it is drawn again.
function plot(place, figure) {
  const [x, y] = figure.start;
  const state = { x, y, hidden: new Set(), zoom: null };
  const canvas = place.querySelector(".canvas");
  const legend = place.querySelector(".legend");
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  canvas.append(make("svg", { role: "img" }), tip);
  let drawn;

  function redraw() {
    drawn = draw(canvas, figure, state);
    tip.hidden = true;
    [...legend.children].forEach((button, i) => {
      const series = figure.series[i];
      button.setAttribute("aria-pressed", String(!state.hidden.has(series.name)));
      button.firstChild.replaceWith(swatch(series));
    });
  }

  for (const series of figure.series) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(swatch(series), series.name);
    button.addEventListener("click", () => {
      if (!state.hidden.delete(series.name)) state.hidden.add(series.name);
      redraw();
    });
    legend.append(button);
  }
  for (const button of place.querySelectorAll(".buttons button")) {
    button.addEventListener("click", () => {
      state[button.dataset.axis] = button.dataset.key;
      state.zoom = null;
      for (const other of button.parentElement.children) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      redraw();
    });
  }
  redraw();
  // In the next frame: drawing within a notification may cause another, which browsers report.
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(canvas);
  for (const condition of [dark, narrow]) condition.addEventListener("change", redraw);

  const at = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  let start = null;
  let frame = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (!touch.matches && drawn.box) start = at(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = at(event);
    if (start) {
      frame ??= canvas.querySelector("svg").appendChild(make("rect", { class: "zoom" }));
      const sides = { x: Math.min(px, start[0]), y: Math.min(py, start[1]), width: Math.abs(px - start[0]), height: Math.abs(py - start[1]) };
      for (const [key, value] of Object.entries(sides)) frame.setAttribute(key, value);
    }
    hover(px, py);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  addEventListener("pointerup", (event) => {
    if (!start) return;
    const [px, py] = at(event);
    const { x: across, y: up, box } = drawn;
    const inside = (value, low, high) => Math.min(Math.max(value, low), high);
    const order = (a, b) => [Math.min(a, b), Math.max(a, b)];
    if (Math.abs(px - start[0]) > 8 && Math.abs(py - start[1]) > 8) {
      state.zoom = {
        x: order(...[px, start[0]].map((p) => across.invert(inside(p, box.left, box.right)))),
        y: order(...[py, start[1]].map((p) => up.invert(inside(p, box.top, box.bottom)))),
      };
    }
    if (frame) redraw();
    start = frame = null;
  });
  canvas.addEventListener("dblclick", () => { state.zoom = null; redraw(); });

  function hover(px, py) {
    const near = drawn.points.flat().map((point) => ({ ...point, far: Math.hypot(point.px - px, point.py - py) }))
      .reduce((a, b) => (a && a.far <= b.far ? a : b), null);
    tip.hidden = !near || near.far > 40;
    if (tip.hidden) return;
    const { line, k } = near;
    const value = figure.kind === "profiles"
      ? `${percent(line.mean[k])} within ${written(line.x[k])} times the best`
      : `${written(line.mean[k])}${line.sd.length ? ` ± ${written(line.sd[k], 2)}` : ""} at ${written(line.x[k])}`;
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: line.series.name }), document.createElement("br"), value);
    tip.style.top = `${near.py + 12}px`;
    tip.style.left = `${Math.min(near.px + 12, canvas.clientWidth - tip.offsetWidth)}px`;
  }
}

const figures = JSON.parse(document.getElementById("figures").textContent);
document.querySelectorAll(".plot").forEach((place) => plot(place, figures[Number(place.dataset.figure)]));
