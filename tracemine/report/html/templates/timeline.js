
"use strict";
// The timeline of one step: what the host did above, what the GPU did below, and where a chosen finding is.
const timeline = (() => {
  const COLOURS = ["#56b4e9", "#cc79a7", "#f0e442", "#009e73", "#bbbbbb", "#e69f00", "#d55e00"]; // Okabe and Ito
  const LETTERS = ["G", "A", "M", "O", "–", "C", "N"];
  const TITLES = ["GEMM/conv", "attention", "memory-bound", "optimizer", "other", "copies", "communication"];
  const ROW = 22, TOP = 20, LABEL = 118, SINGLE = 20000; // activities of a track that are drawn one by one
  const CLOSE = 20000, TIMES = 10; // a neighbour is shown whole up to so many ns, or times the occurrence

  const timeText = (ns) => {
    const [by, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([factor]) => Math.abs(ns) >= factor) || [1, "ns"];
    return `${Number((ns / by).toPrecision(by === 1 ? 3 : 4))} ${unit}`;
  };
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
  /** Spans one after another: where they overlap, each begins when those before it end. */
  class Track {
    constructor(name, members, start, dur, says, part = null) {
      const count = members.length;
      Object.assign(this, { name, members, says, part, begin: new Float64Array(count), end: new Float64Array(count), busy: new Float64Array(count + 1) });
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
    /** The spans that touch a time from one moment to another: the first, and the first behind them. */
    within(begin, end) { return [last(this.end, begin) + 1, last(this.begin, end) + 1]; }
  }

  /** All tracks of a trace, and what is drawn of findings over them. */
  const tracksOf = (trace) => {
    const start = unpacked(trace.start_ns, Float64Array), dur = unpacked(trace.dur_ns, Float32Array);
    const lane = unpacked(trace.lane, Int16Array), name = unpacked(trace.name, Uint16Array);
    const part = unpacked(trace.part, Uint8Array), step = unpacked(trace.step, Int16Array);
    const byLane = trace.lanes.map(() => []), byDevice = new Map(trace.devices.map((device) => [device, []]));
    for (let i = 0; i < trace.count; i++) if (lane[i] >= 0) { byLane[lane[i]].push(i); byDevice.get(trace.devices[lane[i]]).push(i); }
    const says = (row) => ({ name: trace.names[name[row]], short: trace.short_names[name[row]] || trace.names[name[row]], kind: TITLES[part[row]], start: start[row], dur: dur[row] });
    const busy = new Map([...byDevice].map(([device, rows]) => [device, new Track(`GPU ${device} busy`, rows, start, dur, says)]));
    const host = trace.host.map((given) => {
      const begin = unpacked(given.start_ns, Float64Array), long = unpacked(given.dur_ns, Float32Array), of = unpacked(given.name, Uint16Array);
      const told = (row) => ({ name: given.names[of[row]], short: given.names[of[row]].replace(/^.*[/\\](?=[^/\\]*:\d)|^aten::/, ""), kind: "host", start: begin[row], dur: long[row] });
      return new Track(given.title, [...begin.keys()], begin, long, told);
    });
    const streams = trace.lanes.map((text, i) => new Track(text, byLane[i], start, dur, says, part));
    // Of a device with one stream both say the same.
    const whole = [...busy].filter(([device]) => trace.devices.filter((one) => one === device).length > 1).map(([, track]) => track);
    const deviceOf = (row) => busy.get(trace.devices[lane[row]]);
    return { host, gpu: [...whole, ...streams], busy: [...busy.values()], start, dur, step, part, deviceOf, lane };
  };

  /** Where a finding's occurrences are, in order of time: begin, end, step, and the track of its device. */
  const spansOf = (finding, of, count) => {
    const idle = !finding.fused_ns && !finding.gpu_saving_ns.high, found = [];
    for (const occurrence of finding.activities) {
      const members = occurrence.filter((row) => row < count && of.lane[row] >= 0);
      if (!members.length) continue;
      const track = of.deviceOf(members[0]), step = of.step[members[0]];
      if (!idle) { found.push({ begin: Math.min(...members.map((row) => of.start[row])), end: Math.max(...members.map((row) => of.start[row] + of.dur[row])), step, track }); continue; }
      for (const row of members) { // the idle time before each that waited
        const own = of.deviceOf(row), i = last(own.end, of.start[row]);
        found.push({ begin: i < 0 ? of.start[row] : own.end[i], end: of.start[row], step: of.step[row], track: own });
      }
    }
    return found.sort((a, b) => a.begin - b.begin);
  };

  // longest: ns that are drawn at least, so that two steps have one scale.
  return (section, trace, findings, longest = 0) => {
    const at = (selector) => section.querySelector(selector);
    const canvas = at("canvas"), steps = at(".steps"), under = at(".under"), tip = at(".tip"), g = canvas.getContext("2d");
    const of = tracksOf(trace);
    const rows = [...of.host, ...(findings.length ? [{ name: "finding" }] : []), ...of.gpu];
    const span = Math.max(1, ...of.busy.map((track) => track.end[track.end.length - 1] || 0));
    const first = Math.min(0, ...of.host.map((track) => track.begin[0] ?? 0));
    const marked = new Uint8Array(trace.count);
    let bounds = [first, span], view = [...bounds], spans = [], current = -1, step = -1, only = -1, filtered = false, selected = "";
    let waiting = false, ink = {}, width = 0, pointer = null, moved = null;

    const recolour = () => {
      const probe = document.createElement("span");
      section.append(probe);
      for (const each of ["page", "raised", "line", "ink", "soft", "mark", "calm", "host"]) {
        probe.style.color = `var(--${each})`;
        ink[each] = getComputedStyle(probe).color;
      }
      probe.remove();
      redraw();
    };
    const redraw = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
    const x = (time) => LABEL + ((time - view[0]) / (view[1] - view[0])) * (width - LABEL);
    const timeAt = (px) => view[0] + ((px - LABEL) / (width - LABEL)) * (view[1] - view[0]);
    const look = (begin, end, tells = true) => {
      const most = bounds[1] - bounds[0], size = Math.min(Math.max(end - begin, Math.min(50, most)), most);
      const from = Math.min(Math.max(begin, bounds[0]), bounds[1] - size);
      view = [from, from + size];
      if (tells && moved) moved(view[0] - bounds[0], view[1] - bounds[0]);
      redraw();
    };
    const zoom = (by, px = LABEL + (width - LABEL) / 2) => { const t = timeAt(px); look(t - (t - view[0]) * by, t + (view[1] - t) * by); };
    const move = (share) => { const by = (view[1] - view[0]) * share; look(view[0] + by, view[1] + by); };

    const drawTrack = (track, y) => {
      const [from, stop] = track.within(view[0], view[1]);
      if (stop - from > SINGLE) {
        g.fillStyle = ink.calm;
        let before = track.until(timeAt(LABEL));
        for (let px = LABEL; px < width; px++) {
          const after = track.until(timeAt(px + 1)), share = (after - before) / (timeAt(px + 1) - timeAt(px));
          if (share > 0) { const high = Math.max(1, share * (ROW - 6)); g.fillRect(px, y + ROW - 3 - high, 1, high); }
          before = after;
        }
        return;
      }
      for (let i = from; i < stop; i++) {
        const row = track.members[i], left = Math.max(x(track.begin[i]), LABEL), wide = Math.max(x(track.end[i]) - left, 0.5);
        const kind = track.part ? track.part[row] : -1;
        g.globalAlpha = filtered && kind !== only ? 0.2 : 1;
        g.fillStyle = kind >= 0 ? COLOURS[kind] : ink.host;
        g.fillRect(left, y + 2, wide > 3 ? wide - 1 : wide, ROW - 4);
        if (kind >= 0 && marked[row]) { g.fillStyle = ink.ink; g.fillRect(left, y + ROW - 4, Math.max(wide, 1), 3); }
        if (wide > 14 && (kind >= 0 || wide > 40)) {
          g.save(); g.beginPath(); g.rect(left, y, wide - 2, ROW); g.clip();
          g.fillStyle = kind >= 0 ? "#000000" : ink.ink;
          const { short } = track.says(row);
          g.fillText(kind < 0 ? short : wide > 60 ? `${LETTERS[kind]} ${short}` : LETTERS[kind], left + 3, y + 15);
          g.restore();
        }
        g.globalAlpha = 1;
      }
    };
    const drawAxis = (height) => {
      const wanted = ((view[1] - view[0]) / (width - LABEL)) * 80, power = 10 ** Math.floor(Math.log10(wanted));
      const every = Math.max([1, 2, 5, 10].find((n) => n * power >= wanted) * power, 1), zero = step < 0 ? 0 : bounds[0];
      g.fillStyle = ink.soft; g.strokeStyle = ink.line; g.lineWidth = 1;
      for (let t = zero + Math.ceil((view[0] - zero) / every) * every; t <= view[1]; t += every) {
        g.beginPath(); g.moveTo(x(t), TOP - 4); g.lineTo(x(t), height); g.stroke();
        if (x(t) < width - 50) g.fillText(timeText(t - zero), x(t) + 3, 12);
      }
      g.setLineDash([6, 4]); g.strokeStyle = ink.ink;
      for (const [begin] of trace.steps) if (begin > view[0] && begin < view[1]) { g.beginPath(); g.moveTo(x(begin), 0); g.lineTo(x(begin), height); g.stroke(); }
      g.setLineDash([]);
    };
    const drawSpans = (y) => {
      let drawn = -1;
      spans.forEach(({ begin, end }, i) => {
        if (end < view[0] || begin > view[1] || (i !== current && x(end) < drawn + 1)) return;
        const left = Math.max(x(begin), LABEL), wide = Math.max(x(end) - left, 2);
        drawn = left + wide;
        g.fillStyle = ink.mark; g.fillRect(left, y + 7, wide, ROW - 11);
        g.beginPath(); g.moveTo(left - 4, y + 1); g.lineTo(left + 4, y + 1); g.lineTo(left, y + 7); g.fill();
        if (i === current) { g.strokeStyle = ink.ink; g.lineWidth = 2; g.strokeRect(left - 1, y + 6, wide + 2, ROW - 9); }
      });
    };
    const draw = () => {
      waiting = false;
      const scale = devicePixelRatio || 1, height = TOP + ROW * rows.length;
      width = canvas.clientWidth || 300;
      canvas.style.height = `${height}px`;
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) { canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale); }
      g.setTransform(scale, 0, 0, scale, 0, 0);
      g.font = "12px system-ui, sans-serif";
      g.fillStyle = ink.page; g.fillRect(0, 0, width, height);
      drawAxis(height);
      rows.forEach((track, i) => {
        const y = TOP + i * ROW;
        if (track.members) drawTrack(track, y); else drawSpans(y);
        g.fillStyle = ink.page; g.fillRect(0, y, LABEL - 2, ROW);
        g.fillStyle = ink.soft; g.fillText(track.name, 4, y + 15);
      });
      canvas.dataset.view = view.join(" ");
      document.documentElement.dataset.ready = "1";
    };

    const inStep = () => (step < 0 ? spans : spans.filter((one) => one.step === step));
    const setStep = (number) => {
      step = number;
      bounds = step < 0 ? [first, span] : [trace.steps[step][0], trace.steps[step][0] + trace.steps[step][1]];
      bounds[1] = Math.max(bounds[1], bounds[0] + longest);
      steps.value = step;
      at("[data-do=all]").textContent = step < 0 ? "All" : "Whole step";
      current = -1;
      look(...bounds);
      counted();
    };
    const counted = () => {
      const shown = inStep(), number = spans[current] ? shown.indexOf(spans[current]) + 1 : 0;
      const where = step < 0 ? (trace.steps.length ? `in ${trace.steps.length} steps` : "in the trace") : "in this step";
      at(".chosen").hidden = !spans.length;
      at(".occurrence").textContent = number ? `${number} of ${shown.length} ${where}` : `${shown.length} ${where}`;
    };
    const select = (fingerprint) => {
      if (fingerprint === selected) return;
      selected = fingerprint;
      const finding = findings.find((one) => one.fingerprint === fingerprint);
      marked.fill(0);
      if (finding) for (const row of finding.activities.flat()) marked[row] = 1;
      spans = finding ? spansOf(finding, of, trace.count) : [];
      current = -1;
      if (spans.length && !inStep().length) setStep(-1);
      canvas.dataset.spans = spans.length;
      counted();
      redraw();
    };
    /** Show an occurrence in the middle: half as much again on each side, and what runs right before and behind it. */
    const go = (by, anew = false) => {
      const shown = inStep();
      if (!shown.length) return;
      const before = anew ? -1 : shown.indexOf(spans[current]);
      const chosen = shown[before < 0 ? (by > 0 ? 0 : shown.length - 1) : (before + by + shown.length) % shown.length];
      current = spans.indexOf(chosen);
      const { begin, end, track } = chosen, size = end - begin, most = Math.max(TIMES * size, CLOSE);
      const [from, stop] = [last(track.begin, begin - 1), last(track.begin, end - 1) + 1];
      const near = [from >= 0 ? begin - track.begin[from] : 0, stop < track.end.length ? track.end[stop] - end : 0];
      const around = Math.max(size / 2, 500, ...near.map((each) => Math.min(each, most)));
      look(begin - around, end + around);
      counted();
      under.textContent = `${at(".occurrence").textContent}: at ${timeText(begin - (step < 0 ? 0 : bounds[0]))}, ${timeText(size)} long`;
    };
    const filter = (part) => { filtered = part !== ""; only = trace.parts.indexOf(part); redraw(); };

    const toldAt = (px, py) => {
      const track = rows[Math.floor((py - TOP) / ROW)];
      if (!track || !track.members || px < LABEL) return "";
      const i = last(track.begin, timeAt(px)), zero = step < 0 ? 0 : bounds[0];
      if (i < 0 || track.end[i] < timeAt(px - 1)) return `${track.name}: nothing at ${timeText(timeAt(px) - zero)}`;
      const { name, kind, start, dur } = track.says(track.members[i]);
      return `${name} · ${kind} · at ${timeText(start - zero)}, ${timeText(dur)} · ${track.name}`;
    };
    const told = (event) => {
      const text = toldAt(event.offsetX, event.offsetY);
      if (text) under.textContent = text;
      tip.hidden = !text;
      tip.textContent = text;
      const most = Math.max(width - tip.offsetWidth, 0);
      tip.style.left = `${Math.min(event.offsetX + 12, most)}px`;
      tip.style.top = `${canvas.offsetTop + event.offsetY + 18}px`;
    };

    canvas.addEventListener("wheel", (event) => {
      const out = event.deltaY > 0;
      if (out && view[1] - view[0] >= bounds[1] - bounds[0]) return; // nothing to zoom out of: the page scrolls
      event.preventDefault();
      zoom(out ? 1.25 : 0.8, event.offsetX);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { pointer = [event.offsetX, ...view]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointer) { told(event); return; }
      const by = ((pointer[0] - event.offsetX) / (width - LABEL)) * (pointer[2] - pointer[1]);
      look(pointer[1] + by, pointer[2] + by);
    });
    for (const each of ["pointerup", "pointercancel"]) canvas.addEventListener(each, () => { pointer = null; });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    const actions = { in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), all: () => look(...bounds), next: () => go(1), before: () => go(-1) };
    const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all", n: "next", p: "before", ArrowUp: "in", ArrowDown: "out" };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      actions[keys[event.key]]();
    });
    for (const button of all("[data-do]", section)) button.onclick = actions[button.dataset.do];
    steps.append(...trace.steps.map((_, i) => new Option(`step ${i + 1} of ${trace.steps.length}`, i)), new Option("all that was recorded", -1));
    steps.onchange = () => setStep(Number(steps.value));
    new ResizeObserver(redraw).observe(canvas);

    if (trace.lanes_left_out) under.textContent += ` ${trace.lanes_left_out} more streams are not drawn.`;
    at(".drawn").hidden = false;
    at(".unscripted").hidden = true;
    recolour();
    // The step of middling length: the first may differ, and the last be cut.
    const byLength = trace.steps.map((_, i) => i).sort((a, b) => trace.steps[a][1] - trace.steps[b][1]);
    setStep(byLength.length ? byLength[byLength.length >> 1] : -1);
    return { recolour, select, go, filter, onmove: (tell) => { moved = tell; }, follow: (begin, end) => look(bounds[0] + begin, bounds[0] + end, false) };
  };
})();
