"use strict";
const MISSING = -2.9e38, ROW = 14, HEAD = 18, MARGIN = 8;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const number = (x) => (typeof x === "string" ? { nan: NaN, inf: Infinity, "-inf": -Infinity }[x] : x);
const text = (x) => {
  if (x === null || x === undefined) return "";
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x > 0 ? "+inf" : "-inf";
  const size = Math.abs(x);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? x.toExponential(3) : String(+x.toPrecision(6));
};
const el = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) name in made && name !== "list" ? (made[name] = value) : made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const nameOf = (run) => (run.name ? t(`monitor-${run.name}`) : "");
const decoded = new WeakMap();
const values = (map) => {
  if (!decoded.has(map)) decoded.set(map, new Float32Array(Uint8Array.from(atob(map.values), (c) => c.charCodeAt(0)).buffer));
  return decoded.get(map);
};

// ---------------------------------------------------------------- what was recorded

function showAbout() {
  const place = document.getElementById("about");
  place.replaceChildren();
  for (const run of data.runs) {
    const ranks = run.ranks.map((rank) => rank.rank);
    const first = Math.min(...run.ranks.map((r) => r.first ?? Infinity)), last = Math.max(...run.ranks.map((r) => r.last ?? -Infinity));
    const parts = [run.name ? t("monitor-whose", { run: nameOf(run) }) + run.path : run.path,
      Number.isFinite(first) ? t("monitor-steps", { first, last }) : t("monitor-no-steps"),
      t("monitor-ranks", { ranks: ranks.join(", ") }) + (run.further_ranks ? t("monitor-ranks-not-shown", { count: run.further_ranks }) : ""),
      run.started && t("monitor-started", { time: run.started.replace("T", " ").slice(0, 19) }),
      Object.entries(run.versions).filter(([name]) => ["torch", "mindspore", "msprobe"].includes(name)).map((v) => v.join(" ")).join(", ")];
    place.append(el("div", {}, parts.filter(Boolean).join("  ·  ")));
  }
}

function showFindings() {
  const place = document.getElementById("findings");
  place.replaceChildren();
  const add = (kind, head, list = []) => {
    const box = el("div", { className: `finding ${kind}` }, el("b", {}, head[0].toUpperCase() + head.slice(1)));
    if (list.length) box.append(el("ul", {}, ...list.map((line) => el("li", {}, line))));
    place.append(box);
  };
  const bad = data.first_bad;
  if (bad && bad.from_the_first) add("", t("monitor-differs-from-start"));
  else if (bad) add("bad", t("monitor-first-bad-step", bad), bad.what.map(said));
  if (data.compared) {
    const found = data.departures;
    if (found.length) {
      const one = found[0];
      const lines = found.slice(0, 8).map((d) => t("monitor-departure", { ...d, reference: text(number(d.first)), candidate: text(number(d.second)) }));
      if (found.length > 8) lines.push(t("monitor-departures-more", { count: found.length - 8 }));
      if (!bad) add("", t("monitor-band-left-without-bad-step", one), lines);
      else if (bad.from_the_first) add("", t("monitor-outside-band-from", one), lines);
      else if (bad.step === one.step) add("", t("monitor-band-left-there", one), lines);
      else add("", t("monitor-band-left-later", { ...one, bad: bad.step }), lines);
    } else add(bad ? "" : "good", t("monitor-band-kept"));
  }
  for (const run of data.runs) {
    const whose = run.name ? t("monitor-whose", { run: nameOf(run) }) : "";
    if (run.divergences.length) add("bad", t("monitor-ranks-differ", { whose }), run.divergences.map(said));
    if (run.alerts.length) add("bad", t("monitor-alerts-from", { whose, count: run.alerts.length + run.further_alerts, step: run.alerts[0].step }), [said(run.alerts[0].message)]);
    else add("", t("monitor-no-alerts", { whose }));
  }
}

// ---------------------------------------------------------------- curves

