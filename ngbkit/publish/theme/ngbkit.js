// Draws the charts from their specifications in the colours and the width of the page; without scripts the page shows
// pictures.
const system = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 46em)");
const figures = Array.from(document.querySelectorAll("figure.ngb-figure"), (figure) => {
  const alive = document.createElement("div");
  alive.className = "ngb-drawing";
  const picture = figure.querySelector(".ngb-picture");
  picture.before(alive);
  const spec = JSON.parse(figure.querySelector(".ngb-spec").textContent);
  return { figure, alive, picture, spec };
});

// One panel a row, as wide as the page less its axis; the legend and the lines of text fit as well.
function stack(spec, width) {
  const { hconcat, columns, ...rest } = spec;
  const changed = { ...rest, ...(columns && { columns: 1 }) };
  if (hconcat) changed.vconcat = hconcat;
  for (const name of ["vconcat", "concat"]) {
    if (changed[name]) changed[name] = changed[name].map((part) => stack(part, width));
  }
  if (changed.spec) changed.spec = stack(changed.spec, width);
  if (typeof changed.width === "number" || changed.width === "container") changed.width = Math.max(120, width - 90);
  if (changed.title?.subtitle) changed.title = { ...changed.title, ...wrap(changed.title, width) };
  return changed;
}

// Breaks lines at spaces; a letter of the title is about 8 pixels wide, one of the subtitle 5.5.
function wrap({ text, subtitle }, width) {
  const fill = (lines, pixels) => [lines].flat().flatMap((line) => {
    const letters = Math.floor(width / pixels);
    return line.match(new RegExp(`.{1,${letters}}(?:\\s+|$)|\\S+`, "g")) ?? [line];
  });
  return { text: fill(text, 8), subtitle: fill(subtitle, 5.5) };
}

function draw({ figure, alive, picture, spec }) {
  const chosen = document.body.dataset.theme;
  const dark = chosen === "dark" || (chosen !== "light" && system.matches);
  const config = { background: getComputedStyle(document.body).backgroundColor };
  if (narrow.matches) config.legend = { orient: "bottom", columns: 2 };
  const darkness = { theme: "dark", tooltip: { theme: "dark" } };
  const options = { actions: false, renderer: "svg", config, ...(dark && darkness) };
  window.vegaEmbed(alive, narrow.matches ? stack(spec, figure.clientWidth) : spec, options).then(
    () => {
      picture.hidden = true;
      figure.classList.add("ngb-alive");
      // A screen reader reads the title, as of the picture, and not each mark.
      alive.querySelector("svg").setAttribute("aria-hidden", "true");
      alive.setAttribute("role", "img");
      alive.setAttribute("aria-label", [spec.title?.text ?? spec.title ?? "a chart"].flat().join(" "));
    },
    (error) => { alive.remove(); console.error(figure.id, error); },
  );
}

// A keyboard scrolls only what it can focus.
const boxes = document.querySelectorAll("div.cell_output, .highlight pre, .ngb-rerun pre, figure.ngb-figure, div.math");
function focusBoxes() {
  for (const box of boxes) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
new ResizeObserver(focusBoxes).observe(document.body);

// Only a server knows the size of the archive, which contains neither this page nor its own size.
const archive = document.querySelector(".ngb-downloads a[href$='archive.zip']");
if (archive && window.location.protocol.startsWith("http")) {
  window.fetch(archive.href, { method: "HEAD" }).then((answer) => {
    const bytes = Number(answer.headers.get("Content-Length"));
    if (answer.ok && bytes) archive.append(`, ${(bytes / 1e6).toFixed(1)} MB`);
  }, () => {});
}

const drawAll = () => figures.forEach(draw);
drawAll();
for (const query of [system, narrow]) query.addEventListener("change", drawAll);
new MutationObserver(drawAll).observe(document.body, { attributeFilter: ["data-theme"] });
