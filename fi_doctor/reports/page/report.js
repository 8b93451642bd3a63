"use strict";
const button = (text, act) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", () => act(made));
  return made;
};
const select = (node) => {
  const range = document.createRange();
  range.selectNodeContents(node);
  const chosen = getSelection();
  chosen.removeAllRanges();
  chosen.addRange(range);
};
for (const line of document.querySelectorAll(".command")) {
  const code = line.querySelector("code");
  line.append(
    button("Copy", async (made) => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        made.textContent = "Copied";
      } catch {
        select(code);
        made.textContent = "Selected";
      }
      setTimeout(() => { made.textContent = "Copy"; }, 2000);
    }),
  );
}
for (const section of document.querySelectorAll("section[data-folds]")) {
  const folds = [...section.querySelectorAll("details:not(.log)")];
  if (folds.length > 1) {
    section.querySelector("h2").append(
      button("Unfold all", (made) => {
        const open = made.textContent === "Unfold all";
        for (const fold of folds) fold.open = open;
        made.textContent = open ? "Fold all" : "Unfold all";
      }),
    );
  }
}
const unfold = () => {
  const aim = location.hash && document.getElementById(location.hash.slice(1));
  if (aim instanceof HTMLDetailsElement) aim.open = true;
};
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details:not(.log, .plain)")) fold.open = true;
});
