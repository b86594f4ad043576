// Draws the diagrams of a page in the colors of its scheme, again when the reader changes it.
const diagrams = [...document.querySelectorAll("pre.diagram")].map((block, number) => {
  const box = document.createElement("div");
  box.className = "diagram";
  block.replaceWith(box);
  return { box, name: `diagram-${number}`, text: block.textContent };
});

async function draw() {
  const theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "neutral";
  const flowchart = { useMaxWidth: false, nodeSpacing: 12, rankSpacing: 28, padding: 6, wrappingWidth: 120 };
  const gantt = { useMaxWidth: false, useWidth: 340, fontSize: 13, sectionFontSize: 13, leftPadding: 60 };
  mermaid.initialize({ startOnLoad: false, theme, flowchart, gantt, themeVariables: { fontSize: "13px" } });
  for (const { box, name, text } of diagrams) {
    box.innerHTML = (await mermaid.render(name, text)).svg;
  }
}

new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
draw();
