import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { keepPreferences, loadPreferences } from "../state/preferences.ts";
import type { Preferences } from "../state/preferences.ts";
import type { Session } from "../state/session.ts";
import { setLanguage, t } from "../texts/index.ts";
import { Body } from "./Body.tsx";
import { Header } from "./Header.tsx";
import { Heat } from "./Heat.tsx";
import { Help } from "./Help.tsx";
import { handleKey } from "./keys.ts";
import { Headline } from "./Headline.tsx";
import { Trouble } from "./Trouble.tsx";

export interface Shared {
  session: Session;
  preferences: Preferences;
  prefer(change: Partial<Preferences>): void;
}

export function App({ session }: { session: Session }): JSX.Element {
  const [, redraw] = useReducer<number, void>((count) => count + 1, 0);
  const [preferences, setPreferences] = useState(loadPreferences);
  useEffect(() => {
    const end = session.subscribe(redraw as () => void);
    redraw(); // a single file has its answers before anybody listens
    return end;
  }, [session]);
  setLanguage(preferences.language);

  // What was preferred last, also between two drawings: keys may come faster than these.
  const latest = useRef(preferences);
  const prefer = (change: Partial<Preferences>): void => {
    latest.current = { ...latest.current, ...change };
    setPreferences(latest.current);
    keepPreferences(latest.current);
  };
  useEffect(() => {
    document.documentElement.lang = preferences.language === "zh" ? "zh-CN" : "en";
    document.documentElement.dataset["theme"] = preferences.theme;
  }, [preferences.language, preferences.theme]);
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent): void => handleKey(event, session, latest.current, prefer);
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [session]);

  const { overview, problem } = session;
  useEffect(() => {
    if (overview) document.title = `${overview.title} · msprobe`;
  }, [overview]);
  if (problem) return <Trouble problem={problem} retry={() => void session.start()} />;
  if (!overview) return <p class="waiting" role="status">{t("opening")}</p>;
  const shared: Shared = { session, preferences, prefer };
  return (
    <div class="page">
      <Header {...shared} overview={overview} />
      <Headline session={session} overview={overview} />
      <Heat session={session} theme={preferences.theme} language={preferences.language} />
      <Body {...shared} overview={overview} />
      {session.helpOpen && <Help session={session} />}
    </div>
  );
}