const NS = "http://www.w3.org/2000/svg";
const svg = (tag, attributes) => {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

// lines: {name, color, steps, values, band?}; marks: steps with an alert
function chart(title, lines, marks = [], W = 640) {
  const H = 190, L = 56, R = 8, T = 8, B = 22;
  const all = lines.flatMap((line) => line.values.filter(Number.isFinite));
  const box = el("div", { className: "chart" });
  const key = el("span", { className: "key" });
  for (const line of lines) if (line.name) key.append(el("i", { style: `background:${line.color}` }), line.name);
  box.append(el("h3", {}, el("span", {}, title), key));
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img" });
  if (!all.length) { box.append(el("div", { className: "dim" }, t("monitor-nothing-finite"))); return box; }
  let low = Math.min(...all), high = Math.max(...all);
  const log = low > 0 && high / low > 50;
  const f = log ? Math.log10 : (x) => x;
  [low, high] = [f(low), f(high)];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  [low, high] = [low - room, high + room];
  const steps = lines.flatMap((line) => [line.steps[0], line.steps.at(-1)]);
  const first = Math.min(...steps), last = Math.max(...steps, first + 1);
  const x = (s) => L + ((s - first) / (last - first)) * (W - L - R);
  const y = (v) => T + (1 - (Math.max(low, Math.min(high, f(v))) - low) / (high - low)) * (H - T - B);
  const label = (at, up, words, anchor) => { const t = svg("text", { x: at, y: up, "text-anchor": anchor, "font-size": 11, fill: css("--dim") }); t.textContent = words; picture.append(t); };
  const rows = log && high - low >= 2 ? ticks(Math.ceil(low), high, 4).filter(Number.isInteger).map((p) => 10 ** p) : ticks(log ? 10 ** low : low, log ? 10 ** high : high, 4);
  for (const v of rows) {
    if (f(v) < low || f(v) > high) continue;
    picture.append(svg("line", { x1: L, x2: W - R, y1: y(v), y2: y(v), stroke: css("--edge") }));
    label(L - 6, y(v) + 4, text(+v.toPrecision(4)), "end");
  }
  for (const s of ticks(first, last, 8)) if (Number.isInteger(s)) label(x(s), H - 6, s, "middle");
  for (const s of marks) picture.append(svg("line", { x1: x(s), x2: x(s), y1: T, y2: H - B, stroke: css("--bad"), "stroke-dasharray": "2 3" }));
  for (const line of lines) {
    if (line.band) {
      const known = line.steps.map((s, i) => i).filter((i) => Number.isFinite(line.values[i]) && Number.isFinite(line.band[i]));
      const upper = known.map((i) => `${x(line.steps[i])},${y(line.values[i] + line.band[i])}`);
      const lower = known.map((i) => `${x(line.steps[i])},${y(log ? Math.max(line.values[i] - line.band[i], 10 ** low) : line.values[i] - line.band[i])}`).reverse();
      picture.append(svg("polygon", { points: [...upper, ...lower].join(" "), fill: line.color, opacity: 0.16 }));
    }
    let path = "", pen = false;
    line.steps.forEach((s, i) => {
      const v = line.values[i];
      if (!Number.isFinite(v)) {
        pen = false;
        if (v !== null) picture.append(svg("circle", { cx: x(s), cy: T + 4, r: 3, fill: css("--nan") }));
        return;
      }
      path += `${pen ? "L" : "M"}${x(s).toFixed(1)},${y(v).toFixed(1)}`;
      pen = true;
    });
    picture.append(svg("path", { d: path, fill: "none", stroke: line.color, "stroke-width": 1.6, "vector-effect": "non-scaling-stroke", "stroke-linejoin": "round" }));
  }
  picture.addEventListener("mousemove", (event) => {
    const area = picture.getBoundingClientRect();
    const s = first + (((event.clientX - area.left) / area.width) * W - L) / (W - L - R) * (last - first);
    const told = lines.map((line) => {
      let at = 0;
      line.steps.forEach((step, i) => { if (Math.abs(step - s) < Math.abs(line.steps[at] - s)) at = i; });
      return t("monitor-at-step", { name: line.name ? line.name + ", " : "", step: line.steps[at], value: text(line.values[at]) });
    });
    tip(event, told.join("\n"));
  });
  picture.addEventListener("mouseleave", () => tip());
  box.append(picture);
  return box;
}

const palette = () => [css("--a"), css("--b"), "#2f9e44", "#9c36b5", "#e8590c", "#0c8599", "#c2255c", "#5c940d"];

function showCurves() {
  const place = document.getElementById("curves");
  place.replaceChildren();
  const colors = palette(), by = new Map();
  data.runs.forEach((run, r) => run.ranks.forEach((rank, k) => rank.curves.forEach((curve) => {
    const key = curve.name.startsWith("update ratio") ? "update_ratio" : curve.name;
    const name = [nameOf(run), run.ranks.length > 1 && `rank ${rank.rank}`, key !== curve.name && curve.name.slice(14)].filter(Boolean).join(" ");
    const lines = by.get(key) ?? by.set(key, []).get(key);
    const band = r === 0 && data.compared ? (data.band[`${rank.rank}/${curve.name}`] ?? null) : null;
    const color = key !== curve.name || run.ranks.length > 1 ? colors[lines.length % colors.length] : colors[r];
    lines.push({ name, color, steps: curve.steps, values: curve.values.map(number), band: band && key === curve.name ? band.map(number) : null });
  })));
  const titles = { loss: t("monitor-loss"), lr: t("monitor-lr"), grad_norm: t("monitor-grad-norm"), update_ratio: t("monitor-update-ratio") };
  const order = (name) => { const at = ["loss", "grad_norm", "update_ratio", "lr"].indexOf(name); return at < 0 ? 9 : at; };
  const bad = data.first_bad;
  const marks = data.compared ? [bad].filter((one) => one && !one.from_the_first).map((one) => one.step) : [...new Set(data.runs[0].alerts.map((a) => a.step))].slice(0, 50);
  for (const [name, lines] of [...by].sort((p, q) => order(p[0]) - order(q[0]))) place.append(chart(titles[name] ?? name, lines, marks));
  if (!by.size) place.append(el("div", { className: "dim" }, t("monitor-no-curves")));
}

// ---------------------------------------------------------------- heat map

const chosen = { run: 0, rank: 0, map: 0, filter: "", row: -1, column: -1 };
const rankOf = () => data.runs[chosen.run].ranks[chosen.rank];
const mapOf = () => rankOf()?.maps[chosen.map];

function color(t) { // a perceptually ordered ramp, dark to light
  const stops = [[48, 18, 59], [70, 107, 227], [40, 187, 236], [50, 242, 152], [164, 252, 60], [238, 207, 58], [251, 126, 33], [209, 49, 4]];
  const at = Math.max(0, Math.min(0.9999, t)) * (stops.length - 1), i = Math.floor(at), w = at - i;
  return stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * w));
}

