// Draws the chart of the page in the width and the colours that the page has, and again when these change.
(() => {
  const chart = JSON.parse(document.getElementById("one-picture-chart").textContent);
  const place = document.querySelector(".one-picture-chart");
  const sliders = document.querySelector(".one-picture-sliders");
  const colour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
  let view;
  let drawn = "";

  async function draw() {
    const width = Math.max(200, Math.min(640, place.clientWidth - 70));
    const look = [width, colour("--color-foreground-primary")].join();
    if (look === drawn) return;
    drawn = look;
    // The sliders stay where the reader has put them.
    for (const param of chart.params) if (view) param.value = view.signal(param.name);
    for (const part of chart.vconcat) part.width = width;
    const text = colour("--color-foreground-primary");
    const faint = colour("--color-background-border");
    const guide = { labelColor: text, titleColor: text, titleFontWeight: "normal" };
    const config = {
      background: null,
      axis: { ...guide, gridColor: faint, domainColor: faint, tickColor: faint, tickCount: 5 },
      legend: guide,
      view: { stroke: null },
      font: "sans-serif",
    };
    sliders.replaceChildren();
    if (view) view.finalize();
    ({ view } = await vegaEmbed(place, chart, { actions: false, renderer: "svg", config, bind: sliders }));
    for (const input of sliders.querySelectorAll("input")) {
      input.setAttribute("aria-label", input.closest(".vega-bind").querySelector(".vega-bind-name").textContent);
    }
  }

  draw();
  window.addEventListener("resize", draw);
  new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
