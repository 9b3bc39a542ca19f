// Draws the curves of a page with uPlot: one chart for each metric, smoothing and log scale, light and dark.
"use strict";
document.querySelectorAll(".charts[data-src]").forEach((box) => {
  const settings = document.getElementById(box.dataset.settings || "");
  const slow = Boolean(box.dataset.slow);  // what changes slowly is asked for less often
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const COLOURS = {
    light: ["#1667b7", "#c2590c", "#1f8a4c", "#8e3fb5", "#b3261e", "#0f7c86", "#7a6a00", "#c2185b", "#4b5563", "#0b8f5a", "#a15c2f", "#5146c9"],
    dark: ["#6db3f2", "#f5a35b", "#6cd08a", "#c792ea", "#ff8f85", "#5fd0d9", "#d9c84a", "#f48fb1", "#c3ccd6", "#3fe0a0", "#d9a27a", "#a5a0ff"],
  };
  const WHOLE = [1, 2, 5].flatMap((step) => [...Array(12).keys()].map((n) => step * 10 ** n)).sort((a, b) => a - b);
  const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800];
  const HIGH = box.classList.contains("compact") ? 170 : 240;
  const words = JSON.parse(document.body.dataset.words), word = (text) => words[text] || text;
  const weight = () => Number(settings?.elements.smooth.value || 0), logarithmic = () => Boolean(settings?.elements.log.checked);
  let told = null, plots = [], all = false;

  function smoothed(values, weight) {  // as TensorBoard: an exponential mean without the bias of its start
    let last = 0, seen = 0;
    return values.map((value) => {
      if (value === null || weight === 0) return value;
      last = last * weight + (1 - weight) * value;
      seen += 1;
      return last / (1 - weight ** seen);
    });
  }

  function aligned(curves, weight, log) {
    const places = [...new Set(curves.flatMap((curve) => curve.points.map((point) => point[0])))].sort((a, b) => a - b);
    const index = new Map(places.map((at, i) => [at, i]));
    const columns = curves.map((curve) => {
      const values = smoothed(curve.points.map((point) => point[1]), weight);
      const column = new Array(places.length).fill(undefined);
      curve.points.forEach((point, i) => {
        const value = values[i];
        column[index.get(point[0])] = value === null || (log && value <= 0) ? null : value;
      });
      return column;
    });
    return [places, ...columns];
  }

  function short(value) {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(+value.toPrecision(5));
  }

  function colour(i) {  // never one twice
    const known = COLOURS[dark.matches ? "dark" : "light"];
    return known[i] || `hsl(${(i * 137.5) % 360} 65% ${dark.matches ? 70 : 38}%)`;
  }

  function strokes(chart) {  // of several runs each has a colour, and what is not of the training is dashed
    const runs = [...new Set(told.charts.flatMap((each) => each.curves.map((curve) => curve.run)))];
    const seen = new Map();
    return chart.curves.map((curve, i) => {
      if (runs.length < 2) return { stroke: colour(i) };
      const nth = seen.get(curve.run) || 0;
      seen.set(curve.run, nth + 1);
      return { stroke: colour(runs.indexOf(curve.run)), dash: nth ? [[7, 4], [2, 3], [10, 3, 2, 3]][(nth - 1) % 3] : undefined };
    });
  }

  function worded(value, unit) {
    if (value === null || value === undefined) return "";
    if (unit !== "bytes") return short(value) + (unit === "%" ? " %" : "");
    const size = Math.max(0, Math.min(4, Math.floor(Math.log10(Math.max(value, 1)) / 3)));
    return `${+(value / 1000 ** size).toPrecision(3)} ${["B", "kB", "MB", "GB", "TB"][size]}`;
  }

  const named = (chart, text) => (chart.time ? word(text) : text);  // the names of metrics are the user's own

  const clock = (at) => new Date(at * 1000).toLocaleTimeString(document.documentElement.lang, { hour12: false });

  const last = (plot) => plot.setLegend({ idx: plot.data[0].length - 1 });  // shown while no pointer is over the chart

  function options(chart, width, log) {
    const style = getComputedStyle(document.documentElement);
    const text = style.getPropertyValue("--weak"), line = style.getPropertyValue("--line");
    const lines = strokes(chart), units = new Set(chart.curves.map((curve) => curve.unit));
    const unit = units.size === 1 ? chart.curves[0].unit : "";
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
    const whole = chart.curves.every((curve) => curve.points.every((point) => Number.isInteger(point[0])));
    const few = !chart.time && chart.curves[0].points.length < 60;
    return {
      width, height: HIGH, scales: { x: { time: false }, y: { distr: log ? 3 : 1, range: chart.time ? (_, low, high) => [0, (high || 1) * 1.08] : undefined } },
      axes: [chart.time ? { ...axis, size: 34, space: 90, incrs: SECONDS, values: (_, ticks) => ticks.map(clock) }
        : { ...axis, label: word(chart.axis), labelSize: 18, size: 34, labelFont: "12px system-ui, sans-serif", incrs: whole ? WHOLE : undefined, values: (_, ticks) => ticks.map(short) },
        { ...axis, size: 66, values: (_, ticks) => ticks.map((tick) => (unit ? worded(tick, unit) : short(tick))) }],
      series: [{ label: word(chart.axis), value: (_, value) => (value == null ? "" : chart.time ? clock(value) : short(value)) },
        ...chart.curves.map((curve, i) => ({
          label: named(chart, curve.label), ...lines[i], width: 1.6, spanGaps: false, points: { show: few, size: 5 }, value: (_, value) => worded(value, curve.unit),
        }))],
      legend: { markers: { dash: (_, i) => (lines[i - 1]?.dash ? "dashed" : "solid") } },
      cursor: { drag: { x: true, y: false } }, hooks: { ready: [last] },
    };
  }

  function draw() {
    const log = logarithmic();
    const width = (element) => Math.max(200, element.clientWidth - 22);
    plots.forEach((plot) => plot.destroy());
    plots = [];
    const boxes = told.charts.map((chart) => {
      const element = document.createElement("figure");
      element.className = "chart";
      const title = document.createElement("h3");
      title.textContent = named(chart, chart.title);
      const place = document.createElement("div");
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", chart.curves.map((curve) => {
        const last = curve.points[curve.points.length - 1];
        return `${named(chart, curve.label)}: ${last ? worded(last[1], curve.unit) : ""}`;
      }).join("; "));
      element.append(title, place);
      return [element, place, chart];
    });
    box.replaceChildren(...boxes.map(([element]) => element));
    if (!boxes.length) {
      const empty = document.createElement("p");
      empty.className = "why";
      empty.textContent = box.dataset.empty;
      box.replaceChildren(empty);
    }
    for (const [element, place, chart] of boxes) {
      const plot = new uPlot(options(chart, width(element), log), aligned(chart.curves, weight(), log), place);
      plot.over.addEventListener("mouseleave", () => setTimeout(last, 0, plot));
      plots.push(plot);
    }
    if (told.more) {
      const button = document.createElement("button");
      button.textContent = `${box.dataset.more} (+${told.more})`;
      button.addEventListener("click", () => { all = true; load(); });
      box.append(button);
    }
  }

  function redraw() {  // new points in the same charts: no flicker, the zoom stays
    told.charts.forEach((chart, i) => plots[i].setData(aligned(chart.curves, weight(), logarithmic()), true));
    plots.forEach((plot) => { if (plot.cursor.idx == null) last(plot); });
  }

  const shape = (answer) => JSON.stringify([answer.more > 0, answer.charts.map((chart) => [chart.title, chart.axis, chart.curves.map((c) => [c.label, c.points.length < 60])])]);

  const load = asksAgain(() => box.dataset.src + (all ? "&all=1" : ""), () => (slow ? 9000 : 2000), (now) => {
    const same = told !== null && plots.length && shape(now) === shape(told);
    told = now;
    if (same) redraw(); else draw();
    box.dataset.drawn = String(told.charts.length);
  });

  let size = 0;
  new ResizeObserver(() => {
    if (told && box.clientWidth !== size) { size = box.clientWidth; draw(); }
  }).observe(box);
  settings?.addEventListener("input", () => { if (told) draw(); });
  settings?.addEventListener("submit", (event) => event.preventDefault());
  dark.addEventListener("change", () => { if (told) draw(); });
  load();
});