function choose(label, options, key, after) {
  const select = el("select", { ariaLabel: label });
  options.forEach((words, at) => select.append(el("option", { value: at, selected: at === chosen[key] }, words)));
  select.addEventListener("change", () => { chosen[key] = +select.value; after?.(); showControls(); drawMap(); });
  return el("label", {}, `${label} `, select);
}

function showControls() {
  const place = document.getElementById("controls");
  place.replaceChildren();
  if (data.runs.length > 1) place.append(choose(t("monitor-run"), data.runs.map(nameOf), "run", () => { chosen.rank = 0; chosen.row = -1; }));
  const run = data.runs[chosen.run];
  if (run.ranks.length > 1) place.append(choose(t("monitor-rank"), run.ranks.map((rank) => rank.rank), "rank"));
  const maps = rankOf()?.maps ?? [];
  chosen.map = Math.min(chosen.map, Math.max(0, maps.length - 1));
  place.append(choose(t("monitor-quantity"), maps.map((map) => `${map.quantity}: ${map.op}`), "map", () => (chosen.row = -1)));
  const filter = el("input", { type: "search", placeholder: t("monitor-filter"), value: chosen.filter, ariaLabel: t("monitor-filter") });
  filter.addEventListener("input", () => { chosen.filter = filter.value; chosen.row = -1; drawMap(); });
  place.append(filter);
}

