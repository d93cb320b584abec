// On a narrow screen a list's rows become cards, whose cells need a word each, and filters are
// folded away; Django's own script then opens again what was left open.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const heads = document.querySelectorAll("#result_list thead th");
  const words = [...heads].map((head) => head.querySelector(".text")?.textContent.trim() ?? "");
  for (const row of document.querySelectorAll("#result_list tbody tr")) {
    [...row.cells].forEach((cell, place) => {
      cell.dataset.label = words[place] ?? "";
    });
  }
});

if (window.matchMedia("(max-width: 767px)").matches) {
  document.querySelector("#changelist-filter .filter-panel")?.removeAttribute("open");
}
