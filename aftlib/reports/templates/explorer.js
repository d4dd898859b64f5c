/* The explorer's arithmetic (`aft`), without anything else, and below it the page's figures.
   Sensors: n in groups of `size`, correlation rho inside a group and 0 outside. Everything is
   measured in standard deviations of a window's result, so a result has variance 1 and a step of
   a window of w steps has variance w. */
"use strict";

const aft = {
  erf(x) {
    if (x > 6) return 1;
    let term = x, sum = x;
    for (let k = 1; term > 1e-17 * sum; k++) sum += term *= (2 * x * x) / (2 * k + 1);
    return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
  },

  // P(|error| <= epsilon) of an estimate of this variance, D1 (3)
  reliability: (epsilon, variance) => aft.erf(epsilon / Math.sqrt(2 * variance)),

  // Normal quantile of 1 - delta / 2. The curve is concave, so Newton's steps never pass it.
  z(delta) {
    let z = 0, step = 1;
    while (Math.abs(step) > 1e-14 * (1 + z)) {
      step = (1 - delta - aft.erf(z / Math.SQRT2)) / (Math.sqrt(2 / Math.PI) * Math.exp((-z * z) / 2));
      z += step;
    }
    return z;
  },

  // Variance of a sensor once k others of its group are known, as a share of its own
  left: (rho, k) => 1 - (k * rho * rho) / (1 + (k - 1) * rho),

  divisors: (n) => Array.from({ length: n }, (_, i) => i + 1).filter((m) => n % m === 0),

  // Largest variance left among the sensors of each of m workers. Groups are dealt out in turn, or
  // fill one worker after the other.
  workers({ n, size, rho }, m, packed) {
    return Array.from({ length: m }, (_, worker) => {
      const held = new Map();
      for (let i = 0; i < n / m; i++) {
        const group = Math.floor((packed ? worker * (n / m) + i : worker + i * m) / size);
        held.set(group, (held.get(group) || 0) + 1);
      }
      return Math.max(...[...held.values()].map((count) => aft.left(rho, size - count)));
    });
  },

  estimable(setting, m, packed) {
    const enough = (v) => aft.reliability(setting.epsilon, v) >= 1 - setting.delta - 1e-12;
    return aft.workers(setting, m, packed).filter(enough).length;
  },

  // The one curve a plan needs: the largest variance left, as a share, after k sensors are read
  curve({ n, size, rho }) {
    const groups = n / size;
    return Array.from({ length: n + 1 }, (_, k) => {
      const known = Math.floor(k / groups);
      return known < size ? aft.left(rho, known) : 0;
    });
  },

  // Times of a window's checkpoints and how many sensors each interval reads, D2 fig. 4
  plan(setting, method) {
    const { n, epsilon, delta, w, tSla, fixed, perTuple } = setting;
    const curve = aft.curve(setting), allowed = (epsilon / aft.z(delta)) ** 2;
    const needed = (time) => {
      if (method === "exactly-once") return n;
      const from = method === "proposed" ? time : 0; // "no-relaxation" keeps the first choice
      return curve.findIndex((share) => share <= (allowed * w) / (w - from) * (1 + 1e-12));
    };
    const shortest = fixed + perTuple * needed(0);
    if (!(tSla >= shortest)) return { shortest };

    let most = Math.trunc((tSla - fixed) / perTuple);
    while (fixed + perTuple * most > tSla) most -= 1;
    while (fixed + perTuple * (most + 1) <= tSla) most += 1;
    const times = [0], read = [];
    while (times.at(-1) < w) {
      const now = times.at(-1), sensors = needed(now);
      read.push(sensors);
      times.push(sensors ? Math.min(w, now + Math.floor(most / sensors)) : w);
    }
    return { times, read };
  },

  // Largest relative error of a histogram that holds `total` units, by D5's estimate and the sound one
  histogram(epsilon, total) {
    const least = Math.floor((Math.ceil(1 / epsilon) + 1) / 2);
    const oldest = 2 ** Math.floor(Math.log2(Math.floor((total + least) / (least + 1))));
    const fewest = total - oldest + 1, said = Math.ceil(total - oldest / 2);
    const article = Math.max(Math.abs(said - fewest) / fewest, Math.abs(said - total) / total);
    return { article, sound: (oldest - 1) / 2 / fewest };
  },
};

