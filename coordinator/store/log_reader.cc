#include "coordinator/store/log_reader.h"

#include <algorithm>
#include <fstream>
#include <queue>
#include <tuple>
#include <utility>

#include "common/log.h"

namespace ringmaster::coordinator {
namespace {

constexpr uint64_t kReadBytes = 128 << 10;  // several of the longest records
constexpr size_t kAhead = 64;  // records of a worker that are held: many calls read many workers

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
      size_t at = 0;
      while (end != std::string::npos && at <= end && place.ahead.size() < kAhead) {
        const size_t stop = text.find('\n', at);
        auto record = ParseRecord(text.substr(at, stop - at));
        if (record && record->ordinal > place.told) place.ahead.push_back(*std::move(record));
        at = stop + 1;
      }
      place.offset += end == std::string::npos ? text.size() : at;
    }
  }
}

std::vector<v1::LogLine> LogReader::Next(size_t max_lines) {
  // Whose next line is the oldest comes first, and of equal ones the first name.
  struct Source {
    const std::string* worker;
    const LogTrack* track;
    Place* place;
    bool operator<(const Source& other) const {  // a heap's top is its largest
      const int64_t own = place->ahead.front().line.unix_ms(),
                    others = other.place->ahead.front().line.unix_ms();
      return std::tie(own, *worker) > std::tie(others, *other.worker);
    }
  };
  std::vector<v1::LogLine> lines;
  const LogFolder::Tracks* tracks = folder_.Find(job_);
  if (tracks == nullptr) return lines;
  std::priority_queue<Source> sources;
  const auto add = [&sources](const Source& source) {
    if (source.place->ahead.empty()) ReadAhead(*source.track, *source.place);
    if (!source.place->ahead.empty()) sources.push(source);
  };
  for (const auto& [worker, track] : *tracks) {
    if (worker_.empty() || worker == worker_) add({&worker, &track, &places_[worker]});
  }
  while (lines.size() < max_lines && !sources.empty()) {
    const Source first = sources.top();
    sources.pop();
    LogRecord record = std::move(first.place->ahead.front());
    first.place->ahead.pop_front();
    uint64_t& told = first.place->told;
    if (record.line.level() == kEndLevel) {
      ++told;  // what was lost before it is shown with the line behind it
    } else {
      const uint64_t before = std::exchange(told, record.ordinal);
      lines.push_back(LineOf(*first.worker, std::move(record), before));
    }
    add(first);
  }
  return lines;
}

}  // namespace ringmaster::coordinator
