#include "common/line_text.h"

#include <fmt/format.h>

#include <cstdint>

namespace ringmaster {
namespace {

uint8_t ByteAt(const std::string& text, size_t at) { return static_cast<uint8_t>(text[at]); }

// Bytes of the character at `at`, 0 when none begins there: RFC 3629, table in section 4.
size_t CharacterBytes(const std::string& text, size_t at) {
  const uint8_t first = ByteAt(text, at);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((ByteAt(text, at + i) & 0xc0) != 0x80) return 0;
  }
  const uint8_t second = ByteAt(text, at + 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second > 0x9f;
  const bool beyond = first == 0xf4 && second > 0x8f;
  return overlong || surrogate || beyond ? 0 : bytes;
}

}  // namespace

std::string CleanText(const std::string& text, size_t max_bytes) {
  std::string clean;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text, at);
    const size_t wanted = bytes == 0 ? 1 : bytes;
    if (clean.size() + wanted > max_bytes) {
      return clean + fmt::format(" [{} bytes cut off]", text.size() - at);
    }
    clean += bytes == 0 ? "?" : text.substr(at, bytes);
    at += wanted;
  }
  return clean;
}

std::string EscapeLine(const std::string& text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\\\";
    } else if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string UnescapeLine(const std::string& text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) {
      ++at;
      plain += text[at] == 'n' ? '\n' : text[at];
    } else {
      plain += text[at];
    }
  }
  return plain;
}

}  // namespace ringmaster
