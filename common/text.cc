#include "common/text.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

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

// Of a whole character of `bytes` bytes: RFC 3629, section 3.
uint32_t CodePoint(const std::string& text, size_t at, size_t bytes) {
  if (bytes == 1) return ByteAt(text, at);
  uint32_t point = ByteAt(text, at) & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) point = point << 6 | (ByteAt(text, at + i) & 0x3f);
  return point;
}

bool DirectsText(uint32_t point) {
  return point == 0x061c || point == 0x200e || point == 0x200f ||
         (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069) ||
         point == 0xfeff;
}

// What stands for the character at `at`, which has `bytes` bytes, or for the byte that is none.
std::string Harmless(const std::string& text, size_t at, size_t bytes) {
  if (bytes == 0) return fmt::format("\\x{:02x}", ByteAt(text, at));
  const uint32_t point = CodePoint(text, at, bytes);
  if (point == '\n') return "\\n";
  if (point == '\r') return "\\r";
  if (point == '\t') return " ";
  if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return fmt::format("\\x{:02x}", point);
  return DirectsText(point) ? fmt::format("\\u{:04x}", point) : text.substr(at, bytes);
}

std::string CutOff(size_t bytes) { return fmt::format(" [{} bytes cut off]", bytes); }

}  // namespace

std::string OneLine(const std::string& text, size_t max_bytes) {
  const auto plain = [](char c) { return c >= ' ' && c <= '~'; };
  if (text.size() <= max_bytes && std::all_of(text.begin(), text.end(), plain)) return text;
  const size_t room = max_bytes - std::min(max_bytes, CutOff(text.size()).size());
  std::string line;
  size_t kept = 0,
         kept_at = 0;  // bytes of `line` and of `text` that leave room to say what was cut
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text, at);
    line += Harmless(text, at, bytes);
    if (line.size() > max_bytes) return line.substr(0, kept) + CutOff(text.size() - kept_at);
    at += bytes == 0 ? 1 : bytes;
    if (line.size() > room) continue;
    kept = line.size();
    kept_at = at;
  }
  return line;
}

std::string CleanText(const std::string& text, size_t max_bytes) {
  std::string clean;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text, at);
    const size_t wanted = bytes == 0 ? 1 : bytes;
    if (clean.size() + wanted > max_bytes) {
      return clean + CutOff(text.size() - at);
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

namespace {

constexpr size_t kLongest = 64;  // of what a user typed: nothing of ours is as long
constexpr size_t kShortWord = 4;

bool Begins(const std::string& word, const std::string& candidate) {
  return word.size() >= 2 &&
         (candidate.starts_with(word) || candidate.find('_' + word) != std::string::npos);
}

}  // namespace

size_t EditDistance(const std::string& a, const std::string& b) {
  // Rows are prefixes of `a`, columns prefixes of `b`.
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      const size_t replaced = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

std::string Nearest(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.size() > kLongest) return "";
  const size_t most = std::min<size_t>(word.size() <= kShortWord ? 1 : 2, word.size() / 3);
  std::string nearest;
  size_t fewest = most + 1;
  for (const std::string& candidate : candidates) {
    const size_t edits =
        Begins(word, candidate) ? std::min<size_t>(1, most) : EditDistance(word, candidate);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest;
}

bool Matches(const std::string& pattern, const std::string& text) {
  size_t p = 0, t = 0;
  size_t star = std::string::npos, resume = 0;  // the last star, and what it has eaten up to
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

}  // namespace ringmaster
