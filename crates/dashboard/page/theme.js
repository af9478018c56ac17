// Applies the stored colour scheme before the first paint, so that the page does not flash. A classic
// script: modules run after the document has been parsed.
try {
  const stored = localStorage.getItem("theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
} catch {
  // Storage is blocked: the system's preference applies.
}
