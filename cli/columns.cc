#include "cli/columns.h"

#include <algorithm>

namespace ringmaster::cli {
namespace {

constexpr char kEscape = '\033';

// Where the character or escape sequence that begins at `at` ends.
size_t EndOf(const std::string& text, size_t at) {
  size_t end = at + 1;
  if (text[at] == kEscape) {
    while (end < text.size() && text[end - 1] != 'm') ++end;
  } else {
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
  }
  return end;
}

}  // namespace

size_t ColumnsOf(const std::string& text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size(); at = EndOf(text, at)) columns += text[at] != kEscape;
  return columns;
}

std::string CutTo(size_t columns, const std::string& text) {
  std::string cut;
  bool coloured = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = EndOf(text, at);
    if (text[at] == kEscape) {
      coloured = text.compare(at, end - at, "\033[0m") != 0;
    } else if (columns-- == 0) {
      return coloured ? cut + "\033[0m" : cut;
    }
    cut.append(text, at, end - at);
    at = end;
  }
  return cut;
}

std::vector<std::string> WrapTo(size_t columns, const std::string& text) {
  std::vector<std::string> lines = {""};
  for (size_t at = 0; at < text.size();) {
    const size_t word = text.find_first_not_of(' ', at);
    if (word == std::string::npos) break;
    const size_t end = std::min(text.find(' ', word), text.size());
    const std::string gap = text.substr(at, word - at);
    const std::string next = text.substr(word, end - word);
    const bool fits = ColumnsOf(lines.back()) + gap.size() + ColumnsOf(next) <= columns;
    if (fits || lines.back().empty()) {
      lines.back() += gap + next;
    } else {
      lines.push_back("  " + next);
    }
    at = end;
  }
  return lines;
}

}  // namespace ringmaster::cli
