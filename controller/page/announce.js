// Announcements to screen readers. Used for results of the user's own actions and for changes of the connection only:
// numbers that change every second would drown everything else.

/** Announces a sentence. */
export function announce(text) {
  const region = document.getElementById("announcer");
  // The same text twice is not announced unless the region was empty in between.
  region.textContent = "";
  requestAnimationFrame(() => (region.textContent = text));
}
