"use strict";
const rates = [], get = (id) => document.getElementById(id);
// over leads to the report, if the server that watched the run still answers.
async function over() {
  try {
    if ((await fetch("report.html", { method: "HEAD" })).ok) { location.replace("report.html"); return; }
  } catch { /* it ended with the run */ }
  get("verdict").textContent = "over";
  get("found").textContent = "The run is over: its report is report.html in the run directory";
}
const source = new EventSource("events");
source.onmessage = (event) => {
  const now = JSON.parse(event.data);
  if (now.done) { source.close(); over(); return; }
  get("elapsed").textContent = now.elapsed.toFixed(1) + " s" + (now.length ? " of " + now.length.toFixed(0) + " s" : "");
  get("per_second").textContent = now.per_second.toFixed(0);
  for (const id of ["granted", "refused", "unknown"]) get(id).textContent = now[id].toLocaleString("en");
  get("violations").textContent = now.judged ? now.violations.toLocaleString("en") : "–";
  get("faults").textContent = now.faults.join(", ") || "none";
  get("progress").value = now.length ? Math.min(1, now.elapsed / now.length) : 0;
  get("banner").className = "banner " + (now.violations ? "invalid" : "unknown");
  get("verdict").textContent = now.violations ? "✗ a violation was found" : "under way";
  get("found").textContent = now.violations ? now.found : now.judged ? "No violation so far" : now.found || "The record is too long to be judged while it grows";
  rates.push(now.per_second);
  const most = Math.max(1, ...rates), step = 600 / Math.max(1, rates.length - 1);
  document.querySelector("#rate path").setAttribute("d", rates.map((r, i) => `${i ? "L" : "M"}${(i * step).toFixed(1)} ${(116 - r / most * 110).toFixed(1)}`).join(""));
};
