
"use strict";
// What a trace's page has: findings that open, parts of the bar that filter them, and a timeline that shows where they are.
(() => {
  const root = document.documentElement;
  const charts = [];

  /** The bar's parts: one that is pressed leaves its findings, and what runs of it in the timeline. */
  const filters = (article, findings, chart) => {
    const buttons = all(".legend [data-part]", article), status = article.querySelector(".filtered");
    const rest = article.querySelector(".rest");
    let part = "";
    const choose = (name) => {
      part = name === part ? "" : name;
      let count = 0;
      for (const one of findings) {
        one.hidden = part !== "" && !one.dataset.parts.split(" ").includes(part);
        count += !one.hidden;
      }
      for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.part === part);
      for (const piece of all(".bar [data-part]", article)) piece.classList.toggle("faint", part !== "" && piece.dataset.part !== part);
      const title = part && buttons.find((one) => one.dataset.part === part).textContent.trim();
      if (status) {
        status.hidden = !part;
        status.textContent = `Of ${title}: ${count} of ${findings.length} findings. Press it again for all.`;
      }
      if (part && rest && findings.some((one) => !one.hidden && rest.contains(one))) rest.open = true;
      if (chart) chart.filter(part);
    };
    if (!findings.some((one) => one.dataset.parts) && !chart) return;
    for (const one of buttons) { one.disabled = false; one.onclick = () => choose(one.dataset.part); }
    for (const piece of all(".bar [data-part]", article)) piece.addEventListener("click", () => choose(piece.dataset.part));
  };

  /** In a narrow window the boxes of a dataflow are in sight first, not the tensors beside them. */
  const centre = (one) => {
    for (const box of all(".flow g:first-of-type .box", one)) {
      const frame = box.closest(".scrolls");
      const [middle, wanted] = [box, frame].map((each) => { const { left, right } = each.getBoundingClientRect(); return (left + right) / 2; });
      frame.scrollLeft += middle - wanted;
    }
  };

  const shownTrace = (article, scan) => {
    const trace = article.querySelector(".trace-data"), findings = all(".finding", article);
    const chart = trace ? timeline(article.querySelector(".timeline"), JSON.parse(trace.textContent), scan.findings) : null;
    if (chart) charts.push(chart);
    for (const one of findings) {
      one.addEventListener("toggle", (event) => { if (event.target === one && one.open && chart) chart.select(one.dataset.finding); });
      for (const more of all(".more", one)) more.addEventListener("toggle", () => { if (more.open) centre(more); });
      const show = one.querySelector(".show");
      show.hidden = !chart;
      show.onclick = () => { chart.select(one.dataset.finding); chart.go(1, true); article.querySelector(".timeline").scrollIntoView({ block: "center" }); };
    }
    filters(article, findings, chart);
  };

  const linked = () => {
    let name = location.hash.slice(1);
    try { name = decodeURIComponent(name); } catch { /* as it is */ }
    const one = document.getElementById(name);
    if (!one) return;
    for (let each = one; each; each = each.parentElement) if (each.matches("details")) each.open = true;
    one.scrollIntoView();
  };
  addEventListener("hashchange", linked);
  for (const link of all("a[href^='#']")) link.addEventListener("click", () => setTimeout(linked));

  // Each trace's scan is a line of the data. A trace that is folded is drawn when it is first opened.
  const scans = document.getElementById("tracemine-findings").textContent.trim().split("\n");
  all("article.trace").forEach((article, i) => {
    const draw = () => shownTrace(article, JSON.parse(scans[i])), fold = article.closest("details.of");
    if (!fold || fold.open) draw();
    else fold.addEventListener("toggle", draw, { once: true });
  });
  if (!charts.length) root.dataset.ready = "1";
  root.addEventListener("themed", () => { for (const chart of charts) chart.recolour(); });
  linked();
})();
