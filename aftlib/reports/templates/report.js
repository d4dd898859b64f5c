// Draws each Plotly figure when it comes near the screen, and anew for phone, paper and dark pages.
(() => {
  const boxes = [...document.querySelectorAll(".plotly")], waiting = new Set(boxes);
  const drawn = new Map(); // box -> what the page says of its figure
  const missing = "This figure is drawn by plotly.min.js, which should lie beside this page and does not. " +
    "Copy the whole reports folder rather than a single page, or run the notebook again.";
  const phone = matchMedia("(max-width: 600px)"), dark = matchMedia("(prefers-color-scheme: dark)");
  const PAPER = 660, PAGE = 860; // pixels that fit between the margins of A4 and of Letter
  let printing = false;

  const element = (tag, name, text = "") =>
    Object.assign(document.createElement(tag), { className: name, textContent: text });
  const plain = (text) => text.replace(/<br *\/?>/g, " ").replace(/<\/?(b|i|em|sub|sup|span|a)\b[^>]*>/g, "");

  // A slider or a menu becomes an HTML input above its figure: keys and fingers reach it, it takes no
  // space from the plot, and what it chose is chosen again whenever the figure is drawn anew.
  function controls(box, layout) {
    const choosers = [];
    const known = (steps) => steps.every((step) => ["restyle", "relayout", "update"].includes(step.method));
    const add = (line, steps, input, active) => {
      const choose = () => Plotly[steps[active()].method](box, ...steps[active()].args);
      input.addEventListener("input", choose);
      box.before(line);
      choosers.push(choose);
    };
    layout.sliders = (layout.sliders || []).filter((slider) => {
      if (!known(slider.steps)) return true;
      const line = element("label", "control"), input = element("input"), shown = element("output");
      const prefix = plain(slider.currentvalue?.prefix || "");
      Object.assign(input, { type: "range", min: 0, max: slider.steps.length - 1, step: 1 });
      input.value = slider.active || 0;
      const tell = () => {
        shown.textContent = prefix + plain(slider.steps[input.value].label);
        input.setAttribute("aria-valuetext", shown.textContent);
      };
      tell();
      line.append(shown, input);
      add(line, slider.steps, input, () => +input.value);
      input.addEventListener("input", tell);
    });
    layout.updatemenus = (layout.updatemenus || []).filter((menu) => {
      if (!known(menu.buttons)) return true;
      const line = element("label", "control"), input = element("select");
      input.ariaLabel = "show";
      for (const button of menu.buttons) input.append(element("option", "", plain(button.label)));
      input.selectedIndex = menu.active || 0;
      line.append(input);
      add(line, menu.buttons, input, () => input.selectedIndex);
    });
    return choosers;
  }

  // Where there is little space: title above the plot as text, legend below it.
  function spread(layout) {
    delete layout.title;
    layout.margin = { ...layout.margin, t: 26 };
    layout.legend = { ...layout.legend, orientation: "h", x: 0, xanchor: "left",
      y: 0, yref: "container", yanchor: "bottom" };
  }

  // On a phone: no drag, smaller letters, long titles of axes in two lines.
  function narrowed(layout) {
    layout.dragmode = false;
    layout.font = { ...layout.font, size: 12 };
    layout.margin = { ...layout.margin, l: 45, r: 12, b: 40 };
    for (const axis of Object.keys(layout).filter(isAxis).map((name) => layout[name])) {
      axis.fixedrange = true;
      const title = typeof axis.title === "string" ? axis.title : axis.title?.text;
      if (title) axis.title = { ...axis.title, text: title.replace(/(.{20}[^ ]*) (?=.{8})/g, "$1<br>") };
    }
  }

  // Near-black becomes near-white, also in single traces, and white fillings become the page's colour.
  function darkened(figure) {
    const seen = getComputedStyle(document.documentElement);
    const ink = seen.getPropertyValue("--ink"), rule = seen.getPropertyValue("--rule");
    const paper = seen.getPropertyValue("--paper");
    const walk = (part) => {
      for (const [name, value] of Object.entries(part)) {
        if (value && typeof value === "object" && name !== "template") {
          if (!Array.isArray(value) || typeof value[0] === "object") walk(value);
        } else if (/^(black|#([0-4])\2\2(\2\2\2)?)$/i.test(value)) part[name] = ink;
        else if (/^(white|#fff(fff)?)$/i.test(value)) part[name] = paper;
      }
    };
    walk(figure);
    const layout = figure.layout;
    Object.assign(layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" });
    layout.font = { ...layout.font, color: ink };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: paper };
    for (const name of new Set(["xaxis", "yaxis", ...Object.keys(layout).filter(isAxis)])) {
      layout[name] = { ...layout[name], gridcolor: rule, zerolinecolor: rule };
    }
  }

  function draw(box) {
    waiting.delete(box);
    if (!drawn.has(box)) {
      const figure = JSON.parse(box.nextElementSibling.textContent);
      const title = figure.layout.title?.text || "";
      if (title) box.before(element("p", "figure-title", plain(title)));
      drawn.set(box, { figure, chosen: controls(box, figure.layout) });
    }
    const { figure: given, chosen } = drawn.get(box);
    const figure = structuredClone(given), layout = figure.layout;
    (box.data || []).forEach((trace, index) => { figure.data[index].visible = trace.visible; });
    // A figure that says so is scrolled where there is too little space; one of many rows is higher.
    const least = printing ? 0 : layout.meta?.least || 0;
    // Two figures side by side are as narrow as on a phone; small multiples were made to be small.
    const beside = box.clientWidth < 600 && figure.config?.displayModeBar !== false;
    const narrow = (phone.matches || beside) && !printing && !least;
    box.closest(".figure")?.classList.toggle("narrow", narrow);
    const panels = narrow ? stacked(layout) : 1;
    const domains = Object.keys(layout).filter((name) => /^yaxis\d*$/.test(name)).map((name) => `${layout[name].domain}`);
    const bars = figure.data.filter((trace) => trace.orientation === "h").map((trace) => trace.y.length);
    const space = Math.max(230, (panels > 1 ? 200 : 90) * new Set(domains).size, 19 * Math.max(0, ...bars));
    if (narrow || printing) spread(layout);
    else if (least && phone.matches) delete layout.title;
    if (narrow) narrowed(layout);
    if (narrow && bars.length) layout.yaxis.tickfont = { ...layout.yaxis.tickfont, size: 10 }; // long names
    if (dark.matches && !printing) darkened(figure);
    if (printing) Object.assign(layout, { width: PAPER, autosize: false });
    else if (box.clientWidth < least) Object.assign(layout, { width: least, autosize: false });
    else if (!layout.width || layout.width > box.clientWidth) {
      delete layout.width;
      layout.autosize = true;
    }
    layout.height = narrow ? space + 130 : layout.height || parseFloat(box.style.minHeight);
    if (printing) layout.height = Math.min(layout.height, PAGE);
    if (printing && layout.meta?.least) {
      for (const axis of [layout.xaxis, layout.yaxis]) axis.tickfont = { ...axis.tickfont, size: 9 };
    }
    // No button that would send a figure's data to a server.
    const config = Object.assign({ responsive: !printing && !least, displaylogo: false }, figure.config,
      { showSendToCloud: false, plotlyServerURL: "" }, narrow ? { displayModeBar: false } : {});
    Plotly.react(box, figure.data, layout, config)
      .then(() => figure.frames && figure.frames.length && Plotly.addFrames(box, figure.frames))
      // What legend and labels took of the height is given back to the plot.
      .then(() => narrow && Plotly.relayout(box, { height: 2 * space + 130 - box._fullLayout._size.h }))
      .then(() => { box.style.minHeight = ""; box.dataset.drawn = "yes"; });
    for (const choose of chosen) choose();
  }

  if (window.Plotly === undefined) {
    for (const box of waiting) {
      box.style.minHeight = "";
      box.replaceChildren(element("p", "missing", missing));
    }
  } else {
    // What is saved is the figure as it is chosen, on light paper, without inputs.
    for (const button of document.querySelectorAll("[data-save]")) {
      button.addEventListener("click", () => {
        const box = button.closest(".figure").querySelector(".plotly");
        if (waiting.has(box)) draw(box);
        const layout = structuredClone(drawn.get(box).figure.layout);
        const light = structuredClone(drawn.get(box).figure.data);
        light.forEach((trace, index) => {
          for (const name of ["x", "y", "z", "text", "visible", "name", "error_x", "error_y"]) {
            if (box.data[index][name] !== undefined) trace[name] = box.data[index][name];
          }
        });
        Object.assign(layout, { sliders: [], updatemenus: [] });
        Plotly.downloadImage({ data: light, layout }, { format: button.dataset.save,
          filename: button.dataset.name, width: Math.max(box.clientWidth, 600),
          height: box.clientHeight, scale: button.dataset.save === "png" ? 3 : 1 });
      });
    }
    const print = (begins) => () => { printing = begins; boxes.forEach(draw); };
    window.addEventListener("beforeprint", print(true));
    window.addEventListener("afterprint", print(false));
    for (const query of [phone, dark]) {
      query.addEventListener("change", () => [...drawn.keys()].forEach(draw));
    }
    if ("IntersectionObserver" in window) {
      const near = new IntersectionObserver((entries) => {
        for (const entry of entries) {
          if (!entry.isIntersecting) continue;
          near.unobserve(entry.target);
          if (waiting.has(entry.target)) draw(entry.target);
        }
      }, { rootMargin: "600px 0px" });
      for (const box of waiting) near.observe(box);
    } else boxes.forEach(draw);
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

  // A table that is wider than the paper, whatever it does with its lines, is made smaller.
  window.addEventListener("beforeprint", () => {
    for (const table of document.querySelectorAll(".wide table")) {
      table.style.width = "min-content";
      const least = 0.75 * table.offsetWidth; // print is that much smaller
      table.style.width = "";
      table.style.zoom = Math.min(1, PAPER / least);
    }
  });
  window.addEventListener("afterprint", () => {
    for (const table of document.querySelectorAll(".wide table")) table.style.zoom = "";
  });

  // "show code" keeps the reader's place.
  const toggle = document.getElementById("show-code");
  toggle?.addEventListener("change", () => {
    if (location.hash.startsWith("#code-")) history.replaceState(null, "", location.pathname + location.search);
  });
})();
