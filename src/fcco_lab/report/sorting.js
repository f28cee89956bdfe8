// A press on a heading puts the smallest on top, the next the largest; what is missing stays last.
function sort(table, column) {
  const heading = table.tHead.rows[0].cells[column];
  const up = heading.getAttribute("aria-sort") !== "ascending";
  const compare = (a, b) => (column ? a - b : a.localeCompare(b, "en", { numeric: true }));
  const rows = [...table.tBodies[0].rows].sort((one, two) => {
    const [a, b] = [one, two].map((row) => row.cells[column].dataset.sort);
    if (a === "" || b === "") return (a === "") - (b === "");
    return up ? compare(a, b) : compare(b, a);
  });
  table.tBodies[0].append(...rows);
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
}

document.querySelectorAll("table.results").forEach((table) => {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => sort(table, column));
  });
});
