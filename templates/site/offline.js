"use strict";
// Keeps what was loaded once, so that the site works without a network. What is newer on the network comes first.
const STORE = "derive-{{ version }}";
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil((async () => {
  for (const name of await caches.keys()) if (name.startsWith("derive-") && name !== STORE) await caches.delete(name);
  await clients.claim();
})()));
addEventListener("fetch", (event) => {
  const address = new URL(event.request.url);
  if (event.request.method !== "GET" || address.origin !== location.origin) return;
  event.respondWith((async () => {
    const store = await caches.open(STORE);
    try {
      const found = await fetch(event.request);
      if (found.ok) await store.put(event.request, found.clone());
      return found;
    } catch (error) {
      const kept = await store.match(event.request, { ignoreSearch: true });
      if (kept) return kept;
      throw error;
    }
  })());
});
