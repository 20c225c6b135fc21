#include "cli/show/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>

namespace ringmaster::cli {
namespace {

bool IsSet(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

Terminal Terminal::Of(std::FILE* stream) {
  const char* const kind = std::getenv("TERM");
  const bool dumb = kind == nullptr || std::string(kind) == "dumb";
  const bool repaints = isatty(fileno(stream)) == 1 && !dumb;
  return Terminal(repaints, repaints && !IsSet("NO_COLOR"));
}

size_t Terminal::ColumnsOf(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string Terminal::Paint(Colour colour, const std::string& text) const {
  if (!colours_ || text.empty()) return text;
  switch (colour) {
    case Colour::kPlain:
      return text;
    case Colour::kGreen:
      return "\033[32m" + text + "\033[0m";
    case Colour::kYellow:
      return "\033[33m" + text + "\033[0m";
    case Colour::kRed:
      return "\033[31m" + text + "\033[0m";
    case Colour::kBlue:
      return "\033[34m" + text + "\033[0m";
    case Colour::kMagenta:
      return "\033[35m" + text + "\033[0m";
    case Colour::kCyan:
      return "\033[36m" + text + "\033[0m";
    case Colour::kBold:
      return "\033[1m" + text + "\033[0m";
  }
  return text;
}

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

Table::Table(std::vector<std::string> header) {
  std::vector<Cell> cells;
  for (std::string& title : header) cells.emplace_back(std::move(title), Colour::kBold);
  rows_.push_back(std::move(cells));
}

void Table::Add(std::vector<Cell> row) {
  row.resize(rows_.front().size(), Cell(""));
  rows_.push_back(std::move(row));
}

std::string Table::Print(const Terminal& terminal) const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], ColumnsOf(row[i].text));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string gap;
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].text.empty()) {
        gap.append(widths[i] + 2, ' ');
        continue;
      }
      text += gap + terminal.Paint(row[i].colour, row[i].text);
      gap.assign(widths[i] - ColumnsOf(row[i].text) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

namespace {

std::vector<std::string> Cut(const std::vector<std::string>& lines, size_t columns) {
  std::vector<std::string> cut;
  for (const std::string& line : lines) cut.push_back(CutTo(columns, line));
  return cut;
}

}  // namespace

std::string LiveBlock::Paint(const std::vector<std::string>& lines, size_t columns) {
  std::vector<std::string> cut = Cut(lines, columns);
  if (cut == painted_ && columns == columns_) return "";
  std::string bytes = Erase(columns);
  for (size_t i = 0; i < cut.size(); ++i) bytes += (i == 0 ? "" : "\r\n") + cut[i];
  painted_ = std::move(cut);
  columns_ = columns;
  return bytes;
}

std::string LiveBlock::Commit(const std::vector<std::string>& lines, size_t columns) {
  std::string bytes = Erase(columns);
  for (const std::string& line : lines) bytes += line + "\r\n";
  painted_.clear();
  return bytes;
}

// The cursor stands behind the last line of the block.
std::string LiveBlock::Erase(size_t columns) const {
  if (painted_.empty()) return "";
  size_t rows = 0;
  for (const std::string& line : painted_) {
    rows += 1 + (std::max<size_t>(1, ColumnsOf(line)) - 1) / std::max<size_t>(1, columns);
  }
  return rows == 1 ? "\r\033[J" : fmt::format("\r\033[{}A\033[J", rows - 1);
}

}  // namespace ringmaster::cli
