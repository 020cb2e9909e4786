// Written by `python tests/protocol_types.py`; change src/msprobe/view/protocol.py, and run it again.

/** A part that nobody looked at, as files say it. */
export interface NotReadJson {
  what: string;
  why: string;
}

/** What was looked at, as files say it; `read` has counts by word. */
export interface CoverageJson {
  complete: boolean;
  read: Record<string, number>;
  not_read: NotReadJson[];
}

/** A text in both languages. */
export interface Both {
  en: string;
  zh: string;
}

/** A text for the page: in both languages, or alone where both are the same. */
export type Said = string | Both;

/** Grows when an answer is no longer what an older page can read; the page refuses another one. */
export const FORMAT = 1;

/** A number of a record; what JSON has no number for comes as a word. */
export type Figure = number | "nan" | "inf" | "-inf" | null;

/** A difference without size (NaN or Inf on one side, another number of elements) is 1e300. */
export type Difference = number | null;

export type Statistic = "max" | "min" | "mean" | "norm";

export type Group = "input" | "parameter" | "output";

export type Direction = "send" | "receive" | "both";

/** 0 both, 1 candidate only, 2 reference only; of a single run 0. */
export type Whose = 0 | 1 | 2;

/** A rank without number is the name of its folder; null: the only one. */
export type Rank = number | string | null;

/** A run; of a single one `label` is "run". */
export interface RunHead {
  label: string;
  path: string;
  framework: string | null;
  level: string | null;
  task: string | null;
  interrupted: boolean;
}

/** One step of one rank; its index is its number in `places`, which are in numeric order. */
export interface PlaceHead {
  step: number | null;
  rank: Rank;
  sides: Whose;
  /** "agree", "diverged", "incomparable", "not_compared", "harmless", "candidate_only", "reference_only"; of a single run "clean" or "found". */
  status: string;
}

/** `name` is empty where a field goes on with the one before. */
export interface FieldBlock {
  type: "field";
  name: Said;
  text: Said;
  code: string;
}

/** Rows of label, candidate and reference. */
export interface TableBlock {
  type: "table";
  rows: [Said, Said, Said][];
}

/** A sentence. */
export interface TextBlock {
  type: "text";
  text: Said;
}

export type Block = FieldBlock | TableBlock | TextBlock;

/** A finding that is about a record of the reference alone has `twin` and no `name`. */
export interface FindingAnswer {
  title: Said;
  blocks: Block[];
  kind: string;
  harmless: boolean;
  name: string | null;
  twin: string | null;
  step: number | null;
  rank: Rank;
  place: number | null;
  reason: Said;
  source: string[];
}

/** The English words are those of the command line. */
export interface VerdictAnswer {
  status: string;
  headline: Said;
  exit_code: number;
  coverage: CoverageJson;
  notes: Said[];
  compared: Said[];
  findings: FindingAnswer[];
}

/** A size over all steps; `difference` and `allowed` are relative, and empty of a single run. */
export interface CurveAnswer {
  name: string;
  steps: number[];
  candidate: Figure[];
  reference: Figure[];
  difference: Difference[];
  allowed: (number | null)[];
}

/** What may be asked for, beside what is there. */
export interface Can {
  picture: boolean;
  match: boolean;
}

/** `/api/overview`. */
export interface Overview {
  format: number;
  product: string;
  kind: "pair" | "single";
  title: string;
  /** The candidate, or the only run; then the reference. */
  sides: RunHead[];
  places: PlaceHead[];
  verdict: VerdictAnswer | null;
  curve: CurveAnswer[];
  /** False while the server still reads steps: ask again a second later. */
  curve_complete: boolean;
  can: Can;
  notes: Said[];
}

/** Columns, one entry a row. A parent stands before its children, siblings in order of execution, rows of one side in place, so that a subtree is a contiguous block. */
export interface Outline {
  /** The candidate's name, or the reference's for rows of its own. */
  names: string[];
  /** -1: top. */
  parents: number[];
  /** 0 module, 1 call, 2 collection of calls between modules, 3 gradients of parameters, 4 optimizer. */
  kinds: number[];
  /** 0 no numbers, 1 the same results whatever the inputs, 2 within rounding, 3 explained by its inputs, 4 unexplained, 5 candidate only, 6 reference only: the row's own, the page rolls up. */
  status: number[];
  /** Place in the merged order of execution; of a container that of its first child. */
  orders: number[];
  /** Rows that a finding names which is not harmless: the page gives them the status 7, if theirs is below 4. */
  named: number[];
}

/** The row that a finding is about; `finding` is its number in the verdict. */
export interface Culprit {
  row: number;
  finding: number;
}

