// The lines of a finding as the console writes them: fields in two columns, tables, and sentences. Only the white space
// is read, no word: a line that has another shape is shown as it is.

export interface Value {
  readonly text: string;
  /** A line of a program, which the console indents further than the field. */
  readonly isCode: boolean;
}

export type Block =
  | { readonly type: "field"; readonly name: string; readonly values: Value[] }
  | { readonly type: "table"; readonly rows: string[][] }
  | { readonly type: "text"; readonly text: string };

export function blocksOf(lines: readonly string[]): Block[] {
  const blocks: Block[] = [];
  let column = 0; // where the values of the last field begin
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at]!.trimEnd();
    const last = blocks[blocks.length - 1];
    const indent = line.length - line.trimStart().length;
    if (!line) {
      column = 0;
      continue;
    }
    if (column && indent >= column && last?.type === "field") {
      const isCode = indent > column;
      const before = last.values[last.values.length - 1];
      // A sentence that the console broke goes on; a path is a line of its own.
      if (!isCode && before && !before.isCode && last.values.length === 1 && !/^(\/|[A-Za-z]:\\)/.test(line.trim())) {
        last.values[last.values.length - 1] = { text: `${before.text} ${line.trim()}`, isCode: false };
      } else last.values.push({ text: line.trim(), isCode });
      continue;
    }
    const table = tableAt(lines, at);
    if (table) {
      blocks.push({ type: "table", rows: table });
      at += table.length - 1;
      column = 0;
      continue;
    }
    const field = /^( *\S(?:\S| (?! ))* {2,})(\S.*)$/.exec(line);
    if (field && indent > 0 && field[1]!.length <= 16) {
      column = field[1]!.length;
      blocks.push({ type: "field", name: field[1]!.trim(), values: [{ text: field[2]!, isCode: false }] });
    } else {
      column = 0;
      blocks.push({ type: "text", text: line.trim() });
    }
  }
  return blocks;
}

/** A table: a line that begins with an empty cell, and lines below with one cell more. */
function tableAt(lines: readonly string[], at: number): string[][] | null {
  const cells = (line: string): string[] => line.trim().split(/ {2,}/);
  const head = lines[at]!.trimEnd();
  const columns = cells(head).length;
  if (columns < 2 || head.length - head.trimStart().length < 4) return null;
  const rows = [["", ...cells(head)]];
  for (let next = at + 1; next < lines.length && lines[next]!.trim() && cells(lines[next]!).length === columns + 1; next++) rows.push(cells(lines[next]!));
  return rows.length > 1 ? rows : null;
}
