// Levels of detail: however many marks there are, a picture asks for some thousands.
"use strict";

/** How many marks, or groups, are one group of the next level. */
const GROUP = 8;

/** The first index whose value is not less than `wanted`, in an array that does not fall. */
function lowerBound(values, wanted) {
  let [from, to] = [0, values.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] < wanted) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** Marks in the order of time, each from `low` to `high`, and groups of them, and groups of groups. */
class Levels {
  constructor(time, low, high) {
    this.levels = [{ first: time, last: time, low, high }];
    for (let below = this.levels[0]; below.first.length > 1024; below = this.levels.at(-1)) {
      const length = Math.ceil(below.first.length / GROUP);
      const next = { first: new Float64Array(length), last: new Float64Array(length), low: new Float64Array(length), high: new Float64Array(length) };
      for (let i = 0; i < length; i++) {
        const [from, to] = [i * GROUP, Math.min((i + 1) * GROUP, below.first.length)];
        let [least, most] = [Infinity, -Infinity];
        for (let j = from; j < to; j++) {
          least = Math.min(least, below.low[j]);
          most = Math.max(most, below.high[j]);
        }
        next.first[i] = below.first[from];
        next.last[i] = below.last[to - 1];
        next.low[i] = least;
        next.high[i] = most;
      }
      this.levels.push(next);
    }
  }

  get length() {
    return this.levels[0].first.length;
  }

  /** The finest level that has at most `most` marks between the times `from` and `to`, and where they are in it; one more at
   * each side, where lines come from and go to. */
  between(from, to, most) {
    for (const [depth, level] of this.levels.entries()) {
      const begin = Math.max(0, lowerBound(level.last, from) - 1);
      const end = Math.min(level.first.length, lowerBound(level.first, to) + 2);
      if (end - begin <= most || depth === this.levels.length - 1) return { ...level, begin, end, single: depth === 0 };
    }
    return undefined;
  }

  /** The least and the greatest between two times; nothing without marks there. */
  extent(from, to) {
    const level = this.between(from, to, 2048);
    let [least, most] = [Infinity, -Infinity];
    for (let i = level.begin; i < level.end; i++) {
      if (level.last[i] < from || level.first[i] > to) continue;
      least = Math.min(least, level.low[i]);
      most = Math.max(most, level.high[i]);
    }
    return least <= most ? [least, most] : undefined;
  }
}