/** `/api/place`; of a single run, all `sides` and `status` are 0. */
export interface PlaceAnswer extends Outline {
  /** By row: the reference's name where it differs. */
  twins: Record<string, string>;
  sides: number[];
  /** 0 forward, 1 backward, 2 optimizer. */
  phases: number[];
  /** Passes of the outermost module, from 0. */
  micro: number[];
  micro_steps: number;
  /** Largest relative difference of inputs. */
  input_difference: Difference[];
  /** Largest relative difference of results. */
  output_difference: Difference[];
  /** What rounding and inputs explain of it. */
  allowed: Difference[];
  /** Of the candidate's results, as the next. */
  largest: (number | null)[];
  norm: (number | null)[];
  /** 1 NaN/Inf in results, 2 NaN/Inf begins here, 4 other dtype, 8 other shape, 16 other arguments, 32 communication, 64 unset memory, 128 recomputed, 256 infinities of a mask in results, which the checks have nothing against (then 1 is not set). */
  flags: number[];
  /** The row of the leading finding in this place, else the first that is unexplained, of one side, or where NaN or Inf begins; -1: none. */
  first: number;
  culprits: Culprit[];
  notes: Said[];
}

/** A tensor, or what is none: that has `value` and no numbers. */
export interface TensorSide {
  type: string;
  dtype: string | null;
  shape: number[] | null;
  strides: number[] | null;
  max: Figure;
  min: Figure;
  mean: Figure;
  norm: Figure;
  /** How many elements, as the next. */
  nan: number | null;
  inf: number | null;
  digest: string | null;
  requires_grad: boolean | null;
  value: string | null;
  /** True where the values were written. */
  file: boolean;
  unset: boolean;
}

/** One slot of a row on both sides: `input.0`, `parameters.weight`, `output.0`. */
export interface TensorAnswer {
  slot: string;
  group: Group;
  candidate: TensorSide | null;
  reference: TensorSide | null;
  /** 0 to 6, as of a row. */
  status: number;
  /** The difference relative to the tensor's scale. */
  relative: Difference;
  /** What rounding, and of a result what the inputs, explain of it. */
  allowed: Difference;
  /** The difference in units of what rounding may do, for tables of Python. */
  units: Difference;
  /** True where statistics alone are known: the difference may be larger. */
  at_least: boolean;
  /** Absolute and relative. */
  differences: Partial<Record<Statistic, [number | null, number | null]>>;
  /** What the size does not say. */
  words: Said;
}

/** A row that made, or takes, the tensor of a slot. */
export interface Link {
  slot: string;
  row: number;
  name: string;
}

/** A call of another rank; its row is found by its name in its own place. */
export interface Partner {
  rank: number | string;
  place: number | null;
  /** 2: the name is of the reference alone, as the call that it answers is. */
  side: 0 | 2;
  name: string;
  direction: Direction;
}

/** Where a call was made, innermost first. */
export interface Frames {
  candidate: string[];
  reference: string[];
}

/** `/api/node`. */
export interface NodeAnswer {
  name: string;
  twin: string | null;
  kind: number;
  side: number;
  status: number;
  order: number;
  module: string | null;
  why_unmatched: Said | null;
  tensors: TensorAnswer[];
  source: Frames;
  producers: Link[];
  consumers: Link[];
  partners: Partner[];
  findings: number[];
  notes: Said[];
}

/** Edges of bins, and how many elements each bin holds. */
export interface Histogram {
  edges: number[];
  candidate: number[];
  reference: number[];
  difference_edges: number[];
  difference: number[];
  /** One of so many elements was counted. */
  every: number;
}

/** `/api/picture`. */
export interface Picture {
  shape: number[];
  /** As `[3, :, :]`. */
  slice: string;
  /** How many rows and columns of the tensor one cell stands for. */
  cell: [number, number];
  /** At most 128 x 128, the largest absolute difference of each cell. */
  cells: number[][];
  largest: number;
  histogram: Histogram;
}

/** `/api/ranks`; the lists but `layers` have an entry for each rank. */
export interface RanksAnswer {
  layers: string[];
  ranks: Rank[];
  places: number[];
  /** The status of each layer, 7 for what a finding names; 0: not known. */
  worst: number[][];
}

/** `/api/lines`: source lines, each once, as `/w/model.py:57 in forward: return self.fc(x)`. */
export interface LinesAnswer {
  lines: string[];
  /** The line that a row was called from, of a backward call that of its forward call; -1: none. */
  rows: number[];
}

/** `/api/matches`: names of the candidate, and those of the reference that were paired with them by hand. */
export interface MatchesAnswer {
  pairs: Record<string, string>;
  file: string;
}

/** What a file made with `--html` carries; what is not in it the page calls absent from this file. */
export interface Embedded {
  overview: Overview;
  /** By index, as the next but for ranks, which are by step. */
  places: Record<string, PlaceAnswer>;
  nodes: Record<string, Record<string, NodeAnswer>>;
  /** By `index/row/slot`. */
  pictures: Record<string, Picture>;
  lines: Record<string, LinesAnswer>;
  ranks: Record<string, RanksAnswer>;
}
