"use strict";
// A click on a heading sorts, and what is typed filters. Both stay in the address.
document.documentElement.classList.add("has-js");
const table = document.getElementById("runs"), filter = document.getElementById("filter");
if (table) {
  const body = table.tBodies[0], lines = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const state = new URLSearchParams(location.hash.slice(1));
  const value = (row, i) => { const text = row.cells[i].textContent.trim(), n = parseFloat(text.replaceAll(",", "")); return heads[i].classList.contains("num") ? (Number.isNaN(n) ? -1 : n) : text; };
  const show = () => {
    const words = (state.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean), by = Number(state.get("by") ?? -1), down = state.get("down") === "1";
    const sorted = heads[by] ? [...lines].sort((a, b) => { const x = value(a, by), y = value(b, by); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); }) : lines;
    let n = 0;
    for (const row of sorted) { row.hidden = !words.every((w) => row.textContent.toLowerCase().includes(w)); n += !row.hidden; }
    body.append(...sorted);
    heads.forEach((head, i) => head.setAttribute("aria-sort", i === by ? (down ? "descending" : "ascending") : "none"));
    document.getElementById("count").textContent = n === lines.length ? "" : `${n} of ${lines.length}`;
    try { history.replaceState(null, "", [...state].length ? "#" + state : location.pathname + location.search); } catch { /* the address stays as it was */ }
  };
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => { state.set("down", state.get("by") === String(i) && state.get("down") !== "1" ? "1" : "0"); state.set("by", i); show(); });
  });
  filter.value = state.get("q") || "";
  filter.addEventListener("input", () => { if (filter.value) state.set("q", filter.value); else state.delete("q"); show(); });
  show();
}
