// A list of SHA-256 as `sha256sum` prints it: `HEX  NAME` or `HEX *NAME` a line. Thread-safe.
#pragma once

#include <map>
#include <string>

#include "common/status.h"

namespace ringmaster::data {

using Sha256List = std::map<std::string, std::string>;  // name -> lower-case hex

// Empty lines are skipped, and so is `./` before a name. INVALID_ARGUMENT names the line.
[[nodiscard]] StatusOr<Sha256List> ParseSha256List(const std::string& text);

}  // namespace ringmaster::data
