// Draws each Plotly figure when it comes near the screen, and all of them before printing.
(() => {
  const waiting = new Set(document.querySelectorAll(".plotly"));
  const missing = "This figure is drawn by plotly.min.js, which should lie beside this page and does not. " +
    "Copy the whole reports folder rather than a single page, or run the notebook again.";

  const read = (box) => JSON.parse(box.nextElementSibling.textContent);

  function draw(box) {
    if (!waiting.delete(box)) return;
    const figure = read(box), layout = Object.assign({}, figure.layout);
    const wide = box.clientWidth < (layout.width || 0);
    if (wide || !layout.width) { delete layout.width; layout.autosize = true; }
    layout.height = layout.height || parseFloat(box.style.minHeight);
    // No button that would send a figure's data to a server.
    const config = Object.assign({ responsive: true, displaylogo: false }, figure.config,
      { showSendToCloud: false, plotlyServerURL: "" });
    Plotly.newPlot(box, figure.data, layout, config)
      .then(() => figure.frames && figure.frames.length && Plotly.addFrames(box, figure.frames))
      .then(() => { box.style.minHeight = ""; box.dataset.drawn = "yes"; });
  }

  if (window.Plotly === undefined) {
    for (const box of waiting) {
      const note = document.createElement("p");
      note.className = "missing";
      note.textContent = missing;
      box.style.minHeight = "";
      box.replaceChildren(note);
    }
  } else if ("IntersectionObserver" in window) {
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
    }, { rootMargin: "600px 0px" });
    for (const box of waiting) near.observe(box);
    window.addEventListener("beforeprint", () => [...waiting].forEach(draw));
  } else {
    [...waiting].forEach(draw);
  }

  // Columns of numbers are aligned at their right; pandas marks them in no way.
  const number = /^[-+−]?[\d,.]*\d(e[-+]?\d+)?\s*%?$|^(nan|inf|-|–)?$/i;
  for (const table of document.querySelectorAll(".output table:not(.aft-claims)")) {
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
    const spanned = rows.some((row) => [...row.cells].some((cell) => cell.rowSpan > 1 || cell.colSpan > 1));
    const width = rows.length && !spanned ? rows[0].cells.length : 0;
    for (let column = 0; column < width; column++) {
      const cells = rows.map((row) => row.cells[column]);
      if (cells.some((cell) => !cell || cell.tagName === "TH" || !number.test(cell.textContent.trim()))) continue;
      const heads = [...(table.tHead ? table.tHead.rows : [])].map((row) => row.cells[column]);
      for (const cell of [...cells, ...heads]) cell && cell.classList.add("numbers");
    }
  }

  // "show code" keeps the reader's place.
  const toggle = document.getElementById("show-code");
  toggle?.addEventListener("change", () => {
    if (location.hash.startsWith("#code-")) history.replaceState(null, "", location.pathname + location.search);
  });
})();
