// Draws a figure for paper, at the given width, and lists what a reader could not read.
const LEAST_PT = 6, LEAST_PANEL = 60, STEP = 5 * 96 / 25.4; // points; pixels; 5 mm
const NARROW = 480; // pixels below which panels are stacked

// The figure's layout at a width; without a height, the plot gets what its panels and bars need.
async function laidOut(figure, width, height) {
  const { data, layout } = structuredClone(figure);
  const panels = width < NARROW ? stacked(layout) : 1;
  const rows = new Set(Object.keys(layout).filter((name) => /^yaxis/.test(name)).map((name) => `${layout[name].domain}`));
  const bars = data.filter((trace) => trace.orientation === "h").map((trace) => trace.y.length);
  const space = Math.max(width * 0.5, (panels > 1 ? 140 : 90) * rows.size, 16 * Math.max(0, ...bars));
  for (const text of layout.annotations || []) text.font = { ...text.font, size: 10 };
  Object.assign(layout, { width, height: height || space + 90 });
  await Plotly.newPlot("figure", data, layout, { staticPlot: true });
  const box = document.getElementById("figure");
  const titles = Object.keys(layout).filter((name) => isAxis(name) && layout[name].title?.text)
    .map((name) => [layout[name], layout[name].title.text, name]);
  for (let again = 0; again < 2; again++) { // legend and labels take some of the space
    for (const [axis, text, name] of titles) axis.title.text = wrapped(text, box._fullLayout[name]._length / 5.5);
    if (!height) layout.height = Math.round(Math.max(layout.height + space - box._fullLayout._size.h, 120));
    await Plotly.react(box, data, layout, { staticPlot: true });
  }
  return layout;
}

// What a reader would complain of in the drawn figure.
function complaints(box) {
  const problems = [], whole = box.querySelector(".main-svg").getBoundingClientRect(), full = box._fullLayout;
  const named = (text) => `"${text.textContent.trim().slice(0, 30)}"`;
  const texts = [...box.querySelectorAll("svg text")].filter((text) => {
    const rect = text.getBoundingClientRect(), look = getComputedStyle(text);
    return text.textContent.trim() && rect.width > 1 && look.visibility !== "hidden" && +look.opacity > 0;
  });
  const quads = texts.map((text) => {
    const { x, y, width, height } = text.getBBox(), m = text.getScreenCTM();
    const [top, bottom] = [y + 0.18 * height, y + 0.85 * height]; // letters leave the rest of a line
    return [[x, top], [x + width, top], [x + width, bottom], [x, bottom]]
      .map(([a, b]) => [m.a * a + m.c * b + m.e, m.b * a + m.d * b + m.f]);
  });
  const panels = Object.values(full._plots || {}).map(({ xaxis, yaxis }) => {
    const left = whole.left + xaxis._offset, top = whole.top + yaxis._offset;
    if (Math.min(xaxis._length, yaxis._length) < LEAST_PANEL) problems.push("a panel is too small");
    return [[left + 4, top + 4], [left + xaxis._length - 4, top + 4],
      [left + xaxis._length - 4, top + yaxis._length - 4], [left + 4, top + yaxis._length - 4]];
  });

  texts.forEach((text, i) => {
    const m = text.getScreenCTM(), scale = Math.sqrt(Math.abs(m.a * m.d - m.b * m.c));
    const sizes = [text, ...text.querySelectorAll("tspan")].filter((part) => part.textContent.trim())
      .map((part) => parseFloat(getComputedStyle(part).fontSize));
    if (Math.min(...sizes) * scale * 0.75 < LEAST_PT - 0.05) problems.push(`${named(text)} is smaller than ${LEAST_PT} pt`);
    const xs = quads[i].map(([x]) => x), ys = quads[i].map(([, y]) => y);
    if (Math.min(...xs) < whole.left - 1 || Math.max(...xs) > whole.right + 1
      || Math.min(...ys) < whole.top - 1 || Math.max(...ys) > whole.bottom + 1) problems.push(`${named(text)} is cut off`);
    quads.slice(i + 1).forEach((other, j) => {
      if (meet(quads[i], other)) problems.push(`${named(text)} lies on ${named(texts[i + 1 + j])}`);
    });
    const annotation = full.annotations[text.closest(".annotation")?.dataset.index];
    const outside = text.closest(".legend, .xtick, .ytick, .g-xtitle, .g-ytitle") || (annotation?.xref === "paper" && annotation.yref === "paper");
    if (outside && panels.some((panel) => meet(quads[i], panel))) problems.push(`${named(text)} lies on a panel`);
  });

  for (const name of Object.keys(full).filter(isAxis)) {
    const axis = full[name], shown = (axis._vals || []).filter((tick) => !tick.minor && !tick.noTick).length;
    if (axis.type === "category" && axis.showticklabels && axis.visible && shown < axis._categories.length) {
      problems.push(`${shown} of ${axis._categories.length} labels are shown`);
    }
  }
  if ([...box.querySelectorAll(".legend .scrollbar")].some((bar) => bar.getBoundingClientRect().height > 1)) problems.push("the legend is cut off");
  return [...new Set(problems)];
}

// Whether two convex quadrangles have a point in common.
function meet(one, other) {
  return ![one, other].some((quad) => quad.some(([x, y], i) => {
    const [nextX, nextY] = quad[(i + 1) % 4];
    const [a, b] = [one, other].map((part) => part.map(([u, v]) => (nextY - y) * u - (nextX - x) * v));
    return Math.max(...a) <= Math.min(...b) + 0.5 || Math.max(...b) <= Math.min(...a) + 0.5;
  }));
}

// The layout at the width, what is wrong with it, and the least width at which nothing is.
async function forPaper(figure, width, height, most) {
  const tried = async (wide) => {
    try {
      const layout = await laidOut(figure, wide, height);
      return { layout, complaints: complaints(document.getElementById("figure")) };
    } catch (error) {
      return { complaints: [`it cannot be drawn: ${error.message}`] };
    }
  };
  const first = await tried(width);
  if (!first.complaints.length) return JSON.stringify(first);
  for (let wide = width + STEP; wide <= most; wide += STEP) {
    if (!(await tried(wide)).complaints.length) return JSON.stringify({ ...first, least: wide });
  }
  return JSON.stringify(first);
}
