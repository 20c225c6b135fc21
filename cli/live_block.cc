#include "cli/live_block.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/columns.h"

namespace ringmaster::cli {
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
