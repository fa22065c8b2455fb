"use strict";
// The timeline of a run. Short spans share a column, so a window of any width draws some thousand bars.
(() => {
  const { axis, builders, color, duration, escape, frame, slider } = trainyard;
  const SHOWN_ROWS = 30;
  const MIN_PIXELS = 1.5;
  const COLUMN_PIXELS = 8;
  const MAX_SINGLE_SPANS = 3;
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

  /** The smallest interval of time that a person would choose and that leaves the pixels between ticks. */
  const niceStep = (minimum) => {
    if (minimum > 1) return STEPS.find((step) => step >= minimum) ?? Math.ceil(minimum / 86400) * 86400;
    const power = 10 ** Math.floor(Math.log10(minimum));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= minimum * 0.999);
  };

  /** Whether spans of this name run at the same time as others of their row; they are drawn in its lower part. */
  const isOverlapped = (name) => name === "communication";

  const decode = (row) => {
    const starts = new Float64Array(row.starts.length);
    let at = 0;
    row.starts.forEach((step, i) => { at += step; starts[i] = at / 1e6; });
    return { ...row, starts };
  };

  /** The bars of the rows and of the window from `begin` to `end` seconds, where a pixel is `pixel` seconds.
   *
   * A bar is [start, end, row, name, index of its span, top, bottom, spans]. Many spans below MIN_PIXELS are drawn as
   * columns, in which each name has the height of its share of the time; such a bar has the index -1.
   */
  const visible = (options, [firstRow, lastRow], begin, end, pixel) => {
    const columns = [];
    const bars = [];
    const wide = COLUMN_PIXELS * pixel;
    for (let number = firstRow; number <= lastRow; number++) {
      const row = options.rows[number];
      const totals = new Map();
      const counts = new Map();
      for (let i = 0; i < row.starts.length && row.starts[i] <= end; i++) {
        const from = row.starts[i];
        const seconds = row.durations[i] / 1e6;
        if (from + seconds < begin) continue;
        if (seconds >= MIN_PIXELS * pixel) {
          bars.push([from, from + seconds, number, row.names[i], i, 0, 1, 1]);
          continue;
        }
        const column = Math.floor(from / wide);
        const key = column * options.names.length + row.names[i];
        const total = totals.get(key) ?? [0, 0, i];
        totals.set(key, [total[0] + seconds, total[1] + 1, i]);
        counts.set(column, (counts.get(column) ?? 0) + 1);
      }
      const tops = new Map();
      for (const [key, [seconds, spans, last]] of [...totals].sort(([one], [other]) => one - other)) {
        const name = key % options.names.length;
        const column = Math.floor(key / options.names.length);
        if (spans === 1 && counts.get(column) <= MAX_SINGLE_SPANS) {
          const from = row.starts[last];
          bars.push([from, from + Math.max(seconds, pixel), number, name, last, 0, 1, 1]);
          continue;
        }
        const top = isOverlapped(options.names[name]) ? 0 : tops.get(column) ?? 0;
        const bottom = Math.min(top + seconds / wide, 1);
        if (!isOverlapped(options.names[name])) tops.set(column, bottom);
        columns.push([column * wide, (column + 1) * wide, number, name, -1, top, bottom, spans]);
      }
    }
    return columns.concat(bars);
  };

  builders.timeline = (options, chart, element) => {
    options.rows = options.decoded ? options.rows : options.rows.map(decode);
    options.decoded = true;
    options.window ??= [0, options.seconds];
    options.shownRows ??= [0, Math.min(options.rows.length, SHOWN_ROWS) - 1];
    const colors = options.activities.map((key) => color(`activity-${key}`));
    const narrow = element.clientWidth < 640;
    const labels = narrow ? 88 : 150;
    const edge = color("paper");

    const state = () => {
      const [begin, end] = options.window;
      const width = Math.max(element.clientWidth - labels - 30, 50);
      const pixel = (end - begin) / width;
      return { data: visible(options, options.shownRows, begin, end, pixel), step: niceStep(90 * pixel) };
    };
    let { data, step } = state();
    const tick = (seconds) => (step < 1 ? `${seconds.toFixed(Math.ceil(-Math.log10(step) - 1e-9))} s` : duration(Math.round(seconds)));

    const isTick = (seconds) => Math.abs(seconds / step - Math.round(seconds / step)) < 1e-6;

    const renderItem = (params, api) => {
      const { x: left, width, y: top } = params.coordSys;
      const [from, y] = api.coord([api.value(0), api.value(2)]);
      const [to] = api.coord([api.value(1), api.value(2)]);
      const x = Math.max(from, left);
      const right = Math.min(to, left + width);
      if (right <= left || x >= left + width) return null;
      const name = api.value(3);
      const low = isOverlapped(options.names[name]);
      const height = api.size([0, 1])[1] * (low ? 0.3 : 0.72);
      const above = low ? y + api.size([0, 1])[1] * 0.06 : y - height / 2;
      const edged = right - x > 3 && api.value(4) >= 0;
      return {
        type: "rect",
        z2: low ? 2 : 1,
        shape: {
          x, y: Math.max(above + height * api.value(5), top),
          width: Math.max(right - x, 0.8), height: Math.max(height * (api.value(6) - api.value(5)), 0.5),
        },
        style: { fill: colors[name], stroke: edged ? edge : undefined, lineWidth: edged ? 0.5 : 0 },
      };
    };

    const zoom = (begin, end) => {
      const length = Math.min(Math.max(end - begin, 1e-6), options.seconds);
      const from = Math.min(Math.max(begin, 0), options.seconds - length);
      chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, startValue: from, endValue: from + length });
    };
    if (!options.wired) {
      options.wired = true;
      chart.on("datazoom", () => {
        const [{ startValue, endValue }, , rowZoom] = chart.getOption().dataZoom;
        options.window = [startValue, endValue];
        if (rowZoom) options.shownRows = [rowZoom.startValue, rowZoom.endValue];
        ({ data, step } = state());
        chart.setOption({ xAxis: { interval: step, axisLabel: { formatter: tick, showMinLabel: isTick(startValue) } }, series: [{ data }] });
        press();
      });
      chart.on("dblclick", ({ value }) => { const margin = (value[1] - value[0]) * 0.1; zoom(value[0] - margin, value[1] + margin); });
      const buttons = [...document.querySelectorAll(`button[data-zooms="${element.id}"]`)];
      const press = () => {
        const near = (a, b) => Math.abs(a - b) < options.seconds * 1e-6;
        for (const button of buttons) {
          const { begin, end } = button.dataset;
          button.setAttribute("aria-pressed", String(near(options.window[0], Number(begin)) && near(options.window[1], Number(end))));
        }
      };
      for (const button of buttons) button.addEventListener("click", () => zoom(Number(button.dataset.begin), Number(button.dataset.end)));
      element.addEventListener("keydown", (event) => {
        const [begin, end] = options.window;
        const length = end - begin;
        const middle = (begin + end) / 2;
        const moves = {
          ArrowLeft: [begin - length / 5, end - length / 5], ArrowRight: [begin + length / 5, end + length / 5],
          "+": [middle - length / 4, middle + length / 4], "-": [middle - length, middle + length], Home: [0, options.seconds],
        };
        const move = moves[event.key];
        if (!move) return;
        event.preventDefault();
        zoom(...move);
      });
      new ResizeObserver(() => { ({ data, step } = state()); chart.setOption({ xAxis: { interval: step }, series: [{ data }] }); }).observe(element);
    }

    const rows = options.rows.length;
    const zooms = [
      { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, minValueSpan: 1e-6, startValue: options.window[0], endValue: options.window[1] },
      slider({ filterMode: "none", height: 16, bottom: 4, left: labels + 10, right: 20 }),
    ];
    if (rows > SHOWN_ROWS) zooms.push(slider({ yAxisIndex: 0, filterMode: "none", right: 2, width: 12, startValue: options.shownRows[0], endValue: options.shownRows[1] }));
    return {
      ...frame(),
      tooltip: {
        ...frame().tooltip, trigger: "item",
        formatter: ({ value: [begin, end, number, name, span, top, bottom, spans], marker }) => {
          const row = options.rows[number];
          const title = `${marker}<b>${escape(options.names[name])}</b>`;
          if (span < 0) {
            const share = Math.round(100 * (bottom - top));
            return `${title} ${share} % of ${duration(end - begin)}, ${spans.toLocaleString("en")} spans<br>${escape(row.label)}`;
          }
          const lines = [`${title} ${duration(row.durations[span] / 1e6)}`, `${escape(row.label)}, from ${duration(row.starts[span])}`];
          const omitted = row.omitted[span];
          if (omitted) lines.push(`${omitted.toLocaleString("en")} spans not recorded one by one`);
          return lines.join("<br>");
        },
      },
      grid: { left: labels + 10, right: 20, top: 6, bottom: 48, outerBoundsMode: "none" },
      xAxis: axis({
        type: "value", min: 0, max: options.seconds, interval: step,
        axisLabel: { color: color("soft"), fontSize: 11, hideOverlap: true, showMinLabel: isTick(options.window[0]), showMaxLabel: false, formatter: tick },
      }),
      yAxis: axis({
        type: "category", inverse: true, data: options.rows.map((row) => row.label), splitLine: { show: false },
        axisLabel: { color: color("ink"), fontSize: 12, width: labels, overflow: "truncate", interval: 0 },
      }),
      dataZoom: zooms,
      series: [{ type: "custom", progressive: 0, renderItem, data, encode: { x: [0, 1], y: 2 }, itemStyle: { color: color("bar") } }],
    };
  };
})();
