// Puts the chosen theme in place before the page is painted.
"use strict";
try {
  const theme = localStorage.getItem("rota-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* without storage there is no choice to keep */ }
