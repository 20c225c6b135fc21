// Lines of the coordinator's log folder and of a worker's spool, after any crash.
#include "coordinator/store/log_record.h"

#include "common/check.h"
#include "worker/log/spool_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto record = coordinator::ParseRecord(text)) {
    const std::string line = coordinator::FormatRecord(*record);
    const auto again = coordinator::ParseRecord(line.substr(0, line.size() - 1));
    RING_CHECK(line.find('\n') == line.size() - 1, "one line");
    RING_CHECK(again && again->ordinal == record->ordinal, "a second time");
  }
  if (const auto line = worker::ParseLine(text)) {
    RING_CHECK(worker::FormatLine(*line).find('\n') + 1 == worker::FormatLine(*line).size(),
               "one line");
  }
  if (const auto name = worker::ParseSegmentName(text)) {
    RING_CHECK(name->ToString() == text, "two names, one segment");
  }
  (void)worker::ParseState(text);
  return 0;
}
