"use strict";
// The theme is set before the page is drawn. Everything else waits for the page.
(() => {
  const root = document.documentElement;
  const stored = () => {
    try { return localStorage.getItem("derive-theme"); } catch { return null; }
  };
  const store = (theme) => {
    try { localStorage.setItem("derive-theme", theme); } catch { /* a page of a file may have no storage */ }
  };
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (preferred.matches ? "dark" : "light");
  if (stored()) root.dataset.theme = stored();

  function switchTheme() {
    const button = document.getElementById("theme");
    const name = () => {
      const other = current() === "dark" ? "light" : "dark";
      button.textContent = other === "dark" ? "Dark" : "Light";
      button.setAttribute("aria-label", `Use the ${other} theme`);
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      store(root.dataset.theme);
      name();
    });
    preferred.addEventListener("change", name);
    name();
  }

  // A formula and the lines that compute it light each other up.
  function pairLines() {
    const parts = [...document.querySelectorAll("[data-of]")];
    const names = (part) => part.dataset.of.split(" ");
    const light = (own) => {
      for (const part of parts) part.classList.toggle("lit", names(part).some((n) => own.includes(n)));
    };
    for (const part of parts) {
      for (const event of ["pointerenter", "focusin"]) part.addEventListener(event, () => light(names(part)));
      for (const event of ["pointerleave", "focusout"]) part.addEventListener(event, () => light([]));
    }
  }

  // A link to what a closed part holds opens it.
  function openTarget() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let outer = target.closest("details"); outer; outer = outer.parentElement.closest("details")) outer.open = true;
    target.scrollIntoView({ block: "nearest" });
  }

  function searchCatalog() {
    const form = document.getElementById("search");
    if (!form) return;
    const field = form.querySelector("input");
    const found = document.getElementById("found");
    const rows = [...document.querySelectorAll(".family li")].map((row) => [row, row.textContent.toLowerCase()]);
    const search = () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let many = 0;
      for (const [row, text] of rows) {
        row.hidden = !words.every((word) => text.includes(word));
        many += !row.hidden;
      }
      for (const family of document.querySelectorAll(".family")) {
        family.hidden = !family.querySelector("li:not([hidden])");
      }
      found.textContent = words.length ? `${many} of ${rows.length}` : "";
    };
    form.hidden = false;
    field.value = new URLSearchParams(location.search).get("q") || "";
    field.addEventListener("input", search);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const links = rows.filter(([row]) => !row.hidden).map(([row]) => row.querySelector("a"));
      const wanted = field.value.trim().toLowerCase();
      (links.find((link) => link.textContent.toLowerCase() === wanted) || links[0])?.click();
    });
    search();
  }

  document.addEventListener("DOMContentLoaded", () => {
    switchTheme();
    pairLines();
    searchCatalog();
    openTarget();
    addEventListener("hashchange", openTarget);
  });
})();
