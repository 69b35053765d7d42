"use strict";
// The live page: the editor, and what the engine in a worker answers. The spec is in the fragment of the address.
(() => {
  const at = (id) => document.getElementById(id);
  const live = at("live");
  if (location.protocol === "file:") { at("served").hidden = false; return; }
  live.hidden = false;

  const PATIENCE = 4000; // milliseconds that an answer may take while a newer text waits
  const PAUSE = 250; // milliseconds without a key before the engine is asked
  const spec = at("spec"), attempt = at("attempt"), exercise = at("exercise");
  let worker, ready = false, busy = false, shown = null, timer = 0, pause = 0, patience = 0;
  let waiting = null, tried = null, rest = null, doing = null; // what is to be asked, in this order, and what is asked now

  // ---------------------------------------------------------------- the editor

  const TOKENS = /(#[^\n]*)|\b(op|where|and|or|not)\b|([A-Za-z_]\w*)(?=[[(])|(\d+(?:\.\d*)?(?:e[+-]?\d+)?)/g;
  const KNOWN = new Set(live.dataset.words.split(" "));
  function colour() {
    const target = at("colours");
    target.textContent = "";
    let end = 0;
    for (const found of spec.value.matchAll(TOKENS)) {
      const [text, comment, word, name, number] = found;
      const kind = comment ? "c" : word ? "k" : name && KNOWN.has(name) ? "f" : number ? "n" : "";
      if (!kind) continue;
      target.append(spec.value.slice(end, found.index));
      const part = document.createElement("span");
      part.className = kind;
      part.textContent = text;
      target.append(part);
      end = found.index + text.length;
    }
    target.append(spec.value.slice(end) + "\n");
    spec.style.height = "auto";
    spec.style.height = `${spec.scrollHeight}px`;
    target.parentElement.scrollLeft = spec.scrollLeft;
  }

  // ---------------------------------------------------------------- the address

  const encoded = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  function decoded(fragment) {
    try {
      const bytes = atob(fragment.replace(/-/g, "+").replace(/_/g, "/"));
      return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes, (c) => c.charCodeAt(0)));
    } catch { return null; }
  }
  // #s= is a spec, and #e= one whose gradient is an exercise.
  const fromAddress = () => /^#[se]=/.test(location.hash) ? decoded(location.hash.slice(3)) : null;
  const toAddress = () => history.replaceState(null, "", `#${exercise.checked ? "e" : "s"}=${encoded(spec.value)}`);

  // ---------------------------------------------------------------- the engine

  function say(text) { at("state").textContent = text; }

  function start() {
    ready = busy = false;
    at("progress").hidden = false;
    worker = new Worker(new URL(live.dataset.engine, location.href), { type: "module" });
    worker.onmessage = ({ data }) => {
      if (data.progress !== undefined) { at("progress").value = data.progress; say(data.said); return; }
      if (data.failed) { say(`The engine could not be loaded: ${data.failed}`); at("progress").hidden = true; return; }
      if (data.ready) { ready = true; at("progress").hidden = true; say("Ready."); next(); return; }
      busy = false;
      clearTimeout(patience);
      const found = data.broken ? { ok: false, message: "the engine broke on this text" } : JSON.parse(data.answer);
      if (waiting === null) {
        if (doing.rest) complete(found);
        else if (doing.attempt === undefined) show(found, data.seconds);
        else if (tried === null) judged(found);
      }
      if (data.broken) again("The engine starts again."); else next();
    };
    worker.onerror = (event) => { say(`The engine stopped: ${event.message}`); at("progress").hidden = true; };
  }

  function again(why) {
    worker.terminate();
    start();
    say(why);
  }

  // An answer that takes long is given up once there is a newer text.
  function impatient() { again("That took too long, the engine starts again."); }

  function ask() {
    waiting = { text: spec.value, option: at("option").value || null, wrt: at("wrt").value ? [at("wrt").value] : null, tangent: at("tangent").checked };
    hurry();
  }

  function hurry() {
    if (ready && busy) { clearTimeout(patience); patience = setTimeout(impatient, PATIENCE); }
    next();
  }

  // The spec comes first: what is tried is of the spec that stands there. The code takes longest and comes last.
  function next() {
    if (!ready || busy) return;
    if (waiting) { doing = waiting; waiting = null; say("Deriving."); }
    else if (tried !== null) { doing = { text: spec.value, option: at("option").value || null, attempt: tried }; tried = null; say("Judging."); }
    else if (rest) { doing = { ...rest, rest: true }; rest = null; }
    else return;
    busy = true;
    worker.postMessage(JSON.stringify(doing));
  }

  function typed() {
    colour();
    clearTimeout(timer);
    timer = setTimeout(() => {
      toAddress();
      ask();
    }, PAUSE);
  }

  // ---------------------------------------------------------------- the answer

  function fill(list, names, chosen, first) {
    list.textContent = "";
    for (const name of first ? ["", ...names] : names) {
      const option = document.createElement("option");
      option.value = name;
      option.textContent = name || first;
      option.selected = name === chosen;
      list.append(option);
    }
  }

  function show(found, seconds) {
    const error = at("error");
    error.hidden = found.ok;
    spec.setAttribute("aria-invalid", String(!found.ok));
    if (!found.ok) {
      mistake(error, found, spec.value);
      say("The text has a mistake; the answer is of the text before it.");
      if (shown && !shown.plain) rest = shown.asked;
      return;
    }
    if (shown === null || attempt.value === shown.begin) attempt.value = found.begin;
    shown = { ...found, asked: doing };
    rest = doing;
    finished(false);
    task();
    if (exercise.checked) judge();
    say(`Derived in ${seconds.toFixed(seconds < 1 ? 2 : 1)} s.`);
    at("choices").hidden = false;
    at("option-label").hidden = !found.options.length;
    fill(at("option"), found.options, found.option, "");
    fill(at("wrt"), found.names, at("wrt").value, "all inputs");
    // Markup that the engine made itself: it escapes every name.
    at("formulas").innerHTML = found.formulas;
    at("answer").hidden = false;
  }

  // Code, cost and what is copied are those of the formulas above them.
  function finished(all) {
    at("rest").setAttribute("aria-busy", String(!all));
    for (const button of document.querySelectorAll("[data-copy]")) button.disabled = !all;
  }

  function complete(found) {
    if (!found.ok) {
      at("error").hidden = false;
      mistake(at("error"), found, shown.asked.text);
      say("The formulas are derived, the code is not.");
      return;
    }
    shown = { ...shown, ...found };
    finished(true);
    // Markup that the engine made itself: it escapes every name.
    at("cost").lastElementChild.innerHTML = found.cost;
    for (const style of ["plain", "production"]) {
      const code = at(style).querySelector("code");
      code.innerHTML = found[style].lines.map((line, n) => `<span class="line"><span data-n="${n + 1}"></span>${line}\n</span>`).join("");
    }
  }

  // ---------------------------------------------------------------- the exercise

  function task() {
    at("task").hidden = !exercise.checked;
    at("solution").hidden = exercise.checked && at("reveal").getAttribute("aria-expanded") === "false";
  }

  function judge() {
    if (shown === null) return;
    const begun = attempt.value.trim();
    tried = begun && begun !== shown.begin.trim() ? attempt.value : null;
    if (tried === null) {
      at("verdict").textContent = "";
      at("attempt-error").hidden = true;
      return;
    }
    hurry();
  }

  function judged(found) {
    say("Judged.");
    at("attempt-error").hidden = found.ok;
    at("attempt-error").textContent = "";
    if (!found.ok) mistake(at("attempt-error"), found, attempt.value);
    // Markup that the engine made itself: it escapes every name.
    at("verdict").innerHTML = found.ok ? found.html : "";
  }

  // Fill an element with an error: the sentence, its code, the line and the place in it.
  function mistake(target, found, text) {
    const line = found.line ? text.split("\n")[found.line - 1] ?? "" : "";
    const caret = found.line ? `\n\n${line}\n${" ".repeat(found.column - 1)}^` : "";
    const place = found.line ? `line ${found.line}, column ${found.column}: ` : "";
    target.textContent = `${place}${found.message.split("\n  in ")[0]} `;
    if (found.code) {
      const page = document.createElement("a");
      page.href = found.page;
      page.textContent = `[${found.code}]`;
      target.append(page);
    }
    target.append(caret);
  }

  function copied(kind) {
    if (kind === "plain" || kind === "production") return shown[kind].text;
    if (kind === "markdown") return `\`\`\`derive\n${shown.asked.text.trim()}\n\`\`\`\n\n${shown.markdown}\n`;
    return shown[kind];
  }

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(copied(button.dataset.copy));
      const label = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1200);
    });
  }
  spec.addEventListener("input", typed);
  spec.addEventListener("scroll", () => { at("colours").parentElement.scrollLeft = spec.scrollLeft; });
  for (const id of ["option", "wrt", "tangent"]) at(id).addEventListener("change", ask);
  at("example").addEventListener("change", () => {
    const chosen = at("example");
    spec.value = chosen.value;
    at("wrt").value = "";
    practise(chosen.selectedOptions[0].dataset.exercise !== undefined);
    typed();
  });

  function practise(wanted) {
    exercise.checked = wanted;
    at("reveal").setAttribute("aria-expanded", "false");
    attempt.value = "";
    if (shown) shown.begin = "";
    task();
  }
  exercise.addEventListener("change", () => { task(); toAddress(); judge(); });
  attempt.addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(judge, 2 * PAUSE); });
  at("reveal").addEventListener("click", () => {
    const open = at("reveal").getAttribute("aria-expanded") === "false";
    at("reveal").setAttribute("aria-expanded", String(open));
    at("reveal").textContent = open ? "Hide the answer" : "Show the answer";
    task();
  });
  addEventListener("hashchange", () => {
    const text = fromAddress(), wanted = location.hash.startsWith("#e=");
    if (text === null || (text === spec.value && wanted === exercise.checked)) return;
    spec.value = text;
    practise(wanted);
    colour();
    ask();
  });

  spec.value = fromAddress() ?? at("example").value;
  practise(location.hash.startsWith("#e="));
  colour();
  ask();
  start();
  if ("serviceWorker" in navigator) navigator.serviceWorker.register("offline.js").catch(() => {});
})();
