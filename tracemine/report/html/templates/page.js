
"use strict";
// What every page has: a theme to choose, code to copy, tables to sort, rows that open, sections in tabs.
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
(() => {
  const ROOM = 20; // rows of a tree that are shown at first
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

  /** A table's rows as a tree: each row with those below it that are deeper. Without depths no row has any. */
  const treeOf = (table) => {
    const roots = [], path = [];
    for (const row of all("tbody tr", table)) {
      const depth = Number(row.dataset.depth || 0), node = { row, parts: [], open: false };
      path.length = Math.min(depth, path.length);
      (path.length ? path[path.length - 1].parts : roots).push(node);
      path.push(node);
    }
    return roots;
  };
  /** Open the outermost rows first, while there is room for what they hold. */
  const openFirst = (tree) => {
    const left = [...tree];
    let room = ROOM - left.length;
    for (const node of left) {
      if (!node.parts.length || node.parts.length > room) continue;
      node.open = true;
      room -= node.parts.length;
      left.push(...node.parts);
    }
  };
  const inOrder = (nodes, visible, each) => { for (const node of nodes) { each(node, visible); inOrder(node.parts, visible && node.open, each); } };
  const shown = (tree) => inOrder(tree, true, (node, visible) => { node.row.hidden = !visible; });
  // A column's button says which cells rows are sorted by, and, of numbers, which way first. Parts stay with their whole.
  const sortBy = (table, tree, button) => {
    const { sort: column, first } = button.dataset, head = button.closest("th");
    const before = first === "descending" ? "descending" : "ascending";
    const turned = { ascending: "descending", descending: "ascending" }[head.getAttribute("aria-sort")] || before;
    for (const other of all("th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", turned);
    const sign = turned === "ascending" ? 1 : -1, value = (node) => node.row.cells[column].dataset.value;
    const compare = (a, b) => (first ? value(a) - value(b) : value(a).localeCompare(value(b), undefined, { numeric: true }));
    const sorted = (nodes) => {
      nodes.sort((a, b) => sign * compare(a, b) || a.row.dataset.rank - b.row.dataset.rank);
      for (const node of nodes) sorted(node.parts);
    };
    sorted(tree);
    inOrder(tree, true, (node) => table.tBodies[0].append(node.row));
  };
  /** A row with parts has a button that shows them. */
  const opener = (tree, node) => {
    const button = document.createElement("button");
    const says = () => { button.textContent = node.open ? "▾" : "▸"; button.setAttribute("aria-expanded", node.open); };
    button.type = "button";
    button.className = "opener";
    button.setAttribute("aria-label", "parts");
    button.onclick = () => { node.open = !node.open; says(); shown(tree); };
    says();
    node.row.querySelector(".name > div").prepend(button);
  };
  for (const table of all("table.sorted")) {
    const tree = treeOf(table);
    openFirst(tree);
    for (const button of all("[data-sort]", table)) button.onclick = () => sortBy(table, tree, button);
    inOrder(tree, true, (node) => { if (node.parts.length) opener(tree, node); });
    shown(tree);
  }

  for (const bar of all(".tabs")) {
    const sections = all(":scope > .tab", bar.parentElement);
    const choose = (chosen) => sections.forEach((section, i) => {
      section.hidden = section !== chosen;
      bar.children[i].setAttribute("aria-selected", section === chosen);
      bar.children[i].tabIndex = section === chosen ? 0 : -1;
    });
    bar.append(...sections.map((section, i) => {
      const button = document.createElement("button"), { title, count } = section.dataset;
      Object.assign(button, { type: "button", textContent: Number(count) ? `${title} ${count}` : title, onclick: () => choose(section) });
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", section.id);
      button.onkeydown = ({ key }) => {
        const to = bar.children[i + ({ ArrowLeft: -1, ArrowRight: 1 }[key] || NaN)];
        if (to) { to.focus(); to.click(); }
      };
      section.setAttribute("role", "tabpanel");
      section.querySelector("h2").hidden = true;
      return button;
    }));
    bar.setAttribute("role", "tablist");
    bar.hidden = false;
    choose(sections[0]);
  }
  if (!document.querySelector("canvas")) root.dataset.ready = "1"; // a timeline says so when it is drawn
  addEventListener("beforeprint", () => {
    for (const one of all("details")) one.open = true;
    for (const one of all(".tab, .tab h2")) one.hidden = false;
  });
})();
