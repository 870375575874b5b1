"use strict";
// Shows a button beside each block of commands that copies it. Without this script, a click selects a command.
for (const block of document.querySelectorAll(".commands")) {
  const commands = block.querySelector("pre"), button = block.querySelector("button"), said = block.querySelector("[role=status]");
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = [...commands.querySelectorAll("code")].map((line) => line.textContent).join("\n");
    let copied = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // no permission, or a page that is not from this host and not encrypted
      getSelection().selectAllChildren(commands);
      copied = document.execCommand("copy");
    }
    said.textContent = copied ? "Copied" : "Selected: press Ctrl+C to copy";
    setTimeout(() => { said.textContent = ""; }, 4000);
  });
}
