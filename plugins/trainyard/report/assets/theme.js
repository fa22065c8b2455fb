"use strict";
// The color scheme: that of the Airflow around this page, else the one stored by Airflow in this browser, else the system's.
(() => {
  const root = document.documentElement;
  const set = (scheme) => { if (root.style.colorScheme !== scheme) root.style.colorScheme = scheme; };
  const named = /^#theme=(light|dark)$/.exec(location.hash);
  if (named) return set(named[1]);
  try {
    if (window.parent !== window) {
      const outer = window.parent.document.documentElement;
      const copy = () => set(outer.style.colorScheme);
      new MutationObserver(copy).observe(outer, { attributeFilter: ["style"] });
      copy();
    } else if (location.protocol !== "file:") {
      const stored = localStorage.getItem("theme");
      if (stored === "light" || stored === "dark") set(stored);
    }
  } catch { /* in a frame of another origin, or without storage, the system's scheme holds */ }
})();
