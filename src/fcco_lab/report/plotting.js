// Each figure of the page: its buttons and its legend change its state, and it is drawn again.
function plot(place, figure) {
  const [x, y] = figure.start;
  const state = { x, y, hidden: new Set() };
  const canvas = place.querySelector(".canvas");
  const legend = place.querySelector(".legend");
  const config = {
    responsive: true, displaylogo: false, displayModeBar: touch.matches ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { filename: figure.name, scale: 2 },
  };

  function draw() {
    Plotly.react(canvas, traces(figure, state), layout(figure, state), config);
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
      draw();
    });
    legend.append(button);
  }
  for (const button of place.querySelectorAll(".buttons button")) {
    button.addEventListener("click", () => {
      state[button.dataset.axis] = button.dataset.key;
      for (const other of button.parentElement.children) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      draw();
    });
  }
  draw();
  for (const condition of [dark, narrow, touch]) condition.addEventListener("change", draw);
}

const figures = JSON.parse(document.getElementById("figures").textContent);
document.querySelectorAll(".plot").forEach((place) => plot(place, figures[Number(place.dataset.figure)]));
