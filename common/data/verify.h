// Looks through a dataset's folder for everything that is wrong with it, also for what a list of
// SHA-256 says. What `ringctl dataset verify` prints. Thread-safe (free function).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/data/format.h"
#include "common/status.h"

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

struct Verification {
  std::string format;
  std::vector<VerifiedFile> files;    // sorted by name
  std::vector<std::string> problems;  // empty: the dataset is whole, and the one of the list
};

// `format` is found by the files when it is empty. With `list` every file must stand in it with its
// SHA-256, and every name of it must be in the folder. An error only where nothing can be said:
// there is no such folder, or no file of a format in it.
[[nodiscard]] StatusOr<Verification> Verify(const std::string& folder, const std::string& format,
                                            const std::optional<Sha256List>& list);

}  // namespace ringmaster::data
