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
// The picture to share is what the timeline shows, as PNG.
for (const button of document.querySelectorAll("[data-png]")) {
  button.addEventListener("click", async () => {
    const live = document.querySelector("#chart svg"), image = new Image(), canvas = document.createElement("canvas"), link = document.createElement("a");
    if (!live) return;
    const copy = live.cloneNode(true), width = live.clientWidth, height = live.clientHeight + 60, style = document.createElementNS(live.namespaceURI, "style");
    style.textContent = document.querySelector("style").textContent;
    const head = `<text class="t-title" x="4" y="22">${document.querySelector(".verdict").innerHTML}: ${document.querySelector("h1").textContent.replace(/[&<]/g, (c) => c === "&" ? "&amp;" : "&lt;")}</text>`;
    copy.setAttribute("viewBox", `0 -60 ${width} ${height}`);
    copy.setAttribute("width", width); copy.setAttribute("height", height);
    copy.innerHTML = `<rect class="t-paper" x="0" y="-60" width="${width}" height="${height}"/><g transform="translate(0 -56)">${head}</g>` + copy.innerHTML;
    copy.prepend(style);
    image.src = "data:image/svg+xml," + encodeURIComponent(new XMLSerializer().serializeToString(copy));
    await image.decode();
    canvas.width = 2 * width; canvas.height = 2 * height;
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
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
