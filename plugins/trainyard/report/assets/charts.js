"use strict";
// Draws the elements of class `chart` from the JSON beside them. Charts of one `data-group` share crosshair and zoom.
const trainyard = (() => {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const builders = {};
  const drawn = new Map();

  const probe = document.createElement("i");
  probe.hidden = true;
  /** The value of a color variable in the current color scheme, which a canvas needs. */
  const color = (name) => {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };

  const number = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size >= 1e4) return new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 }).format(value);
    return String(Number(value.toPrecision(4)));
  };

  const duration = (seconds) => {
    const size = Math.abs(seconds);
    const short = (value) => String(Number(value.toPrecision(4)));
    if (size === 0) return "0";
    if (size < 1e-3) return `${short(seconds * 1e6)} µs`;
    if (size < 1) return `${short(seconds * 1e3)} ms`;
    if (size < 60) return `${short(seconds)} s`;
    const units = size < 3600 ? [[60, "min"], [1, "s"]] : [[3600, "h"], [60, "min"]];
    const large = Math.floor(seconds / units[0][0]);
    const small = Math.floor((seconds - large * units[0][0]) / units[1][0]);
    return small ? `${large} ${units[0][1]} ${small} ${units[1][1]}` : `${large} ${units[0][1]}`;
  };

  /** The ends and the interval of an axis with about four ticks at multiples of 1, 2 or 5. */
  const niceScale = (lines) => {
    const values = lines.flat().filter((value) => value !== null && value !== undefined);
    if (!values.length) return {};
    const low = Math.min(...values);
    const high = Math.max(...values);
    const span = high - low || Math.abs(high) || 1;
    const power = 10 ** Math.floor(Math.log10(span / 4));
    const interval = [1, 2, 5, 10].map((factor) => factor * power).find((step) => span / step <= 5);
    const round = (value) => Number(value.toPrecision(12));
    return { min: round(Math.floor(low / interval + 1e-9) * interval), max: round(Math.ceil(high / interval - 1e-9) * interval || interval), interval };
  };

  const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

  /** The parts that all charts have in common. */
  const frame = () => ({
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: color("soft") },
    tooltip: {
      confine: true, backgroundColor: color("paper"), borderColor: color("line"), padding: [6, 10],
      textStyle: { color: color("ink"), fontSize: 12 }, transitionDuration: still ? 0 : 0.1,
      extraCssText: "box-shadow: 0 4px 12px rgb(0 0 0 / .18); border-radius: 6px;",
    },
  });
  const axis = (extra) => ({
    axisLine: { lineStyle: { color: color("line") } }, axisTick: { show: false },
    splitLine: { lineStyle: { color: color("line") } },
    axisLabel: { color: color("soft"), fontSize: 11, hideOverlap: true }, ...extra,
  });

  /** A bar below a chart whose handles choose the part that is shown. */
  const slider = (extra) => {
    const hidden = { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } };
    return {
      type: "slider", showDetail: false, brushSelect: false, moveHandleSize: 0, dataBackground: hidden, selectedDataBackground: hidden,
      borderColor: color("line"), backgroundColor: "transparent", fillerColor: color("track"),
      handleStyle: { color: color("paper"), borderColor: color("soft") }, ...extra,
    };
  };

  builders.lines = (options) => {
    const count = options.places.length;
    const symbols = count <= 40;
    const best = options.best;
    return {
      ...frame(),
      grid: { left: 8, right: 16, top: options.series.length > 1 ? 42 : 22, bottom: symbols ? 26 : 42, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
      legend: options.series.length > 1
        ? { top: 0, left: 0, itemWidth: 16, itemHeight: 8, icon: "roundRect", type: "scroll", textStyle: { color: color("soft"), fontSize: 12, lineHeight: 18 } } : undefined,
      tooltip: {
        ...frame().tooltip, trigger: "axis", axisPointer: { type: "line", lineStyle: { color: color("soft") } },
        formatter: (points) => {
          const lines = points.map((p) => `${p.marker}${escape(p.seriesName)} <b>${number(p.value)}</b>`);
          const note = points[0].dataIndex === best ? " (best)" : "";
          return [`${escape(options.axis)} ${escape(options.places[points[0].dataIndex])}${note}`, ...lines].join("<br>");
        },
      },
      xAxis: axis({
        type: "category", data: options.places, boundaryGap: false, name: options.axis, nameLocation: "middle", nameGap: 22,
        nameTextStyle: { color: color("soft"), fontSize: 11 }, splitLine: { show: false },
        axisLabel: { color: color("soft"), fontSize: 11, hideOverlap: true, ...(options.places[0]?.length > 3 ? { alignMinLabel: "left", alignMaxLabel: "right" } : {}) },
      }),
      yAxis: axis({ type: "value", ...niceScale(options.series.map((line) => line.values)), axisLabel: { color: color("soft"), fontSize: 11, formatter: number } }),
      dataZoom: [
        { type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseMove: "ctrl", moveOnMouseWheel: false },
        ...(symbols ? [] : [slider({ bottom: 0, height: 12, left: 60, right: 20 })]),
      ],
      series: options.series.map((line, at) => ({
        type: "line", name: line.name, data: line.values, connectNulls: false, showSymbol: symbols, symbolSize: 5,
        color: color(`series-${line.color}`), lineStyle: { width: 2, type: line.dash ?? "solid" },
        markLine: best === null || at ? undefined : {
          silent: true, symbol: "none", lineStyle: { color: color("soft"), type: "dashed", width: 1 },
          label: { formatter: "best", color: color("soft"), fontSize: 11, distance: 2 }, data: [{ xAxis: best }],
        },
        markPoint: {
          silent: true, symbol: "circle", symbolSize: 9, label: { show: false },
          itemStyle: { color: color("paper"), borderColor: color(`series-${line.color}`), borderWidth: 2.5 },
          data: [...new Set([best, count - 1])].filter((i) => i !== null && line.values[i] !== null && line.values[i] !== undefined)
            .map((i) => ({ coord: [i, line.values[i]] })),
        },
      })),
    };
  };

  builders.unit = (options) => {
    const names = Object.fromEntries(options.series.map((line) => [line.name, true]));
    return {
      ...frame(),
      grid: { left: 8, right: 16, top: options.series.length > 1 ? 30 : 14, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
      legend: options.series.length > 1
        ? { top: 0, left: 0, itemWidth: 14, itemHeight: 8, icon: "roundRect", type: "scroll", textStyle: { color: color("soft"), fontSize: 12, lineHeight: 18 } } : undefined,
      tooltip: {
        ...frame().tooltip, trigger: "axis", axisPointer: { type: "line", lineStyle: { color: color("soft") } },
        formatter: (points) => points.filter((p) => p.seriesName in names)
          .map((p) => `${p.marker}${escape(p.seriesName)} (${number(p.value[0])}, ${number(p.value[1])})`).join("<br>"),
      },
      xAxis: axis({ type: "value", min: 0, max: 1 }),
      yAxis: axis({ type: "value", min: 0, max: 1 }),
      series: [
        { type: "line", data: [[0, 0], [1, 1]], silent: true, showSymbol: false, color: color("soft"), lineStyle: { type: "dashed", width: 1 } },
        ...options.series.map((line) => ({
          type: "line", name: line.name, data: line.points, symbolSize: 5, showSymbol: line.points.length <= 12,
          color: color(`series-${line.color}`), lineStyle: { width: 1.75, type: line.dash },
        })),
      ],
    };
  };

  /** Arrow keys move the crosshair of a chart of lines, and of those of its group. */
  const moveByKeys = (element, chart, options) => {
    let at = -1;
    element.addEventListener("keydown", (event) => {
      const last = options.places.length - 1;
      const next = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
      if (event.key === "Escape") chart.dispatchAction({ type: "hideTip" });
      if (next === undefined) return;
      event.preventDefault();
      at = next;
      chart.dispatchAction({ type: "showTip", seriesIndex: 0, dataIndex: at });
    });
    element.addEventListener("blur", () => chart.dispatchAction({ type: "hideTip" }));
  };

  const start = (element) => {
    const options = JSON.parse(element.nextElementSibling.textContent);
    const { kind, group } = element.dataset;
    const chart = echarts.init(element, null, { renderer: "canvas" });
    if (group) { chart.group = group; echarts.connect(group); }
    const draw = () => chart.setOption(builders[kind](options, chart, element), { notMerge: true });
    draw();
    drawn.set(element, { chart, draw });
    if (kind === "lines") moveByKeys(element, chart, options);
    return { chart, options, draw };
  };

  /** Draws the charts below `root` that are in view soon, and the others when they are scrolled to. */
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !drawn.has(target)) { seen.unobserve(target); start(target); }
  }, { rootMargin: "400px" });
  const resized = new ResizeObserver((entries) => { for (const { target } of entries) drawn.get(target)?.chart.resize(); });
  const draw = (root) => {
    for (const [element, { chart }] of drawn) if (!element.isConnected) { chart.dispose(); drawn.delete(element); }
    for (const element of root.querySelectorAll(".chart")) { seen.observe(element); resized.observe(element); }
  };

  const redraw = () => { for (const each of drawn.values()) each.draw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["style"] });
  addEventListener("beforeprint", () => { for (const element of document.querySelectorAll(".chart")) if (!drawn.has(element)) start(element); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (button) navigator.clipboard?.writeText(button.dataset.copy).then(() => { button.textContent = "Copied"; }, () => getSelection().selectAllChildren(button.parentElement));
  });
  document.addEventListener("DOMContentLoaded", () => draw(document));
  return { axis, builders, color, draw, duration, escape, frame, slider };
})();