const figures = (() => {
  const WIDTH = 460, HEIGHT = 260, LEFT = 46, RIGHT = 20, TOP = 12, BOTTOM = 40;
  const tidy = (v) => String(Number(v.toPrecision(3)));

  function scale(low, high, from, to, log) {
    const f = log ? Math.log10 : (v) => v;
    return (v) => from + ((f(v) - f(low)) / (f(high) - f(low))) * (to - from);
  }

  function ticks(low, high, log) {
    if (log) {
      const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
      return Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
    }
    const raw = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((s) => s * unit).find((s) => s >= raw);
    const found = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) found.push(v);
    return found;
  }

  // A figure of lines [{name, points: [[x, y]], style, steps}], each style a class of the page
  // `level` is {at, name}, and so is `mark`.
  return function draw(box, { lines, x, y, mark, level }) {
    const across = scale(x.low, x.high, LEFT, WIDTH - RIGHT, x.log);
    const up = scale(y.low, y.high, HEIGHT - BOTTOM, TOP, y.log);
    const at = ([a, b]) => `${across(a).toFixed(1)} ${up(Math.min(b, y.high)).toFixed(1)}`;
    let svg = "";
    for (const v of ticks(y.low, y.high, y.log))
      svg += `<path class="grid" d="M${LEFT} ${up(v)}H${WIDTH - RIGHT}"/><text x="${LEFT - 6}" y="${up(v) + 4}" text-anchor="end">${tidy(v)}</text>`;
    for (const v of ticks(x.low, x.high, x.log))
      svg += `<text x="${across(v)}" y="${HEIGHT - BOTTOM + 16}" text-anchor="middle">${tidy(v)}</text>`;
    svg += `<text x="${(LEFT + WIDTH) / 2}" y="${HEIGHT - 6}" text-anchor="middle">${x.name}</text>`;
    if (level) svg += `<path class="level" d="M${LEFT} ${up(level.at)}H${WIDTH - RIGHT}"/>`;
    if (mark) svg += `<path class="mark" d="M${across(mark.at)} ${TOP}V${HEIGHT - BOTTOM}"/>`;
    for (const { points, style, dots } of lines) {
      svg += `<path class="line ${style}" d="M${points.map(at).join("L")}"/>`;
      if (dots) for (const p of points) svg += `<circle class="${style}" r="3" cx="${at(p).replace(" ", '" cy="')}"/>`;
    }
    const drawn = [...lines, level && { ...level, style: "level" }, mark && { ...mark, style: "mark" }];
    const legend = drawn.filter(Boolean).map((l) => `<span class="${l.style}"><i></i>${l.name}</span>`).join("");
    const label = `${y.name} against ${x.name}`;
    box.innerHTML = `<div class="legend">${legend}</div><small class="soft">↑ ${y.name}</small><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${label}">${svg}</svg>`;
  };
})();

