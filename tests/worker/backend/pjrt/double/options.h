// What the plugin double is told by the environment variable PJRT_DOUBLE: key=value, with commas
// between them. Read once for the process; a key or value that is not known makes
// PJRT_Plugin_Initialize fail. Immutable; thread-safe.
//
// The machine:
//   devices=N                 devices of the host; 1
//   memory=BYTES              of each device, with KiB, MiB or GiB behind it; 1GiB. It counts
//                             buffers, the text of programs, and outputs and temporaries of a run
//   tiles=on                  memory figures padded to tiles of 8 x 128, as on a TPU
//   ids=shuffled              ids of devices are not their places
//   layout=column             arrays lie column-major on the device: so they come back where no
//                             host layout is asked for
//   platform=TEXT             PlatformName; double
//   kind=TEXT                 of every device; double
//   stats=none                memory statistics of devices and programs are UNIMPLEMENTED
// The interface:
//   minor=N                   of the version; 104
//   version=TEXT              PlatformVersion
//   stablehlo=N               minor of the StableHLO version that it says it understands; 20
//   table=short               ends behind entry 96
//   strict=on|off             INVALID_ARGUMENT for structs that are smaller than its own; on
//   structs=grown             its own are 32 bytes longer than those of 0.104
//   serialize=missing|none|error        no such entry; UNIMPLEMENTED; INTERNAL
//   load=missing|none|error|elsewhere   likewise of programs that were serialized; the last loads
//                             them where they were compiled for, whatever it is told, as all did
//                             before minor 71
// Trouble:
//   client=busy               ABORTED when the client is made, as where another process has it
//   compile=error|abort|hang|oom
//   compile_gate=PATH         while there is such a FIFO, a compilation waits until it is opened to
//                             write
//   execute=error|abort|hang|oom|segv
//   execute_at=K              only the K-th execution of the process, from 1 on
//   abort_one_in=N,seed=S     every process aborts in one of its first 2N - 1 executions, as seed
//                             and process id say: one in N on average
//   results=wrong             the first result has one more row than the text says
//   once_file=PATH            trouble of compile and execute only while there is no such file,
//                             which it makes first: whoever is started again goes on
// What it did:
//   log_file=PATH             gets a line for whatever is begun with a program: "compile ID" and
//                             "load ID", with the device's id, "serialize" and "free" of its bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/status.h"

namespace ringmaster::pjrt::plugin_double {

enum class Trouble : uint8_t { kNone, kError, kAbort, kHang, kOutOfMemory, kSegmentation };

// What an entry does that a plugin may lack.
enum class Ability : uint8_t { kThere, kMissing, kUnimplemented, kError, kElsewhere };

struct Options {
  size_t devices = 1;
  size_t memory = size_t{1} << 30;
  bool tiles = false;
  bool shuffled_ids = false;
  bool column_layout = false;
  bool no_stats = false;
  bool short_table = false;
  bool strict = true;
  bool grown_structs = false;
  bool busy = false;
  bool wrong_results = false;
  std::string platform = "double";
  std::string kind = "double";
  std::string version = "plugin double on StableHLO text";
  int32_t minor = 104;
  int64_t stablehlo_minor = 20;
  Trouble compile = Trouble::kNone;
  Trouble execute = Trouble::kNone;
  uint64_t execute_at = 0;  // 0: each
  uint64_t abort_one_in = 0;
  uint64_t seed = 0;
  std::string once_file;
  Ability serialize = Ability::kThere;
  Ability load = Ability::kThere;
  std::string compile_gate;
  std::string log_file;
};

[[nodiscard]] StatusOr<Options> ParseOptions(const std::string& text);

// Of this process; defaults where the variable is missing or wrong.
[[nodiscard]] const Options& ProcessOptions();
[[nodiscard]] Status ProcessOptionsStatus();

// Trouble that is due now: of this compilation, of the n-th execution of the process, from 1 on.
// What ends or stops the process, or lets it wait, does so in here; an error is returned.
[[nodiscard]] Status CompileTrouble();
[[nodiscard]] Status ExecuteTrouble(uint64_t execution);

// The error of an entry that does not work.
[[nodiscard]] Status AbilityTrouble(Ability ability, const char* what);

// A line more in log_file.
void Log(const std::string& line);

// In the words of XLA for a TPU.
[[nodiscard]] Status OutOfMemory(const std::string& what, size_t needed, size_t limit);

}  // namespace ringmaster::pjrt::plugin_double
