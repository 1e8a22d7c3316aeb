// The live part of the page. Without it the page shows the same numbers and figures as pictures.
"use strict";

// Figures: Plotly draws over the picture; boxes of the legend and choices show and hide traces.
document.querySelectorAll(".environment").forEach(section => {
  const charts = [...section.querySelectorAll("figure[data-live]")].map(figure => {
    const chart = document.createElement("div");
    chart.className = "chart";
    figure.append(chart);
    figure.hidden = false;
    figure.classList.add("live");
    const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
    const coarse = matchMedia("(pointer: coarse)").matches;
    Plotly.newPlot(chart, data, { ...layout, dragmode: coarse ? false : "zoom" }, {
      responsive: true,
      displaylogo: false,
      showSendToCloud: false, // the page sends nothing anywhere
      plotlyServerURL: "",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    });
    return { chart, data, layout, choice: figure.querySelector("select") };
  });
  const boxes = [...section.querySelectorAll(".legend input")];
  const seeds = section.querySelector(".seeds input");
  const show = () => {
    const on = boxes.map(box => box.checked);
    charts.forEach(({ chart, data, layout, choice }) => {
      const visible = data.map(({ meta }) =>
        (meta.agent === undefined || on[meta.agent]) &&
        (!meta.seed || seeds.checked) &&
        (!choice || meta.series === choice.value));
      const change = choice ? { "yaxis.title.text": layout.meta[choice.value] } : {};
      Plotly.update(chart, { visible }, change);
    });
    section.querySelectorAll("tr[data-agent]").forEach(row => {
      row.hidden = !on[row.dataset.agent];
    });
  };
  [...boxes, seeds, ...charts.map(({ choice }) => choice)].forEach(input =>
    input?.addEventListener("change", show));
  section.classList.add("scripted");
});

// A range of risk aversions: the slider shows one place at a time.
document.querySelectorAll(".range").forEach(block => {
  const slider = block.querySelector("input"), told = block.querySelector("output");
  const note = block.querySelector(".unscripted");
  const move = () => {
    block.querySelectorAll("[data-at]").forEach(part =>
      part.classList.toggle("on", part.dataset.at === slider.value));
    told.textContent = block.querySelector("tr.on").dataset.text;
    note.textContent = `The figures show ${told.textContent}.`;
    slider.setAttribute("aria-valuetext", told.textContent);
  };
  block.querySelector(".slider").hidden = false;
  note.hidden = true;
  slider.addEventListener("input", move);
  move();
});
