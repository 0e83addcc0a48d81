// Moving about, listening, and putting the page together.

function show(start, span) {
  const width = Math.min(Math.max(span, whole * LEAST_SHARE), whole);
  view.start = Math.min(Math.max(start, 0), whole - width);
  view.end = view.start + width;
  redraw();
}

const middle = () => (view.start + view.end) / 2;

function zoom(factor, around) {
  const span = view.end - view.start;
  show(around - (around - view.start) * factor, span * factor);
}

const move = (share) => show(view.start + share * (view.end - view.start), view.end - view.start);

function point(panel, event) {
  const bounds = panel.canvas.getBoundingClientRect();
  const x = event.clientX - bounds.left, y = event.clientY - bounds.top;
  const row = Math.floor((y - TOP) / rowPitch()), seconds = momentAt(panel.canvas, x);
  const isOn = x >= LEFT && row >= 0 && row < panel.rows.length && seconds <= panel.seconds;
  Object.assign(mouse, { panel, row, seconds: isOn ? seconds : NaN });
  const hint = byId("hint");
  hint.hidden = !isOn;
  if (isOn) {
    hint.textContent = describe(panel, panel.rows[row], seconds);
    const right = event.clientX + 16 + hint.offsetWidth < window.innerWidth;
    hint.style.left = `${right ? event.clientX + 16 : event.clientX - 16 - hint.offsetWidth}px`;
    hint.style.top = `${Math.min(event.clientY + 14, window.innerHeight - hint.offsetHeight - 4)}px`;
  }
  redraw();
}

function leave() {
  mouse.seconds = NaN;
  byId("hint").hidden = true;
  redraw();
}

function listen(panel) {
  const { canvas } = panel;
  let heldAt = null;
  canvas.addEventListener("wheel", (event) => {
    const x = event.clientX - canvas.getBoundingClientRect().left;
    if (x < LEFT) return; // beside the boxes the page itself moves
    event.preventDefault();
    if (event.shiftKey) move(Math.sign(event.deltaY || event.deltaX) / 8);
    else zoom(1.2 ** Math.sign(event.deltaY), momentAt(canvas, x));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    heldAt = { x: event.clientX, start: view.start };
    canvas.classList.add("moving");
  });
  window.addEventListener("pointerup", () => {
    heldAt = null;
    canvas.classList.remove("moving");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (heldAt !== null) {
      const span = view.end - view.start;
      show(heldAt.start - ((event.clientX - heldAt.x) / chartWidth(canvas)) * span, span);
    }
    point(panel, event);
  });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("dblclick", () => show(0, whole));
}

function make(tag, properties = {}, children = []) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const swatch = (colour, name = "") => {
  const element = make("span", { className: `swatch ${name}` });
  if (colour) element.style.background = colour;
  return element;
};

function addPanel(panel) {
  panel.canvas = make("canvas", { tabIndex: 0 });
  panel.canvas.setAttribute("aria-label", `${panel.title}: ${panel.numbers}`);
  const heading = make("h2", {}, [panel.title, make("span", { textContent: panel.numbers })]);
  panel.section = make("section", {}, [heading, panel.canvas]);
  byId("panels").append(panel.section);
  listen(panel);
}

/** Curves of one unit share a scale, so that schedules are compared at a glance. */
function scaleCurves() {
  const largest = (amounts) => amounts.reduce((most, amount) => Math.max(most, amount), 0);
  for (const panel of data.panels)
    for (const row of panel.rows) row.peak = largest(row.amounts);
  for (const panel of data.panels) {
    const alike = data.panels.filter((other) => other.unit === panel.unit);
    const most = largest(alike.flatMap((other) => other.rows.map((row) => row.peak))) || 1;
    const isNear = panel.unit === "bytes" && data.limit !== null && data.limit < 1.5 * most;
    panel.most = isNear ? Math.max(most, data.limit) : most;
  }
}

function addLegend() {
  const used = new Set(data.panels.flatMap((panel) => panel.rows.flatMap((row) => [...row.kinds])));
  const legend = byId("legend");
  const widest = data.panels.reduce((a, b) => (a.fills.F.length >= b.fills.F.length ? a : b));
  for (const [letter, fills] of Object.entries(widest.fills))
    if (used.has(letter))
      legend.append(make("span", {}, [...fills.map(([box]) => swatch(box)), ` ${data.kinds[letter]}`]));
  if (widest.fills.F.length > 1)
    legend.append(make("span", { textContent: "(light to dark: first to last stage of a rank)" }));
  const bands = data.bands.map((colour) => swatch(colour, "band"));
  legend.append(make("span", {}, [...bands, " below: weights W0, W1, W2, W3, then again"]));
  if (used.has("U")) legend.append(make("span", {}, [swatch("", "mark"), " update, making W1, W2, ..."]));
  if (data.panels.some((panel) => panel.unit === "bytes"))
    for (const [name, colour] of data.held)
      legend.append(make("span", {}, [swatch(colour), ` ${name}`]));
  else legend.append(make("span", {}, [swatch(data.held[2][1]), " microbatches in flight"]));
  if (data.limit !== null)
    legend.append(make("span", { textContent: `limit ${formatBytes(data.limit)}, dashed where it is near` }));
  if (data.panels.length > 1) data.panels.forEach((panel) => legend.append(chooser(panel)));
}

function chooser(panel) {
  const box = make("input", { type: "checkbox", checked: true });
  box.addEventListener("change", () => { panel.section.hidden = !box.checked; redraw(); });
  return make("label", {}, [box, ` ${panel.title.split(":")[0]}`]);
}

const KEYS = {
  "+": () => zoom(1 / 1.5, middle()), "=": () => zoom(1 / 1.5, middle()),
  "-": () => zoom(1.5, middle()), "0": () => show(0, whole),
  ArrowLeft: () => move(-0.125), ArrowRight: () => move(0.125),
};

scaleCurves();
data.panels.forEach(addPanel);
addLegend();
byId("zoom-in").addEventListener("click", () => zoom(1 / 1.5, middle()));
byId("zoom-out").addEventListener("click", () => zoom(1.5, middle()));
byId("show-all").addEventListener("click", () => show(0, whole));
byId("side-by-side").addEventListener("change", (event) => {
  byId("panels").classList.toggle("side-by-side", event.target.checked);
  redraw();
});
byId("curves").addEventListener("change", (event) => {
  options.curves = event.target.checked;
  redraw();
});
window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  KEYS[event.key]();
  event.preventDefault();
});
new ResizeObserver(redraw).observe(byId("panels"));
drawAll();