let shown = [], scale = null;

// Both ends of a name tell which tensor it is; what is left out is in the middle.
function fitting(name, letters) {
  if (name.length <= letters) return name;
  const head = Math.floor((letters - 1) * 0.45);
  return `${name.slice(0, head)}…${name.slice(name.length - (letters - 1 - head))}`;
}

function drawMap() {
  const map = mapOf(), canvas = document.getElementById("map"), legend = document.getElementById("legend");
  legend.replaceChildren();
  if (!map) { canvas.width = canvas.height = 0; legend.append(t("monitor-no-map")); return; }
  shown = map.labels.map((name, row) => row).filter((row) => map.labels[row].toLowerCase().includes(chosen.filter.toLowerCase()));
  const cells = values(map), columns = map.steps.length;
  const context = canvas.getContext("2d"), ratio = devicePixelRatio || 1;
  context.font = "12px ui-monospace, monospace";
  const room = document.getElementById("heat").clientWidth - 18;
  const left = Math.min(Math.max(240, room * 0.36), Math.max(80, ...shown.map((row) => context.measureText(map.labels[row]).width))) + MARGIN * 2;
  const width = Math.max(room, left + 200), height = HEAD + shown.length * ROW + MARGIN;
  canvas.width = width * ratio; canvas.height = height * ratio;
  canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  context.scale(ratio, ratio);
  context.font = "12px ui-monospace, monospace";
  const step = (width - left - MARGIN) / columns;
  // Logarithm of the size, between the 1st and the 99th percentile.
  const sizes = [];
  for (const row of shown) for (let c = 0; c < columns; c++) { const v = Math.abs(cells[row * columns + c]); if (v > 0 && v < 1e38) sizes.push(Math.log10(v)); }
  sizes.sort((p, q) => p - q);
  const low = sizes[Math.floor(sizes.length * 0.01)] ?? -1, high = Math.max(sizes[Math.ceil(sizes.length * 0.99) - 1] ?? 1, low + 0.3);
  scale = { left, step, low, high };
  context.fillStyle = css("--dim"); context.textBaseline = "middle";
  let free = 0;
  ticks(map.steps[0], Math.max(map.steps.at(-1), map.steps[0] + 1), 10).forEach((s) => {
    const c = map.steps.findIndex((known) => known >= s);
    if (c < 0 || !Number.isInteger(s)) return;
    const at = left + (c + 0.5) * step;
    if (at < free || at > width - 14) return;
    context.textAlign = "center"; context.fillText(s, at, HEAD / 2); free = at + 48;
  });
  const none = css("--none"), nan = css("--nan"), fg = css("--text");
  shown.forEach((row, at) => {
    const top = HEAD + at * ROW;
    context.textAlign = "right"; context.fillStyle = fg;
    context.fillText(fitting(map.labels[row], Math.floor((left - MARGIN * 2) / context.measureText("0").width)), left - MARGIN, top + ROW / 2);
    for (let c = 0; c < columns; c++) {
      const v = cells[row * columns + c], size = Math.abs(v);
      if (v < MISSING) context.fillStyle = none;
      else if (!Number.isFinite(v)) context.fillStyle = nan;
      else { const [r, g, b] = size === 0 ? [0, 0, 0] : color((Math.log10(size) - low) / (high - low)); context.fillStyle = `rgb(${r},${g},${b})`; }
      context.fillRect(left + c * step, top, Math.ceil(step + 0.4), ROW - 1);
    }
  });
  const run = data.runs[chosen.run], columnOf = (s) => { let c = -1; map.steps.forEach((known, i) => { if (known <= s) c = i; }); return c; };
  const marks = run.alerts.filter((a) => a.rank === rankOf().rank && a.quantity === map.quantity).map((a) => [a, a.step]);
  if (chosen.run === data.runs.length - 1) marks.push(...data.departures.filter((d) => d.rank === rankOf().rank && d.quantity === map.quantity).map((d) => [d, d.step]));
  context.strokeStyle = css("--back"); context.fillStyle = css("--bad"); context.lineWidth = 1.5;
  for (const [one, s] of marks) {
    const at = shown.findIndex((row) => map.labels[row] === one.label || map.labels[row] === one.name);
    if (at < 0) continue;
    context.beginPath();
    context.arc(left + (columnOf(s) + 0.5) * step, HEAD + at * ROW + ROW / 2, 4.5, 0, 7);
    context.fill(); context.stroke();
  }
  if (chosen.row >= 0 && shown.includes(chosen.row)) {
    context.strokeStyle = fg; context.lineWidth = 1.5;
    context.strokeRect(left - 1, HEAD + shown.indexOf(chosen.row) * ROW - 1, step * columns + 2, ROW + 1);
  }
  const ramp = Array.from({ length: 12 }, (_, i) => `rgb(${color(i / 11)})`).join(",");
  const box = (fill, words) => el("span", {}, el("span", { className: "box", style: `background:${fill}` }), words);
  legend.append(el("span", {}, text(10 ** low), el("span", { className: "bar", style: `background:linear-gradient(90deg,${ramp})` }), text(10 ** high), t("monitor-size")), box("#000", t("monitor-zero")), box(nan, t("monitor-nan")), box(none, t("monitor-no-tensor")), box(css("--bad"), t("monitor-alert")), el("span", {}, t("monitor-click")));
  if (map.steps.length < rankOf().steps) legend.append(el("span", {}, t("monitor-columns-of-steps")));
  drawTensor();
}

