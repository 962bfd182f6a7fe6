"use strict";
document.documentElement.classList.add("has-js");
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      document.getElementById(button.dataset.copy).hidden = false;
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    }
  });
}
// The picture to share is drawn as PNG when it is asked for.
for (const button of document.querySelectorAll("[data-png]")) {
  button.addEventListener("click", async () => {
    const image = new Image(), canvas = document.createElement("canvas"), link = document.createElement("a");
    image.src = "data:image/svg+xml," + encodeURIComponent(document.getElementById(button.dataset.png).textContent.replace("<svg", `<svg xmlns="${document.querySelector("svg").namespaceURI}"`));
    await image.decode();
    canvas.width = 1200; canvas.height = 630;
    canvas.getContext("2d").drawImage(image, 0, 0, 1200, 630);
    link.setAttribute("href", canvas.toDataURL("image/png"));
    link.download = "lockchaos.png";
    button.dataset.done = link.href.slice(0, 22);
    link.click();
  });
}
// Paper unfolds nothing: what is folded is open while the page is printed.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open]):not(.raw)")];
  for (const d of folded) d.open = true;
});
addEventListener("afterprint", () => {
  for (const d of folded) d.open = false;
});
// A hair line that says the time under the pointer, on every timeline.
for (const svg of document.querySelectorAll("svg[data-from]")) {
  const from = Number(svg.dataset.from), to = Number(svg.dataset.to);
  const left = Number(svg.dataset.left), right = Number(svg.dataset.right);
  const make = (tag, name) => {
    const node = document.createElementNS(svg.namespaceURI, tag);
    node.setAttribute("class", name);
    node.setAttribute("pointer-events", "none");
    node.setAttribute("visibility", "hidden");
    return svg.appendChild(node);
  };
  const line = make("line", "cross-hair"), text = make("text", "t-small");
  svg.addEventListener("pointermove", (event) => {
    const matrix = svg.getScreenCTM();
    const x = (event.clientX - matrix.e) / matrix.a;
    const show = x >= left && x <= right;
    for (const node of [line, text]) node.setAttribute("visibility", show ? "visible" : "hidden");
    if (!show) return;
    const height = svg.viewBox.baseVal.height;
    line.setAttribute("x1", x); line.setAttribute("x2", x);
    line.setAttribute("y1", 0); line.setAttribute("y2", height);
    const late = x > (left + right) / 2;
    text.setAttribute("x", late ? x - 5 : x + 5);
    text.setAttribute("y", height - 2);
    text.setAttribute("text-anchor", late ? "end" : "start");
    text.style.textAnchor = late ? "end" : "start";
    text.textContent = ((from + (x - left) / (right - left) * (to - from)) / 1e9).toFixed(4) + " s";
  });
  svg.addEventListener("pointerleave", () => {
    for (const node of [line, text]) node.setAttribute("visibility", "hidden");
  });
}
// On a narrow screen, begin where the violation is.
for (const box of document.querySelectorAll(".scroll")) {
  const mark = box.querySelector(".t-violation");
  if (mark) box.scrollLeft = mark.getBoundingClientRect().left - box.getBoundingClientRect().left - box.clientWidth / 3;
}
