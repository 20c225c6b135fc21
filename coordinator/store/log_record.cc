#include "coordinator/store/log_record.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "common/text.h"

namespace ringmaster::coordinator {
namespace {

template <typename T>
bool ParseNumber(const std::string& text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string FormatRecord(const LogRecord& record) {
  return fmt::format("{} {} {} {} {} {} {}\n", record.ordinal, record.lost, record.spool,
                     record.line.number(), record.line.unix_ms(), record.line.level(),
                     EscapeLine(record.line.text()));
}

std::optional<LogRecord> ParseRecord(const std::string& text) {
  if (text.find('\n') != std::string::npos) return std::nullopt;  // no line
  std::array<std::string, 6> words;
  size_t at = 0;
  for (std::string& word : words) {
    const size_t space = text.find(' ', at);
    if (space == std::string::npos) return std::nullopt;
    word = text.substr(at, space - at);
    at = space + 1;
  }
  LogRecord record;
  uint64_t number = 0;
  int64_t unix_ms = 0;
  if (!ParseNumber(words[0], &record.ordinal) || !ParseNumber(words[1], &record.lost) ||
      !ParseNumber(words[3], &number) || !ParseNumber(words[4], &unix_ms)) {
    return std::nullopt;
  }
  if (record.ordinal == 0 || record.lost >= record.ordinal) return std::nullopt;
  std::string rest = UnescapeLine(text.substr(at));
  // A damaged file may hold anything; what goes into a message must be UTF-8.
  if (CleanText(words[5], words[5].size()) != words[5] || CleanText(rest, rest.size()) != rest) {
    return std::nullopt;
  }
  record.spool = words[2];
  record.line.set_number(number);
  record.line.set_unix_ms(unix_ms);
  record.line.set_level(words[5]);
  record.line.set_text(std::move(rest));
  return record;
}

}  // namespace ringmaster::coordinator
