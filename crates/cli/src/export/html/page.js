"use strict";
(() => {
  const field = document.getElementById("q");
  const count = document.getElementById("count");
  const items = [...document.querySelectorAll("nav li")];
  const bars = new Map([...document.querySelectorAll("svg g[data-s]")].map((bar) => [bar.dataset.s, bar]));
  const article = (item) => document.getElementById(item.dataset.s);
  const texts = new Map();
  const text = (item) => {
    let known = texts.get(item);
    if (known === undefined) {
      known = article(item).textContent.toLowerCase();
      texts.set(item, known);
    }
    return known;
  };
  const mark = (wanted) => {
    if (!window.Highlight || !CSS.highlights) return;
    CSS.highlights.delete("found");
    if (!wanted) return;
    const shown = document.querySelector("article:target") || document.querySelector("article");
    const found = new Highlight();
    const walk = document.createTreeWalker(shown, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(), left = 2000; node && left > 0; node = walk.nextNode()) {
      const lower = node.data.toLowerCase();
      if (lower.length !== node.data.length) continue;
      for (let at = lower.indexOf(wanted); at >= 0 && left > 0; at = lower.indexOf(wanted, at + wanted.length), left -= 1) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + wanted.length);
        found.add(range);
      }
    }
    CSS.highlights.set("found", found);
  };
  const search = () => {
    const wanted = field.value.toLowerCase();
    const kept = new Set();
    let hits = 0;
    for (const item of items) {
      if (wanted && !text(item).includes(wanted)) continue;
      hits += 1;
      for (let up = item; up; up = up.parentElement.closest("nav li")) kept.add(up);
    }
    for (const item of items) {
      item.hidden = !kept.has(item);
      bars.get(item.dataset.s)?.classList.toggle("off", item.hidden);
      const folded = item.querySelector(":scope > details");
      if (wanted && folded && kept.has(item)) folded.open = true;
    }
    count.textContent = wanted ? `${hits} of ${items.length} sessions` : "";
    mark(wanted);
  };
  let timer = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, 120);
  });
  field.form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
    const first = items.find((item) => !item.hidden && text(item).includes(field.value.toLowerCase()));
    if (first) location.hash = first.dataset.s;
  });
  const fold = (open) => document.querySelectorAll("nav details").forEach((details) => { details.open = open; });
  document.getElementById("open").addEventListener("click", () => fold(true));
  document.getElementById("close").addEventListener("click", () => fold(false));
  document.querySelector("svg").addEventListener("click", (event) => {
    const bar = event.target.closest("g[data-s]");
    if (bar) location.hash = bar.dataset.s;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== field) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "Escape" && document.activeElement === field) {
      field.value = "";
      search();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && document.activeElement.closest("nav")) {
      const links = [...document.querySelectorAll("nav a")].filter((link) => link.checkVisibility());
      const next = links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      if (links[next]) { event.preventDefault(); links[next].focus(); }
    }
  });
  const arrived = () => {
    const hash = decodeURIComponent(location.hash.slice(1));
    if (hash.startsWith("q=")) { field.value = hash.slice(2); search(); }
    else mark(field.value.toLowerCase());
  };
  addEventListener("hashchange", arrived);
  arrived();
  document.documentElement.dataset.ready = "yes";
})();
