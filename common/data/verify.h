// Looks through a dataset's folder for everything that is wrong with it, also for what a list of
// SHA-256 says. What `ringctl dataset verify` prints. Thread-safe (free function).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/data/format.h"
#include "common/data/quarantine.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::data {

// A list of SHA-256 as `sha256sum` prints it, `HEX  NAME` or `HEX *NAME` a line: name -> lower-case
// hex.
using Sha256List = std::map<std::string, std::string>;

// Empty lines are skipped, and so is `./` before a name. INVALID_ARGUMENT names the line.
[[nodiscard]] StatusOr<Sha256List> ParseSha256List(const std::string& text);

struct VerifiedFile {
  std::string name;
  std::optional<uint64_t> bytes;  // what could not be found out is empty
  std::optional<uint64_t> samples;
  std::optional<std::string> sha256;
};

// What is done beyond the headers of images.
enum class Depth : uint8_t {
  kHeaders,
  kDecode,      // each image, too; one that cannot be decoded is a problem
  kQuarantine,  // one that cannot be is no problem but listed; a list that is there counts nothing
};

struct Verification {
  std::string format;
  Quarantine undecodable;             // with kQuarantine
  std::vector<VerifiedFile> files;    // sorted by name
  std::vector<std::string> problems;  // empty: the dataset is whole, and the one of the list
};

// `source` is what a job would say of the data, without a path; a format that it does not say is
// found by the files. With `list` every file must stand in it with its
// SHA-256, and every name of it must be in the folder. An error only where nothing can be said:
// there is no such folder, or no file of a format in it.
[[nodiscard]] StatusOr<Verification> Verify(const std::string& folder, const v1::DataSource& source,
                                            const std::optional<Sha256List>& list,
                                            Depth depth = Depth::kHeaders);

}  // namespace ringmaster::data
