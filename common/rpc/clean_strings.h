// Text fields of messages, as peers fill them in. Thread-safe (free functions).
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>

namespace ringmaster {

// Makes every string of a message and of those in it OneLine of at most `max_bytes`; bytes stay as
// they are. Called where messages come in, so that nothing that is shown, logged or stored later
// can be forgotten.
void CleanStrings(google::protobuf::Message* message, size_t max_bytes);

}  // namespace ringmaster
