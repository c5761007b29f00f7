// @ts-check
/** The reference of the API, by Swagger UI. */

// @ts-ignore: Swagger UI is no module, and puts itself here.
const { SwaggerUIBundle } = window;

SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  tryItOutEnabled: false,
  validatorUrl: null, // it would be asked over the internet
});
