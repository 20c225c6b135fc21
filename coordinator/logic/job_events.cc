#include "coordinator/logic/job_events.h"

#include <algorithm>
#include <utility>

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxMessageBytes = 2'000;  // a memory plan fits

const char* NameOf(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "";
}

// At most kMaxMessageBytes, cut before a character, never inside one.
std::string Shortened(const std::string& text) {
  if (text.size() <= kMaxMessageBytes) return text;
  size_t end = kMaxMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + " ...";
}

}  // namespace

const JobEvents::List& JobEvents::all() const {
  static const List kNone;
  return events_ ? *events_ : kNone;
}

void JobEvents::Add(const Happening& happening, int64_t unix_ms, size_t most) {
  const List& old = all();
  const size_t kept = std::min(old.size(), most - 1);
  List grown(old.end() - static_cast<std::ptrdiff_t>(kept), old.end());
  v1::Event& event = grown.emplace_back();
  event.set_number(old.empty() ? 1 : old.back().number() + 1);
  event.set_unix_ms(unix_ms);
  event.set_type(happening.type);
  event.set_severity(NameOf(happening.severity));
  event.set_subject(happening.subject);
  event.set_message(Shortened(happening.message));
  events_ = std::make_shared<const List>(std::move(grown));
}

std::vector<std::string> JobEvents::Decisions() const {
  std::vector<std::string> decisions;
  for (const v1::Event& event : all()) {
    const std::string& type = event.type();
    if (type == event_type::kStateChanged || type == event_type::kCancelled ||
        type == event_type::kFinished) {
      decisions.push_back(event.message());
    }
  }
  return decisions;
}

}  // namespace ringmaster::coordinator