function begin() {
  const get = (id) => document.getElementById(id);
  const inputs = [...document.querySelectorAll("input[type=range]")];

  function settings() {
    const value = Object.fromEntries(inputs.map((input) => [input.id, Number(input.value)]));
    const n = 12 * value.groups, divisors = aft.divisors(n);
    get("m").max = divisors.length - 1;
    const m = divisors[Math.min(value.m, divisors.length - 1)];
    const fixed = { size: 12, w: 10000, fixed: 28.33, perTuple: 9.332e-4 };
    return { ...value, ...fixed, n, m };
  }

  function show() {
    const s = settings();
    const said = { ...s, epsilon: `${s.epsilon} sd`, groups: `${s.n}, in ${s.groups} groups of 12`, tSla: `${s.tSla} ms` };
    for (const input of inputs) get(`${input.id}-value`).textContent = said[input.id];
    workers(s), coverage(s), plan(s), histogram(s);
    get("python").textContent = python(s);
    get("command").textContent = command(s);
  }

  function workers(s) {
    const all = aft.divisors(s.n).filter((m) => m > 1);
    const line = (packed) => all.map((m) => [m, aft.estimable(s, m, packed)]);
    const lines = [
      { name: "correlated sensors dealt out", points: line(false), style: "a", dots: true },
      { name: "packed together", points: line(true), style: "b", dots: true },
    ];
    const x = { low: 2, high: s.n, log: true, name: "workers m (logarithmic)" };
    figures(get("workers"), { lines, x, y: { low: 0, high: s.n, name: "estimable workers" }, mark: { at: Math.max(2, s.m), name: `m = ${s.m}` } });
    get("workers-said").textContent =
      `With m = ${s.m}: ${aft.estimable(s, s.m, false)} of ${s.m} workers may be lost if correlated sensors are dealt out, ${aft.estimable(s, s.m, true)} if they are packed together.`;
  }

  function coverage(s) {
    const worst = (packed) => Math.max(...aft.workers(s, s.m, packed));
    const grid = Array.from({ length: 100 }, (_, i) => 0.03 * (i + 1));
    const line = (v) => grid.map((e) => [e, aft.reliability(e, v)]);
    const lines = [
      { name: "dealt out", points: line(worst(false)), style: "a" },
      { name: "packed together", points: line(worst(true)), style: "b" },
    ];
    const x = { low: 0, high: 3, name: "ε (standard deviations of a window's result)" };
    figures(get("coverage"), { lines, x, y: { low: 0, high: 1, name: "share within ε" }, mark: { at: s.epsilon, name: `ε = ${s.epsilon}` }, level: { at: 1 - s.delta, name: "asked, 1 − δ" } });
    const share = aft.reliability(s.epsilon, worst(false));
    get("coverage-said").textContent =
      `Dealt out, ${(100 * share).toFixed(1)} % of the least certain sensor's estimates are within ε; ${(100 * (1 - s.delta)).toFixed(1)} % are asked. A variance of at most (ε/z)² = ${((s.epsilon / aft.z(s.delta)) ** 2).toFixed(4)} is needed.`;
  }

  function plan(s) {
    const styles = { proposed: "a", "no-relaxation": "c", "exactly-once": "b" };
    const found = Object.keys(styles).map((method) => [method, aft.plan(s, method)]);
    const steps = ({ times, read }) => read.flatMap((k, i) => [[times[i], k], [times[i + 1], k]]);
    const able = found.filter(([, p]) => p.times);
    const lines = able.map(([name, p]) => ({ name: `${name}: ${p.times.length - 2} checkpoints`, points: steps(p), style: styles[name] }));
    const x = { low: 0, high: s.w, name: "time in the window (steps)" };
    figures(get("plan"), { lines, x, y: { low: 0, high: s.n, name: "sensors that a failure reads again" } });
    const short = found.filter(([, p]) => !p.times).map(([name, p]) => `${name} needs at least ${p.shortest.toFixed(2)} ms`);
    const { times } = aft.plan(s, "proposed");
    const list = times && times.slice(1, -1);
    get("plan-said").textContent = [
      list && (list.length ? `Proposed: ${list.length} checkpoints, at ${list.slice(0, 8).join(", ")}${list.length > 8 ? " …" : ""}.` : "Proposed: no checkpoint inside the window."),
      ...short.map((text) => `${text}.`),
    ].filter(Boolean).join(" ");
  }

  function histogram(s) {
    const totals = Array.from({ length: 240 }, (_, i) => Math.round(10 ** (i / 60 + 0.3)));
    const each = totals.map((total) => [total, aft.histogram(s.relative, total)]);
    const line = (which) => each.map(([total, error]) => [total, error[which]]);
    const lines = [
      { name: "the default estimate", points: line("sound"), style: "a" },
      { name: "the document's estimate", points: line("article"), style: "b" },
    ];
    const x = { low: 2, high: 1.9e4, log: true, name: "events that the buckets hold (logarithmic)" };
    figures(get("histogram"), { lines, x, y: { low: 0, high: 2.2 * s.relative, name: "largest relative error" }, level: { at: s.relative, name: "asked" } });
    const most = each.reduce((a, b) => (b[1].article > a[1].article ? b : a));
    get("histogram-said").textContent =
      `The default stays within ${s.relative}; the document's estimate is up to ${(100 * most[1].article).toFixed(2)} % off, with ${most[0]} events in the buckets.`;
  }

  function python(s) {
    return `from aftlib import ExponentialHistogram, RecoveryTime, Requirement, assign_spread, plan_checkpoints
from aftlib.core.generators import block_model

asked = Requirement(epsilon=${s.epsilon}, delta=${s.delta})
results = block_model(${s.n}, ${s.groups}, variance=1, covariance=${s.rho})  # of a window's results
print(assign_spread(results, ${s.m}, asked).estimable.sum())
steps = block_model(${s.n}, ${s.groups}, variance=${s.w}, covariance=${Number((s.w * s.rho).toFixed(6))})  # of single steps
print(plan_checkpoints(steps, ${s.w}, asked, RecoveryTime(${s.fixed}, ${s.perTuple}), t_sla_ms=${s.tSla}).checkpoints)
histogram = ExponentialHistogram(window=1_000_000, epsilon=${s.relative})`;
  }

  function command(s) {
    const first = s.rho === 0.9 ? "" : "# notebook 01 has a correlation of 0.9\n";
    // above z(δ) nothing need be replayed, which notebook 02 refuses to keep state of
    const kept = s.epsilon < aft.z(s.delta) ? ` -p kept_epsilon=${s.epsilon}` : "";
    return `${first}aft run 01 -p 'workers=[${s.m}]' -p 'epsilons=[${s.epsilon}]' -p delta=${s.delta} -p dimensions=${s.n} -p blocks=${s.groups}
aft run 02 -p epsilon=${s.epsilon} -p 'epsilons=[${s.epsilon}]'${kept} -p delta=${s.delta} -p 'deltas=[${s.delta}]' -p t_sla=${s.tSla} -p 't_slas=[${s.tSla}]' -p sensors=${s.n} -p groups=${s.groups} -p variance=${s.w} -p covariance=${Number((s.w * s.rho).toFixed(6))} -p window=${s.w}`;
  }

  for (const input of inputs) input.addEventListener("input", show);
  for (const button of document.querySelectorAll("button"))
    button.addEventListener("click", async () => {
      const text = get(button.dataset.of);
      getSelection().selectAllChildren(text); // so that it can be copied by hand, too
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "copied";
      } catch {
        button.textContent = "selected: press Ctrl-C";
      }
    });
  show();
}

if (typeof document !== "undefined") begin();
