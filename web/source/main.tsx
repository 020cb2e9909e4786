import { render } from "preact";
import { embedded, Server, SingleFile } from "./data/source.ts";
import { Session } from "./state/session.ts";
import type { Address } from "./state/session.ts";
import { App } from "./ui/App.tsx";

const address: Address = {
  read: () => location.hash,
  write(hash, push) {
    if (hash === location.hash) return;
    if (push) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
  },
};

async function open(): Promise<void> {
  const content = await embedded(document);
  const source = content ? new SingleFile(content) : new Server();
  const session = new Session(source, address);
  window.addEventListener("popstate", () => void session.follow());
  render(<App session={session} />, document.getElementById("msprobe")!);
  await session.start();
}

void open();
