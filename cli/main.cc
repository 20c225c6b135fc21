#include <grpc/support/log.h>

#include <cstdio>

#include "cli/ringctl.h"
#include "common/log.h"
#include "common/rpc/credentials.h"

int main(int argc, char** argv) {
  // Before anything touches gRPC.
  if (const ringmaster::Status alone = ringmaster::UseTls13(); !alone.ok()) {
    std::fprintf(stderr, "ringctl: %s\n", ringmaster::Message(alone).c_str());
    return 1;
  }
  ringmaster::InitializeLog("ringctl");  // stdout is for data
  // Why a connection failed stands in the error, too, in words.
  gpr_set_log_function([](gpr_log_func_args* line) { spdlog::debug("{}", line->message); });
  return ringmaster::cli::Run(argc, argv);
}