function cellAt(event) {
  const area = document.getElementById("map").getBoundingClientRect(), map = mapOf();
  if (!map || !scale) return null;
  const at = Math.floor((event.clientY - area.top - HEAD) / ROW), column = Math.floor((event.clientX - area.left - scale.left) / scale.step);
  return at >= 0 && at < shown.length ? { row: shown[at], column } : null;
}

function drawTensor() {
  const place = document.getElementById("tensor"), map = mapOf();
  place.replaceChildren();
  if (!map || chosen.row < 0) return;
  const label = map.labels[chosen.row], colors = palette();
  const lines = [];
  data.runs.forEach((run, r) => {
    const rank = run.ranks.find((one) => one.rank === rankOf().rank);
    const other = rank?.maps.find((one) => one.quantity === map.quantity && one.op === map.op), row = other?.labels.indexOf(label) ?? -1;
    if (row < 0) return;
    const cells = values(other), columns = other.steps.length;
    lines.push({ name: nameOf(run), color: colors[r], steps: other.steps, values: Array.from(cells.slice(row * columns, (row + 1) * columns), (v) => (v < MISSING ? null : v)) });
  });
  const marks = data.runs[chosen.run].alerts.filter((a) => a.quantity === map.quantity && (a.label === label || a.name === label)).map((a) => a.step);
  marks.push(...data.departures.filter((d) => d.quantity === map.quantity && d.label === label).map((d) => d.step));
  place.append(chart(t("monitor-op-of", { quantity: map.quantity, op: map.op, label }), lines, [...new Set(marks)], Math.max(400, place.clientWidth - 26)));
}

function pick(quantity, op, label) {
  const maps = rankOf()?.maps ?? [];
  let at = maps.findIndex((map) => map.quantity === quantity && map.op === op);
  if (at < 0) at = maps.findIndex((map) => map.quantity === quantity);
  if (at < 0) return;
  chosen.map = at; chosen.filter = "";
  chosen.row = maps[at].labels.findIndex((known) => known === label || known.startsWith(`${label} [`));
  showControls(); drawMap();
  document.getElementById("heat").scrollTop = Math.max(0, shown.indexOf(chosen.row) * ROW - 200);
  document.getElementById("controls").scrollIntoView({ behavior: "smooth" });
}

// ---------------------------------------------------------------- alerts

