
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const data = (id) => at(id) && JSON.parse(at(id).textContent);
  const scan = data("tracemine-findings");
  const timeText = (ns) => {
    const [by, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([factor]) => Math.abs(ns) >= factor) || [1, "ns"];
    return `${Number((ns / by).toPrecision(by === 1 ? 3 : 4))} ${unit}`;
  };
  let chart = null;

  const root = document.documentElement;

  // --- filtering --------------------------------------------------------------------------------------------------------
  const table = document.querySelector("table.findings");
  const rows = table ? all("tbody tr", table) : [];
  const details = new Map(all("details.finding").map((one) => [one.id, one]));
  const filter = () => {
    const [rule, severity, text] = ["rule", "severity", "text"].map((id) => at(id).value.toLowerCase());
    let shown = 0;
    for (const row of rows) {
      const one = details.get(row.dataset.finding);
      const fits = (!rule || row.dataset.rule.toLowerCase() === rule) &&
        (!severity || one.dataset.severity.toLowerCase() === severity) &&
        (!text || `${row.textContent} ${one.textContent}`.toLowerCase().includes(text));
      row.hidden = one.hidden = !fits;
      shown += fits;
    }
    at("count").textContent = shown === rows.length ? `${shown} findings` : `${shown} of ${rows.length} findings`;
  };
  if (at("filter")) {
    at("filter").hidden = false;
    at("filter").oninput = filter;
    at("filter").onsubmit = (event) => event.preventDefault();
  }

  const chosen = (fingerprint) => {
    for (const row of rows) row.classList.toggle("chosen", row.dataset.finding === fingerprint);
    if (chart) chart.select(fingerprint);
  };
  /** In a narrow window the boxes of a dataflow are in sight first, not the tensors beside them. */
  const centre = (one) => {
    for (const box of all(".flow g:first-of-type .box", one)) {
      const frame = box.closest(".scrolls"), [middle, wanted] = [box, frame].map((each) => { const at_ = each.getBoundingClientRect(); return (at_.left + at_.right) / 2; });
      frame.scrollLeft += middle - wanted;
    }
  };
  const linked = () => {
    let name = location.hash.slice(1);
    try { name = decodeURIComponent(name); } catch { /* as it is */ }
    const one = details.get(name);
    if (!one) return;
    one.open = true;
    one.scrollIntoView();
    chosen(one.id);
  };
  addEventListener("hashchange", linked);
  for (const link of all(".findings a")) link.addEventListener("click", () => setTimeout(linked));
  for (const one of details.values()) one.addEventListener("toggle", () => { if (one.open) { chosen(one.id); centre(one); } });
  for (const button of all(".show")) {
    button.onclick = () => { chosen(button.dataset.finding); chart.go(1, true); at("canvas").scrollIntoView({ block: "center" }); };
  }

  // --- timeline -----------------------------------------------------------------------------------------------------
  const unpacked = (text, Kind) => {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Kind(bytes.buffer);
  };
  /** The last position at which sorted values are not above one; -1: all are. */
  const last = (values, wanted) => {
    let low = 0, high = values.length;
    while (low < high) { const middle = (low + high) >> 1; if (values[middle] <= wanted) low = middle + 1; else high = middle; }
    return low - 1;
  };
  /** Activities one after another: where they overlap, each begins when those before it end. */
  class Track {
    constructor(name, members, start, dur) {
      const count = members.length;
      Object.assign(this, { name, members, begin: new Float64Array(count), end: new Float64Array(count), busy: new Float64Array(count + 1) });
      let reached = -Infinity;
      members.forEach((row, i) => {
        this.begin[i] = Math.max(start[row], reached);
        reached = this.end[i] = Math.max(start[row] + dur[row], this.begin[i]);
        this.busy[i + 1] = this.busy[i] + this.end[i] - this.begin[i];
      });
    }
    /** How long it was busy until a time. */
    until(time) {
      const i = last(this.begin, time);
      return i < 0 ? 0 : this.busy[i] + Math.min(time, this.end[i]) - this.begin[i];
    }
  }

  const COLOURS = ["#56b4e9", "#cc79a7", "#f0e442", "#009e73", "#bbbbbb", "#e69f00", "#d55e00"]; // Okabe and Ito
  const LETTERS = ["P", "A", "M", "O", "–", "C", "N"];
  const TITLES = ["products", "attention", "memory-bound", "optimizer", "other", "copies", "communication"];
  const ROW = 24, TOP = 22, LABEL = 118, SINGLE = 3000; // activities of a track that are drawn one by one

  const timeline = (trace, canvas) => {
    const start = unpacked(trace.start_ns, Float64Array), dur = unpacked(trace.dur_ns, Float64Array);
    const lane = unpacked(trace.lane, Int16Array), name = unpacked(trace.name, Uint16Array), part = unpacked(trace.part, Uint8Array);
    const rowsOf = (test) => { const found = []; for (let i = 0; i < trace.count; i++) if (test(i)) found.push(i); return found; };
    const byLane = trace.lanes.map(() => []);
    for (let i = 0; i < trace.count; i++) if (lane[i] >= 0) byLane[lane[i]].push(i);
    const devices = [...new Set(trace.devices)];
    const whole = devices.map((device) => new Track(`GPU ${device} busy`, rowsOf((i) => trace.devices[lane[i]] === device), start, dur));
    const tracks = trace.lanes.map((text, i) => new Track(text, byLane[i], start, dur));
    const span = Math.max(1, ...whole.map((track) => track.end[track.end.length - 1] || 0));
    const g = canvas.getContext("2d");
    const marked = new Uint8Array(trace.count);
    let view = [0, span], spans = [], current = -1, waiting = false, ink = {}, width = 0, pointer = null;

    const recolour = () => {
      const probe = document.createElement("span");
      document.body.append(probe);
      for (const each of ["page", "raised", "line", "ink", "soft", "mark", "calm"]) {
        probe.style.color = `var(--${each})`;
        ink[each] = getComputedStyle(probe).color;
      }
      probe.remove();
      redraw();
    };
    const redraw = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
    const x = (time) => LABEL + ((time - view[0]) / (view[1] - view[0])) * (width - LABEL);
    const timeAt = (px) => view[0] + ((px - LABEL) / (width - LABEL)) * (view[1] - view[0]);
    const look = (begin, end) => {
      const least = Math.min(50, span), size = Math.min(Math.max(end - begin, least), span);
      const first = Math.min(Math.max(begin, 0), span - size);
      view = [first, first + size];
      redraw();
    };
    const zoom = (by, px = LABEL + (width - LABEL) / 2) => { const t = timeAt(px); look(t - (t - view[0]) * by, t + (view[1] - t) * by); };
    const move = (share) => { const by = (view[1] - view[0]) * share; look(view[0] + by, view[1] + by); };

    const drawTrack = (track, y, coloured) => {
      const first = last(track.end, view[0]) + 1, stop = last(track.begin, view[1]) + 1;
      if (stop - first > SINGLE) {
        g.fillStyle = ink.calm;
        let before = track.until(timeAt(LABEL));
        for (let px = LABEL; px < width; px++) {
          const after = track.until(timeAt(px + 1)), share = (after - before) / (timeAt(px + 1) - timeAt(px));
          if (share > 0) { const high = Math.max(1, share * (ROW - 6)); g.fillRect(px, y + ROW - 3 - high, 1, high); }
          before = after;
        }
        return;
      }
      for (let i = first; i < stop; i++) {
        const row = track.members[i], left = Math.max(x(track.begin[i]), LABEL), wide = Math.max(x(track.end[i]) - left, 0.5);
        g.fillStyle = coloured ? COLOURS[part[row]] : ink.calm;
        g.fillRect(left, y + 3, wide, ROW - 6);
        if (coloured && marked[row]) { g.fillStyle = ink.ink; g.fillRect(left, y + ROW - 4, Math.max(wide, 1), 3); }
        if (coloured && wide > 14) {
          g.save(); g.beginPath(); g.rect(left, y, wide - 2, ROW); g.clip();
          g.fillStyle = "#000000";
          g.fillText(wide > 60 ? `${LETTERS[part[row]]} ${trace.short_names[name[row]]}` : LETTERS[part[row]], left + 3, y + 16);
          g.restore();
        }
      }
    };
    const drawAxis = (height) => {
      const wanted = ((view[1] - view[0]) / (width - LABEL)) * 80, power = 10 ** Math.floor(Math.log10(wanted));
      const every = Math.max([1, 2, 5, 10].find((n) => n * power >= wanted) * power, 1);
      g.fillStyle = ink.soft; g.strokeStyle = ink.line; g.lineWidth = 1;
      for (let t = Math.ceil(view[0] / every) * every; t <= view[1]; t += every) {
        g.beginPath(); g.moveTo(x(t), TOP - 4); g.lineTo(x(t), height); g.stroke();
        if (x(t) < width - 50) g.fillText(timeText(t), x(t) + 3, 13);
      }
      g.setLineDash([6, 4]); g.strokeStyle = ink.ink;
      for (const [, begin] of trace.steps) if (begin > view[0] && begin < view[1]) { g.beginPath(); g.moveTo(x(begin), 0); g.lineTo(x(begin), height); g.stroke(); }
      g.setLineDash([]);
    };
    const drawSpans = (y) => {
      let drawn = -1;
      spans.forEach(([begin, end], i) => {
        if (end < view[0] || begin > view[1] || (i !== current && x(end) < drawn + 1)) return;
        const left = Math.max(x(begin), LABEL), wide = Math.max(x(end) - left, 2);
        drawn = left + wide;
        g.fillStyle = ink.mark; g.fillRect(left, y + 8, wide, ROW - 12);
        g.beginPath(); g.moveTo(left - 4, y + 1); g.lineTo(left + 4, y + 1); g.lineTo(left, y + 8); g.fill();
        if (i === current) { g.strokeStyle = ink.ink; g.lineWidth = 2; g.strokeRect(left - 1, y + 7, wide + 2, ROW - 10); }
      });
    };
    const draw = () => {
      waiting = false;
      const scale = devicePixelRatio || 1, height = TOP + ROW * (1 + whole.length + tracks.length);
      width = canvas.clientWidth || 300;
      canvas.style.height = `${height}px`;
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) { canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale); }
      g.setTransform(scale, 0, 0, scale, 0, 0);
      g.font = "12px system-ui, sans-serif";
      g.fillStyle = ink.page; g.fillRect(0, 0, width, height);
      drawAxis(height);
      let y = TOP;
      const named = [["finding", () => drawSpans(y)], ...whole.map((each) => [each.name, () => drawTrack(each, y, false)]), ...tracks.map((each) => [each.name, () => drawTrack(each, y, true)])];
      for (const [text, paint] of named) {
        paint();
        g.fillStyle = ink.page; g.fillRect(0, y, LABEL, ROW);
        g.fillStyle = ink.ink; g.fillText(text, 4, y + 16);
        y += ROW;
      }
      canvas.dataset.view = view.join(" ");
      root.dataset.ready = "1";
    };

    const spansOf = (finding) => {
      const idle = !finding.fused_ns && !finding.gpu_saving_ns.high;
      const found = [];
      for (const occurrence of finding.activities) {
        const members = occurrence.filter((row) => row < trace.count);
        if (!members.length) continue;
        let begin = Math.min(...members.map((row) => start[row])), end = Math.max(...members.map((row) => start[row] + dur[row]));
        if (!idle) { found.push([begin, end]); continue; }
        for (const row of members) { // the idle time before each that waited
          const track = whole[devices.indexOf(trace.devices[lane[row]])], i = track ? last(track.end, start[row]) : -1;
          found.push([i < 0 ? start[row] : track.end[i], start[row]]);
        }
      }
      return found.sort((a, b) => a[0] - b[0]);
    };
    const select = (fingerprint) => {
      const finding = scan.findings.find((one) => one.fingerprint === fingerprint);
      marked.fill(0);
      if (finding) for (const row of finding.activities.flat()) marked[row] = 1;
      spans = finding ? spansOf(finding) : [];
      current = -1;
      at("selected").value = finding ? fingerprint : "";
      canvas.dataset.spans = spans.length;
      redraw();
    };
    const go = (by, first = false) => {
      if (!spans.length) return;
      current = first ? 0 : (current + by + spans.length) % spans.length;
      const [begin, end] = spans[current], around = Math.max(end - begin, span / 1e5, 1000);
      look(begin - around, end + around);
      at("under").textContent = `occurrence ${current + 1} of ${spans.length}: at ${timeText(begin)}, ${timeText(end - begin)} long`;
    };
    const under = (px, py) => {
      const i = Math.floor((py - TOP) / ROW) - 1 - whole.length, track = tracks[i];
      if (!track || px < LABEL) return;
      const at_ = last(track.begin, timeAt(px));
      if (at_ < 0 || track.end[at_] < timeAt(px)) { at("under").textContent = `${track.name}: idle at ${timeText(timeAt(px))}`; return; }
      const row = track.members[at_];
      at("under").textContent = `${trace.names[name[row]]} · ${TITLES[part[row]]} · at ${timeText(start[row])}, ${timeText(dur[row])} · ${track.name}`;
    };

    canvas.addEventListener("wheel", (event) => {
      const out = event.deltaY > 0;
      if (out && view[1] - view[0] >= span) return; // nothing to zoom out of: the page scrolls
      event.preventDefault();
      zoom(out ? 1.25 : 0.8, event.offsetX);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { pointer = [event.offsetX, ...view]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointer) { under(event.offsetX, event.offsetY); return; }
      const by = ((pointer[0] - event.offsetX) / (width - LABEL)) * (pointer[2] - pointer[1]);
      look(pointer[1] + by, pointer[2] + by);
    });
    for (const each of ["pointerup", "pointercancel"]) canvas.addEventListener(each, () => { pointer = null; });
    const actions = { in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), all: () => look(0, span), next: () => go(1), before: () => go(-1) };
    const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all", n: "next", p: "before", ArrowUp: "in", ArrowDown: "out" };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      actions[keys[event.key]]();
    });
    for (const button of all("[data-do]")) button.onclick = actions[button.dataset.do];
    at("selected").onchange = (event) => chosen(event.target.value);
    new ResizeObserver(redraw).observe(canvas);

    const used = new Set(part);
    at("kinds").append(...TITLES.flatMap((title, i) => {
      if (!used.has(i)) return [];
      const item = document.createElement("li"), box = document.createElement("b");
      box.textContent = ` ${LETTERS[i]} `;
      box.style.cssText = `background: ${COLOURS[i]}; color: #000000; padding: 0 .4em`;
      item.append(box, `\u00a0${title}`);
      return [item];
    }));
    if (trace.lanes_left_out) at("under").textContent += ` ${trace.lanes_left_out} more streams are not drawn.`;
    recolour();
    return { recolour, select, go };
  };

  const trace = data("tracemine-trace");
  if (trace) {
    at("timeline").hidden = false;
    at("unscripted").hidden = true;
    chart = timeline(trace, at("canvas"));
    for (const button of all(".show")) button.hidden = false;
  }
  root.addEventListener("themed", () => { if (chart) chart.recolour(); });
  linked();
})();
