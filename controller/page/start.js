// Runs before the first paint: applies the stored colour scheme, so that the page does not flash, and loads the modules
// after the paint, so that nothing delays it. A classic script, because modules run too late for the first.
try {
  const stored = localStorage.getItem("theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
} catch {
  // Storage is blocked: the system's preference applies.
}
requestAnimationFrame(() => setTimeout(() => document.head.append(document.getElementById("modules").content)));
