// An error as an RPC shows it. A value; thread-compatible.
#pragma once

#include <string>

#include "common/status.h"

namespace ringmaster::coordinator {

struct Refusal {
  Status status;
  std::string word;  // the stable reason of google.rpc.ErrorInfo
};

}  // namespace ringmaster::coordinator
