"use strict";

// Shows the document of /v1/openapi.json; nothing is loaded from, or sent to, anywhere else.
const page = document.getElementById("page");
SwaggerUIBundle({
  url: page.dataset.document,
  domNode: page,
  deepLinking: true,
  validatorUrl: null,
  showExtensions: true,
  defaultModelsExpandDepth: 0,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
