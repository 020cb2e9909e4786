import type { JSX } from "preact";
export function RankGrid(_: { session: unknown; place?: unknown; overview?: unknown }): JSX.Element { return <p class="waiting">…</p>; }
