"use strict";
// Tables whose columns sort, whose rows are filtered by a text, and whose columns can be hidden.
for (const table of document.querySelectorAll("table[data-sorts]")) {
  const [body] = table.tBodies;
  const heads = [...table.tHead.rows[0].cells];
  const read = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.value ?? cell.textContent.trim();
    return { empty: value === "", number: Number(value), text: value };
  };

  /** The order of two rows: numbers by size, then texts; empty cells are last in both directions. */
  const compare = (first, second, column, direction) => {
    const a = read(first, column);
    const b = read(second, column);
    if (a.empty || b.empty) return a.empty - b.empty;
    const numbers = Number(!Number.isNaN(a.number)) - Number(!Number.isNaN(b.number));
    if (numbers) return -numbers;
    return direction * (Number.isNaN(a.number) ? a.text.localeCompare(b.text, "en", { numeric: true }) : a.number - b.number);
  };

  heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
    const direction = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    body.append(...[...body.rows].sort((first, second) => compare(first, second, column, direction)));
  }));

  const find = (name) => document.querySelector(`[data-${name}="${table.id}"]`);
  const count = find("count");
  find("filter")?.addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      for (const box of row.querySelectorAll("input")) box.disabled = row.hidden;
    }
    if (count) count.textContent = [...body.rows].filter((row) => !row.hidden).length;
  });

  find("columns")?.addEventListener("change", (event) => {
    const column = heads.findIndex((head) => head.dataset.column === event.target.value);
    for (const row of table.rows) row.cells[column].hidden = !event.target.checked;
  });
}
