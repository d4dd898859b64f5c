// Makes a Plotly layout narrow, for a phone or a column of a paper.
const isAxis = (name) => /^[xy]axis\d*$/.test(name);

// The text in lines of about that many letters.
const wrapped = (text, letters) => text.replace(/\s+/g, " ").split(" ").reduce((lines, word) => {
  const last = lines.at(-1), plain = `${last} ${word}`.replace(/<[^>]*>/g, "");
  return last && plain.length <= letters ? [...lines.slice(0, -1), `${last} ${word}`] : [...lines.filter(Boolean), word];
}, [""]).join("<br>");

// Panels side by side are stacked, each with its title above and its own numbers; returns how many.
function stacked(layout) {
  const axes = Object.keys(layout).filter((name) => /^xaxis\d*$/.test(name) && layout[name].domain);
  const before = axes.map((name) => layout[name].domain);
  const rows = new Set(Object.keys(layout).filter((name) => /^yaxis/.test(name)).map((name) => `${layout[name].domain}`));
  if (new Set(before.map(String)).size < 2 || rows.size > 1) return 1;
  const moved = new Set();
  axes.forEach((name, place) => {
    const top = 1 - place / axes.length, y = layout[name.replace("x", "y")];
    layout[name].domain = [0, 1];
    Object.assign(y, { domain: [top - 0.66 / axes.length, top], showticklabels: true });
    for (const text of layout.annotations || []) {
      const [left, right] = before[place];
      if (moved.has(text) || text.xref !== "paper" || text.x < left || text.x > right) continue;
      moved.add(Object.assign(text, { x: 0.5, y: top }));
    }
    if (place < axes.length - 1 && layout[axes.at(-1)].title?.text === layout[name].title?.text) delete layout[name].title;
  });
  return axes.length;
}
