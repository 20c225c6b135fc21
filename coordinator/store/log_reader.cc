#include "coordinator/store/log_reader.h"

#include <algorithm>
#include <fstream>
#include <utility>

namespace ringmaster::coordinator {
namespace {

constexpr uint64_t kReadBytes = 128 << 10;  // several of the longest records

std::string ReadFrom(const LogTrack::Segment& segment, uint64_t offset) {
  std::string text(std::min(kReadBytes, segment.bytes - offset), '\0');
  std::ifstream file(segment.path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

v1::LogLine LineOf(const std::string& worker, LogRecord record, uint64_t told) {
  v1::LogLine line;
  line.set_worker(worker);
  line.set_number(record.ordinal);
  line.set_unix_ms(record.line.unix_ms());
  line.set_level(record.line.level());
  *line.mutable_text() = std::move(*record.line.mutable_text());
  line.set_lost(record.ordinal - told - 1);
  return line;
}

}  // namespace

void LogReader::ReadAhead(const LogTrack& track, Place& place) {
  for (const LogTrack::Segment& segment : track.segments()) {
    if (!place.ahead.empty()) return;
    if (segment.first < place.segment) continue;
    // A segment that was dropped meanwhile is passed over; the ordinals say what it held.
    if (segment.first > place.segment) place = {segment.first, 0, place.told, {}};
    while (place.offset < segment.bytes && place.ahead.empty()) {
      const std::string text = ReadFrom(segment, place.offset);
      if (text.empty()) return;  // it cannot be read now
      const size_t end = text.rfind('\n');
      for (size_t at = 0, stop; end != std::string::npos && at <= end; at = stop + 1) {
        stop = text.find('\n', at);
        auto record = ParseRecord(text.substr(at, stop - at));
        if (record && record->ordinal > place.told) place.ahead.push_back(*std::move(record));
      }
      place.offset += end == std::string::npos ? text.size() : end + 1;
    }
  }
}

std::vector<v1::LogLine> LogReader::Next(size_t max_lines) {
  std::vector<v1::LogLine> lines;
  const LogFolder::Tracks* tracks = folder_.Find(job_);
  if (tracks == nullptr) return lines;
  while (lines.size() < max_lines) {
    const std::string* first = nullptr;
    Place* from = nullptr;
    for (const auto& [worker, track] : *tracks) {
      if (!worker_.empty() && worker != worker_) continue;
      Place& place = places_[worker];
      if (place.ahead.empty()) ReadAhead(track, place);
      if (place.ahead.empty()) continue;
      const bool earlier = from == nullptr ||
                           place.ahead.front().line.unix_ms() < from->ahead.front().line.unix_ms();
      if (!earlier) continue;
      first = &worker;
      from = &place;
    }
    if (from == nullptr) break;
    LogRecord record = std::move(from->ahead.front());
    from->ahead.pop_front();
    const uint64_t told = std::exchange(from->told, record.ordinal);
    lines.push_back(LineOf(*first, std::move(record), told));
  }
  return lines;
}

}  // namespace ringmaster::coordinator
