// Package browser tests the page in a real browser: headless Chromium, driven over its own protocol.
// It is a module of its own, so that what drives the browser is in no one else's way.
//
// testdata/axe.min.js is axe-core 4.14.1, unchanged, under the licence beside it.
package browser
