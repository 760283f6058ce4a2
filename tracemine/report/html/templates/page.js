
"use strict";
// What every page has: a theme to choose, code to copy, tables to sort.
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const root = document.documentElement, theme = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const themed = () => {
    theme.textContent = isDark() ? "Light theme" : "Dark theme";
    root.dispatchEvent(new Event("themed"));
  };
  theme.hidden = false;
  theme.onclick = () => { root.dataset.theme = isDark() ? "light" : "dark"; themed(); };
  dark.addEventListener("change", themed);
  themed();

  const copied = async (button) => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  for (const button of all(".copy")) { button.hidden = false; button.onclick = () => copied(button); }

  // A column's button says which data its rows are sorted by, and, of numbers, which way first.
  const sortBy = (table, button) => {
    const { sort: key, first } = button.dataset, head = button.closest("th");
    const before = first === "descending" ? "descending" : "ascending";
    const turned = { ascending: "descending", descending: "ascending" }[head.getAttribute("aria-sort")] || before;
    for (const other of all("th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", turned);
    const sign = turned === "ascending" ? 1 : -1;
    const value = (row) => (first ? Number(row.dataset[key]) : row.dataset[key]);
    const compare = (a, b) => (first ? value(a) - value(b) : value(a).localeCompare(value(b)));
    const rows = all("tbody tr", table).sort((a, b) => sign * compare(a, b) || a.dataset.rank - b.dataset.rank);
    table.tBodies[0].append(...rows);
  };
  for (const table of all("table"))
    for (const button of all("[data-sort]", table)) button.onclick = () => sortBy(table, button);
  if (!document.querySelector("canvas")) root.dataset.ready = "1"; // a timeline says so when it is drawn
  addEventListener("beforeprint", () => { for (const one of all("details")) one.open = true; });
})();
