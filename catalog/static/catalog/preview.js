// Shows the text that is being written in the page; without it the button opens a new tab.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const button = document.querySelector("[data-terms-preview]");
  const shown = document.querySelector(".terms-preview");
  if (!button || !shown) {
    return;
  }
  button.addEventListener("click", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const body = new FormData(button.form);
      const response = await fetch(button.formAction, { method: "POST", body });
      const text = await response.text();
      if (response.ok) {
        // Made by the server, which escapes all HTML in the text.
        shown.innerHTML = text;
      } else {
        shown.textContent =
          response.status === 400 ? text : `The preview cannot be shown (${response.status}).`;
      }
    } catch {
      shown.textContent = "The preview cannot be shown: the runner does not answer.";
    } finally {
      button.disabled = false;
    }
    shown.scrollIntoView({ block: "nearest" });
  });
});
