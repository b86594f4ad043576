// The menu of a phone opens where the reader is, in long sections too.
document.querySelector("#__drawer").addEventListener("change", () => {
  const links = [...document.querySelectorAll(".md-nav--primary .md-nav__link--active")];
  const shown = links.findLast((link) => link.getClientRects().length > 0);
  shown?.scrollIntoView({ block: "center", inline: "nearest" });
});
