#include "worker/log/spool_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/text.h"

namespace ringmaster::worker {
namespace {

constexpr size_t kNumberDigits = 20;
constexpr size_t kSpoolDigits = 32;
constexpr char kSuffix[] = ".log";

template <typename T>
std::optional<T> ParseNumber(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool IsSpool(const std::string& text) {
  return text.size() == kSpoolDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Takes the text before the next space off the front; nullopt when there is no space.
std::optional<std::string> TakeWord(const std::string& text, size_t* at) {
  const size_t space = text.find(' ', *at);
  if (space == std::string::npos) return std::nullopt;
  std::string word = text.substr(*at, space - *at);
  *at = space + 1;
  return word;
}

}  // namespace

std::string SegmentName::ToString() const {
  return fmt::format("{:020}-{}{}", first, spool, kSuffix);
}

std::optional<SegmentName> ParseSegmentName(const std::string& name) {
  constexpr size_t kLength = kNumberDigits + 1 + kSpoolDigits + sizeof(kSuffix) - 1;
  if (name.size() != kLength || name[kNumberDigits] != '-' || !name.ends_with(kSuffix)) {
    return std::nullopt;
  }
  const auto first = ParseNumber<uint64_t>(name.substr(0, kNumberDigits));
  std::string spool = name.substr(kNumberDigits + 1, kSpoolDigits);
  if (!first || *first == 0 || !IsSpool(spool)) return std::nullopt;
  return SegmentName{*first, std::move(spool)};
}

std::string FormatLine(const v1::SpooledLine& line) {
  return fmt::format("{} {} {} {} {}\n", line.number(), line.unix_ms(), line.level(), line.job_id(),
                     EscapeLine(line.text()));
}

std::optional<v1::SpooledLine> ParseLine(const std::string& text) {
  if (text.find('\n') != std::string::npos) return std::nullopt;  // more than one
  size_t at = 0;
  const auto number = TakeWord(text, &at);
  const auto unix_ms = TakeWord(text, &at);
  const auto level = TakeWord(text, &at);
  const auto job = TakeWord(text, &at);
  if (!job) return std::nullopt;
  const auto number_value = ParseNumber<uint64_t>(*number);
  const auto unix_value = ParseNumber<int64_t>(*unix_ms);
  if (!number_value || *number_value == 0 || !unix_value) return std::nullopt;
  std::string rest = UnescapeLine(text.substr(at));
  // A damaged file may hold anything; what goes into a message must be UTF-8.
  if (CleanText(*level, level->size()) != *level || CleanText(*job, job->size()) != *job ||
      CleanText(rest, rest.size()) != rest) {
    return std::nullopt;
  }
  v1::SpooledLine line;
  line.set_number(*number_value);
  line.set_unix_ms(*unix_value);
  line.set_level(*level);
  line.set_job_id(*job);
  line.set_text(std::move(rest));
  return line;
}

std::string FormatState(const SpoolState& state) {
  return fmt::format("{} {:020} {:020}\n", state.spool, state.acknowledged, state.next);
}

std::optional<SpoolState> ParseState(const std::string& text) {
  constexpr size_t kNext = kSpoolDigits + 1 + kNumberDigits + 1;
  if (text.size() != kNext + kNumberDigits + 1 || text[kSpoolDigits] != ' ' ||
      text[kNext - 1] != ' ' || text.back() != '\n') {
    return std::nullopt;
  }
  const auto acknowledged = ParseNumber<uint64_t>(text.substr(kSpoolDigits + 1, kNumberDigits));
  const auto next = ParseNumber<uint64_t>(text.substr(kNext, kNumberDigits));
  SpoolState state;
  state.spool = text.substr(0, kSpoolDigits);
  if (!IsSpool(state.spool) || !acknowledged || !next) return std::nullopt;
  state.acknowledged = *acknowledged;
  state.next = *next;
  return state;
}

}  // namespace ringmaster::worker