function showAlerts() {
  const place = document.getElementById("alerts");
  place.replaceChildren();
  const head = el("tr", {}, ...["step", "rank", "rule", "quantity", "tensor", "statistic", "value"].map((word) => el("th", { className: ["step", "rank", "value"].includes(word) ? "n" : "" }, t(`monitor-column-${word}`))));
  const body = el("tbody");
  data.runs.forEach((run, r) => run.alerts.forEach((a) => {
    const row = el("tr", { tabIndex: 0, title: said(a.message) },
      el("td", { className: "n" }, `${run.name ? nameOf(run) + " " : ""}${a.step}`), el("td", { className: "n" }, String(a.rank)), el("td", {}, a.rule), el("td", {}, a.quantity),
      el("td", { className: "mono" }, a.label), el("td", {}, a.op), el("td", { className: "n" }, text(number(a.value === "" ? null : Number.isNaN(+a.value) ? a.value : +a.value))));
    const go = () => { chosen.run = r; chosen.rank = Math.max(0, run.ranks.findIndex((one) => one.rank === a.rank)); pick(a.quantity, a.op, a.label); };
    row.addEventListener("click", go);
    row.addEventListener("keydown", (event) => event.key === "Enter" && go());
    body.append(row);
  }));
  if (!body.children.length) { document.getElementById("alerts-section").hidden = true; return; }
  place.append(el("div", { className: "scroll" }, el("table", {}, el("thead", {}, head), body)));
  const further = data.runs.reduce((sum, run) => sum + run.further_alerts, 0);
  if (further) place.append(el("p", { className: "dim" }, t("monitor-alerts-in-file", { count: further })));
}

function tip(event, words) {
  const box = document.getElementById("tip");
  box.style.display = event ? "block" : "none";
  if (!event) return;
  box.textContent = words;
  box.style.left = `${Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8)}px`;
}

function listen() {
  const canvas = document.getElementById("map");
  canvas.addEventListener("mousemove", (event) => {
    const cell = cellAt(event), map = mapOf();
    if (!cell) { tip(); return; }
    const columns = map.steps.length, c = cell.column;
    if (c < 0 || c >= columns) { tip(event, map.labels[cell.row]); return; }
    const v = values(map)[cell.row * columns + c], next = map.steps[c + 1];
    const value = v < MISSING ? t("monitor-no-tensor") : text(v), first = map.steps[c];
    const several = columns < rankOf().steps && next - first > 1;
    const where = several ? t("monitor-at-steps", { first, last: next - 1, value }) : t("monitor-at-step", { name: "", step: first, value });
    tip(event, `${map.labels[cell.row]}\n${where}`);
  });
  canvas.addEventListener("mouseleave", () => tip());
  canvas.addEventListener("click", (event) => { const cell = cellAt(event); if (cell) { chosen.row = cell.row; drawMap(); } });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || !shown.length) return;
    event.preventDefault();
    chosen.row = shown[Math.max(0, Math.min(shown.length - 1, shown.indexOf(chosen.row) + move))];
    drawMap();
  });
  addEventListener("resize", drawMap);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { showCurves(); drawMap(); });
}

function begin() {
  const rank = rankOf();
  const wanted = ["grad_reduced", "grad_unreduced", "actv", "param_updated"];
  const best = wanted.map((q) => rank?.maps.findIndex((map) => map.quantity === q && map.op === "norm") ?? -1).find((at) => at >= 0);
  chosen.map = best ?? 0;
  if (data.departures.length) {
    const one = data.departures[0];
    chosen.run = data.runs.length - 1;
    chosen.rank = Math.max(0, data.runs[chosen.run].ranks.findIndex((r) => r.rank === one.rank));
    const at = rankOf().maps.findIndex((map) => map.quantity === one.quantity && map.op === one.op);
    if (at >= 0) { chosen.map = at; chosen.row = rankOf().maps[at].labels.indexOf(one.label); }
  }
  inBoth(() => {
    document.getElementById("map").ariaLabel = t("monitor-map-keys");
    showAbout(); showFindings(); showCurves(); showControls(); drawMap(); showAlerts();
  });
  listen();
}
begin();
