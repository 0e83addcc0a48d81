// Numbers as people read them, and what the pointer is on, in words.

const digits = (value, most) => String(Number(value.toPrecision(most)));

function formatSeconds(seconds, most = 4) {
  for (const [factor, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "us"]])
    if (Math.abs(seconds) >= factor) return `${digits(seconds / factor, most)} ${unit}`;
  return seconds ? `${digits(seconds * 1e9, most)} ns` : "0";
}

function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (bytes >= 1024 && power < units.length - 1) { bytes /= 1024; power += 1; }
  return `${digits(bytes, 4)} ${units[power]}`;
}

const formatAmount = (panel, amount) =>
  panel.unit === "bytes" ? formatBytes(amount) : `${digits(amount, 4)} in flight`;

function tickSeconds(span, most) {
  const rough = span / most, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.999999);
}

function describe(panel, row, seconds) {
  const event = eventAt(row, seconds);
  const lines = [`${panel.title.split(":")[0]}, ${row.label} (rank ${row.rank})`];
  lines.push(...(event < 0 ? describeIdle(panel, row, seconds) : describeEvent(panel, row, event)));
  lines.push(describeHeld(panel, row, seconds));
  return lines.join("\n");
}

function describeEvent(panel, row, i) {
  const number = row.numbers[i], kind = data.kinds[row.kinds[i]];
  const stage = row.stages.length > 1 ? `, stage ${row.stages[row.chunks[i]]}` : "";
  const batch = Math.floor(number / panel.microbatches);
  const what = row.kinds[i] === "U"
    ? [`update of batch ${number}${stage}, makes W${number + 1}`]
    : [`${kind} of microbatch ${number}${stage}`, `batch ${batch}, weights W${row.versions[i]}`];
  return [...what, describeTimes(row.starts[i], row.ends[i])];
}

const describeTimes = (start, end) =>
  `${formatSeconds(start, 6)} to ${formatSeconds(end, 6)}: ${formatSeconds(end - start)}`;

function describeIdle(panel, row, seconds) {
  const before = lastBefore(row.starts, seconds);
  const start = before < 0 ? 0 : row.ends[before];
  const end = before + 1 < row.starts.length ? row.starts[before + 1] : panel.seconds;
  return ["idle", describeTimes(start, end)];
}

function describeHeld(panel, row, seconds) {
  const amount = amountAt(row, seconds);
  if (panel.unit !== "bytes") return `holds ${formatAmount(panel, amount)}`;
  const [fixed, versions] = row.always;
  const parts = [fixed, versions, amount - fixed - versions];
  const named = parts.map((part, index) => `${data.held[index][0]} ${formatBytes(part)}`);
  return `holds ${formatBytes(amount)}: ${named.join(", ")}`;
}
