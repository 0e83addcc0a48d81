// What the page shows, and where: everything else is drawn from this.

const data = JSON.parse(document.getElementById("data").textContent);
const labels = data.panels.flatMap((panel) => panel.rows.map((row) => row.label));
const LEFT = 16 + 6 * Math.max(16, ...labels.map((label) => label.length));
const RIGHT = 12, AXIS = 20, TOP = 14;
const BOX = 20, BAND = 3, CURVE = 30, GAP = 7;
const LEAST_SHARE = 1e-6; // of the whole time that a window can show
const whole = Math.max(...data.panels.map((panel) => panel.seconds)) || 1;
const view = { start: 0, end: whole };
const mouse = { panel: null, row: -1, seconds: NaN };
const options = { curves: true };
const byId = (id) => document.getElementById(id);

// Where things are.

const rowPitch = () => BOX + BAND + GAP + (options.curves ? CURVE + 3 : 0);
const chartWidth = (canvas) => canvas.clientWidth - LEFT - RIGHT;
const place = (canvas, seconds) =>
  LEFT + (chartWidth(canvas) * (seconds - view.start)) / (view.end - view.start);
const momentAt = (canvas, x) =>
  view.start + ((x - LEFT) / chartWidth(canvas)) * (view.end - view.start);

/** The last index whose moment is not after `seconds`, or -1. */
function lastBefore(moments, seconds) {
  let low = 0, high = moments.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (moments[middle] <= seconds) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function eventAt(row, seconds) {
  let i = lastBefore(row.starts, seconds);
  while (i > 0 && row.ends[i] === row.starts[i]) i -= 1; // an update may take no time
  return i >= 0 && seconds < row.ends[i] ? i : -1;
}

function amountAt(row, seconds) {
  const index = lastBefore(row.moments, seconds);
  return index < 0 ? 0 : row.amounts[index];
}
