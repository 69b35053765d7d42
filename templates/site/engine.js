// The engine in a worker: an interpreter of Python, and derive in it. It is asked one thing at a time.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const said = (progress, text) => postMessage({ progress, said: text });

try {
  said(5, "The interpreter is loading.");
  const [python, archive] = await Promise.all([
    loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href }),
    fetch(new URL("./engine.zip", import.meta.url)).then((found) => found.arrayBuffer()),
  ]);
  said(60, "The engine is loading.");
  python.unpackArchive(archive, "zip", { extractDir: "/engine" });
  python.runPython("import sys; sys.path.insert(0, '/engine')");
  const answer = python.runPython("from derive.site.live import answer; answer");
  said(90, "The engine is getting ready.");
  answer(JSON.stringify({ text: "y[i] = x[i]**2" }));
  onmessage = ({ data }) => {
    const start = performance.now();
    try {
      const found = answer(data);
      postMessage({ answer: found, seconds: (performance.now() - start) / 1000 });
    } catch {
      // The stack or the memory of the interpreter is used up: what it holds is not to be trusted.
      postMessage({ broken: true });
    }
  };
  postMessage({ ready: true });
} catch (error) {
  postMessage({ failed: String(error.message || error).split("\n").slice(-2).join(" ") });
}
