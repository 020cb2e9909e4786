import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { STATUSES } from "../model/place.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";
import { Status } from "./Icons.tsx";
import { KEYS } from "./keys.ts";

export function Help({ session }: { session: Session }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const close = (): void => {
    session.helpOpen = false;
    session.changed();
  };
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={close}
      onClick={(event) => { if (event.target === dialog.current) close(); }}>
      <h2 id="help-title">{t("help.title")}</h2>
      <div class="columns">
        <dl>{KEYS.map(([keys, text]) => (
          <div key={keys}><dt>{keys.split(/\s+/).map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{t(text)}</dd></div>
        ))}</dl>
        <div>
          <h3>{t("help.status")}</h3>
          <ul class="legend">{STATUSES.map((name, status) => (
            <li key={name}><Status status={status} /><span><b>{t(`status.${name}` as Key)}</b> {t(`help.${name}` as Key)}</span></li>
          ))}</ul>
          <h3>{t("help.measures")}</h3>
          <p>{t("help.relative")}</p><p>{t("help.times")}</p>
        </div>
      </div>
      <p class="quiet">{session.overview?.product}</p>
      <button type="button" onClick={close} autofocus>{t("close")}</button>
    </dialog>
  );
}
