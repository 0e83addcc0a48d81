// Drawing: each panel is one canvas.

function drawPanel(panel) {
  const { canvas } = panel, ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = TOP + panel.rows.length * rowPitch() + AXIS;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = '11px Helvetica, Arial, "Liberation Sans", sans-serif';
  panel.rows.forEach((row, index) => drawLabel(pen, panel, row, rowTop(index)));
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, chartWidth(canvas), height);
  pen.clip();
  panel.rows.forEach((row, index) => {
    drawRow(pen, panel, row, rowTop(index));
    if (options.curves) drawCurve(pen, panel, row, rowTop(index) + BOX + BAND + 3);
  });
  drawVersions(pen, panel);
  drawCrosshair(pen, panel, height - AXIS);
  pen.restore();
  drawAxis(pen, canvas, height - AXIS + 2);
}

const rowTop = (index) => TOP + index * rowPitch();

function drawLabel(pen, panel, row, top) {
  pen.textAlign = "right";
  pen.fillStyle = data.colours.ink;
  pen.fillText(row.label, LEFT - 8, top + BOX / 2 + 4);
  if (!options.curves) return;
  pen.fillStyle = data.colours.muted;
  pen.fillText(`peak ${formatAmount(panel, row.peak)}`, LEFT - 8, top + BOX + BAND + 13);
}

function drawRow(pen, panel, row, top) {
  const { canvas } = panel;
  pen.fillStyle = data.colours.idle;
  pen.fillRect(LEFT, top, place(canvas, panel.seconds) - LEFT, BOX);
  pen.textAlign = "center";
  const first = Math.max(lastBefore(row.starts, view.start) - 1, 0), marks = [];
  for (let i = first; i < row.starts.length && row.starts[i] <= view.end; i += 1) {
    const left = place(canvas, row.starts[i]), width = place(canvas, row.ends[i]) - left;
    if (row.kinds[i] === "U") marks.push([left - 1, Math.max(width, 2)]);
    else drawBox(pen, panel, row, i, left, width, top);
  }
  pen.fillStyle = data.colours.ink;
  for (const [left, width] of marks) pen.fillRect(left, top - 1, width, BOX + BAND + 2);
}

function drawBox(pen, panel, row, i, left, width, top) {
  const [box, text] = panel.fills[row.kinds[i]][row.chunks[i]];
  const sliver = Math.min(0.8, 0.15 * width), number = String(row.numbers[i]);
  pen.fillStyle = box;
  pen.fillRect(left, top, width - sliver, BOX);
  pen.fillStyle = data.bands[(row.versions[i] || 0) % data.bands.length];
  pen.fillRect(left, top + BOX, width, BAND);
  if (6.2 * number.length + 2 > width) return;
  pen.fillStyle = text;
  pen.fillText(number, left + (width - sliver) / 2, top + BOX / 2 + 4);
}

/** Steps of what the rank holds, the parts stacked over each other. */
function drawCurve(pen, panel, row, top) {
  const bottom = top + CURVE, begin = place(panel.canvas, 0);
  const end = Math.min(place(panel.canvas, panel.seconds), panel.canvas.clientWidth);
  const height = (amount) => (CURVE * amount) / panel.most;
  const [fixed, versions] = row.always;
  pen.fillStyle = data.held[2][1];
  pen.fill(steps(panel, row, bottom, height));
  pen.fillStyle = data.held[1][1];
  pen.fillRect(begin, bottom - height(fixed + versions), end - begin, height(versions));
  pen.fillStyle = data.held[0][1];
  pen.fillRect(begin, bottom - height(fixed), end - begin, height(fixed));
  pen.fillStyle = data.colours.muted;
  pen.fillRect(begin, bottom, end - begin, 0.5);
  if (panel.unit === "bytes" && data.limit !== null && data.limit <= panel.most)
    drawLimit(pen, begin, end, bottom - height(data.limit));
}

/** One shape, so that no seams show between the steps. */
function steps(panel, row, bottom, height) {
  const shape = new Path2D(), end = place(panel.canvas, panel.seconds);
  const first = Math.max(lastBefore(row.moments, view.start), 0);
  let y = bottom;
  shape.moveTo(place(panel.canvas, row.moments[first] || 0), bottom);
  for (let i = first; i < row.moments.length && row.moments[i] <= view.end; i += 1) {
    const x = place(panel.canvas, row.moments[i]);
    shape.lineTo(x, y);
    y = bottom - height(row.amounts[i]);
    shape.lineTo(x, y);
  }
  shape.lineTo(end, y);
  shape.lineTo(end, bottom);
  return shape;
}

function drawLimit(pen, begin, end, y) {
  pen.setLineDash([4, 3]);
  pen.strokeStyle = data.limit_colour;
  pen.beginPath();
  pen.moveTo(begin, y);
  pen.lineTo(end, y);
  pen.stroke();
  pen.setLineDash([]);
}

/** Which version the first row's updates make, where there is room. */
function drawVersions(pen, panel) {
  const row = panel.rows[0];
  pen.textAlign = "left";
  pen.fillStyle = data.colours.muted;
  let freeFrom = LEFT, written = -1;
  for (let i = 0; i < row.starts.length; i += 1) {
    const left = place(panel.canvas, row.starts[i]);
    if (row.kinds[i] !== "U" || row.numbers[i] <= written || left < freeFrom) continue;
    const text = `W${row.numbers[i] + 1}`;
    pen.fillText(text, left - 1, TOP - 3);
    freeFrom = left + 7 * text.length;
    written = row.numbers[i];
  }
}

function drawCrosshair(pen, panel, bottom) {
  if (!(mouse.seconds >= view.start && mouse.seconds <= view.end)) return;
  pen.fillStyle = data.colours.ink;
  pen.fillRect(place(panel.canvas, mouse.seconds) - 0.5, TOP - 2, 1, bottom - TOP + 2);
}

function drawAxis(pen, canvas, top) {
  const span = view.end - view.start, step = tickSeconds(span, Math.max(chartWidth(canvas) / 90, 1));
  const most = Math.max(Math.ceil(Math.log10(view.end / step)) + 1, 4);
  pen.fillStyle = data.colours.muted;
  pen.textAlign = "center";
  pen.fillRect(LEFT, top, chartWidth(canvas), 1);
  for (let index = Math.ceil(view.start / step); index * step <= view.end; index += 1) {
    const x = place(canvas, index * step);
    pen.fillRect(x - 0.5, top, 1, 4);
    pen.fillText(formatSeconds(index * step, most), x, top + 15);
  }
}

function drawAll() {
  byId("shown").textContent = `${formatSeconds(view.start)} to ${formatSeconds(view.end)}`;
  for (const panel of data.panels) if (!panel.section.hidden) drawPanel(panel);
}

let isDue = false;
function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; drawAll(); });
}
