// What a reader would complain of: boxes that are cut off or lie on each other, text without contrast.
(() => {
  const found = [], shown = (rect) => rect.width > 1 && rect.height > 1;
  const name = (part) => `${part.tagName} ${part.textContent.trim().slice(0, 30)}`;
  const width = document.documentElement.clientWidth;
  const colours = (text) => text.match(/[\d.]+/g)?.map(Number);
  const filled = (part) => colours(getComputedStyle(part).backgroundColor);
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;
  const canvas = isDark ? [18, 18, 18] : [255, 255, 255]; // a browser's own
  const paper = matchMedia("print").matches || filled(document.body)[3] === 0 ? canvas : filled(document.body);

  if (document.documentElement.scrollWidth > width) found.push("the page is wider than its window");

  // Text of the page that its window cuts off, unless it can be scrolled to.
  for (const part of document.querySelectorAll("main :is(p, li, td, th, h1, h2, h3, small, strong, output, pre, math, label, img, svg text)")) {
    const rect = part.getBoundingClientRect(), scrolled = part.closest(".wide, pre, .formula-block, .aft-formula, thead");
    const box = part.closest("main section svg")?.getBoundingClientRect() || { left: 0, right: width };
    if (!shown(rect) || part.closest("thead, .canvas")) continue;
    if ((rect.right > box.right + 1 || rect.left < box.left - 1)
      && !(scrolled && getComputedStyle(scrolled).overflowX === "auto")) found.push(`cut off: ${name(part)}`);
  }

  // Text of the page that is hardly seen, and text of a drawing in the page that lies on other text.
  for (const part of document.querySelectorAll("main :is(p, li, td, th, h1, h2, h3, a, summary, code, label, output, button, legend, figcaption, svg text)")) {
    const drawing = part.closest("svg"), own = [...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || part.closest(".canvas") || !shown(part.getBoundingClientRect()) || +getComputedStyle(part).opacity === 0) continue;
    let behind = part;
    while (behind && (filled(behind)?.[3] === 0 || !filled(behind))) behind = behind.parentElement;
    const seen = colours(drawing ? getComputedStyle(part).fill : getComputedStyle(part).color);
    if (seen && contrast(seen, behind ? filled(behind) : paper) < 4.5) found.push(`no contrast: ${name(part)}`);
  }
  for (const drawing of document.querySelectorAll("main section svg")) {
    pairs([...drawing.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]), "drawing");
  }

  // Cells of a claim's card.
  for (const row of document.querySelectorAll(".aft-claims tbody tr")) {
    const cells = [...row.cells].map((cell) => [cell, cell.getBoundingClientRect()]).filter(([, r]) => shown(r));
    pairs(cells, `claim ${row.cells[0].textContent}`);
  }

  // Nobody unfolds a sheet of paper.
  if (matchMedia("print").matches) for (const note of document.querySelectorAll(".aft-note details")) {
    if (note.offsetHeight < note.firstChild.offsetHeight + 5) found.push(`folded: ${name(note)}`);
  }

  for (const box of document.querySelectorAll(".canvas > .plotly")) {
    const whole = box.closest(".figure").getBoundingClientRect();
    const texts = [...box.querySelectorAll("svg text")].map((text) => [text, text.getBoundingClientRect()])
      .filter(([text, rect]) => shown(rect) && text.textContent.trim());
    const scrolls = box.parentElement.scrollWidth > box.parentElement.clientWidth + 1; // as it says itself
    for (const [text, rect] of texts) {
      if (!scrolls && (rect.left < whole.left - 1 || rect.right > Math.min(whole.right, width) + 1 || rect.top < whole.top - 1
        || rect.bottom > whole.bottom + 1)) found.push(`cut off: ${name(text)}`);
      const colour = colours(getComputedStyle(text).fill);
      const plain = !text.closest(".scatterlayer, .barlayer, .annotation, .layers");
      if (colour && plain && contrast(colour, paper) < 4.5) found.push(`no contrast: ${name(text)}`);
    }
    const parts = [".gtitle", ".legendtext", ".xtitle", ".ytitle", ".xtick text", ".ytick text"]
      .map((kind) => texts.filter(([text]) => text.matches(kind)));
    const lines = [...box.parentElement.querySelectorAll(".control, .figure-title")]
      .map((line) => [line, line.getBoundingClientRect()]).filter(([, rect]) => shown(rect));
    pairs(parts[1], "legend");
    parts.push(lines);
    parts.forEach((one, i) => parts.slice(i + 1).forEach((other) => one.forEach((a) => other.forEach((b) => {
      pairs([a, b], "figure");
    }))));
  }

  function pairs(parts, where) {
    parts.forEach(([one, a], i) => parts.slice(i + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && down > 3) found.push(`${where}: ${name(one)} lies on ${name(other)}`);
    }));
  }

  function contrast(...colours) {
    const [low, high] = colours.map((colour) => {
      const [r, g, b] = colour.slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }
  return [...new Set(found)];
})()
