// Shows the HTML that Python sends, and sends Python what the user does. What that means is decided in Python:
// ngbkit/panels/page.py has the other side of each message.

/** The keys that move the focus within an element with data-arrows. */
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
const PAUSE_MS = 150;
const FOCUSABLE = "button:not([disabled]), input:not([disabled]), select, summary, a[href]";

/** Change `old` into `fresh` in place, so that focus, scroll positions and what the user types stay. */
function morph(old, fresh) {
  for (const { name } of [...old.attributes]) {
    // What the user folded open stays open.
    if (!fresh.hasAttribute(name) && !(name === "open" && old.tagName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.tagName === "INPUT") {
    if (old.type === "checkbox" || old.type === "radio") old.checked = fresh.hasAttribute("checked");
    // Where the user types, only what was just sent comes back.
    else if (old !== document.activeElement || (old.dataset.enter && !old.value)) old.value = fresh.getAttribute("value") ?? "";
    return;
  }
  // Parts and charts have messages of their own.
  if (fresh.hasAttribute("data-part") || fresh.hasAttribute("data-chart")) return;
  morphChildren(old, fresh);
  if (old.tagName === "SELECT") {
    const selected = [...old.options].find((option) => option.hasAttribute("selected"));
    if (selected) old.value = selected.value;
  }
}

function morphChildren(old, fresh) {
  const keyed = new Map([...old.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  let place = old.firstChild;
  for (const node of [...fresh.childNodes]) {
    const key = node.dataset?.key;
    const match = key ? keyed.get(key) : place && !place.dataset?.key && alike(place, node) ? place : null;
    if (!match) {
      old.insertBefore(node, place);
      continue;
    }
    if (match === place) place = place.nextSibling;
    else old.insertBefore(match, place);
    if (match.nodeType === Node.ELEMENT_NODE) morph(match, node);
    else if (match.data !== node.data) match.data = node.data;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function alike(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && old.dataset?.part === fresh.dataset?.part;
}

/** The first background behind an element that is not transparent. */
function findBackground(element) {
  for (let node = element; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (colour && colour !== "transparent" && !/, 0\)$/.test(colour)) return colour;
  }
  return "white";
}

function download(name, mime, data) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data], { type: mime }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Over plain http a browser offers no clipboard API: there a selection is copied. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

export default {
  render({ model, el }) {
    const root = document.createElement("div");
    root.className = "ngbkit";
    root.dataset.part = "page";
    el.append(root);
    const charts = new Map();
    const waiting = new Map();
    const part = (name) => (name === "page" ? root : root.querySelector(`[data-part="${CSS.escape(name)}"]`));
    const send = (action, value = "") => model.send({ action, value });

    function show(parts) {
      const focused = root.contains(document.activeElement) ? document.activeElement : null;
      const area = focused?.closest("[data-part]");
      for (const [name, html] of Object.entries(parts)) {
        const old = part(name);
        if (!old) continue;
        const fresh = old.cloneNode(false);
        fresh.innerHTML = html;
        morphChildren(old, fresh);
      }
      // The element with the focus is gone: the next one of its area has it.
      if (focused && !focused.isConnected) (area?.isConnected ? area : root).querySelector(FOCUSABLE)?.focus();
    }

    async function draw(name, spec, title) {
      const place = root.querySelector(`[data-chart="${CSS.escape(name)}"]`);
      if (!place) return;
      charts.get(name)?.result?.finalize();
      charts.set(name, { spec, title });
      if (!spec) return place.replaceChildren();
      const { vegaEmbed } = await library();
      if (charts.get(name)?.spec !== spec) return;
      const background = findBackground(root);
      const scheme = getComputedStyle(root).colorScheme;
      const dark = scheme === "dark" || (scheme === "light dark" && matchMedia("(prefers-color-scheme: dark)").matches);
      const options = { actions: false, renderer: "svg", config: { background }, tooltip: { theme: dark ? "dark" : "light" } };
      // One picture with its title: the table has the same numbers for screen readers.
      const result = await vegaEmbed(place, spec, options);
      place.querySelector("svg")?.setAttribute("aria-hidden", "true");
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", title);
      result.view.addEventListener("click", (_, item) => item?.datum && send("pick", plain(item.datum)));
      charts.set(name, { spec, title, result });
    }

    const plain = (row) =>
      Object.fromEntries(Object.entries(row).filter(([, value]) => ["string", "number"].includes(typeof value)));

    /** Vega comes from the kernel once a page, whichever panel asks first. */
    function library() {
      globalThis.ngbkitVega ??= new Promise((resolve) => {
        waiting.set("library", async (data) => {
          const address = URL.createObjectURL(new Blob([data], { type: "text/javascript" }));
          resolve(await import(/* webpackIgnore: true */ address));
        });
        send("library");
      });
      return globalThis.ngbkitVega;
    }

    const messages = {
      html: ({ parts }) => show(parts),
      chart: ({ name, spec, title }) => draw(name, spec, title),
      library: (_, [data]) => waiting.get("library")?.(data),
      file: ({ name, mime }, [data]) => download(name, mime, data),
      focus: ({ part: name }) => part(name)?.querySelector(FOCUSABLE)?.focus(),
    };
    const receive = (message, buffers) => messages[message.kind]?.(message, buffers ?? []);
    model.on("msg:custom", receive);

    let timer = 0;
    const typed = new Map();
    const flush = () => {
      clearTimeout(timer);
      for (const [action, value] of typed) send(action, value);
      typed.clear();
    };
    root.addEventListener("input", ({ target }) => {
      if (!target.dataset.input) return;
      typed.set(target.dataset.input, target.value);
      clearTimeout(timer);
      timer = setTimeout(flush, PAUSE_MS);
    });
    root.addEventListener("change", ({ target }) => {
      flush();
      if (target.dataset.change) send(target.dataset.change, target.type === "checkbox" ? target.checked : target.value);
    });
    root.addEventListener("click", async ({ target }) => {
      const copied = target.closest("[data-copy]");
      if (copied && root.contains(copied)) {
        const label = copied.textContent;
        copied.textContent = (await copy(copied.dataset.copy)) ? "Copied" : "Copy failed: select the text";
        setTimeout(() => (copied.textContent = label), 1500);
        return;
      }
      const button = target.closest("[data-click]");
      if (!button || !root.contains(button) || button.disabled) return;
      flush();
      send(button.dataset.click, button.dataset.value ?? "");
    });
    root.addEventListener("keydown", (event) => {
      const { target, key } = event;
      // A notebook in command mode takes keys that a panel did not.
      event.stopPropagation();
      if (key === "Enter" && target.dataset.enter) {
        event.preventDefault();
        typed.delete(target.dataset.input);
        send(target.dataset.enter, target.value);
        target.value = "";
        return;
      }
      const group = target.closest("[data-arrows]");
      if (!group || !STEPS[key] || target.tagName === "SELECT" || (target.tagName === "INPUT" && target.type === "text")) return;
      const items = [...group.querySelectorAll(FOCUSABLE)].filter((item) => item.offsetParent);
      const next = items[(items.indexOf(target) + STEPS[key] + items.length) % items.length];
      event.preventDefault();
      next?.focus();
    });

    // A theme that changes has other colours for charts.
    const redraw = () => charts.forEach(({ spec, title }, name) => draw(name, spec, title));
    const observer = new MutationObserver(redraw);
    observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
    send("open");
    return () => {
      observer.disconnect();
      model.off("msg:custom", receive);
      charts.forEach(({ result }) => result?.finalize());
    };
  },
};
