"use strict";
// The page is complete without this script; it draws the charts, and sorts, searches and opens rows.
// Texts of the user reach the page as text nodes only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const make = (tag, text, className) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };

  // ---------- charts ----------
  const muted = "var(--muted)", line = "var(--line)";
  const look = {
    background: null,
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: { labelColor: muted, titleColor: muted, gridColor: line, domainColor: line, tickColor: line,
            labelFontSize: 11, titleFontSize: 12, titleFontWeight: "normal" },
    title: { color: muted, fontSize: 12, fontWeight: "normal" },
    legend: { labelColor: muted, titleColor: muted, labelFontSize: 12, titleFontWeight: "normal" },
  };
  const draw = (place) => vegaEmbed(place, data.charts[place.dataset.chart], {
    mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: look, tooltip: { theme: "custom" },
  });
  const places = [...document.querySelectorAll("[data-chart]")];
  const drawn = new Set();
  const start = (place) => { if (!drawn.has(place)) { drawn.add(place); draw(place); } };
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) start(entry.target);
  }, { rootMargin: "600px" });
  for (const place of places) observer.observe(place);
  addEventListener("beforeprint", () => places.forEach(start));

  // ---------- rows with the highest energy ----------
  const FIRST = 20; // rows that are shown before the button shows all
  const DARKEST = 100; // nats
  const darkness = (nats) => Math.min(1, Math.log1p(Math.max(0, nats)) / Math.log1p(DARKEST)) ** 2;
  for (const table of document.querySelectorAll("table.rows")) {
    const [head, ...rows] = data.tables[table.dataset.table];
    const body = table.tBodies[0], lines = [...body.rows];
    for (const chip of table.querySelectorAll(".chip")) {
      chip.style.setProperty("--part", darkness(parseFloat(chip.style.getPropertyValue("--nats"))));
    }

    const close = (line) => {
      if (line.nextElementSibling?.classList.contains("cells")) line.nextElementSibling.remove();
      line.querySelector(".open").setAttribute("aria-expanded", "false");
    };
    const open = (line) => {
      const row = rows[line.dataset.row - 1];
      const panel = make("td"), holder = make("tr", undefined, "cells");
      panel.colSpan = line.cells.length;
      holder.append(panel);
      const names = make("dl", undefined, "ids");
      row.ids.forEach((text, i) => {
        if (text.length <= 60) return; // it is all in the row
        const value = make("dd");
        value.append(make("bdi", text));
        names.append(make("dt", head.ids[i]), value);
      });
      if (names.childElementCount) panel.append(names);
      const grid = make("ul", undefined, "grid");
      for (const [column, value, suggestion, nats] of row.cells) {
        const cell = make("li", undefined, "cell");
        cell.style.setProperty("--part", darkness(nats));
        cell.append(make("bdi", head.names[column], "column"), make("b", value));
        if (suggestion) cell.append(make("span", `suggested ${suggestion}`, "suggestion"));
        const cost = nats.toLocaleString("en", nats < 100 ? { minimumFractionDigits: 1, maximumFractionDigits: 1 } : { maximumFractionDigits: 0 });
        if (nats >= 0.05) cell.append(make("small", `+${cost} nats`));
        grid.append(cell);
      }
      panel.append(grid);
      line.after(holder);
      line.querySelector(".open").setAttribute("aria-expanded", "true");
    };
    body.addEventListener("click", (event) => {
      const line = event.target.closest("tr[data-row]");
      if (!line || getSelection().toString()) return;
      line.querySelector(".open").getAttribute("aria-expanded") === "true" ? close(line) : open(line);
    });

    const heads = [...table.tHead.rows[0].cells];
    const sort = (column, down) => {
      const key = (line) => line.cells[column].dataset.value;
      const isNumber = lines.every((line) => key(line) !== "" && !isNaN(key(line)));
      const compare = isNumber ? (a, b) => key(a) - key(b) : (a, b) => key(a).localeCompare(key(b));
      lines.forEach(close);
      lines.sort((a, b) => (down ? compare(b, a) : compare(a, b)));
      body.append(...lines);
      filter();
      heads.forEach((cell, i) => cell.hasAttribute("aria-sort")
        && cell.setAttribute("aria-sort", i !== column ? "none" : down ? "descending" : "ascending"));
    };
    heads.forEach((cell, column) => cell.querySelector("button")?.addEventListener("click", () => {
      const now = cell.getAttribute("aria-sort");
      sort(column, now === "none" ? cell.classList.contains("number") : now === "ascending");
    }));

    const form = table.previousElementSibling;
    const words = new Map(lines.map((line) => {
      const row = rows[line.dataset.row - 1];
      const costly = row.cells.filter((cell) => cell[3] > 0).map((cell) => `${head.names[cell[0]]} ${cell[1]}`);
      return [line, [line.cells[0].dataset.value, ...row.ids, ...costly].join("\n").toLowerCase()];
    }));
    const more = table.nextElementSibling.querySelector(".more");
    let shown = FIRST; // of the rows that match
    const filter = () => {
      const wanted = form.querySelector("input[type=search]").value.trim().toLowerCase();
      const outliers = form.querySelector(".outliers")?.checked;
      let n = 0;
      for (const line of lines) {
        close(line);
        const matches = (!outliers || "outlier" in line.dataset) && words.get(line).includes(wanted);
        n += matches;
        line.hidden = !matches || n > shown;
      }
      more.hidden = n <= shown;
      more.textContent = `Show all ${n.toLocaleString("en")} rows`;
      form.querySelector("output").textContent = `${n} of ${lines.length} rows`;
    };
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    more.addEventListener("click", () => { shown = Infinity; filter(); });
    filter();
  }
})();
