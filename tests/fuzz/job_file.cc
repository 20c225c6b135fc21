// A job file, as `ringctl submit` reads it.
#include "common/job/job_file.h"

#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto spec = job::ParseJobFile("job.yaml", text, {});
  if (!spec.ok()) return 0;
  // What was read can be printed, and read again.
  RING_CHECK(job::ParseJobFile("job.yaml", job::PrintJobFile(*spec), {}).ok(), "a second time");
  return 0;
}
