// A terminal of fixed width, as far as ringctl uses one: what stands on it after bytes were
// written. Thread-compatible.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace ringmaster::cli {

class Screen {
 public:
  explicit Screen(size_t columns) : columns_(columns) {}

  void Write(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) at = Take(bytes, at);
  }

  // Rows from the top, without blanks at their ends, each with its line break.
  [[nodiscard]] std::string Text() const {
    std::string text;
    for (const auto& cells : rows_) {
      std::string row;
      for (const std::string& cell : cells) row += cell;
      row.erase(row.find_last_not_of(' ') + 1);
      text += row + "\n";
    }
    while (text.size() > 1 && text[text.size() - 2] == '\n') text.pop_back();
    return text == "\n" ? "" : text;
  }

 private:
  // The end of the character or sequence at `at`, which is carried out.
  size_t Take(const std::string& bytes, size_t at) {
    if (bytes[at] == '\r') {
      column_ = 0;
    } else if (bytes[at] == '\n') {
      Row(++row_);
    } else if (bytes[at] == '\033') {
      return Sequence(bytes, at + 2);
    } else {
      return Character(bytes, at);
    }
    return at + 1;
  }

  size_t Sequence(const std::string& bytes, size_t at) {
    const size_t end = bytes.find_first_not_of("0123456789;?", at);
    const size_t number = std::strtoul(bytes.c_str() + at, nullptr, 10);
    if (bytes[end] == 'A') row_ -= std::min(row_, number);
    if (bytes[end] == 'J') {
      Row(row_).resize(std::min(Row(row_).size(), column_));
      rows_.resize(row_ + 1);
    }
    return end + 1;
  }

  size_t Character(const std::string& bytes, size_t at) {
    size_t end = at + 1;
    while (end < bytes.size() && (bytes[end] & 0xC0) == 0x80) ++end;
    if (column_ == columns_) {  // a full row wraps when more comes
      column_ = 0;
      ++row_;
    }
    std::vector<std::string>& row = Row(row_);
    if (row.size() <= column_) row.resize(column_ + 1, " ");
    row[column_++] = bytes.substr(at, end - at);
    return end;
  }

  std::vector<std::string>& Row(size_t row) {
    if (rows_.size() <= row) rows_.resize(row + 1);
    return rows_[row];
  }

  size_t columns_;
  std::vector<std::vector<std::string>> rows_ = {{}};
  size_t row_ = 0, column_ = 0;
};

}  // namespace ringmaster::cli
