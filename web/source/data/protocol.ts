// What the server answers (../../protocol.md says what each field means).

/** A text of the server: in both languages, or alone where both are the same. */
export type Said = string | { en: string; zh: string };

export type Block =
  | { type: "field"; name: Said; text: Said; code: string }
  | { type: "table"; rows: [Said, Said, Said][] }
  | { type: "text"; text: Said };

export interface Side {
  label: string;
  path: string;
  framework: string | null;
  level: string | null;
  task: string | null;
  interrupted: boolean;
}

export interface PlaceHead {
  step: number | null;
  rank: number | string | null;
  sides: 0 | 1 | 2;
  status: string;
}

export interface Finding {
  title: Said;
  blocks: Block[];
  name: string | null;
  twin: string | null;
  step: number | null;
  rank: number | string | null;
  place: number | null;
  reason: Said;
  source: string[];
  kind?: string;
  harmless?: boolean;
}

export interface Verdict {
  status: string;
  headline: Said;
  exit_code: number;
  notes: Said[];
  compared?: Said[];
  findings: Finding[];
}

export interface Curve {
  name: string;
  steps: number[];
  candidate: Figure[];
  reference: Figure[];
  difference: (number | null)[];
  allowed: (number | null)[];
}

export interface Overview {
  format: number;
  product: string;
  kind: "pair" | "single";
  title: string;
  sides: Side[];
  places: PlaceHead[];
  verdict: Verdict | null;
  curve: Curve[];
  /** False while the server still reads steps: ask again a little later. */
  curve_complete?: boolean;
  can: { picture: boolean; match: boolean };
  notes: Said[];
}

export type Column = readonly (number | null)[];

export interface PlaceAnswer {
  names: string[];
  twins: Record<string, string>;
  parents: number[];
  kinds: number[];
  sides: number[];
  orders: number[];
  phases: number[];
  micro: number[];
  micro_steps: number;
  status: number[];
  input_difference: Column;
  output_difference: Column;
  allowed: Column;
  largest: Column;
  norm: Column;
  flags: number[];
  first: number;
  culprits: { row: number; finding: number }[];
  /** Rows that a finding names which is not harmless. */
  named?: number[];
  notes: Said[];
}

/** A number of a record; what JSON has no number for comes as a word. */
export type Figure = number | "nan" | "inf" | "-inf" | null;

export interface TensorSide {
  type: string;
  dtype: string | null;
  shape: number[] | null;
  strides: number[] | null;
  max: Figure;
  min: Figure;
  mean: Figure;
  norm: Figure;
  nan?: number | null;
  inf?: number | null;
  digest: string | null;
  requires_grad: boolean | null;
  value: string | null;
  file: boolean;
  unset: boolean;
}

export type Statistic = "max" | "min" | "mean" | "norm";

export interface TensorRow {
  slot: string;
  group: "input" | "parameter" | "output";
  candidate: TensorSide | null;
  reference: TensorSide | null;
  status: number;
  relative: number | null;
  /** What rounding, and of a result what the inputs, explain; relative. */
  allowed: number | null;
  /** True where statistics alone are known, which tell the least that the difference may be. */
  at_least?: boolean;
  differences?: Partial<Record<Statistic, [Figure, Figure]>>;
  words?: Said;
}

export interface Link {
  slot: string;
  row: number;
  name: string;
}

export interface Partner {
  rank: number | string;
  place: number | null;
  /** 2: the name is of the reference alone, as the call that it answers is. */
  side: 0 | 2;
  name: string;
  direction: "send" | "receive" | "both";
}

export interface NodeAnswer {
  name: string;
  twin: string | null;
  kind: number;
  side: number;
  status: number;
  order: number;
  module: string | null;
  why_unmatched: Said | null;
  tensors: TensorRow[];
  source: { candidate: string[]; reference: string[] };
  producers: Link[];
  consumers: Link[];
  partners: Partner[];
  findings: number[];
  notes: Said[];
}

export interface Picture {
  shape: number[];
  slice: string;
  /** How many rows and columns of the tensor one cell stands for. */
  cell?: [number, number];
  cells: (number | null)[][];
  largest: number;
  histogram: {
    edges: number[];
    candidate: number[];
    reference: number[];
    difference_edges: number[];
    difference: number[];
    /** One of so many elements was counted. */
    every?: number;
  };
}

export interface RanksAnswer {
  layers: string[];
  ranks: (number | string)[];
  /** The place of each rank. */
  places: (number | null)[];
  /** A list for each rank, with the status of each layer; 0: not known. */
  worst: number[][];
}

/** Source lines of a place: each once, and which of them a row was called from, -1 for none. */
export interface LinesAnswer {
  lines: string[];
  rows: number[];
}

export interface MatchesAnswer {
  pairs: Record<string, string>;
  file: string;
}

/** What a file made with `--html` carries. */
export interface Embedded {
  overview: Overview;
  places: Record<string, PlaceAnswer>;
  nodes: Record<string, Record<string, NodeAnswer>>;
  pictures: Record<string, Picture>;
  lines?: Record<string, LinesAnswer>;
  ranks?: Record<string, RanksAnswer>;
}
