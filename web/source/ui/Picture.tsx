// The difference of two tensors as a picture: the worst slice as a heat map, and how the values are spread.

import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Picture } from "../data/protocol.ts";
import { short } from "../model/figures.ts";
import { problemOf } from "../state/problem.ts";
import type { Problem } from "../state/problem.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import { Glyph } from "./Icons.tsx";
import { Trouble } from "./Trouble.tsx";

export function DifferencePicture({ session, slot }: { session: Session; slot: string }): JSX.Element {
  const [picture, setPicture] = useState<Picture | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [waits, setWaits] = useState(false);
  const ask = (): void => {
    setWaits(true);
    session.source.picture(session.shown.place!, session.selected, slot).then(setPicture, (error: unknown) =>
      setProblem(problemOf(error)))
      .finally(() => setWaits(false));
  };
  if (problem) return <Trouble problem={problem} small />;
  if (!picture) return <button type="button" class="show-picture" disabled={waits} onClick={ask}><Glyph name="picture" />{waits ? t("loading") : t("picture.show")}</button>;
  return (
    <div class="picture">
      <figure><Cells picture={picture} /><figcaption>{t("picture.slice", { slice: picture.slice || `[${picture.shape.join(", ")}]`, largest: short(picture.largest) })}</figcaption></figure>
      <figure><Histogram picture={picture} /><figcaption>{t("picture.histogram")}</figcaption></figure>
    </div>
  );
}

const SIDE = 200;

function Cells({ picture }: { picture: Picture }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = picture.cells.length;
  const columns = Math.max(1, picture.cells[0]?.length ?? 1);
  useLayoutEffect(() => {
    const pen = canvas.current!.getContext("2d")!;
    const image = pen.createImageData(columns, Math.max(1, rows));
    const ceiling = picture.largest || 1;
    picture.cells.forEach((line, y) => line.forEach((value, x) => {
      const at = (y * columns + x) * 4;
      // Log scale over six decades, from quiet to strong; one hue, so that brightness alone tells.
      const share = value === null ? 1 : value <= 0 ? 0 : Math.max(0.06, Math.min(1, 1 + Math.log10(value / ceiling) / 6));
      image.data.set(value === null ? [0, 0, 0, 255] : [255 - share * 75, 250 - share * 215, 240 - share * 205, 255], at);
    }));
    pen.putImageData(image, 0, 0);
  }, [picture]);
  const tall = Math.max(24, Math.min(SIDE, (SIDE * rows) / columns));
  return <canvas ref={canvas} width={columns} height={Math.max(1, rows)} class="cells" role="img" aria-label={t("picture.label", { largest: short(picture.largest) })}
    style={{ width: `${SIDE}px`, height: `${tall}px` }} />;
}

function Histogram({ picture }: { picture: Picture }): JSX.Element {
  const { candidate, reference, edges } = picture.histogram;
  const most = Math.max(1, ...candidate, ...reference);
  const line = (counts: number[]): string => counts.map((count, index) => {
    const y = 100 - (Math.log1p(count) / Math.log1p(most)) * 96;
    return `${index ? "L" : "M"}${(index * 200) / counts.length} ${y}H${((index + 1) * 200) / counts.length}`;
  }).join("");
  return (
    <svg class="histogram" viewBox="0 0 200 114" width="200" height="114" role="img" aria-label={t("picture.histogram")}>
      <path d={line(reference)} class="h-reference" /><path d={line(candidate)} class="h-candidate" />
      <path d="M0 100H200" class="h-axis" />
      <text x="0" y="112">{short(edges[0])}</text><text x="200" y="112" text-anchor="end">{short(edges[edges.length - 1])}</text>
    </svg>
  );
}
