// The command line of ringmaster as a value. Thread-safe (free functions).
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "common/net/address.h"
#include "common/rpc/acceptor.h"
#include "coordinator/logic/options.h"

namespace ringmaster::coordinator {

struct Flags {
  Address listen;
  std::string advertise;  // host that tokens name; empty: that of `listen`
  std::string data_dir;
  std::string data_root;     // empty: it serves no datasets
  std::string socket;        // a Unix socket beside the one in data_dir; empty: none
  std::string socket_group;  // of `socket`: whose members may connect, too; empty: none
  uint64_t checkpoint_quota = std::numeric_limits<uint64_t>::max();  // bytes of all checkpoints
  std::chrono::milliseconds certificate_life{std::chrono::hours(7 * 24)};
  std::chrono::milliseconds authority_overlap{2 * certificate_life};  // of an old and a new one
  // Of LogStream::Hands. No flags.
  std::chrono::milliseconds follow_quiet{1'000}, follow_longest{30'000};
  bool debuggable = false;  // else nobody but root looks into the process
  Options options;
  AcceptorOptions connections;
};

struct ParsedFlags {
  Flags flags;
  bool exit = false;  // --help was printed, or the usage is wrong: end with `exit_code`
  int exit_code = 0;
};

// Prints --help to stdout, and what is wrong to stderr (exit code 2).
[[nodiscard]] ParsedFlags ParseFlags(int argc, char** argv);

}  // namespace ringmaster::coordinator
