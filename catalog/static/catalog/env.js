// Adds rows for new variables; without it the form has a few blank ones.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".env-table")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button env-add";
    button.textContent = "Add another variable";
    button.addEventListener("click", () => addRow(table));
    table.append(button);
  }
});

function addRow(table) {
  const rows = table.querySelectorAll("tr.env-new");
  const last = rows[rows.length - 1];
  const row = last.cloneNode(true);
  row.classList.remove("env-wrong");
  for (const note of row.querySelectorAll(".env-note")) {
    note.remove();
  }
  for (const input of row.querySelectorAll("input, textarea")) {
    input.name = input.name.replace(/-new-(\d+)-/, (_, number) => `-new-${Number(number) + 1}-`);
    input.value = input.type === "checkbox" ? "on" : "";
    input.checked = false;
  }
  last.after(row);
  row.querySelector("input").focus();
}
