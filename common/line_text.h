// The text of one log line as it travels and as it stands in a file: valid UTF-8, bounded, without
// line breaks. Pure; thread-safe (free functions).
#pragma once

#include <cstddef>
#include <string>

namespace ringmaster {

// Every byte that is not part of a UTF-8 character becomes '?', because protobuf refuses others.
// A text of more than `max_bytes` ends at a character and says how many bytes were cut off.
[[nodiscard]] std::string CleanText(const std::string& text, size_t max_bytes);

// `\` and the line break as `\\` and `\n`, so that the text is one line of a file; and back.
[[nodiscard]] std::string EscapeLine(const std::string& text);
[[nodiscard]] std::string UnescapeLine(const std::string& text);

}  // namespace ringmaster
