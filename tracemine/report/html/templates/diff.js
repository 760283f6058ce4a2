
"use strict";
// What the page of a difference has: both steps' timelines on one scale, and what moves one moves the other.
(() => {
  const root = document.documentElement;
  const given = all(".trace-data").map((one) => [one.closest(".timeline"), JSON.parse(one.textContent)]);
  const middle = ({ steps }) => { const long = steps.map((one) => one[1]).sort((a, b) => a - b); return long.length ? long[long.length >> 1] : 0; };
  const longest = Math.max(0, ...given.map(([, trace]) => middle(trace)));
  const charts = given.map(([section, trace]) => timeline(section, trace, [], longest));
  for (const chart of charts) chart.onmove((begin, end) => { for (const other of charts) if (other !== chart) other.follow(begin, end); });
  root.addEventListener("themed", () => { for (const chart of charts) chart.recolour(); });
})();
