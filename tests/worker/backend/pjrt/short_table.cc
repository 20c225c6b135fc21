// A plugin whose table ends before what it needs to compile.
#include "worker/backend/pjrt/abi.h"

namespace abi = ringmaster::pjrt::abi;

namespace {

abi::Error* NoError(void* /*arguments*/) { return nullptr; }

struct ShortTable {
  abi::Api head;
  abi::Error* (*entries[abi::ClientCompileArgs::kEntry])(void*);
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const abi::Api* GetPjrtApi() {
  static const ShortTable table = [] {
    ShortTable made = {};
    made.head.struct_size = sizeof(made);
    made.head.version.minor = 104;
    for (auto& entry : made.entries) entry = NoError;
    return made;
  }();
  return &table.head;
}
