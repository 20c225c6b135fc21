// Words of others: a log line as it travels and as it stands in a file, whatever a peer says, as it
// may stand in a log, an error or on a terminal, and the known word that somebody meant. Pure;
// thread-safe (free functions).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ringmaster {

// Of a name that a refusal repeats; of a reason, an error or a note of a peer; of a line of a log.
inline constexpr size_t kMaxNameText = 200;
inline constexpr size_t kMaxReasonText = 2'000;
inline constexpr size_t kMaxLogText = 8 << 10;

// Valid UTF-8 on one line that moves no cursor and turns no text around: a line break as `\n`,
// `\r`, other control characters (C0, DEL, C1) and bytes that are not UTF-8 as `\x1b`, characters
// that direct text or break lines (U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069,
// U+FEFF) as `\u202e`; a tab is a blank. At most `max_bytes`, which the note on what was cut off is
// a part of. The same again changes nothing.
[[nodiscard]] std::string OneLine(const std::string& text, size_t max_bytes = kMaxReasonText);

// Every byte that is not part of a UTF-8 character becomes '?', because protobuf refuses others.
// A text of more than `max_bytes` ends at a character and says how many bytes were cut off.
[[nodiscard]] std::string CleanText(const std::string& text, size_t max_bytes);

// `\` and the line break as `\\` and `\n`, so that the text is one line of a file; and back.
[[nodiscard]] std::string EscapeLine(const std::string& text);
[[nodiscard]] std::string UnescapeLine(const std::string& text);

// The fewest insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
// (optimal string alignment). Takes a.size() * b.size() steps.
[[nodiscard]] size_t EditDistance(const std::string& a, const std::string& b);

// The candidate with the fewest edits to `word`, the first of several: one edit in words of up to
// four letters, two in longer ones, never more than a third of the letters. As near as one edit is
// a candidate that begins with `word`, or has a part, behind `_`, that does. Empty when none is
// near: a wild guess is worse than none. The only "did you mean" of every program.
[[nodiscard]] std::string Nearest(const std::string& word,
                                  const std::vector<std::string>& candidates);

// Whether `text` is what `pattern` says, in which * stands for any text, also for none.
[[nodiscard]] bool Matches(const std::string& pattern, const std::string& text);

}  // namespace ringmaster
